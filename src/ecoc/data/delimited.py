"""Delimited text (CSV, TSV and similar): a fast parser reads it, a slow exact one finds the line of an error."""

import csv
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from ecoc.data.bad_rows import BadRows
from ecoc.data.readers import SAMPLE, Batches, Reader, numbered
from ecoc.data.schema import Reason
from ecoc.data.text import LONGEST_LINE, TextFile
from ecoc.errors import InputError

_MULTI = "\x1f"  # replaces a separator of several characters, which the parser does not support


class Delimited(Reader):
    """CSV, TSV and similar formats. `separator` may have several characters (`::`)."""

    def __init__(
        self,
        path: Path,
        bad: BadRows,
        *,
        separator: str | None = None,
        header: bool = True,
        names: Sequence[str] | None = None,
        quoting: bool = True,
        encoding: str = "utf-8",
    ) -> None:
        self._text = TextFile(path, bad, encoding)
        self._bad = bad
        self._quoting = quoting
        self.may_join_lines = quoting
        self._header = header
        first_line = self._text.first_line()
        self._wide = separator if separator is not None and len(separator.encode()) > 1 else None
        self._separator = _MULTI if self._wide else separator or _guess_separator(first_line)
        with _long_fields():
            first = next(csv.reader([self._narrowed(first_line.encode()).decode()], **self._dialect()))
        columns = [name.strip() for name in first] if header else names or [str(k + 1) for k in range(len(first))]
        if len(columns) != len(first):
            expected = (self._wide or self._separator).join(columns)
            raise InputError(f"{path}:1: found {len(first)} fields, expected the {len(columns)} fields {expected}")
        super().__init__(path, columns)
        self._ragged: list[int] = []
        self._reported = 0

    def samples(self, name: str) -> list[tuple[int, str]]:
        position = self.columns.index(name)
        with closing(TextFile(self.path, BadRows(skip=True), self._text.encoding).blocks()) as blocks:
            lines = self._narrowed(next(blocks)).decode().split("\n")[int(self._header) :][:SAMPLE]
        with _long_fields():
            records = [record for record in csv.reader(lines, **self._dialect()) if record]
        whole = [(row, record) for row, record in enumerate(records) if len(record) == len(self.columns)]
        return [(row, record[position]) for row, record in whole if record[position].strip()]

    def batches(self) -> Batches:
        """Stream rows; rows with a wrong number of fields become bad rows."""
        self._ragged, self._reported = [], 0
        row = 0
        with closing(self._parsed()) as parsed:
            for batch in parsed:
                yield numbered(batch, row)
                row += batch.num_rows
        if self._quoting and self._text.quotes % 2:
            self._refuse_unclosed_quote()
        if not row and not self._ragged:
            raise InputError(f"{self.path}:1: a header but no rows; give a file with rows")

    def _parsed(self) -> Batches:
        positions = [self.columns.index(name) for name in self.selected]
        stream = self._text.stream(int(self._header), self._narrowed)
        options = {
            "read_options": pa.csv.ReadOptions(
                block_size=4 * LONGEST_LINE,
                use_threads=False,  # threads would hide the row numbers of ragged rows, and gain nothing here
                column_names=[str(k) for k in range(len(self.columns))],
            ),
            "parse_options": pa.csv.ParseOptions(
                delimiter=self._separator,
                quote_char='"' if self._quoting else False,
                newlines_in_values=self._quoting,
                invalid_row_handler=self._on_ragged,
            ),
            "convert_options": pa.csv.ConvertOptions(
                include_columns=[str(k) for k in positions],
                column_types={str(k): pa.string() for k in positions},
                strings_can_be_null=False,
            ),
        }
        try:
            reader = pa.csv.open_csv(stream, **options)
            for batch in reader:
                if batch.num_rows:
                    yield batch.rename_columns([f"c{k}" for k in range(len(self.selected))])
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):
                return
            self._refuse_unclosed_quote()
            raise InputError(f"{self.path}: cannot be read as delimited text: {str(error)[:200]}") from None
        finally:
            stream.close()

    def _on_ragged(self, ragged: Any) -> str:
        self._ragged.append(ragged.number)
        return "skip"

    def report(self) -> None:
        """Report the rows with a wrong number of fields since the last call."""
        fresh = self._ragged[self._reported :]
        self._reported = len(self._ragged)
        self._bad.count(Reason.MALFORMED_ROW, len(fresh))
        for number in fresh[: self._bad.room("fields")]:
            line, record = self._record(number - 1)
            message = f"found {len(record)} fields, expected {len(self.columns)} as in line 1"
            self._bad.example("fields", self.path, line, message)

    @property
    def bytes_read(self) -> int:
        return self._text.bytes_read

    def line_of(self, row: int) -> int:
        """Line number of a row; reads the file again."""
        return self._record(self._ordinal(row))[0]

    def values_at(self, row: int) -> dict[str, str]:
        _, record = self._record(self._ordinal(row))
        return {name: record[self.columns.index(name)] for name in self.selected}

    def _ordinal(self, row: int) -> int:
        """Position of a row among all records, ragged ones included."""
        ordinal = row
        while True:
            moved = row + bisect_right(self._ragged, ordinal + 1)
            if moved == ordinal:
                return ordinal
            ordinal = moved

    def _record(self, ordinal: int) -> tuple[int, list[str]]:
        """Line number and fields of one record."""
        with closing(self._records()) as records:
            return next(islice(records, ordinal, None), (0, []))

    def _records(self, strict: bool = False) -> Generator[tuple[int, list[str]], None, None]:
        """Line number and fields of every record that is not blank, by a slow exact parser."""
        text = TextFile(self.path, BadRows(skip=True), self._text.encoding)
        stream = text.stream(int(self._header), self._narrowed)
        lines = (line.decode() for line in stream)
        start = 1 + int(self._header)
        try:
            with _long_fields():
                reader = csv.reader(lines, strict=strict, **self._dialect())
                for record in reader:
                    if record:
                        yield start, record
                    start = reader.line_num + 1 + int(self._header)
        except csv.Error as error:
            raise InputError(f"{self.path}:{start}: {error}") from None
        finally:
            stream.close()

    def _refuse_unclosed_quote(self) -> None:
        try:
            for _ in self._records(strict=True):
                pass
        except InputError as error:
            where = str(error).rsplit(": ", 1)[0]
            raise InputError(
                f"{where}: a quote opens here and does not close before the next separator; "
                "fix the row, or pass --no-quoting if quotes are plain text"
            ) from None

    def _dialect(self) -> dict[str, Any]:
        return {"delimiter": self._separator, "quoting": csv.QUOTE_MINIMAL if self._quoting else csv.QUOTE_NONE}

    def _narrowed(self, block: bytes) -> bytes:
        return block.replace(self._wide.encode(), _MULTI.encode()) if self._wide else block


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let Python's csv module read fields as long as the longest line."""
    previous = csv.field_size_limit(16 * LONGEST_LINE)
    try:
        yield
    finally:
        csv.field_size_limit(previous)


def _guess_separator(line: str) -> str:
    separator = max(",\t;|", key=line.count)
    return separator if separator in line else " " if " " in line.strip() else ","
