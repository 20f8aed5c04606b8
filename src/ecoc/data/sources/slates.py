"""SlateReader: base of readers that make several rows from one row of a file, such as one per item of a slate."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ecoc.data.bad_rows import BadRows
from ecoc.data.delimited import Delimited
from ecoc.data.readers import Reader
from ecoc.data.schema import Reason


class SlateReader(Reader):
    """Reads the columns `raw` of a file; a subclass streams `columns`. Messages name the rows of the file."""

    def __init__(self, rows: Delimited, bad: BadRows, *, raw: Sequence[str], columns: Sequence[str]) -> None:
        super().__init__(rows.path, columns)
        self.selected = self.columns
        rows.select(raw)
        self._rows, self._bad = rows, bad

    def _reject(self, batch: pa.RecordBatch, whole: pa.Array, reason: str) -> None:
        """Count the rows of a batch that are not whole as bad rows."""
        broken = batch.filter(pc.invert(whole)).column("row").to_pylist()
        self._bad.count(Reason.MALFORMED_ROW, len(broken))
        for row in broken[: self._bad.room("slate")]:
            self._bad.example("slate", self.path, self._rows.line_of(row), reason)

    def report(self) -> None:
        self._rows.report()

    def line_of(self, row: int) -> int:
        return self._rows.line_of(row)

    @property
    def bytes_read(self) -> int:
        return self._rows.bytes_read
