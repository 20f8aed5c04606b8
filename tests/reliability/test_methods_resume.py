"""Promise 1 for every method: stopped or killed, also around a change of phase, it ends as if it had not been."""

import json
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from forked import Forks, forking, outcome

import ecoc
from ecoc.methods import METHODS
from ecoc.storage.checkpoint import load_latest

STEPS = 60
SETTINGS = ["encoder.dim=8", "encoder.length=10", "train.batch=16", f"train.max_steps={STEPS}", "train.patience=0"]
SETTINGS += ["train.validate_every=15", "train.validation_cases=200", "train.log_every=4"]
SETTINGS += ["train.checkpoint_seconds=1000", "train.lr=0.01", "train.warmup=5"]
PAPER = ["method.critic=shared", "method.dc=1", "method.alpha=5", "method.gamma=0.5", "method.trace=0"]
PAPER += ["method.dueling=false", "method.loss=bpr", "method.xi=gumbel", "method.n1=20", "method.backup=sample"]
INDEX = ["method.index_from=1", "method.index_every=7", "method.candidates=20"]  # 30 lies between two buildings of it
VARIANTS: dict[str, tuple[str, list[str]]] = {
    **{name: (name, []) for name in METHODS if METHODS[name].is_trained},
    "ecoc, paper": ("ecoc", PAPER),
    "ecoc, few rows": ("ecoc", ["method.loss=sampled", "method.xi=pool", "method.pool=32", "train.table=sparse"]),
    "ecoc, index": ("ecoc", ["method.xi=topk", "method.n1=9", *INDEX]),
    "sdac_dc, few rows": ("sdac_dc", ["train.table=sparse"]),
    "neural_lcb, averaged": ("neural_lcb", ["train.ema=0.05"]),
}
SWITCHES = {"sa2c": 24, "sdac_dc": 12, "sdac_dc, few rows": 12}  # the first step of the second phase
# Stops a run once so many steps are taken: SIGTERM lets it save, SIGKILL does not.
AT_STEP = """
import os, signal
from ecoc.training.loop import Loop
train = Loop._train
def stop_at(self):
    result = train(self)
    if self.state.step == {step}:
        os.kill(os.getpid(), signal.{sent})
    return result
Loop._train = stop_at
"""
FORGETFUL = {
    "lagged copies": (
        "sdac_sr",
        "from ecoc.methods.targets import Targets\nTargets.load = lambda self, state, step: None",
    ),
    "the policy's own": (
        "ecoc",
        "from ecoc.methods.targets import Targets\nTargets.load = lambda self, state, step: None",
    ),
    "moments": ("sqn", "from ecoc.training.optimiser import Optimiser\nOptimiser.load = lambda self, state: None"),
    "the phase": (
        "sdac_dc",
        """
from ecoc.methods import Phase
from ecoc.training.step import TrainStep
TrainStep._enter_phase = lambda self, step: Phase(0.0)
""",
    ),
    "moments of a phase": (
        "sa2c",
        """
from ecoc.training.loop import Loop
resume = Loop.resume
def resume_afresh(self, checkpoint):
    resume(self, checkpoint)
    self.train_step.optimisers[0].reset()
Loop.resume = resume_afresh
""",
    ),
}

Whole = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with forking() as found:
        assert found.run("--version").code == 0
        yield found


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as found:
        yield Path(found)


@pytest.fixture(scope="module")
def data(folder: Path) -> Path:
    return ecoc.prepare("world:small", folder / "data", format="world", events=4_000).path


def words(data: Path, run: Path, variant: str) -> list[object]:
    method, more = VARIANTS[variant]
    pairs = [word for setting in [*SETTINGS, *more] for word in ("--set", setting)]
    return ["train", data, "-o", run, "--method", method, "--threads", 1, "--quiet", *pairs]


def ended(run: Path) -> dict[str, Any]:
    """What a run ended with, but for times."""
    found = outcome(run)
    found["metrics"] = [{key: value for key, value in line.items() if key != "time"} for line in found["metrics"]]
    return found


