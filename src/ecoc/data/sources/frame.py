"""A log that is a table in memory: the same settings and the same result as the same rows in a Parquet file."""

from pathlib import Path

import pyarrow as pa

from ecoc.data.bad_rows import BadRows
from ecoc.data.frames import FrameColumns
from ecoc.data.readers import BATCH_ROWS, ArrowRows, Batches, Reader
from ecoc.data.sources.log import Log, LogConfig
from ecoc.errors import InputError


class FrameRows(ArrowRows):
    """The rows of a frame."""

    def __init__(self, frame: FrameColumns) -> None:
        super().__init__(Path(frame.kind), frame.names)
        self._frame = frame
        self._columns: dict[str, pa.ChunkedArray] = {}

    def type_of(self, name: str) -> pa.DataType:
        return self._column(name).type

    def selected_batches(self) -> Batches:
        if not self._frame.rows:
            raise InputError(f"{self.path}: the frame has columns but no rows")
        table = pa.table([self._column(name) for name in self.selected], names=self.selected)
        yield from table.to_batches(max_chunksize=BATCH_ROWS)

    def _column(self, name: str) -> pa.ChunkedArray:
        if name not in self._columns:
            self._columns[name] = self._frame[name]
        return self._columns[name]


class FrameLog(Log):
    """A log given as a frame."""

    def __init__(self, config: LogConfig, frame: FrameColumns) -> None:
        super().__init__(config, [])
        self._frame = frame
        self.paths = [frame.kind]

    def _open(self, path: Path, bad: BadRows) -> Reader:
        return FrameRows(self._frame) if str(path) == self._frame.kind else super()._open(path, bad)

    @property
    def size(self) -> int:
        return 0

    @property
    def table_size(self) -> int:
        return self._frame.size
