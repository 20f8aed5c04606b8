"""A killed experiment goes on: SIGKILL at any moment, the same command again, the same tables; nothing is redone."""

import json
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
from forked import Done, Forks, forking

import ecoc

SEED = 20240816
MOMENTS, OPERATIONS = 3, 3
TIMED = {"s/epoch"}  # columns that are not the same twice
ASKED = ["--methods", "supervised+ema,ecoc", "--encoders", "sasrec", "--seeds", 2, "--steps", 5, "--max-cases", 100]
# One short repeat is enough to measure steps here.
COMMAND = """
from ecoc.training import cost
cost._REPEATS = 1
cost.measure.__kwdefaults__["repeat_seconds"] = 0.01
"""

# Kills the process before its n-th operation on a file of the folder.
AT_OPERATION = """
import os, signal, sys
left = {number}
def hook(event, arguments):
    global left
    if event in ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "shutil.rmtree"):
        if str(arguments[0]).startswith({folder!r}):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
"""
COUNTED = """
import atexit, sys
count = 0
def hook(event, arguments):
    global count
    if event in ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "shutil.rmtree"):
        count += str(arguments[0]).startswith({folder!r})
sys.addaudithook(hook)
from ecoc.experiment import reproduce
wrapped = reproduce.reproduce
def counting(*arguments, **more):
    result = wrapped(*arguments, **more)
    print("operations", count, file=sys.stderr)
    return result
reproduce.reproduce = counting
"""
FORGETFUL = """
from ecoc.experiment.jobs import JobStore
load, save, saved = JobStore.load, JobStore.save, set()
JobStore.load = lambda self, job: load(self, job) if job.name in saved or job.name.startswith("pace") else None
JobStore.save = lambda self, job, result: saved.add(job.name) or save(self, job, result)
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with forking() as found:
        assert found.run("--version", before=COMMAND + "import ecoc.experiment.reproduce").code == 0
        yield found


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """In memory where there is such a place: a kill does not care what reached the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as found:
        yield Path(found)


@dataclass
class Work:
    """One experiment, again and again in a new folder."""

    forks: Forks
    data: Path
    out: Path

    def words(self) -> list[object]:
        return ["reproduce", "imitation", self.data, "-o", self.out, *ASKED, "--quiet", "--json"]

    def run(self, before: str = "") -> Done:
        return self.forks.run(*self.words(), before=COMMAND + before)

    def clear(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)

    def finished(self) -> dict[str, int]:
        """When each finished cell was written."""
        found = {}
        for path in self.out.glob("cells/**/*.json"):
            if json.loads(path.read_text())["status"] == "done":
                found[str(path.relative_to(self.out))] = path.stat().st_mtime_ns
        return found

    def report(self) -> dict[str, Any]:
        """The report but for its date and what was timed."""
        document: dict[str, Any] = json.loads((self.out / "report.json").read_text())
        assert document["facts"].pop("date")
        for section in document["sections"]:
            for table in section["tables"]:
                timed = {place for place, column in enumerate(table["columns"]) if column["name"] in TIMED}
                table["rows"] = [
                    [cell for place, cell in enumerate(row) if place not in timed] for row in table["rows"]
                ]
        return document


@pytest.fixture(scope="module")
def work(forks: Forks, folder: Path) -> Work:
    data = ecoc.prepare("world:small", folder / "data", events=1_000)
    return Work(forks, data.path, folder / "experiment")


@dataclass
class Whole:
    """What comes of it undisturbed."""

    report: dict[str, Any]
    cells: int
    seconds: float
    operations: int


@pytest.fixture(scope="module")
def whole(work: Work) -> Whole:
    began = time.monotonic()
    done = work.run(COUNTED.format(folder=str(work.out)))
    seconds = time.monotonic() - began
    assert done.code == 0, done.stderr
    return Whole(work.report(), len(work.finished()), seconds, int(done.stderr.split()[-1]))


def goes_on(work: Work, whole: Whole, where: str) -> None:
    """Give the command again and compare."""
    before = work.finished()
    done = work.run()
    assert done.code == 0, f"{where}: {done.stderr}"
    after = work.finished()
    assert {name: after[name] for name in before} == before, f"{where}: a finished cell was done again"
    assert len(after) == whole.cells, where
    assert work.report() == whole.report, where
    assert not list(work.out.rglob("*.partial")), where


def test_killed_at_random_moments_the_tables_are_the_same(work: Work, whole: Whole) -> None:
    moments, kills = random.Random(SEED), 0
    for number in range(MOMENTS):
        work.clear()
        job = work.forks.start(*work.words(), before=COMMAND)
        time.sleep(whole.seconds * (number + moments.random()) / MOMENTS)
        job.send(signal.SIGKILL)
        kills += job.wait().code == -signal.SIGKILL
        goes_on(work, whole, f"seed {SEED}, try {number}")
    assert kills > 1, "most were over before they were killed"


def test_killed_at_operations_on_files_the_tables_are_the_same(work: Work, whole: Whole) -> None:
    moments = random.Random(SEED)
    for number in sorted(moments.sample(range(1, whole.operations), OPERATIONS)):
        work.clear()
        hook = AT_OPERATION.format(number=number, folder=str(work.out))
        assert work.run(hook).code == -signal.SIGKILL, f"operation {number} of {whole.operations}"
        goes_on(work, whole, f"operation {number} of {whole.operations}")


def test_terminated_it_ends_at_once_and_goes_on(work: Work, whole: Whole) -> None:
    work.clear()
    job = work.forks.start(*work.words(), before=COMMAND)
    while not job.is_over() and not any(work.out.glob("runs/**/metrics.jsonl")):
        time.sleep(0.01)
    job.send(signal.SIGTERM)
    assert job.wait().code == 143
    statuses = [json.loads(path.read_text())["status"] for path in work.out.glob("cells/**/*.json")]
    assert set(statuses) <= {"done"}  # an interruption is no failure
    goes_on(work, whole, "terminated")


def test_an_experiment_that_forgets_its_cells_would_be_caught(work: Work, whole: Whole) -> None:
    """The broken variant."""
    before = work.finished()  # of the test before
    assert len(before) == whole.cells
    assert work.run(FORGETFUL).code == 0
    after = work.finished()
    assert any(after[name] != before[name] for name in before)


def test_two_calls_on_one_folder_do_not_mix(work: Work) -> None:
    work.clear()
    job = work.forks.start(*work.words(), before=COMMAND)
    while not job.is_over() and not any(work.out.glob("cells/**/*.json")):
        time.sleep(0.01)
    job.send(signal.SIGSTOP)  # so that it is still at work when the second comes
    second = work.run()
    assert second.code == 2, second.stderr
    assert f"process {job.pid} is writing it now" in second.stderr
    job.send(signal.SIGKILL)
    job.wait()
