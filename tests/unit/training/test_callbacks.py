"""Callbacks of `train`: what they receive, that they change nothing, how they stop training, what an error leaves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from training_case import config, small_data

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.storage.checkpoint import load_latest

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, write_log: Callable[..., Path]) -> Dataset:
    return small_data(tmp_path_factory.mktemp("callbacks"), write_log)


@pytest.fixture(scope="module")
def plain(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> ecoc.Run:
    """The run without a callback."""
    return ecoc.train(data, tmp_path_factory.mktemp("plain") / "run", config=config())


class Recorder(ecoc.Callback):
    """Keeps what it receives, and does what a hook should not: it draws from the global generator."""

    def __init__(self) -> None:
        self.steps: list[ecoc.StepResult] = []
        self.validations: list[ecoc.ValidationResult] = []
        self.ended: list[ecoc.Run] = []

    def on_step(self, run: ecoc.Run, result: ecoc.StepResult) -> None:
        torch.rand(7)
        self.steps.append(result)

    def on_validation(self, run: ecoc.Run, result: ecoc.ValidationResult) -> None:
        torch.manual_seed(3)
        assert (run.checkpoints / "best.safetensors").exists()
        self.validations.append(result)

    def on_end(self, run: ecoc.Run) -> None:
        assert run.result.steps == len(self.steps)
        self.ended.append(run)


class StopAt(ecoc.Callback):
    """Asks to stop, or fails, at a step or at the first validation from it on."""

    def __init__(self, step: int, *, hook: str = "on_step", error: BaseException | None = None) -> None:
        self.step, self.hook, self.error = step, hook, error

    def on_step(self, run: ecoc.Run, result: ecoc.StepResult) -> bool:
        return self._act("on_step", result.step)

    def on_validation(self, run: ecoc.Run, result: ecoc.ValidationResult) -> bool:
        return self._act("on_validation", result.step)

    def _act(self, hook: str, step: int) -> bool:
        if hook != self.hook or step < self.step:
            return False
        if self.error is not None:
            raise self.error
        return True


def without_times(run: ecoc.Run) -> Any:
    table = run.metrics_table()
    names = [name for name in table.column_names if name != "seconds" and not name.startswith("time/")]
    return table.select(names)


def same(run: ecoc.Run, other: ecoc.Run) -> bool:
    is_equal = run.result.weights_sha256 == other.result.weights_sha256
    return is_equal and without_times(run).equals(without_times(other))


def test_callbacks_see_every_step_and_validation_and_change_nothing(
    data: Dataset, plain: ecoc.Run, tmp_path: Path
) -> None:
    recorder = Recorder()
    run = ecoc.train(data, tmp_path / "run", config=config(), callbacks=[recorder])
    assert same(run, plain)
    assert [result.step for result in recorder.steps] == list(range(1, 13))
    assert [result.step for result in recorder.validations] == [4, 8, 12]
    assert recorder.ended == [run]
    lines = without_times(run).to_pylist()
    first = next(line for line in lines if line["step"] == 2)
    assert first["loss"] == pytest.approx((recorder.steps[0].loss + recorder.steps[1].loss) / 2)
    assert first["lr"] == recorder.steps[1].lr
    assert recorder.steps[0].parts.keys() == {"bc"}
    best = max(recorder.validations, key=lambda result: result.value)
    assert run.result.validation == best.metrics
    assert recorder.validations[0].is_best
    assert (best.monitor, best.source) == ("ndcg@20", "online")


@pytest.mark.parametrize(("hook", "asked", "ended"), [("on_step", 5, 5), ("on_validation", 5, 8), ("on_step", 12, 12)])
def test_a_callback_that_returns_true_ends_training_with_a_validation(
    data: Dataset, plain: ecoc.Run, tmp_path: Path, hook: str, asked: int, ended: int
) -> None:
    recorder = Recorder()
    stop = StopAt(asked, hook=hook)
    run = ecoc.train(data, tmp_path / "run", config=config(), callbacks=(stop, recorder))
    assert run.result.steps == ended
    assert recorder.validations[-1].step == ended
    assert recorder.ended == [run]
    assert run.model.recommend([["i1"]]).items
    assert ecoc.train(data, tmp_path / "run", resume=True).result == run.result, "it is finished"
    if ended == 12:
        assert same(run, plain)


@pytest.mark.parametrize("hook", ["on_step", "on_validation"])
@pytest.mark.parametrize("error", [RuntimeError("mine"), InputError("mine"), MemoryError("mine"), KeyboardInterrupt()])
def test_an_error_in_a_callback_leaves_a_run_that_resumes_exactly(
    data: Dataset, plain: ecoc.Run, tmp_path: Path, hook: str, error: BaseException
) -> None:
    with pytest.raises(type(error)):
        ecoc.train(data, tmp_path / "run", config=config(), callbacks=[StopAt(3, hook=hook, error=error)])
    latest = load_latest(tmp_path / "run" / "checkpoints")
    assert latest is not None
    assert latest.state["step"] == (3 if hook == "on_step" else 4)
    run = ecoc.train(data, tmp_path / "run", resume=True, callbacks=[StopAt(99)])
    assert same(run, plain)


def test_an_error_at_the_step_of_a_validation_does_not_lose_the_validation(
    data: Dataset, plain: ecoc.Run, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError):
        ecoc.train(data, tmp_path / "run", config=config(), callbacks=[StopAt(4, error=RuntimeError())])
    recorder = Recorder()
    recorder.steps = [ecoc.StepResult(step, 0.0, {}, 0.0, 0.0, 0, {}) for step in range(1, 5)]
    run = ecoc.train(data, tmp_path / "run", resume=True, callbacks=[recorder])
    assert [result.step for result in recorder.validations] == [4, 8, 12]
    assert same(run, plain)


@pytest.mark.parametrize("wrong", [Recorder, print, "progress", 3])
def test_what_is_no_callback_is_refused_before_a_file_is_written(data: Dataset, tmp_path: Path, wrong: object) -> None:
    for callbacks in ([wrong], wrong):
        with pytest.raises(InputError, match=r"^callbacks: expected "):
            ecoc.train(data, tmp_path / "run", callbacks=callbacks)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
