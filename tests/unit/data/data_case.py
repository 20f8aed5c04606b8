"""Small logs for the tests of `ecoc.data`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ecoc
from ecoc.data.engine import Engine


def write_log(path: Path, rows: Sequence[Sequence[object]], columns: str = "u,i,t", end: str = "\n") -> Path:
    path.write_text(end.join([columns, *(",".join(map(str, row)) for row in rows)]) + end, encoding="utf-8")
    return path


def prepare_text(folder: Path, text: str | bytes, *, name: str = "log.csv", **options: Any) -> ecoc.Dataset:
    """Prepare a log given as text; columns u, i, t unless said otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return prepare_file(path, folder / "out", **options)


def prepare_file(source: Path | list[Path], out: Path, **options: Any) -> ecoc.Dataset:
    merged: dict[str, Any] = {"user": "u", "item": "i", "time": "t", "threads": 1, "validation": 0.0, **options}
    return ecoc.prepare(source, out, **merged)


def all_times(folder: Path, values: Sequence[object], **options: Any) -> dict[str, int]:
    """The stored time of each value of a time column: row k is item k of a user of its own, all of it training."""
    lines = [f'u{k:03},i{k:03},"{value}"\n' for k, value in enumerate(values)]
    merged: dict[str, Any] = {"split": "leave-one-out", "min_length": 1, **options}
    data = prepare_text(folder, "u,i,t\n" + "".join(lines), **merged)
    return {str(values[int(sequence.user[1:])]): int(sequence.times[0]) for sequence in data}


def engine_with(table: str, columns: dict[str, tuple[str, Sequence[Any]]]) -> Engine:
    """An engine in memory with one table: column -> (type, values)."""
    import pyarrow as pa

    engine = Engine()
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
    engine.run(f"CREATE TABLE {table} ({declared})")
    batch = pa.record_batch({name: pa.array(values) for name, (_, values) in columns.items()})
    if batch.num_rows:
        engine.feed(iter([batch]), f"INSERT INTO {table} SELECT {', '.join(columns)} FROM raw")
    return engine
