"""Sorted events in plain files on disk, read in chunks of whole sequences; filters and the store writer use them."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ecoc.data.schema import ARRAYS

_CHUNK = 1 << 21  # events held in memory at a time
_COLUMNS = {"items": "item", "feedback": "code", "rewards": "reward", "times": "time", "is_test": "is_test"}
_TYPES = {**ARRAYS, "is_test": "|b1"}


class SortedEvents:
    """All events by sequence and time. `lengths`: one entry per sequence; `owners`: its number in `sequence_ids`."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self._folder = folder
        self._arrays = {name: _TYPES[name] for name, column in _COLUMNS.items() if column in columns}
        self.owners: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.lengths: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    @property
    def selected(self) -> str:
        """SQL columns that `fill` expects, sorted by `seq`."""
        return ", ".join(["seq", *(f"{_COLUMNS[name]} AS {name}" for name in self._arrays)])

    def fill(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write sorted events, batch by batch."""
        owners, lengths = [], []
        streams = {name: (self._folder / name).open("wb") for name in self._arrays}
        try:
            for batch in batches:
                sequence = batch.column("seq").to_numpy()
                starts = np.flatnonzero(np.concatenate([[True], sequence[1:] != sequence[:-1]]))
                owners.append(sequence[starts].astype(np.int64))
                lengths.append(np.diff(np.append(starts, len(sequence))))
                for name, stream in streams.items():
                    values = batch.column(name).to_numpy(zero_copy_only=False)
                    values.astype(self._arrays[name], copy=False).tofile(stream)
        finally:
            for stream in streams.values():
                stream.close()
        if owners:
            self._join(np.concatenate(owners), np.concatenate(lengths))

    def _join(self, owners: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Join the parts of a sequence that continues in the next batch."""
        starts = np.flatnonzero(np.concatenate([[True], owners[1:] != owners[:-1]]))
        self.owners, self.lengths = owners[starts], np.add.reduceat(lengths, starts)

    def __len__(self) -> int:
        return int(self.lengths.sum())

    def chunks(self) -> Iterator[tuple[slice, slice]]:
        """Chunks of whole sequences, as (slice of sequences, slice of events)."""
        offsets = offsets_of(self.lengths)
        first, last = 0, len(self.lengths)
        while first < last:
            stop = int(np.searchsorted(offsets, offsets[first] + _CHUNK, side="right")) - 1
            stop = min(last, max(stop, first + 1))
            yield slice(first, stop), slice(int(offsets[first]), int(offsets[stop]))
            first = stop

    def read(self, name: str, events: slice) -> NDArray[Any]:
        """The values of one array for `events`; zeros if the log has no such column."""
        count = events.stop - events.start
        if name not in self._arrays:
            return np.zeros(count, dtype=_TYPES[name])
        dtype = np.dtype(self._arrays[name])
        return np.fromfile(self._folder / name, dtype, count=count, offset=events.start * dtype.itemsize)


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The start of each sequence, and the end of the last."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def sums_of(flags: NDArray[np.bool_], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of set flags in each of consecutive ranges; a range may be empty."""
    sums = np.zeros(len(lengths), dtype=np.int64)
    is_filled = lengths > 0  # reduceat cannot sum an empty range
    if len(flags):
        sums[is_filled] = np.add.reduceat(flags, offsets_of(lengths)[:-1][is_filled], dtype=np.int64)
    return sums
