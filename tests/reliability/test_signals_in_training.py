"""Promise 4: SIGTERM and SIGINT save the current step and leave with their exit code; a second one leaves at once."""

import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked import Forks, Job, forking, outcome

import ecoc
from ecoc.storage.checkpoint import load_latest

SEED = 20240816
SIGNALS = 10
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
SMALL = ["encoder.dim=16", "encoder.length=12", "train.batch=16", "train.max_steps=300", "train.log_every=1"]
SMALL += ["train.validate_every=70", "train.validation_cases=500", "train.checkpoint_seconds=1000"]
LARGE_VALIDATION = ["encoder.name=srgnn", "encoder.dim=128", "encoder.length=20", "train.max_steps=2"]
LARGE_VALIDATION += ["train.log_every=1", "train.validate_every=1", "train.validation_cases=0"]
LARGE_STEP = ["encoder.dim=128", "encoder.length=20", "train.max_steps=1", "train.batch=100000"]
AT_ONCE = """
from ecoc.errors import Terminated
from ecoc.training.signals import Signals
def leave(self, number, frame):
    raise Terminated
Signals._note = leave
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with forking() as found:
        assert found.run("--version").code == 0
        yield found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ecoc.prepare("world:small", tmp_path_factory.mktemp("world") / "data", format="world", events=10_000).path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ecoc.prepare("world:default", tmp_path_factory.mktemp("world") / "data", format="world").path


def words(data: Path, run: Path, settings: list[str]) -> list[object]:
    return ["train", data, "-o", run, "--threads", 1, *(word for pair in settings for word in ("--set", pair))]


def lines(run: Path) -> list[dict[str, Any]]:
    """The whole lines of metrics.jsonl."""
    path = run / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def wait_for_step(job: Job, run: Path) -> None:
    deadline = time.monotonic() + 60
    while not lines(run):
        assert time.monotonic() < deadline
        time.sleep(0.002)


def step_taken(run: Path) -> int:
    return max(int(line["step"]) for line in lines(run))


@dataclass(frozen=True)
class Stop:
    """How a run took a signal."""

    sent: signal.Signals
    code: int
    said: str
    seconds: float
    step: int  # the last one in metrics.jsonl

    def wrong(self, run: Path) -> list[str]:
        """What of the promise is broken."""
        latest = load_latest(run / "checkpoints")
        saved = latest.state["step"] if latest else None
        found = []
        if self.code != CODES[self.sent]:
            found.append(f"exit code {self.code}")
        if "Traceback" in self.said or "error" in self.said:
            found.append(f"says {self.said}")
        if self.seconds > 5:
            found.append(f"took {self.seconds:.1f} s")
        if saved != self.step:
            found.append(f"saved step {saved}, was at {self.step}")
        return found + [f"left {path.name}" for path in run.rglob("*.partial")]


def stopped(forks: Forks, arguments: list[object], run: Path, sent: signal.Signals, after: float, before: str) -> Stop:
    """Begin, send a signal so many seconds after the first step, wait for the end."""
    job = forks.start(*arguments, before=before)
    wait_for_step(job, run)
    time.sleep(after)
    began = time.monotonic()
    job.send(sent)
    done = job.wait()
    return Stop(sent, done.code, done.stderr, time.monotonic() - began, step_taken(run))


def undisturbed(forks: Forks, data: Path, run: Path, settings: list[str]) -> tuple[dict[str, Any], float]:
    """What a run ends with, and the seconds it trained."""
    done = forks.run(*words(data, run, settings))
    assert done.code == 0, done.stderr
    return outcome(run), json.loads((run / "result.json").read_bytes())["seconds"]


def test_a_signal_at_any_moment_saves_the_step_and_the_run_goes_on_from_it(
    forks: Forks, data: Path, tmp_path: Path
) -> None:
    expected, seconds = undisturbed(forks, data, tmp_path / "undisturbed", SMALL)
    run, moments = tmp_path / "run", random.Random(SEED)
    steps: list[int] = []
    for turn in range(4 * SIGNALS):
        shutil.rmtree(run, ignore_errors=True)
        sent = (signal.SIGTERM, signal.SIGINT)[turn % 2]
        stop = stopped(forks, words(data, run, SMALL), run, sent, moments.uniform(0, seconds), "")
        if stop.code == 0:  # it was faster
            continue
        assert stop.wrong(run) == [], f"seed {SEED}, turn {turn}, {stop}"
        assert forks.run(*words(data, run, []), "--resume").code == 0
        assert outcome(run) == expected, f"seed {SEED}, turn {turn}, {stop}"
        steps.append(stop.step)
        if len(steps) == SIGNALS:
            break
    print(f"seed {SEED}: stopped at steps {steps}")
    assert len(steps) == SIGNALS
    assert len(set(steps)) > SIGNALS // 2


@pytest.mark.parametrize("sent", CODES)
def test_a_signal_in_a_long_validation_does_not_wait_for_its_end(
    forks: Forks, large: Path, tmp_path: Path, sent: signal.Signals
) -> None:
    expected, _ = undisturbed(forks, large, tmp_path / "undisturbed", LARGE_VALIDATION)
    step, judged = lines(tmp_path / "undisturbed")[:2]
    whole = judged["seconds"] - step["seconds"]
    run = tmp_path / "run"
    stop = stopped(forks, words(large, run, LARGE_VALIDATION), run, sent, whole / 10, "")
    assert "validation" not in lines(run)[-1], "the signal came while it was validating"
    assert stop.wrong(run) == []
    assert stop.seconds < 0.6 * whole, f"a validation takes {whole:.1f} s, of which 0.9 were left"
    assert forks.run(*words(large, run, []), "--resume").code == 0
    assert outcome(run) == expected


@pytest.mark.parametrize("sent", CODES)
def test_a_second_signal_ends_it_at_once(forks: Forks, large: Path, tmp_path: Path, sent: signal.Signals) -> None:
    """In a step of many seconds, which the first signal lets finish."""
    job = forks.start(*words(large, tmp_path / "run", LARGE_STEP))
    while "validates on" not in (job.output / "stderr").read_text():
        time.sleep(0.01)
    time.sleep(0.5)
    job.send(sent)
    time.sleep(1)
    assert not job.is_over(), "the first signal lets it finish the step"
    began = time.monotonic()
    job.send(sent)
    assert job.wait().code == -sent
    assert time.monotonic() - began < 2
    assert lines(tmp_path / "run") == [], "the step was not finished"


def test_the_real_command_takes_signals_too(forks: Forks, ecoc_command: Path, data: Path, tmp_path: Path) -> None:
    long = [*SMALL, "train.max_steps=800", "train.patience=0", "train.validate_every=400"]
    run = tmp_path / "run"
    for turn, (sent, code) in enumerate(CODES.items()):
        resume = ["--resume"] if turn else []
        already = step_taken(run) if turn else 0
        process = subprocess.Popen(
            ["env", "--default-signal=INT", str(ecoc_command), *map(str, words(data, run, long)), *resume],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not lines(run) or step_taken(run) <= already:
            assert process.poll() is None
            time.sleep(0.01)
        began = time.monotonic()
        process.send_signal(sent)
        _, said = process.communicate(timeout=30)
        assert process.returncode == code
        assert f"step {step_taken(run)} of 800" in said.splitlines()[-1]
        assert said.endswith(f"; resume with: ecoc train {data} --out {run} --resume\n")
        assert Stop(sent, code, said, time.monotonic() - began, step_taken(run)).wrong(run) == []
    assert step_taken(run) < 800
    assert forks.run(*words(data, run, []), "--resume").code == 0
    assert outcome(run) == undisturbed(forks, data, tmp_path / "undisturbed", long)[0]


def test_leaving_without_saving_would_be_caught(forks: Forks, data: Path, tmp_path: Path) -> None:
    """The broken variant: the exit code is right, the checkpoint is an old one or none."""
    run = tmp_path / "run"
    stop = stopped(forks, words(data, run, SMALL), run, signal.SIGTERM, 0.1, AT_ONCE)
    assert stop.code == 143
    assert any("saved step" in wrong for wrong in stop.wrong(run))
