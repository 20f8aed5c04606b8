"""Promise 1: a killed training resumes exactly. SIGKILL at any moment, also in a save; it ends as if unkilled."""

import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked import Done, Forks, forking, outcome

import ecoc

SEED = 20240815
KILLS = 20
VARIANTS = {
    "sasrec": ["train.ema=0.05"],
    "srgnn": ["method.loss=sampled", "train.table=sparse"],
}
SMALL = ["encoder.dim=8", "encoder.length=10", "train.batch=16", "train.validation_cases=200", "train.log_every=3"]
OFTEN = ["train.max_steps=90", "train.validate_every=15", "train.checkpoint_seconds=0.001"]
RARELY = ["train.max_steps=40", "train.validate_every=20", "train.checkpoint_seconds=1000", "train.log_every=1"]
SHORT = ["train.max_steps=2", "train.validate_every=2", "train.checkpoint_seconds=0.001", "train.keep=1"]

# Kills the process before its n-th operation on a file of the run folder.
AT_OPERATION = """
import os, signal, sys
left = {number}
def hook(event, arguments):
    global left
    if event in ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "os.scandir"):
        if str(arguments[0]).startswith({folder!r}):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
"""
FORGETFUL = {
    "optimiser": """
from ecoc.training.optimiser import Optimiser
Optimiser.load = lambda self, state: None
""",
    "generator": """
import torch
from ecoc.training import loop
first = []
def seed(number, step):
    first.append(step)
    return 2 ** 40 + len(first)
loop.step_seed = seed
""",
    "journal": """
from ecoc.training.metrics_log import MetricsLog
MetricsLog.rewind = lambda self, size: None
""",
    "averages": """
from ecoc.methods.targets import Targets
Targets.load = lambda self, state, step: None
""",
}


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with forking() as found:
        assert found.run("--version").code == 0  # from here on everything is imported
        yield found


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """In memory where there is such a place: a kill does not care what reached the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as found:
        yield Path(found)


@pytest.fixture(scope="module")
def data(folder: Path) -> Path:
    return ecoc.prepare("world:small", folder / "data", format="world", events=8_000).path


@dataclass
class Training:
    """One training, again and again in a new folder."""

    forks: Forks
    data: Path
    out: Path
    options: list[str]

    def words(self) -> list[object]:
        pairs = [word for setting in self.options for word in ("--set", setting)]
        return ["train", self.data, "-o", self.out, "--threads", 1, "--quiet", *pairs]

    def whole(self) -> tuple[dict[str, Any], float]:
        """What comes of it undisturbed, and after how many seconds."""
        self.clear()
        began = time.monotonic()
        done = self.forks.run(*self.words())
        assert done.code == 0, done.stderr
        return outcome(self.out), time.monotonic() - began

    def clear(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)

    def killed(self, after: float, *more: str, in_save: bool = False) -> bool:
        """Begin or go on, kill after so many seconds; whether it was still at work then."""
        job = self.forks.start(*self.words(), *more)
        time.sleep(after)
        while in_save and not job.is_over() and not any(self.out.glob("checkpoints/*.partial")):
            time.sleep(0.0005)
        job.send(signal.SIGKILL)
        return job.wait().code == -signal.SIGKILL

    def resumed(self, before: str = "") -> Done:
        return self.forks.run(*self.words(), "--resume", before=before)


def training(forks: Forks, data: Path, encoder: str, *options: str) -> Training:
    return Training(forks, data, data.parent / "run", [f"encoder.name={encoder}", *VARIANTS[encoder], *SMALL, *options])


@pytest.mark.parametrize("encoder", VARIANTS)
def test_killed_at_random_moments_it_ends_as_if_it_had_not_been(forks: Forks, data: Path, encoder: str) -> None:
    work = training(forks, data, encoder, *OFTEN)
    expected, seconds = work.whole()
    moments = random.Random(SEED)
    kills = in_saves = tries = 0
    while kills < KILLS:
        tries += 1
        assert tries < 4 * KILLS, "most runs were over before they were killed"
        work.clear()
        is_alive = work.killed(moments.uniform(0, seconds), in_save=tries % 4 == 0)
        in_saves += is_alive and any(work.out.glob("checkpoints/*.partial"))
        if tries % 4 == 1:  # and once more on the way
            work.killed(moments.uniform(0, seconds / 2), "--resume")
        done = work.resumed()
        assert done.code == 0, f"seed {SEED}, try {tries}: {done.stderr}"
        assert outcome(work.out) == expected, f"seed {SEED}, try {tries}"
        kills += is_alive
    print(f"{encoder}, seed {SEED}: {kills} kills, {in_saves} of them with a half-written file; {seconds:.1f} s a run")
    assert in_saves > 0, "no kill fell into a save"


def test_killed_at_any_operation_on_a_file_it_can_be_resumed(forks: Forks, data: Path) -> None:
    """From the first file of a new run folder to the last byte of result.json."""
    work = training(forks, data, "sasrec", *SHORT)
    expected, _ = work.whole()
    failed = {}
    number = 0
    while True:
        number += 1
        work.clear()
        hook = AT_OPERATION.format(number=number, folder=str(work.out))
        if forks.run(*work.words(), before=hook).code != -signal.SIGKILL:
            break
        done = work.resumed()
        if done.code != 0:
            failed[number] = done.stderr
        elif outcome(work.out) != expected:
            failed[number] = "ended otherwise"
    assert number > 50, "the hook sees the operations"
    assert failed == {}, f"of {number - 1} operations"


@pytest.mark.parametrize("forgotten", FORGETFUL)
def test_a_resume_that_forgets_something_would_be_caught(forks: Forks, data: Path, forgotten: str) -> None:
    """The broken variants."""
    work = training(forks, data, "sasrec", *RARELY)
    expected, _ = work.whole()
    checkpoint = work.out / "checkpoints" / "step-000000000020.json"
    logged = ""
    for number in range(50, 200, 5):  # until a step was logged after the checkpoint
        work.clear()
        cut = AT_OPERATION.format(number=number, folder=str(work.out))
        assert forks.run(*work.words(), before=cut).code == -signal.SIGKILL
        logged = (work.out / "metrics.jsonl").read_text() if checkpoint.exists() else ""
        if '"step": 22' in logged:
            break
    assert '"step": 22' in logged
    assert work.resumed(before=FORGETFUL[forgotten]).code == 0
    assert outcome(work.out) != expected
