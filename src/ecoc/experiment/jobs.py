"""Cells: the units of an experiment. Each is computed once and kept whole, with what its result depends on.

A cell lies in `cells/NAME.json`, numbers of single test cases beside it in `NAME.safetensors`. One that is done is
never done again; one that failed, is damaged, or depends on something that has changed since, is.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ecoc.errors import ArtifactError, EcocError
from ecoc.progress import ProgressCallback
from ecoc.storage.atomic import json_bytes
from ecoc.storage.checkpoint import load_checkpoint, remove_partial, save_checkpoint

CELLS = "cells"
Arrays = Mapping[str, NDArray[Any]]
_LONGEST_MESSAGE = 500


class OutOfTimeError(Exception):
    """The budget is spent."""


@dataclass(frozen=True)
class Cell:
    """One unit of work. `work` is told whom to tell how far it is; it returns facts and arrays."""

    name: str
    work: Callable[[ProgressCallback], tuple[dict[str, Any], Arrays]]
    depends: Callable[[], Mapping[str, Any]]  # asked when the cell comes up: it may look at what others found
    seconds: float = 0.0  # estimate
    stage: int = 0  # a cell that looks at what others found has a later one
    rank: int = 0  # 0: needed; others may be left out, the highest first
    method: str = ""
    encoder: str = ""
    seed: int | None = None
    paced: tuple[str, str] | None = None  # the variant and encoder whose pace the estimate is made from


@dataclass(frozen=True)
class JobResult:
    """What came of a cell."""

    status: Literal["done", "failed", "not run"]
    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    seconds: float = 0.0
    message: str = ""

    @property
    def is_done(self) -> bool:
        """Whether there is a result."""
        return self.status == "done"


class Store:
    """Where cells are kept. `common` is what every cell depends on."""

    def __init__(self, folder: Path, common: Mapping[str, Any]) -> None:
        self.folder, self._common = folder, dict(common)

    def load(self, cell: Cell) -> JobResult | None:
        """What an earlier call found, if it still holds."""
        folder, name = self._place(cell)
        if not (folder / f"{name}.json").is_file():
            return None
        try:
            kept = load_checkpoint(folder, name)
            state = dict(kept.state)
            if state.pop("checksum") != _digest(state) or state["fingerprint"] != self.fingerprint(cell):
                return None
            arrays = {key: tensor.numpy() for key, tensor in kept.tensors.items()}
            return JobResult(
                state["status"], dict(state["facts"]), arrays, float(state["seconds"]), str(state["message"])
            )
        except (ArtifactError, KeyError, TypeError, ValueError):
            return None

    def save(self, cell: Cell, found: JobResult) -> JobResult:
        """Keep what a cell found; returned as a later call will read it."""
        folder, name = self._place(cell)
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial(folder)
        state = {
            "cell": cell.name,
            "fingerprint": self.fingerprint(cell),
            "status": found.status,
            "facts": found.facts,
            "seconds": found.seconds,
            "message": found.message,
        }
        state = json.loads(json_bytes(state))
        tensors = {key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in found.arrays.items()}
        save_checkpoint(folder, name, tensors, {**state, "checksum": _digest(state)})
        again = self.load(cell)
        if again is None:
            raise ArtifactError(f"{folder / name}: not what was just written there; check the disk")
        return again

    def fingerprint(self, cell: Cell) -> str:
        """Of everything the result depends on."""
        return _digest({"name": cell.name, "common": self._common, "depends": dict(cell.depends())})

    def _place(self, cell: Cell) -> tuple[Path, str]:
        path = self.folder / CELLS / cell.name
        return path.parent, path.name


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Clock:
    """How much time is left; without a budget there is no end to it."""

    def __init__(self, budget: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._started = now, now()
        self._budget = float("inf") if budget is None else budget

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return self._now() - self._started

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self._budget - self.spent

    def part(self, share: float) -> "Clock":
        """A clock of its own for a share of the budget."""
        return Clock(min(share * self._budget, self.left), self._now)

    def watched(self, watch: ProgressCallback) -> ProgressCallback:
        """The same watcher; work that tells it something after the end is stopped."""

        def look(stage: str, done: float, total: float, /, note: str = "") -> None:
            if self.left <= 0:
                raise OutOfTimeError
            watch(stage, done, total, note=note)

        return look


def in_order(cells: Iterable[Cell]) -> list[Cell]:
    """Each once, by stage, the cheapest first."""
    return sorted({cell.name: cell for cell in cells}.values(), key=lambda cell: (cell.stage, cell.seconds, cell.name))


def run_cells(
    cells: Iterable[Cell],
    store: Store,
    clock: Clock,
    watch: ProgressCallback,
    tell: Callable[[Cell, JobResult, bool], None],
) -> dict[str, JobResult]:
    """Compute what is not there yet. A cell that fails is recorded and does not stop the others."""
    results: dict[str, JobResult] = {}
    for cell in in_order(cells):
        found = store.load(cell)
        is_new = found is None or not found.is_done
        if is_new:
            found = _attempt(cell, store, clock, watch)
        assert found is not None  # noqa: S101 - for the type checker
        results[cell.name] = found
        tell(cell, found, is_new)
    return results


def _attempt(cell: Cell, store: Store, clock: Clock, watch: ProgressCallback) -> JobResult:
    if cell.seconds > clock.left or clock.left <= 0:
        return JobResult("not run", message="not run: out of time")
    started = clock.spent
    try:
        facts, arrays = cell.work(clock.watched(watch))
        found = JobResult("done", facts, dict(arrays), clock.spent - started)
    except OutOfTimeError:
        return JobResult("not run", message="not run: out of time")
    except Exception as error:
        text = str(error) if isinstance(error, EcocError) else f"{type(error).__name__}: {error}"
        found = JobResult("failed", seconds=clock.spent - started, message=" ".join(text.split())[:_LONGEST_MESSAGE])
    return store.save(cell, found)
