"""Small right logs, in every format, whose only purpose is to be spoilt; four users see the same five items."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from bad_case import Writer

START = 1_500_000_000
ROWS: list[dict[str, Any]] = [
    {
        "user": f"u{k % 4 + 1}",
        "item": f"i{(k // 4 + k % 4) % 5 + 1}",
        "ts": START + 60 * k,
        "event": ("click", "buy")[k % 2],
        "price": k + 0.5,
    }
    for k in range(20)
]
HEADER = "user,item,ts,event,price"


def csv_lines(separator: str = ",") -> list[str]:
    """Header (line 1) and twenty rows (lines 2 to 21)."""
    rows = [separator.join(str(value) for value in row.values()) for row in ROWS]
    return [HEADER.replace(",", separator), *rows]


def json_lines() -> list[str]:
    """Twenty objects, lines 1 to 20."""
    return [json.dumps(row) for row in ROWS]


def joined(lines: Sequence[str], end: str = "\n") -> bytes:
    return "".join(line + end for line in lines).encode("utf-8", "surrogateescape")


def replaced(changes: Mapping[int, str], lines: Sequence[str] | None = None) -> bytes:
    """The log with some lines, counted from 1, put in place of its own."""
    result = list(csv_lines() if lines is None else lines)
    for line, text in changes.items():
        result[line - 1] = text
    return joined(result)


def fields(line: int, **changes: object) -> str:
    """The right row of a line, with some fields changed."""
    return ",".join(str(value) for value in {**ROWS[line - 2], **changes}.values())


def changed(line: int, **changes: object) -> bytes:
    """The CSV log with one row's fields changed."""
    return replaced({line: fields(line, **changes)})


def changed_json(line: int, **changes: object) -> bytes:
    """The JSON lines with one object's values changed."""
    return replaced({line: json.dumps({**ROWS[line - 1], **changes})}, json_lines())


def column(name: str, values: Mapping[int, object], default: object) -> bytes:
    """The CSV log with a column's values: some by line, the rest one default."""
    rows = [fields(line, **{name: values.get(line, default)}) for line in range(2, 22)]
    return joined([HEADER, *rows])


def file(name: str, content: bytes) -> Writer:
    """Writes one file."""

    def write(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return write


def files(contents: Mapping[str, bytes], give: str = ".") -> Writer:
    """Writes several files and gives the folder, or one of them."""

    def write(folder: Path) -> Path:
        for name, content in contents.items():
            file(name, content)(folder)
        return folder / give if give != "." else folder

    return write


def parquet(name: str = "log.parquet", rows: slice = slice(None), **columns: pa.Array) -> Writer:
    """Writes the log as Parquet, with some columns replaced."""

    def write(folder: Path) -> Path:
        own = {key: pa.array([row[key] for row in ROWS])[rows] for key in ROWS[0]}
        pa.parquet.write_table(pa.table({**own, **columns}), folder / name)
        return folder / name

    return write


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), sink)
    return bytes(sink.getvalue())


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, 6, mtime=0)


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())
