"""Readers: a raw file -> Arrow batches of its columns, in file order; for messages, a row -> its line.

A reader finds the columns of a file, takes the wanted ones (`select`) and streams them. Every batch has a column
`row`, the position of each row in the file. Nothing is converted here: see `sql_columns` and `times`.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from ecoc.data.bad_rows import BadRows
from ecoc.data.sql_columns import Kind, SqlColumn, literal
from ecoc.data.text import TextFile
from ecoc.errors import InputError, did_you_mean

BATCH_ROWS = 1 << 17
SAMPLE = 1000  # rows read to find out what a column holds

Batches = Generator[pa.RecordBatch, None, None]


class Reader(ABC):
    """Base class: the columns of a file and the SQL name of each selected one."""

    relation = "raw"
    """SQL relation to select from; `raw` is the view of the batches."""
    malformed = "false"
    """SQL condition: a row of `relation` could not be parsed."""
    may_join_lines = False
    """Whether an unclosed quote may have joined several lines."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = list(columns)
        self.selected: list[str] = []

    def select(self, names: Sequence[str]) -> None:
        """Choose the columns to stream; for a missing one the error suggests the nearest name."""
        for name in names:
            if name not in self.columns:
                raise InputError(f"{self.path}:1: no column '{name}'; {did_you_mean(name, self.columns)}")
            if self.columns.count(name) > 1:
                raise InputError(f"{self.path}:1: column '{name}' occurs more than once; rename one of them")
        self.selected = list(dict.fromkeys(names))

    def sql_column(self, name: str) -> SqlColumn:
        """A selected column as SQL."""
        return SqlColumn(f"c{self.selected.index(name)}")

    def samples(self, name: str) -> list[tuple[int, str]]:
        """Non-blank values of a selected column among the first rows, each with its row."""
        with closing(self.batches()) as batches:
            first = next(batches)
        values = map(_as_text, first.column(f"c{self.selected.index(name)}")[:SAMPLE])
        return [(row, value) for row, value in enumerate(values) if value.strip()]

    @abstractmethod
    def batches(self) -> Batches:
        """Stream the selected columns `c0 c1 …` and `row`."""

    def line_of(self, row: int) -> int:
        """Line number of a row, for messages."""
        return row + 1

    def values_at(self, row: int) -> dict[str, str]:
        """The selected values of one row as text, for messages."""
        with closing(self.batches()) as batches:
            for batch in batches:
                first = batch.column("row")[0].as_py()
                if row < first + batch.num_rows:
                    return {name: _as_text(batch.column(f"c{k}")[row - first]) for k, name in enumerate(self.selected)}
        return {}

    @property
    def bytes_read(self) -> int:
        """Bytes of the file read so far, for the progress bar."""
        return 0

    def report(self) -> None:
        """Report the rows since the last call that are in no batch; most readers have none."""
        return


def _as_text(value: pa.Scalar) -> str:
    """A value as text: NULL is empty; a time outside Python's calendar is its number."""
    try:
        return "" if value.as_py() is None else str(value.as_py())
    except (OverflowError, ValueError):
        return str(value.value)


