"""metrics.jsonl as a table: one row per line, names of nested values joined by a slash."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from ecoc.errors import ArtifactError, InputError

_LARGEST = 64 << 20


def metrics_table(path: Path) -> pa.Table:
    """The lines of a metrics.jsonl; a value that a line lacks is null."""
    lines = load_lines(path)
    if any(line is None for line in lines):
        raise ArtifactError(f"{path}: not the metrics of a run; train again")
    rows = [flat(line) for line in lines if line is not None]
    names = dict.fromkeys(name for row in rows for name in row)
    try:
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    except (pa.ArrowException, OverflowError) as error:
        raise ArtifactError(f"{path}: not the metrics of a run ({str(error)[:100]}); train again") from None


def flat(line: Mapping[str, Any], prefix: str = "") -> dict[str, float | bool]:
    """The numbers of a line; those of nested mappings under names joined by a slash."""
    numbers: dict[str, float | bool] = {}
    for key, value in line.items():
        if isinstance(value, Mapping):
            numbers |= flat(value, f"{prefix}{key}/")
        elif isinstance(value, int | float):
            numbers[prefix + key] = value
    return numbers


def load_lines(path: Path) -> list[dict[str, Any] | None]:
    """The lines of a metrics.jsonl, none in place of one that cannot be read; empty lines are left out."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ArtifactError(f"{path}: larger than {_LARGEST} bytes; not the metrics of a run")
        return [_line(text) for text in path.read_bytes().split(b"\n") if text.strip()]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give the folder of a run") from None


def _line(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
