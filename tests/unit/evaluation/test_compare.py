"""`ecoc.compare`: who is paired with whom, how they differ, and what it refuses, as `ecoc.evaluate` does."""

import json
from pathlib import Path
from typing import Any

import pytest
from evaluate_case import by_name, fresh_copies, judged_runs, prepared, random_rows, trained

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.metrics import NAMES
from ecoc.evaluation.results import RankedPolicy

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judged_runs(tmp_path_factory.getbasetemp())


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    return fresh_copies(made, tmp_path)


@pytest.fixture
def data(made: Path) -> Dataset:
    return ecoc.open_data(made / "data")


def test_differences_are_antisymmetric(runs: Path) -> None:
    there = ecoc.compare([runs / "sasrec", runs / "markov"], untrained=False, metrics=NAMES)
    back = ecoc.compare([runs / "markov", runs / "sasrec"], untrained=False, metrics=NAMES)
    assert by_name(there) == by_name(back)
    assert len(there.pairs) == len(back.pairs) == len(NAMES)
    means = by_name(there)
    for one, other in zip(there.pairs, back.pairs, strict=True):
        assert (one.a, one.b, one.metric) == (other.b, other.a, other.metric)
        assert one.difference == pytest.approx(-other.difference, abs=1e-12)
        assert one.difference == pytest.approx(means[one.a][one.metric] - means[one.b][one.metric])
        assert one.low == pytest.approx(-other.high, abs=1e-12)
        assert one.high == pytest.approx(-other.low, abs=1e-12)
        assert (one.p, one.p_holm) == pytest.approx((other.p, other.p_holm))


def test_a_run_against_itself_differs_in_nothing_and_names_are_numbered(runs: Path) -> None:
    found = ecoc.compare([runs / "markov", runs / "markov", runs / "markov"], metrics=NAMES)
    names = [run.name for run in found.runs]
    assert names == ["markov", "markov (2)", "markov (3)", "popular", "recent", "markov (4)"]
    same = [pair for pair in found.pairs if pair.b.startswith("markov")]
    assert len(same) == (3 + 3) * len(NAMES)  # among the three, and each with the untrained one
    for pair in same:
        assert pair.difference == pair.low == pair.high == 0
        assert pair.p == pair.p_holm == 1


def test_a_run_may_bear_the_name_of_an_untrained_method(runs: Path) -> None:
    (runs / "sasrec").rename(runs / "recent")
    found = ecoc.compare([runs / "recent", runs / "popular"])
    assert [run.name for run in found.runs] == ["recent", "popular", "popular (2)", "recent (2)", "markov"]
    assert by_name(found)["popular"] == by_name(found)["popular (2)"]
    assert by_name(found)["recent"] != by_name(found)["recent (2)"]


def test_one_run_is_paired_with_the_untrained_only(runs: Path) -> None:
    found = ecoc.compare([runs / "sasrec"], metrics=["hr@5", "ndcg@20"])
    assert [(pair.a, pair.b, pair.metric) for pair in found.pairs] == [
        ("sasrec", name, metric) for name in ("popular", "recent", "markov") for metric in ("hr@5", "ndcg@20")
    ]
    alone = ecoc.compare([runs / "sasrec"], untrained=False)
    assert alone.pairs == []
    assert alone.runs[0] == found.runs[0]


def test_two_runs_are_paired_once_and_each_with_the_untrained(runs: Path) -> None:
    found = ecoc.compare([runs / "sasrec", runs / "other"])
    couples = {(pair.a, pair.b) for pair in found.pairs}
    untrained = ("popular", "recent", "markov")
    assert couples == {("sasrec", "other")} | {(run, name) for run in ("sasrec", "other") for name in untrained}
    assert len(found.pairs) == 3 * len(couples)
    for pair in found.pairs:
        assert pair.low <= pair.difference <= pair.high
        assert 0 < pair.p <= pair.p_holm <= 1
    json.dumps(found.model_dump(), allow_nan=False)