@pytest.fixture(scope="module")
def whole(forks: Forks, data: Path) -> Whole:
    """What comes of a variant that nothing interrupts."""

    def train(variant: str) -> dict[str, Any]:
        run = data.parent / f"whole {variant}"
        done = forks.run(*words(data, run, variant))
        assert done.code == 0, done.stderr
        return ended(run)

    return cache(train)


def stop(forks: Forks, data: Path, run: Path, variant: str, step: int, sent: str) -> int:
    """Train until so many steps are taken; the step of the checkpoint that is left."""
    done = forks.run(*words(data, run, variant), before=AT_STEP.format(step=step, sent=sent))
    assert done.code == (-signal.SIGKILL if sent == "SIGKILL" else 143), done.stderr
    assert not (run / "result.json").exists()
    latest = load_latest(run / "checkpoints")
    assert latest is not None
    return int(latest.state["step"])


def stops(variant: str) -> list[int]:
    """In the middle; before, at and after a change of phase."""
    switch = SWITCHES.get(variant)
    return [30] if switch is None else [switch - 4, switch, switch + 1, 30]


def test_the_changes_of_phase_are_where_this_file_says(whole: Whole, data: Path) -> None:
    starts = {"sa2c": 0.4, "sdac_dc": 0.2}
    for variant, step in SWITCHES.items():
        whole(variant)
        config = (data.parent / f"whole {variant}" / "config.toml").read_text()
        assert f"warmup = {starts[VARIANTS[variant][0]]}\n" in config
        assert step == round(starts[VARIANTS[variant][0]] * STEPS)


@pytest.mark.parametrize(("variant", "step"), [(variant, step) for variant in VARIANTS for step in stops(variant)])
def test_stopped_by_a_signal_it_goes_on_as_if_it_had_not_been(
    forks: Forks, whole: Whole, data: Path, tmp_path: Path, variant: str, step: int
) -> None:
    expected = whole(variant)
    assert expected["result"]["steps"] == STEPS
    assert stop(forks, data, tmp_path / "run", variant, step, "SIGTERM") == step
    done = forks.run(*words(data, tmp_path / "run", variant), "--resume")
    assert done.code == 0, done.stderr
    assert ended(tmp_path / "run") == expected
    seen = [line["step"] for line in expected["metrics"] if "loss" in line]
    assert seen == list(range(4, STEPS + 1, 4)), "30 lies within a line, whose sums go on"


@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_it_goes_on_from_its_last_checkpoint_as_if_it_had_not_been(
    forks: Forks, whole: Whole, data: Path, tmp_path: Path, variant: str
) -> None:
    """Twice: the first checkpoint lies before a change of phase of SA2C, the second after it."""
    expected = whole(variant)
    run = tmp_path / "run"
    assert stop(forks, data, run, variant, 29, "SIGKILL") == 15
    cut = AT_STEP.format(step=37, sent="SIGKILL")
    assert forks.run(*words(data, run, variant), "--resume", before=cut).code == -signal.SIGKILL
    latest = load_latest(run / "checkpoints")
    assert latest is not None
    assert latest.state["step"] == 30
    done = forks.run(*words(data, run, variant), "--resume")
    assert done.code == 0, done.stderr
    assert ended(run) == expected


@pytest.mark.parametrize("forgotten", FORGETFUL)
def test_a_resume_that_forgets_would_be_caught(
    forks: Forks, whole: Whole, data: Path, tmp_path: Path, forgotten: str
) -> None:
    """The broken variants."""
    variant, broken = FORGETFUL[forgotten]
    assert stop(forks, data, tmp_path / "run", variant, 30, "SIGTERM") == 30
    done = forks.run(*words(data, tmp_path / "run", variant), "--resume", before=broken)
    assert done.code == 0, done.stderr
    assert ended(tmp_path / "run") != whole(variant)


def test_every_line_of_a_whole_run_is_compared(whole: Whole, data: Path) -> None:
    run = data.parent / "whole ecoc"
    compared = whole("ecoc")["metrics"]
    raw = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [set(line) - {"seconds", "time"} for line in raw] == [set(line) for line in compared]
    assert any("validation_ema" in line for line in compared), "its lagged policy is judged too"
