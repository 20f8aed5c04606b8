"""The data engine: one DuckDB database in a scratch folder, with a memory limit and the errors of ecoc."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ecoc.errors import ResourceError

_SHARE = 0.6  # of the memory limit; the rest is for the reader, the interpreter and memory the engine does not count


class Engine:
    """Runs SQL within `memory` bytes; what does not fit goes to `folder`.

    With `on_disk` the tables are stored there too, compressed: slower, but a log may be much larger than the memory.
    """

    def __init__(
        self, folder: Path | None = None, memory: int = 1 << 30, threads: int = 1, *, on_disk: bool = False
    ) -> None:
        config: dict[str, Any] = {
            "memory_limit": f"{int(memory * _SHARE) >> 20}MiB",
            "threads": threads,
            "preserve_insertion_order": False,  # queries state the order where it matters
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        if folder is not None:
            config["temp_directory"] = str(folder / "spill")
        self._connection = duckdb.connect(
            str(folder / "work.duckdb") if folder and on_disk else ":memory:", config=config
        )
        self._connection.execute("SET TimeZone = 'UTC'")
        if self.run("SELECT current_setting('enable_progress_bar')") != [(False,)]:
            self._connection.execute("SET enable_progress_bar = false")  # an error in a notebook without ipywidgets

    def run(self, sql: str, parameters: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """Execute and fetch all rows of a small result."""
        try:
            return self._connection.execute(sql, parameters or []).fetchall()
        except duckdb.Error as error:
            raise _translated(error) from error

    def scalar(self, sql: str, parameters: list[Any] | None = None) -> Any:
        """The value of a result with one row and one column."""
        return self.run(sql, parameters)[0][0]

    def stream(self, sql: str, rows: int = 1 << 18) -> Iterator[pa.RecordBatch]:
        """Execute and stream the rows of a large result."""
        try:
            yield from self._connection.sql(sql).to_arrow_reader(rows)
        except duckdb.Error as error:
            raise _translated(error) from error

    def feed(self, batches: Iterator[pa.RecordBatch], sql: str) -> None:
        """Execute `sql` with `batches` as the view `raw`; without a batch, do nothing.

        An error in the iterator is raised unchanged, not wrapped in an error of the engine.
        """
        raised: list[BaseException] = []

        def guarded() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except BaseException as error:
                raised.append(error)
                raise

        first = next(batches, None)
        if first is None:
            return
        batches = itertools.chain([first], batches)
        self._connection.register("raw", pa.RecordBatchReader.from_batches(first.schema, guarded()))
        try:
            self._connection.execute(sql)
        except duckdb.Error as error:
            if raised:
                raise raised[0] from None
            raise _translated(error) from error
        finally:
            self._connection.unregister("raw")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


def _translated(error: duckdb.Error) -> Exception:
    """ResourceError for memory and disk failures; any other error is a bug in ecoc and stays unchanged."""
    text = str(error).splitlines()[0]
    if isinstance(error, duckdb.OutOfMemoryException):
        return ResourceError(f"out of memory while preparing: {text[:200]}; raise --memory")
    if isinstance(error, duckdb.IOException):
        return ResourceError(f"disk failure while preparing: {text[:200]}; free space at the output folder")
    return error