def numbered(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Append the positions `first, first + 1, …` as column `row`."""
    return batch.append_column("row", pa.array(np.arange(first, first + batch.num_rows)))


class JsonLines(Reader):
    """One JSON object per line. The engine's JSON parser extracts the selected values as text and decodes no others."""

    malformed = "j IS NULL"

    def __init__(self, path: Path, bad: BadRows, *, encoding: str = "utf-8") -> None:
        self._text = TextFile(path, bad, encoding)
        first = _object(self._text.first_line().encode())
        if first is None:
            raise InputError(f'{path}:1: not a JSON object; one object per line was expected, e.g. {{"user": "u1"}}')
        super().__init__(path, list(first))

    def select(self, names: Sequence[str]) -> None:
        super().select(names)
        paths = ", ".join(literal("/" + name.replace("~", "~0").replace("/", "~1")) for name in self.selected)
        self.relation = (
            "(SELECT row, CASE WHEN TRY(json_type(line)) = 'OBJECT'"
            f" THEN json_extract_string(line, [{paths}]) END AS j FROM raw)"
        )

    def sql_column(self, name: str) -> SqlColumn:
        return SqlColumn(f"j[{self.selected.index(name) + 1}]")

    def samples(self, name: str) -> list[tuple[int, str]]:
        with closing(self._quiet_blocks()) as blocks:
            lines = next(blocks).split(b"\n")[:SAMPLE]
        values = [(record or {}).get(name) for record in map(_object, lines)]
        return [(row, str(value)) for row, value in enumerate(values) if value is not None and str(value).strip()]

    def _quiet_blocks(self) -> Generator[bytes, None, None]:
        return TextFile(self.path, BadRows(skip=True), self._text.encoding).blocks()

    def batches(self) -> Batches:
        """Stream whole lines as column `line`; `row` is the line number minus one, so blank lines leave gaps."""
        row = 0
        with closing(self._text.blocks()) as blocks:
            for block in blocks:
                lines = block.split(b"\n")
                lines.pop()
                numbers = np.arange(row, row + len(lines))
                batch = pa.record_batch({"line": pa.array(lines, pa.string()), "row": numbers})
                row += len(lines)
                if b"\n\n" in block or block.startswith(b"\n"):
                    batch = batch.filter(pa.array([bool(line.strip()) for line in lines]))
                yield batch

    def values_at(self, row: int) -> dict[str, str]:
        with closing(self._quiet_blocks()) as blocks:
            for block in blocks:
                lines = block.split(b"\n")
                if row < len(lines) - 1:
                    record = _object(lines[row])
                    return {name: str(record.get(name)) for name in self.selected} if record else {}
                row -= len(lines) - 1
        return {}

    @property
    def bytes_read(self) -> int:
        return self._text.bytes_read


def _object(line: bytes) -> dict[str, Any] | None:
    """A JSON object, or None for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class ArrowRows(Reader):
    """Rows with Arrow types, which are kept; the line of a row is its position."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        super().__init__(path, columns)
        self._rows_read = 0

    @abstractmethod
    def type_of(self, name: str) -> pa.DataType:
        """Arrow type of a column."""

    @abstractmethod
    def selected_batches(self) -> Batches:
        """Stream the selected columns in their order."""

    def sql_column(self, name: str) -> SqlColumn:
        return SqlColumn(f"c{self.selected.index(name)}", self._kind(name))

    def batches(self) -> Batches:
        row = 0
        for batch in self.selected_batches():
            columns = [_without_zone(column) for column in batch.columns]
            plain = pa.record_batch(columns, [f"c{k}" for k in range(len(columns))])
            self._check_text(plain, row)
            yield numbered(plain, row)
            row += batch.num_rows
            self._rows_read = row

    def _check_text(self, batch: pa.RecordBatch, first: int) -> None:
        """Refuse text that is not UTF-8: Arrow demands it, but some writers do not comply."""
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid:
            line = first + 1 + min(map(_first_invalid, batch.columns))
            raise InputError(f"{self.path}:{line}: text that is not UTF-8; write the column as UTF-8") from None

    def _kind(self, name: str) -> Kind:
        kind = self.type_of(name)
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return "text"
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return "integer"
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            return "nanotime"
        if pa.types.is_float32(kind) or pa.types.is_float64(kind) or pa.types.is_decimal128(kind):
            return "number"
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return "time"
        raise InputError(f"{self.path}:1: column '{name}' holds {kind}; text, numbers or timestamps were expected")


class ParquetRows(ArrowRows):
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        try:
            schema = pa.parquet.read_schema(path)
            texts = [field.name for field in schema if pa.types.is_string(field.type)]
            # reading texts as dictionaries is twice as fast; a buffer would keep every row group in memory
            self._file = pa.parquet.ParquetFile(path, read_dictionary=texts, memory_map=False, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())[:100]
            raise InputError(f"{path}:1: not a readable Parquet file ({reason}); write it again") from None
        self._schema = self._file.schema_arrow
        super().__init__(path, self._schema.names)

    def type_of(self, name: str) -> pa.DataType:
        return self._schema.field(name).type

    def selected_batches(self) -> Batches:
        """Stream row groups in order."""
        if not self._file.metadata.num_rows:
            raise InputError(f"{self.path}:1: the file has columns but no rows")
        row = 0
        try:
            for batch in self._file.iter_batches(BATCH_ROWS, columns=self.selected):
                yield batch.select(self.selected)
                row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())[:100]
            raise InputError(f"{self.path}:{row + 1}: damaged Parquet data ({reason}); write it again") from None

    @property
    def bytes_read(self) -> int:
        return int(self.path.stat().st_size * self._rows_read / max(1, self._file.metadata.num_rows))


def _first_invalid(column: pa.Array) -> int:
    """Position of the first invalid value; the number of values if all are valid."""
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    try:
        plain.validate(full=True)
    except pa.ArrowInvalid as error:
        match = re.search(r"string index (\d+)", str(error))
        return int(match[1]) if match else 0
    return len(plain)


def _without_zone(column: pa.Array) -> pa.Array:
    """Timestamps as plain UTC: the same instants, in a type that the engine reads at every precision."""
    kind = column.type
    return column.cast(pa.timestamp(kind.unit)) if pa.types.is_timestamp(kind) and kind.tz else column
