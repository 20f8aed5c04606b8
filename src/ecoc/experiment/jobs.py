"""Jobs: the units of an experiment. Each is computed once and stored with a fingerprint of everything it depends on.

The result of a job is in `cells/NAME.json`, its arrays in `cells/NAME.safetensors`. A finished job is never computed
again. A job that failed, whose files are damaged, or whose fingerprint has changed, is.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from ecoc.errors import ArtifactError, EcocError
from ecoc.progress import ProgressCallback
from ecoc.storage.atomic import json_bytes
from ecoc.storage.checkpoint import load_checkpoint, remove_partial, save_checkpoint

CELLS = "cells"
Arrays = Mapping[str, NDArray[Any]]
R = TypeVar("R", bound=BaseModel)
R_co = TypeVar("R_co", bound=BaseModel, covariant=True)
_LONGEST_MESSAGE = 500


class OutOfTimeError(Exception):
    """The time budget is used up."""


@dataclass(frozen=True)
class Job(Generic[R]):
    """One unit of work. `work` reports its progress and returns the value, of type `kind`, and arrays.

    Jobs run wave by wave, so a job that reads the results of others is in a later wave. Jobs of priority 0 always run;
    a plan may leave out the others, those with the highest number first.
    """

    name: str
    kind: type[R]
    work: Callable[[ProgressCallback], tuple[R, Arrays]]
    depends: Callable[[], Mapping[str, Any]]  # JSON; called when the job is due: it may read the results of others
    seconds: float = 0.0  # estimate
    wave: int = 0
    priority: int = 0
    method: str = ""
    encoder: str = ""
    seed: int | None = None
    timed_as: tuple[str, str] | None = None  # variant and encoder whose step cost the estimate uses


@dataclass(frozen=True)
class JobResult(Generic[R_co]):
    """Result of a job; `value` is None unless it is done."""

    status: Literal["done", "failed", "not run"]
    value: R_co | None = None
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    seconds: float = 0.0
    message: str = ""

    @property
    def is_done(self) -> bool:
        """Whether there is a value."""
        return self.status == "done"


NOT_RUN: JobResult[Any] = JobResult("not run", message="not run: out of time")
LEFT_OUT: JobResult[Any] = JobResult("not run", message="not run: left out of the plan")


class Results:
    """Results of jobs by name. Asked with a job, they have the type of its value."""

    def __init__(self, by_name: Mapping[str, JobResult[Any]]) -> None:
        self._by_name = dict(by_name)

    def __contains__(self, job: Job[Any]) -> bool:
        return job.name in self._by_name

    def __or__(self, other: "Results") -> "Results":
        return Results({**self._by_name, **other._by_name})

    def of(self, job: Job[R]) -> JobResult[R]:
        """The result of a job, or `LEFT_OUT`."""
        return self._by_name.get(job.name, LEFT_OUT)

    def value(self, job: Job[R]) -> R | None:
        """The value of a finished job, or None."""
        return self.of(job).value


class JobStore:
    """Stores results in a folder. `common` is JSON that every job depends on."""

    def __init__(self, folder: Path, common: Mapping[str, Any]) -> None:
        self.folder, self._common = folder, dict(common)

    def load(self, job: Job[R]) -> JobResult[R] | None:
        """The stored result, if it is intact and its fingerprint has not changed."""
        folder, name = self._place(job)
        if not (folder / f"{name}.json").is_file():
            return None
        try:
            stored = load_checkpoint(folder, name)
            state = dict(stored.state)
            is_intact = state.pop("checksum") == _digest(state)
            if not is_intact or state["fingerprint"] != self.fingerprint(job.name, job.depends()):
                return None
            value = job.kind.model_validate(state["facts"]) if state["status"] == "done" else None
            arrays = {key: tensor.numpy() for key, tensor in stored.tensors.items()}
            return JobResult(state["status"], value, arrays, float(state["seconds"]), str(state["message"]))
        except (ArtifactError, ValidationError, KeyError, TypeError, ValueError):
            return None

    def save(self, job: Job[R], result: JobResult[R]) -> JobResult[R]:
        """Store a result and return it as a later call will read it."""
        folder, name = self._place(job)
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial(folder)
        state = {
            "cell": job.name,
            "fingerprint": self.fingerprint(job.name, job.depends()),
            "status": result.status,
            "facts": {} if result.value is None else result.value.model_dump(),
            "seconds": result.seconds,
            "message": result.message,
        }
        state = json.loads(json_bytes(state))
        tensors = {key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in result.arrays.items()}
        save_checkpoint(folder, name, tensors, {**state, "checksum": _digest(state)})
        stored = self.load(job)
        if stored is None:
            raise ArtifactError(f"{folder / name}: the file differs from what was just written; check the disk")
        return stored

    def fingerprint(self, name: str, depends: Mapping[str, Any]) -> str:
        """Hash of everything that the result called `name` depends on."""
        return _digest({"name": name, "common": self._common, "depends": dict(depends)})

    def _place(self, job: Job[Any]) -> tuple[Path, str]:
        path = self.folder / CELLS / job.name
        return path.parent, path.name


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Clock:
    """Measures the time left of a budget in seconds; without a budget it is infinite."""

    def __init__(self, budget: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._started = now, now()
        self._budget = float("inf") if budget is None else budget

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return self._now() - self._started

    @property
    def left(self) -> float:
        """Seconds until the budget is used up."""
        return self._budget - self.spent

    def part(self, share: float) -> "Clock":
        """A new clock for a share of the budget."""
        return Clock(min(share * self._budget, self.left), self._now)

    def limited(self, progress: ProgressCallback) -> ProgressCallback:
        """The same callback; once the budget is used up, a call of it raises OutOfTimeError."""

        def report(stage: str, done: float, total: float, /, note: str = "") -> None:
            if self.left <= 0:
                raise OutOfTimeError
            progress(stage, done, total, note=note)

        return report


def in_order(jobs: Iterable[Job[Any]]) -> list[Job[Any]]:
    """Each job once: by wave, within a wave the cheapest first."""
    return sorted({job.name: job for job in jobs}.values(), key=lambda job: (job.wave, job.seconds, job.name))


def run_jobs(
    jobs: Iterable[Job[Any]],
    store: JobStore,
    clock: Clock,
    progress: ProgressCallback,
    on_result: Callable[[Job[Any], JobResult[Any], bool], None] | None = None,
) -> Results:
    """Compute the jobs that are not stored yet. A job that fails is recorded and does not stop the others.

    `on_result` is called after each job with its result, and whether it was computed now.
    """
    results: dict[str, JobResult[Any]] = {}
    for job in in_order(jobs):
        stored = store.load(job)
        is_new = stored is None or not stored.is_done
        result = _attempt(job, store, clock, progress) if stored is None or is_new else stored
        results[job.name] = result
        if on_result is not None:
            on_result(job, result, is_new)
    return Results(results)


def _attempt(job: Job[R], store: JobStore, clock: Clock, progress: ProgressCallback) -> JobResult[R]:
    if job.seconds > clock.left or clock.left <= 0:
        return NOT_RUN
    started = clock.spent
    try:
        value, arrays = job.work(clock.limited(progress))
        result = JobResult("done", value, dict(arrays), clock.spent - started)
    except OutOfTimeError:
        return NOT_RUN
    except Exception as error:
        text = str(error) if isinstance(error, EcocError) else f"{type(error).__name__}: {error}"
        message = " ".join(text.split())[:_LONGEST_MESSAGE]
        result = JobResult("failed", seconds=clock.spent - started, message=message)
    return store.save(job, result)
