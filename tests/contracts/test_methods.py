"""Contracts of every method in the registry, with every encoder, on a toy that is learned in a moment."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import (
    ITEMS,
    PAIRS,
    SLOW,
    TRAINED,
    UNTRAINED,
    prepare,
    steps_of,
    train,
    write_walks,
)

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.evaluator import Options, RankingEvaluator
from ecoc.methods import METHODS
from ecoc.model import Event, Model, load
from ecoc.profiling import Stopwatch
from ecoc.runs.folder import Run
from ecoc.storage.checkpoint import load_checkpoint
from ecoc.training.loop import step_seed

CLEAR = 1.1  # how many times popularity's NDCG is clearly above it
PARTS = {
    "supervised": {"bc"},
    "ecoc": {"bc", "td", "reg"},
    "sqn": {"bc", "td"},
    "sa2c": {"bc", "td"},
    "sdac_sr": {"bc", "td", "pi"},
    "sdac_dc": {"td", "behaviour"},  # and bc or pi, by phase
    "prl": {"bc"},
    "neural_lcb": {"fit", "negative", "decay"},
}
SEEN = {
    "ecoc": {"q/logged", "q/explored", "q/policy", "td_error", "mu_norm", "cosine", "support", "lag", "distinct"},
    "sqn": {"q/logged", "q/policy", "td_error"},
    "sa2c": {"q/logged", "q/policy", "td_error"},
    "sdac_sr": {"q/logged", "q/policy", "td_error", "support"},
    "sdac_dc": {"td_error"},
    "neural_lcb": {"f/logged"},
}
HISTORIES: list[list[Event]] = [
    ["i1", "i2", "i3"],
    ["i7"],
    [("i3", "buy"), "i4"],
    [f"i{i % ITEMS}" for i in range(40)],
    ["i5", "i5"],
    [],
]

Trained = Callable[[str, str], Run]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("methods")


@pytest.fixture(scope="module")
def data(folder: Path) -> Dataset:
    log = write_walks(folder / "log.csv")
    return prepare(log, folder / "data", reward="click=1,buy=3", split="per-user:0.8", validation=0.2)


@pytest.fixture(scope="module")
def fifty(folder: Path, data: Dataset) -> Trained:
    """A run of 50 steps, trained when it is first asked for."""
    return cache(lambda method, encoder: train(data, folder / f"{method}-{encoder}", method, encoder))


@pytest.fixture(scope="module")
def popular(data: Dataset) -> dict[str, float]:
    """NDCG@10 of popularity, by split."""
    found = {split: RankingEvaluator(data, Options(split)).untrained(12) for split in ("validation", "test")}
    return {
        split: next(one.means()["ndcg@10"] for one in judged if one.name == "popular")
        for split, judged in found.items()
    }


@pytest.fixture(params=TRAINED)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=list(product(TRAINED, ("sasrec", "dhcn"))), ids="-".join)
def run(request: pytest.FixtureRequest, fifty: Trained) -> Run:
    """Of every method, with an encoder that leaves item vectors alone and one that transforms them."""
    method, encoder = request.param
    return fifty(method, "sasrec" if method == "neural_lcb" else encoder)


def validated(run: Run) -> dict[str, float]:
    assert run.result.validation is not None
    return run.result.validation


def judged(run: Run, data: Dataset) -> dict[str, float]:
    result = ecoc.evaluate(run.path, data, untrained=False)
    return {"validation": validated(run)["ndcg@10"], "test": result.metrics["ndcg@10"]}


@pytest.mark.parametrize(("method", "encoder"), PAIRS)
def test_fifty_steps_end_without_error(fifty: Trained, method: str, encoder: str) -> None:
    run = fifty(method, encoder)
    result = run.result
    assert result.steps == 50
    assert (result.method, result.encoder) == (method, encoder if METHODS[method].has_encoder else None)
    assert result.transitions > 0
    assert all(math.isfinite(value) for value in validated(run).values())
    assert len(list(steps_of(run))) == 2


@pytest.mark.parametrize(("method", "encoder"), PAIRS)
def test_it_learns_more_than_popularity(
    fifty: Trained, folder: Path, data: Dataset, popular: dict[str, float], method: str, encoder: str
) -> None:
    more = SLOW.get((method, encoder))
    longer = folder / f"{method}-{encoder}-longer"
    run = fifty(method, encoder) if more is None else train(data, longer, method, encoder, **more)
    found = judged(run, data)
    print(f"{method} {encoder}: {found}, popular {popular}")
    assert all(found[split] > CLEAR * popular[split] for split in popular), (found, popular)


@pytest.mark.parametrize("name", UNTRAINED)
def test_methods_without_training_need_no_encoder(folder: Path, data: Dataset, name: str) -> None:
    runs = [train(data, folder / f"{name}-{encoder}", name, encoder) for encoder in ("sasrec", "gru4rec")]
    results = [run.result for run in runs]
    assert [result.steps for result in results] == [0, 0]
    assert [result.encoder for result in results] == [None, None]
    assert results[0].weights_sha256 == results[1].weights_sha256
    assert len(load(runs[0].path).recommend([["i1"]]).items[0]) == 10


def test_metrics_hold_every_part_and_diagnostic_as_finite_numbers(run: Run) -> None:
    method = run.result.method
    for line in steps_of(run):
        parts = {name.removeprefix("loss/") for name in line if name.startswith("loss/")}
        assert parts >= PARTS[method]
        assert set(line) >= SEEN.get(method, set()) | {"norm", "lr", "transitions", "seconds", "epoch"}
        numbers = {name: value for name, value in line.items() if name != "time"}
        assert all(type(value) in (int, float) and math.isfinite(value) for value in numbers.values()), numbers
        assert line["norm"] > 0
        assert line["seconds"] >= 0
    first, last = steps_of(run)
    assert last["loss"] < first["loss"]


def test_times_are_shares_of_all_parts_of_a_step(run: Run) -> None:
    for line in steps_of(run):
        times = line["time"]
        assert set(times) >= {"batch", "encode", "loss", "backward", "optimise"}
        assert all(share >= 0 for share in times.values())
        assert sum(times.values()) == pytest.approx(1, abs=0.002)


def test_diagnostics_of_ecoc_mean_what_they_say(fifty: Trained) -> None:
    for line in steps_of(fifty("ecoc", "sasrec")):
        assert -1 <= line["cosine"] <= 1
        assert 1 <= line["support"] <= ITEMS
        assert line["lag"] > 0
        assert 1 <= line["distinct"] <= min(ITEMS, line["states"])
        assert line["mu_norm"] > 0
        assert line["td_error"] >= 0


def test_nothing_is_timed_twice(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the stopwatch says: parts do not nest."""
    inside: list[str] = []
    nested: set[tuple[str, ...]] = set()

    @contextmanager
    def timed(self: Stopwatch, part: str) -> Iterator[None]:
        inside.append(part)
        if len(inside) > 1:
            nested.add(tuple(inside))
        started = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - started
        inside.pop()

    monkeypatch.setattr(Stopwatch, "__call__", timed)
    for method in TRAINED:
        train(data, tmp_path / method, method, train={"max_steps": 4, "validate_every": 2, "log_every": 1})
    assert nested == set()


