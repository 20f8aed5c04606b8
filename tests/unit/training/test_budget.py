"""`train(budget=...)`: the plan it makes, that it is kept in the settings, and that training ends in time."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from training_case import small_data

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.durations import parse_budget
from ecoc.errors import InputError
from ecoc.runs.config import RunConfig
from ecoc.training import budget as budgets
from ecoc.training.cost import Timed

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = {"encoder": {"dim": 8}, "train": {"log_every": 10}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, write_log: Callable[..., Path]) -> Dataset:
    return small_data(tmp_path_factory.mktemp("budget"), write_log)


def test_training_ends_within_the_budget(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "_MOST_PASSES", 10**6)
    began = time.process_time()
    run = ecoc.train(data, tmp_path / "run", budget="3s", config={**SMALL, "train": {"patience": 0}})
    spent = time.process_time() - began
    planned = run.config().train.max_steps
    assert planned is not None
    assert 0.5 * 3 < spent < 1.1 * 3
    assert run.result.steps <= planned
    assert f"train.max_steps = {planned}: " in (run.path / "log.txt").read_text()


def test_the_plan_leaves_time_for_validations_and_a_reserve(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "timed", lambda steps: Timed(cpu=0.5, wall=9.0, targets=1.0))
    monkeypatch.setattr(budgets.Budget, "_validation_cost", lambda *arguments: (1.0, 0.0))
    monkeypatch.setattr(budgets.Budget, "_spent", lambda self: 10.0)
    monkeypatch.setattr(budgets, "_MOST_PASSES", 10**6)
    run = ecoc.train(data, tmp_path / "run", budget=100, config={**SMALL, "train": {"seed": 1}})
    train = run.config().train
    # 90 s are planned, 10 s have passed; 15 % of 80 s are 12 validations, and 68 s are 136 steps
    assert (train.max_steps, train.validate_every) == (136, 12)


def test_a_budget_too_long_for_the_data_is_not_used_up(data: Dataset, tmp_path: Path) -> None:
    run = ecoc.train(data, tmp_path / "run", budget="10h", config={**SMALL, "train": {"patience": 1}})
    epoch = run.result.steps / run.result.epochs  # steps
    assert run.config().train.max_steps == pytest.approx(100 * epoch)


def test_a_training_that_is_slower_than_planned_is_stopped(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "timed", lambda steps: Timed(cpu=1e-6, wall=1e-6, targets=1.0))
    monkeypatch.setattr(budgets, "_MOST_PASSES", 10**6)
    began = time.process_time()
    run = ecoc.train(data, tmp_path / "run", budget=1, config={**SMALL, "train": {"patience": 0}})
    assert time.process_time() - began < 1.5
    assert run.result.steps < (run.config().train.max_steps or 0)
    assert run.result.validation is not None  # the last weights were validated


def test_a_resumed_run_keeps_its_plan(data: Dataset, tmp_path: Path) -> None:
    class Stop(ecoc.Callback):
        def on_step(self, run: ecoc.Run, result: ecoc.StepResult) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ecoc.train(data, tmp_path / "run", budget="2s", config=SMALL, callbacks=[Stop()])
    planned = ecoc.Run(tmp_path / "run").config()
    run = ecoc.train(data, tmp_path / "run", resume=True)
    assert run.config() == planned


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": "soon"}, "expected e.g. 90s, 30m"),
        ({"budget": 0}, "expected e.g. 90s, 30m"),
        ({"budget": True}, "expected e.g. 90s, 30m"),
        ({"budget": float("nan")}, "expected e.g. 90s, 30m"),
        ({"budget": "9m", "config": {"train": {"max_steps": 5}}}, "train.max_steps cannot be given too"),
        ({"budget": 1e-9}, "is too short"),
    ],
)
def test_a_wrong_budget_is_refused_before_anything_is_written(
    data: Dataset, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        ecoc.train(data, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_complete_config_gets_a_plan_and_nothing_else(data: Dataset, tmp_path: Path) -> None:
    config = RunConfig.build({"encoder": {"dim": 8, "length": 50}, "train": {"windows": "random"}})
    chosen = ecoc.train(data, tmp_path / "run", budget="1s", config=config).config().values()
    for key in ("max_steps", "validate_every"):
        assert chosen["train"].pop(key) > 0
    assert chosen["train"].items() <= config.values()["train"].items()
    assert {**chosen, "train": 0} == {**config.values(), "train": 0}


def test_methods_that_only_count_need_no_plan(data: Dataset, tmp_path: Path) -> None:
    run = ecoc.train(data, tmp_path / "run", method="markov", budget="1s")
    assert run.config().train.max_steps is None


def test_a_number_is_seconds() -> None:
    assert parse_budget(90) == parse_budget("90s") == parse_budget("1m30s") == 90.0
