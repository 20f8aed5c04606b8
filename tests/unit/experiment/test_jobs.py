"""Jobs: computed once, stored completely, computed again when and only when they have to be."""

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import Field

from ecoc.errors import Terminated, TrainingError
from ecoc.experiment.jobs import CELLS, Arrays, Clock, Job, JobResult, JobStore, OutOfTimeError, in_order, run_jobs
from ecoc.progress import ProgressCallback, no_progress
from ecoc.result import Result

COMMON = {"data": "abc", "ecoc": "0.1"}


class Value(Result):
    ndcg: float = 0.0
    pair: tuple[int, int] = (0, 0)
    by: dict[int, float] = Field(default_factory=dict)


class Counted:
    """Work that counts how often it is done."""

    def __init__(self, result: Callable[[ProgressCallback], tuple[Value, Arrays]] | None = None) -> None:
        self.times = 0
        self._result = result or (lambda progress: (Value(ndcg=0.25), {"ranks": np.arange(5.0)}))

    def __call__(self, progress: ProgressCallback) -> tuple[Value, Arrays]:
        self.times += 1
        return self._result(progress)


def make(work: Callable[[ProgressCallback], Any], name: str = "run/sasrec/seed-0", **more: Any) -> Job[Value]:
    depends: Mapping[str, Any] = more.pop("depends", {"steps": 10})
    return Job(name, Value, work, lambda: depends, **more)


def run(
    folder: Path, *jobs: Job[Value], clock: Clock | None = None, common: Mapping[str, Any] = COMMON
) -> dict[str, JobResult[Value]]:
    reported: dict[str, JobResult[Value]] = {}

    def on_result(job: Job[Any], result: JobResult[Any], is_new: bool) -> None:
        reported[job.name] = result

    results = run_jobs(jobs, JobStore(folder, common), clock or Clock(), no_progress, on_result)
    assert [job.name for job in in_order(jobs)] == list(reported)
    assert all(results.of(job) is reported[job.name] for job in jobs)
    return reported


def raising(error: BaseException) -> Callable[[ProgressCallback], Any]:
    def work(progress: ProgressCallback) -> Any:
        raise error

    return work


def test_a_finished_job_is_never_done_again(tmp_path: Path) -> None:
    work = Counted()
    first = run(tmp_path, make(work))["run/sasrec/seed-0"]
    path = tmp_path / CELLS / "run/sasrec/seed-0.json"
    before = path.stat().st_mtime_ns
    again = run(tmp_path, make(work))["run/sasrec/seed-0"]
    assert work.times == 1
    assert path.stat().st_mtime_ns == before
    assert again.value == first.value == Value(ndcg=0.25)
    assert again.seconds == first.seconds
    np.testing.assert_array_equal(again.arrays["ranks"], np.arange(5.0))


def test_what_a_job_found_is_the_same_now_and_later(tmp_path: Path) -> None:
    """Tables must not depend on whether a number came from memory or from the disk."""
    work = Counted(lambda progress: (Value(pair=(1, 2), by={3: 0.1 + 0.2}), {}))
    now = run(tmp_path, make(work))["run/sasrec/seed-0"]
    later = run(tmp_path, make(work))["run/sasrec/seed-0"]
    assert now.value == later.value == Value(pair=(1, 2), by={3: 0.1 + 0.2})
    stored = json.loads((tmp_path / CELLS / "run/sasrec/seed-0.json").read_text())
    assert stored["facts"] == {"ndcg": 0.0, "pair": [1, 2], "by": {"3": 0.1 + 0.2}}


@pytest.mark.parametrize(
    ("depends", "common"),
    [({"steps": 11}, COMMON), ({"steps": 10}, {**COMMON, "data": "abd"}), ({"steps": 10}, {**COMMON, "ecoc": "0.2"})],
)
def test_a_job_that_depends_on_something_else_now_is_done_again(
    tmp_path: Path, depends: dict[str, Any], common: dict[str, Any]
) -> None:
    work = Counted()
    run(tmp_path, make(work))
    run(tmp_path, make(work, depends=depends), common=common)
    assert work.times == 2
    run(tmp_path, make(work, depends=depends), common=common)
    assert work.times == 2