def test_a_part_that_begins_or_ends_within_a_line_is_the_mean_of_its_steps(data: Dataset, tmp_path: Path) -> None:
    plan = {"max_steps": 20, "patience": 0}
    each = train(data, tmp_path / "each", "sdac_dc", train={**plan, "log_every": 1})
    together = train(data, tmp_path / "together", "sdac_dc", train={**plan, "log_every": 20})
    (line,) = steps_of(together)
    for part in ("bc", "pi", "td", "behaviour"):
        values = [one[f"loss/{part}"] for one in steps_of(each) if f"loss/{part}" in one]
        assert line[f"loss/{part}"] == pytest.approx(np.mean(values), rel=1e-6), part


def test_seed_and_step_decide_what_a_step_draws() -> None:
    assert len({step_seed(seed, step) for seed in range(4) for step in range(-1, 4)}) == 20
    assert step_seed(3, 7) == step_seed(3, 7)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "ecoc"])
def test_only_a_policy_with_a_critic_has_a_choice_of_acting(
    fifty: Trained, folder: Path, data: Dataset, name: str
) -> None:
    path = folder / f"{name}-sasrec"
    model = load(path if path.exists() else train(data, path, name).path)
    for choice in ({"mode": "blend"}, {"mode": "rerank"}, {"w": 1.0}, {"m": 5}):
        with pytest.raises(InputError, match="critic"):
            model.ranked_by(**choice)
    with pytest.raises(InputError, match="critic"):
        ecoc.evaluate(model, data, rank_by="blend")
    assert model.ranked_by("policy").recommend(HISTORIES).items == model.recommend(HISTORIES).items


