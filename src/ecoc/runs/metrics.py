"""metrics.jsonl as a table: one row per line, names of nested values joined by a slash."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from ecoc.errors import ArtifactError
from ecoc.storage.trusted import parse_json, read_bytes

_LARGEST = 64 << 20
_MOST_LINES, _MOST_VALUES = 1_000_000, 5_000_000


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
    content = read_bytes(path, largest=_LARGEST)
    if content.count(b"\n") > _MOST_LINES or sum(content.count(mark) for mark in b",:[{") > _MOST_VALUES:
        raise ArtifactError(f"{path}: more than {_MOST_LINES:,} lines or {_MOST_VALUES:,} values; train again")
    return [_line(text) for text in content.split(b"\n") if text.strip()]


def _line(text: bytes) -> dict[str, Any] | None:
    try:
        line = parse_json(text, finite=False)  # a diagnostic may be none
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