@pytest.mark.parametrize("error", [TrainingError("step 7: loss is not finite"), ZeroDivisionError("by\nzero")])
def test_a_failed_job_is_recorded_tried_again_and_stops_nobody(tmp_path: Path, error: Exception) -> None:
    bad, good = Counted(raising(error)), Counted()
    for attempt in (1, 2):
        results = run(tmp_path, make(bad, "a/bad"), make(good, "b/good"))
        assert results["a/bad"].status == "failed"
        assert " ".join(str(error).split()) in results["a/bad"].message
        assert results["b/good"].is_done
        assert (bad.times, good.times) == (attempt, 1)
    assert json.loads((tmp_path / CELLS / "a/bad.json").read_text())["status"] == "failed"
    healed = Counted()
    assert run(tmp_path, make(healed, "a/bad"))["a/bad"].is_done


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Terminated(), SystemExit(1)])
def test_an_interruption_stops_everything_at_once(tmp_path: Path, error: BaseException) -> None:
    after = Counted()
    with pytest.raises(type(error)):
        run(tmp_path, make(raising(error), "a"), make(after, "b"))
    assert after.times == 0
    assert not (tmp_path / CELLS / "a.json").exists()


def damage_json(folder: Path) -> None:
    (folder / "seed-0.json").write_text("{")


def damage_number(folder: Path) -> None:
    path = folder / "seed-0.json"
    path.write_text(path.read_text().replace("0.25", "0.35"))


def damage_tensors(folder: Path) -> None:
    path = folder / "seed-0.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def lose_tensors(folder: Path) -> None:
    (folder / "seed-0.safetensors").unlink()


def leave_half(folder: Path) -> None:
    """What a process killed in a save leaves behind."""
    (folder / "seed-0.json").rename(folder / "seed-0.json.partial")


@pytest.mark.parametrize("damage", [damage_json, damage_number, damage_tensors, lose_tensors, leave_half])
def test_a_damaged_job_is_done_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    work = Counted()
    run(tmp_path, make(work))
    damage(tmp_path / CELLS / "run/sasrec")
    found = run(tmp_path, make(work))["run/sasrec/seed-0"]
    assert work.times == 2
    assert found.value == Value(ndcg=0.25)
    assert not list(tmp_path.rglob("*.partial"))


def test_jobs_are_done_once_each_the_cheapest_first_and_later_waves_last() -> None:
    jobs = [
        make(raising(ValueError()), name, seconds=seconds, wave=wave)
        for name, seconds, wave in (("d", 1.0, 1), ("b", 5.0, 0), ("a", 2.0, 0), ("c", 5.0, 0), ("a", 2.0, 0))
    ]
    assert [one.name for one in in_order(jobs)] == ["a", "b", "c", "d"]


def test_without_time_a_job_is_not_begun_and_next_time_it_is(tmp_path: Path) -> None:
    now = [0.0]

    def slow(progress: ProgressCallback) -> tuple[Value, Arrays]:
        now[0] += 40
        return Value(), {}

    jobs = [make(slow, "a", seconds=40.0), make(slow, "b", seconds=41.0), make(slow, "c", seconds=42.0)]
    first = run(tmp_path, *jobs, clock=Clock(100, lambda: now[0]))
    assert [one.status for one in first.values()] == ["done", "done", "not run"]
    assert first["c"].message == "not run: out of time"
    assert not (tmp_path / CELLS / "c.json").exists()
    again = run(tmp_path, *jobs, clock=Clock(100, lambda: now[0]))
    assert [one.status for one in again.values()] == ["done"] * 3


def test_work_that_goes_on_after_the_end_is_stopped(tmp_path: Path) -> None:
    now = [0.0]

    def endless(progress: ProgressCallback) -> Any:
        while True:
            now[0] += 1
            progress("train", now[0], 0)

    found = run(tmp_path, make(endless), clock=Clock(10, lambda: now[0]))["run/sasrec/seed-0"]
    assert (found.status, found.message) == ("not run", "not run: out of time")
    assert now[0] == 10
    with pytest.raises(OutOfTimeError):
        Clock(0.0, lambda: 1.0).limited(no_progress)("train", 0, 0)


def test_a_part_of_the_time_ends_no_later_than_the_whole() -> None:
    now = [0.0]
    clock = Clock(100, lambda: now[0])
    assert clock.part(0.2).left == 20
    now[0] = 90
    assert clock.part(0.2).left == 10
    assert Clock(None, lambda: now[0]).part(0.2).left == float("inf")


def test_a_value_of_another_kind_is_computed_again(tmp_path: Path) -> None:
    """A file that an older version wrote in another form, under the same fingerprint."""
    work = Counted()
    run(tmp_path, make(work))
    path = tmp_path / CELLS / "run/sasrec/seed-0.json"
    state = json.loads(path.read_text())
    state["facts"] = {"hits": 3}
    checked = {key: value for key, value in state.items() if key not in ("checksum", "sha256")}
    state["checksum"] = sha256(json.dumps(checked, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(state))
    assert run(tmp_path, make(work))["run/sasrec/seed-0"].value == Value(ndcg=0.25)
    assert work.times == 2
