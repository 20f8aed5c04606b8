"""Metrics by name: any k for the built-in ones, classes of one's own, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluate_case import fresh_copies, judged_runs, kept
from numpy.typing import NDArray

import ecoc
from ecoc.errors import InputError
from ecoc.evaluation.metrics import NAMES, Metric, metrics, open_metric
from ecoc.metrics import METRICS

Floats = NDArray[np.float64]
RANKS = np.array([1.0, 2.0, 5.5, 7.0, np.inf])
pytestmark = pytest.mark.usefixtures("one_thread")


class FirstPage:
    name = "first_page"

    def __call__(self, ranks: Floats, /) -> Floats:
        return (ranks <= 3).astype(float)


class Within:
    def __init__(self, k: int) -> None:
        self.k, self.name = k, f"within@{k}"

    def __call__(self, ranks: Floats, /) -> Floats:
        return np.where(ranks <= self.k, 2.0, 0.0)


class Returns:
    """Whatever a test gives it."""

    name = "returns"
    value: Any = None

    def __call__(self, ranks: Floats, /) -> Any:
        return self.value


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(METRICS, "_table", dict(METRICS._table))
    for name, kind in {"first_page": FirstPage, "within": Within, "returns": Returns}.items():
        METRICS.register(name, kind)
    yield


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    return fresh_copies(judged_runs(tmp_path_factory.getbasetemp()), tmp_path) / "sasrec"


def test_built_in_metrics_take_any_k() -> None:
    assert metrics(RANKS, ["hr@7"])["hr@7"].tolist() == [1, 1, 1, 1, 0]
    assert metrics(RANKS, ["mrr@6"])["mrr@6"].tolist() == [1, 0.5, 1 / 5.5, 0, 0]
    assert metrics(RANKS, ["ndcg@1"])["ndcg@1"].tolist() == [1, 0, 0, 0, 0]


def test_metrics_of_one_s_own_are_found_by_name() -> None:
    metric: Metric = open_metric("first_page")
    assert metric(RANKS).tolist() == [1, 1, 0, 0, 0]
    assert open_metric("within@6").name == "within@6"


@pytest.mark.parametrize("name", ["first_page@3", "within", "within@x", "firstpage", None, 3])
def test_a_name_in_the_wrong_form_is_refused(name: Any) -> None:
    with pytest.raises(InputError, match="unknown metric"):
        open_metric(name)


def test_evaluate_and_compare_use_them(run: Path) -> None:
    result = ecoc.evaluate(run, metrics=["ndcg@10", "first_page", "within@6"])
    ranks = kept(run)["rank"].numpy()
    assert list(result.metrics) == list(result.intervals) == ["ndcg@10", "first_page", "within@6"]
    assert result.metrics["first_page"] == pytest.approx(np.mean(ranks <= 3))
    low, high = result.intervals["within@6"]
    assert low <= result.metrics["within@6"] <= high
    assert result.metrics["within@6"] == pytest.approx(2 * np.mean(ranks <= 6))
    assert set(result.untrained[0].metrics) == set(result.metrics)
    assert result.metrics["ndcg@10"] == ecoc.evaluate(run, untrained=False).metrics["ndcg@10"]
    compared = ecoc.compare([run], metrics=["first_page"])
    assert {pair.metric for pair in compared.pairs} == {"first_page"}
    assert set(compared.runs[0].metrics) == {*NAMES, "first_page"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(4), r"metric 'returns' returned float64 of shape \(4,\); expected one number per case, \(5,\)"),
        (np.zeros((5, 1)), r"shape \(5, 1\)"),
        (0.5, r"shape \(\)"),
        (None, "object"),
        (["a"] * 5, "expected one number per case"),
        (np.array([1, 2, np.nan, 4, np.inf]), "returned nan for case 2; expected finite numbers"),
    ],
    ids=str,
)
def test_values_of_a_wrong_shape_or_not_finite_are_refused(
    monkeypatch: pytest.MonkeyPatch, value: Any, message: str
) -> None:
    monkeypatch.setattr(Returns, "value", value)
    with pytest.raises(InputError, match=message):
        metrics(RANKS, ["returns"])


@pytest.mark.parametrize("names", [[], "ndcg@10", ["ndcg@10", "nonsense"]])
def test_wrong_lists_of_metrics_are_refused_before_runs_are_read(tmp_path: Path, names: Any) -> None:
    with pytest.raises(InputError, match="metric"):
        ecoc.evaluate(tmp_path / "nowhere", metrics=names)
    with pytest.raises(InputError, match="metric"):
        ecoc.compare([tmp_path / "nowhere"], metrics=names)


def test_the_old_keyword_of_compare_warns(run: Path) -> None:
    with pytest.warns(DeprecationWarning, match="metrics="):
        old = ecoc.compare([run], names=["hr@5"], max_cases=30)
    assert old == ecoc.compare([run], metrics=["hr@5"], max_cases=30)
