"""Recommendations for a whole file of histories, some rows at a time: a file may be larger than memory.

    JSON lines   {"user": "u1", "history": ["a17", {"item": "b3", "feedback": "buy", "time": 1710264588}]}
    Parquet      column `history`, a list of item ids or of structs with the same fields; column `user` if there is one

The answer has one row per history, in the same order: user, items, scores, values, unknown.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ecoc.arguments import StrPath, as_path
from ecoc.errors import ArtifactError, InputError
from ecoc.model import Event, Model, Recommendations
from ecoc.progress import ProgressCallback
from ecoc.storage.atomic import partial_path, put_in_place
from ecoc.storage.trusted import LARGEST_FILE, open_regular, parse_json

ROWS = 1024
_LONGEST_LINE = 4 << 20
_MOST_EVENTS = 100_000
_FIELDS = {"item", "feedback", "time"}
_SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("items", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float64())),
        ("values", pa.list_(pa.float64())),
        ("unknown", pa.list_(pa.string())),
    ]
)
_KINDS = (".jsonl", ".parquet")


class _Sink(Protocol):
    def write(self, rows: dict[str, list[Any]]) -> None: ...

    def close(self) -> None: ...


def recommend_file(
    model: Model,
    source: StrPath,
    out: StrPath,
    k: int = 10,
    *,
    progress: ProgressCallback | None = None,
    **options: Any,
) -> int:
    """Answer every history of a file into another file, which appears when it is whole; returns their number.

    Options are those of `Model.recommend`.
    """
    path, target = as_path(source, "histories"), as_path(out, "out")
    for name in (path, target):
        if name.suffix not in _KINDS:
            raise InputError(f"{name}: expected a file that ends in {' or '.join(_KINDS)}")
    if target.exists():
        raise InputError(f"{target}: already there; choose another file or remove it")
    count = 0
    with ExitStack() as stack:
        partial = partial_path(target)
        stack.callback(partial.unlink, missing_ok=True)
        try:
            sink = _JsonLines(partial) if target.suffix == _KINDS[0] else _Parquet(partial)
        except OSError as error:
            raise InputError(f"{target}: {error.strerror}; choose another file") from None
        stack.callback(sink.close)
        for users, histories, share in _batches(path):
            lists = model.recommend(histories, k, **options)
            sink.write(_rows(users, lists))
            count += len(users)
            if progress is not None:
                progress("recommend", share, 1.0, note=f"{count:,} histories")
        sink.close()
        put_in_place(target)
    return count


def _rows(users: list[str | None], lists: Recommendations) -> dict[str, list[Any]]:
    return {
        "user": users,
        "items": lists.items,
        "scores": lists.scores,
        "values": lists.values,
        "unknown": lists.unknown,
    }


class _JsonLines:
    def __init__(self, path: Path) -> None:
        self._stream = path.open("w", encoding="utf-8")

    def write(self, rows: dict[str, list[Any]]) -> None:
        for values in zip(*rows.values(), strict=True):
            self._stream.write(json.dumps(dict(zip(rows, values, strict=True)), ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._stream.close()


class _Parquet:
    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, _SCHEMA)

    def write(self, rows: dict[str, list[Any]]) -> None:
        self._writer.write_table(pa.table(rows, schema=_SCHEMA))

    def close(self) -> None:
        self._writer.close()


class _Row(NamedTuple):
    number: int
    content: object
    share: float  # of the file that has been read


def _batches(path: Path) -> Iterator[tuple[list[str | None], list[list[Event]], float]]:
    rows = _json_lines(path) if path.suffix == _KINDS[0] else _parquet_rows(path)
    while batch := list(islice(rows, ROWS)):
        events = [_row(row.content, f"{path}, row {row.number}") for row in batch]
        yield [user for user, _ in events], [history for _, history in events], batch[-1].share


def _opened(path: Path) -> BufferedReader:
    try:
        return open_regular(path, largest=LARGEST_FILE, folder=Path("/"))  # people may link to their own files
    except ArtifactError as error:
        raise InputError(f"{error}; give a file of histories") from None


def _json_lines(path: Path) -> Iterator[_Row]:
    with _opened(path) as stream:
        size, number, position = os.fstat(stream.fileno()).st_size, 0, 0
        while line := stream.readline(_LONGEST_LINE + 1):
            number, position = number + 1, position + len(line)
            if len(line) > _LONGEST_LINE:
                raise InputError(f"{path}, row {number}: longer than {_LONGEST_LINE:,} bytes")
            if line.strip():
                try:
                    yield _Row(number, parse_json(line), position / size)
                except ValueError as error:
                    raise InputError(f"{path}, row {number}: not JSON ({error})") from None


def _parquet_rows(path: Path) -> Iterator[_Row]:
    with _opened(path) as stream:
        try:
            file = pq.ParquetFile(stream)
            names = [name for name in ("user", "history") if name in file.schema_arrow.names]
            if "history" not in names:
                raise InputError(f"{path}: no column 'history'; there is: {', '.join(file.schema_arrow.names)[:200]}")
            number, total = 0, file.metadata.num_rows
            for batch in file.iter_batches(ROWS, columns=names):
                for row in batch.to_pylist():
                    number += 1
                    yield _Row(number, row, number / total)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path}: not a readable Parquet file ({str(error)[:100]})") from None


def _row(row: object, where: str) -> tuple[str | None, list[Event]]:
    if isinstance(row, list):
        row = {"history": row}
    if not isinstance(row, dict) or not isinstance(row.get("history"), list) or set(row) - {"user", "history"}:
        raise InputError(f'{where}: expected {{"user": …, "history": [item ids]}}; "user" may be left out')
    user, history = row.get("user"), row["history"]
    if user is not None and not isinstance(user, str | int):
        raise InputError(f"{where}: 'user' is neither text nor a number")
    if len(history) > _MOST_EVENTS:
        raise InputError(f"{where}: more than {_MOST_EVENTS:,} events")
    return None if user is None else str(user), [_event(event, where) for event in history]


def _event(event: object, where: str) -> Event:
    if isinstance(event, str):
        return event
    if isinstance(event, int) and not isinstance(event, bool):
        return str(event)
    if not isinstance(event, dict) or "item" not in event or set(event) - _FIELDS:
        raise InputError(f'{where}: an event is an item id or {{"item": …, "feedback": …, "time": …}}')
    item, feedback, time = (event.get(name) for name in ("item", "feedback", "time"))
    is_number = isinstance(time, int | float) and not isinstance(time, bool)
    is_right = isinstance(item, str | int) and (feedback is None or isinstance(feedback, str))
    if not is_right or not (time is None or is_number):
        raise InputError(f"{where}: item and feedback of an event are text, its time is in seconds since 1970")
    if time is None:
        return str(item) if feedback is None else (str(item), str(feedback))
    return str(item), feedback if isinstance(feedback, str) else None, float(str(time))
