"""Results kept in a run folder: one JSON file per command, written whole, checked when read.

A file holds the newest result of each key, which names the options. An entry counts only for the weights and the data
it was computed with, and for the weights of the other runs in it; training one of them again makes it stale.
"""

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from ecoc.config import Config
from ecoc.errors import ArtifactError, InputError, ResourceError
from ecoc.result import Result
from ecoc.runs.folder import RESULT, Run
from ecoc.storage.atomic import write_whole
from ecoc.storage.trusted import is_there, load_json

EVALUATION, COMPARISON, SIMULATION, NORM_TEST = "evaluation.json", "comparison.json", "simulation.json", "normtest.json"
NOT_CHOSEN = "not_chosen.json"  # the newest choice of w, if no weight could be chosen
_LARGEST = 32 << 20
_MOST_ENTRIES = 50  # keys of a file; the oldest go first
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)

R = TypeVar("R", bound=Result)


class _Entry(Config):
    weights_sha256: str
    data_sha256: str
    others: dict[str, str] = Field(default_factory=dict, description="weights of other runs by path from this one")
    result: dict[str, object]


class _File(Config):
    version: int = 1
    results: dict[str, _Entry]


def save_result(run: Run, file: str, key: str, result: Result, others: Iterable[Run] = ()) -> None:
    """Keep a result as the newest of its key; a file that cannot be read is replaced.

    `others` are the other runs that the result is about.
    """
    weights, data = _belongs_to(run)
    known = {os.path.relpath(other.path, run.path): other.result.weights_sha256 for other in others}
    entries: dict[str, _Entry] = {}
    with suppress(ArtifactError, InputError):
        entries = {name: entry for name, entry in _read(run, file).items() if entry.weights_sha256 == weights}
    entries.pop(key, None)
    values = json.loads(result.model_dump_json())
    entries[key] = _Entry(weights_sha256=weights, data_sha256=data, others=known, result=values)
    newest = dict(list(entries.items())[-_MOST_ENTRIES:])
    write_whole(run.path / file, [_File(results=newest).model_dump_json(indent=1).encode(), b"\n"])


def save_in_runs(runs: Sequence[Run], file: str, key: str, result: Result) -> list[str]:
    """Keep a result in each of the runs it is about; returns a note for each folder that is read-only."""
    notes: list[str] = []
    for run in runs:
        with saving(run, notes):
            save_result(run, file, key, result, [other for other in runs if other.path != run.path])
    return list(dict.fromkeys(notes))


@contextmanager
def saving(run: Run, notes: list[str] | None = None) -> Iterator[list[str]]:
    """Write into a run; if its folder is read-only, a note says that nothing was saved."""
    notes = [] if notes is None else notes
    try:
        yield notes
    except (ResourceError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in _READ_ONLY:
            raise
        notes.append(not_saved(run))


def not_saved(run: Run) -> str:
    """What the user is told of a read-only run."""
    return f"not saved: {run.path} is read-only"


def load_results(run: Run, file: str, kind: type[R]) -> list[R]:
    """What a file holds of the present weights and data of its runs, oldest first; nothing if there is no file."""
    try:
        return [kind.model_validate(entry.result) for entry in _read(run, file).values() if _is_current(run, entry)]
    except (ValidationError, InputError) as error:
        raise ArtifactError(_broken(run, file, error)) from None


def is_read_only(run: Run, *folders: Path) -> bool:
    """Whether nothing can be saved in a run, or in one of these folders of it."""
    return not all(os.access(folder, os.W_OK) for folder in (run.path, *folders) if is_there(folder))


def check_writable(run: Run) -> None:
    """Refuse a read-only run folder before work whose result has to be written."""
    if is_read_only(run):
        raise InputError(f"{run.path}: the folder is read-only, so nothing can be saved in it; make it writable")


def _is_current(run: Run, entry: _Entry) -> bool:
    """Whether an entry is of the present weights; a run that is no longer there cannot have changed."""
    if (entry.weights_sha256, entry.data_sha256) != _belongs_to(run):
        return False
    others = ((Run(run.path / path), weights) for path, weights in entry.others.items())
    return all(run.result.weights_sha256 == weights for run, weights in others if is_there(run.path / RESULT))


def _belongs_to(run: Run) -> tuple[str, str]:
    result = run.result
    return result.weights_sha256, result.data.checksum if result.data is not None else ""


def _read(run: Run, file: str) -> dict[str, _Entry]:
    path = run.path / file
    if not is_there(path):
        return {}
    content = load_json(path, largest=_LARGEST, remedy="remove it, then compute it again")
    try:
        return _File.model_validate(content).results
    except ValidationError as error:
        raise ArtifactError(_broken(run, file, error)) from None


def _broken(run: Run, file: str, error: Exception) -> str:
    what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
    return f"{run.path / file}: not readable ({what[:80]}); remove it, then compute it again"