@pytest.fixture(scope="module")
def control(fifty: Trained) -> Model:
    return load(fifty("ecoc", "sasrec").path)


def test_ecoc_acts_by_policy_blend_and_rerank(control: Model) -> None:
    ways: list[dict[str, Any]] = [
        {"mode": "policy"},
        {"mode": "blend", "w": 30.0},
        {"mode": "rerank", "m": 20},
    ]
    lists = [control.ranked_by(**way).recommend(HISTORIES).items for way in ways]
    assert all(a != b for a, b in zip(lists, [*lists[1:], lists[0]], strict=True)), "each in its own way"
    best = [set(items) for items in control.ranked_by("policy").recommend(HISTORIES, k=5).items]
    assert [set(items) for items in control.ranked_by("rerank", m=5).recommend(HISTORIES, k=5).items] == best
    with pytest.raises(InputError, match="control head"):
        control.ranked_by("control")
    with pytest.raises(InputError, match="mode: unknown value 'value'; there is: policy, blend"):
        control.ranked_by("value")  # type: ignore[arg-type]


def kept(run: Path, before: set[str]) -> set[str]:
    """Evaluations that are new in a run folder."""
    return {path.stem for path in (run / "evaluations").glob("*.json")} - before


def test_evaluations_by_blend_and_by_policy_are_kept_apart(
    control: Model, data: Dataset, tmp_path: Path, fifty: Trained
) -> None:
    run, names = control.run.path, set[str]()
    for path in (run / "evaluations").glob("*"):
        path.unlink()
    ranks = {}
    for way in (
        {"rank_by": "policy"},
        {"rank_by": "blend", "w": 3.0},
        {"rank_by": "blend", "w": 4.0},
        {"rank_by": "rerank"},
    ):
        result = ecoc.evaluate(control, data, untrained=False, **way)
        new = kept(run, names)
        assert len(new) == 1, (way, new)
        names |= new
        ranks[result.ranking_mode] = load_checkpoint(run / "evaluations", new.pop()).tensors["rank"]
    assert set(ranks) == {"policy", "blend-w3", "blend-w4", "rerank-m20"}
    assert not torch.equal(ranks["policy"], ranks["blend-w3"])


def test_a_blend_without_weight_is_the_policy(control: Model, data: Dataset) -> None:
    bench = RankingEvaluator(data, Options("test"))
    policy = bench.evaluate("policy", control.ranked_by("policy").policy).ranks
    assert np.array_equal(bench.evaluate("w 0", control.ranked_by("blend", w=0.0).policy).ranks, policy)
    assert not np.array_equal(bench.evaluate("w 30", control.ranked_by("blend", w=30.0).policy).ranks, policy)
    assert (
        control.ranked_by("blend", w=0.0).recommend(HISTORIES).items
        == control.ranked_by("policy").recommend(HISTORIES).items
    )