def test_compare_and_evaluate_agree(runs: Path) -> None:
    found = ecoc.compare([runs / "sasrec"])
    expected = ecoc.evaluate(runs / "sasrec")
    for one, other in zip(found.runs, expected.policies(), strict=True):
        assert one.model_dump() == other.model_dump(include=set(RankedPolicy.model_fields))
    assert (found.cases, found.users, found.data) == (expected.cases, expected.users, expected.data)


def test_untrained_rows_do_not_depend_on_the_order_of_runs(runs: Path, data: Dataset) -> None:
    settings = {"encoder": {"length": 2}, "train": {"threads": 1}}
    ecoc.train(data, runs / "short", method="markov", config=settings)
    there = by_name(ecoc.compare([runs / "markov", runs / "short"]))
    back = by_name(ecoc.compare([runs / "short", runs / "markov"]))
    assert there == back


def test_runs_on_other_data_are_not_compared(runs: Path, made: Path) -> None:
    for pair in (("sasrec", "foreign"), ("foreign", "sasrec")):
        with pytest.raises(InputError, match="trained on other data"):
            ecoc.compare([runs / name for name in pair])
    with pytest.raises(InputError, match="trained on other data"):
        ecoc.evaluate(runs / "sasrec", made / "foreign_data")
    with pytest.raises(InputError, match="trained on other data"):
        ecoc.compare([runs / "sasrec"], ecoc.open_data(made / "foreign_data"))


def test_runs_with_other_min_history_are_not_compared(runs: Path) -> None:
    for pair in (("sasrec", "later"), ("later", "sasrec"), ("sasrec", "other", "later")):
        with pytest.raises(InputError, match="min_history"):
            ecoc.compare([runs / name for name in pair])


@pytest.mark.parametrize("last", ["later", "foreign"])
def test_what_cannot_be_compared_is_refused_before_any_work(runs: Path, last: str) -> None:
    with pytest.raises(InputError):
        ecoc.compare([runs / "sasrec", runs / last], untrained=False)
    assert not (runs / "sasrec/evaluations").exists()


@pytest.mark.parametrize(
    "name", ["ndcg@0", "ndcg@07", "ndcg@-5", "ndcg@9999999", "ndcg@²", "NDCG@10", "hr", "", "@10", "hr@10 "]
)
def test_an_unknown_metric_is_refused_before_runs_are_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"unknown metric .*(hr|ndcg)@10"):
        ecoc.compare([tmp_path / "nowhere"], metrics=["hr@10", name])


def test_a_moved_dataset_is_asked_for(tmp_path: Path) -> None:
    data = prepared(tmp_path / "data", random_rows(10, 12, 100, seed=3))
    run = trained(data, tmp_path / "run", "markov")
    expected = ecoc.evaluate(run)
    moved = (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(InputError, match=r"no longer at .*--data"):
        ecoc.evaluate(run)
    with pytest.raises(InputError, match=r"no longer at .*--data"):
        ecoc.compare([run, run])
    found = ecoc.evaluate(run, moved)
    assert found.data == str(moved)
    assert found.metrics == expected.metrics
    assert ecoc.compare([run, run], moved).cases == expected.cases


def test_a_split_without_cases_is_an_input_error(tmp_path: Path) -> None:
    data = prepared(tmp_path / "data", random_rows(10, 12, 100, seed=3), validation=0.0)
    run = trained(data, tmp_path / "run", "markov")
    with pytest.raises(InputError, match="validation split has no case"):
        ecoc.evaluate(run, split="validation")
    with pytest.raises(InputError, match="validation split has no case"):
        ecoc.compare([run], split="validation")
    assert not (run / "evaluations").exists()


@pytest.mark.parametrize(
    "choice",
    [
        {"split": "train"},
        {"split": "tset"},
        {"split": None},
        {"max_cases": -1},
        {"max_cases": -5},
        {"max_cases": 5, "seed": -1},
    ],
    ids=str,
)
def test_wrong_choices_are_input_errors_in_python_too(runs: Path, choice: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ecoc.evaluate(runs / "markov", untrained=False, **choice)
    with pytest.raises(InputError):
        ecoc.compare([runs / "markov"], untrained=False, **choice)
    assert not (runs / "markov/evaluations").exists()


def test_nothing_to_compare_is_an_input_error() -> None:
    with pytest.raises(InputError):
        ecoc.compare([])
