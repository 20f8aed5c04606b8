"""From sorted events to sequences worth learning from: pauses, rare items, short sequences, the time of the cut."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ecoc.data.schema import Reason, Step
from ecoc.data.sorted_events import Spool, offsets_of, sums_of
from ecoc.data.sources.base import PrepareConfig

_BUCKETS = 1 << 16


class Filters:
    """Decides which events of a spool are kept (`keep`), noting each step and what it dropped."""

    def __init__(self, spool: Spool, config: PrepareConfig, item_count: int) -> None:
        self._spool = spool
        self._config = config
        self._item_count = item_count
        self.keep: NDArray[np.bool_] = np.ones(len(spool), dtype=np.bool_)
        self.lengths: NDArray[np.int64] = spool.lengths.copy()
        """Kept events of each sequence."""
        self.steps: list[Step] = []
        self.dropped: dict[Reason, int] = {}

    def support_and_length(self, rule: str) -> None:
        """Drop rare items and short sequences: once each (`single-pass`), or until nothing changes (`k-core`)."""
        passes = 0
        while True:
            passes += 1
            before = len(self.steps)
            self._drop_rare_items(f"frequent items, pass {passes}")
            self._drop_short_sequences(f"long sequences, pass {passes}")
            if len(self.steps) == before or rule == "single-pass":
                return

    def _item_counts(self) -> NDArray[np.int64]:
        counts = np.zeros(self._item_count, dtype=np.int64)
        for _, events in self._spool.chunks():
            counts += np.bincount(self._spool.read("items", events)[self.keep[events]], minlength=self._item_count)
        return counts

    def _drop_rare_items(self, step: str) -> None:
        least = self._config.min_item_support
        if least <= 1:
            return
        is_frequent = self._item_counts() >= least
        before = int(self.keep.sum())
        for sequences, events in self._spool.chunks():
            self.keep[events] &= is_frequent[self._spool.read("items", events)]
            self.lengths[sequences] = sums_of(self.keep[events], self._spool.lengths[sequences])
        self._note(step, Reason.RARE_ITEM, before)

    def _drop_short_sequences(self, step: str) -> None:
        is_short = (self.lengths < self._config.min_length) & (self.lengths > 0)
        if not is_short.any():
            return
        before = int(self.keep.sum())
        for sequences, events in self._spool.chunks():
            self.keep[events] &= ~np.repeat(is_short[sequences], self._spool.lengths[sequences])
        self.lengths[is_short] = 0
        self._note(step, Reason.SHORT_SEQUENCE, before)

    def _note(self, step: str, reason: Reason, before: int) -> None:
        lost = before - int(self.keep.sum())
        if lost:
            self.dropped[reason] = self.dropped.get(reason, 0) + lost
            self.steps.append(self.count(step))

    def count(self, step: str) -> Step:
        """How much there is now."""
        return Step(
            name=step,
            interactions=int(self.keep.sum()),
            sequences=int(np.count_nonzero(self.lengths)),
            items=int(np.count_nonzero(self._item_counts())),
        )


def split_at_gaps(spool: Spool, gap: int) -> NDArray[np.int64]:
    """Divide sequences where the time between two events exceeds `gap`; returns each part's number within its owner."""
    owners, lengths = [], []
    for sequences, events in spool.chunks():
        times, old = spool.read("times", events), spool.lengths[sequences]
        starts = np.zeros(len(times), dtype=np.bool_)
        # times may span all of int64, where a difference does not fit; as unsigned it always does
        pause = times[1:].view(np.uint64) - times[:-1].view(np.uint64)
        starts[1:] = pause > np.uint64(gap)
        starts[offsets_of(old)[:-1]] = True
        first = np.flatnonzero(starts)
        lengths.append(np.diff(np.append(first, len(times))))
        owners.append(np.repeat(spool.owners[sequences], old)[first])
    spool.owners, spool.lengths = np.concatenate(owners), np.concatenate(lengths)
    begins = np.flatnonzero(np.concatenate([[True], spool.owners[1:] != spool.owners[:-1]]))
    parts = np.diff(np.append(begins, len(spool.owners)))
    return np.arange(len(spool.owners)) - np.repeat(begins, parts)


def time_at(spool: Spool, keep: NDArray[np.bool_], position: int) -> int:
    """The time at `position` (from 0) of all kept events in time order, exactly, without sorting or holding them.

    Times are counted in buckets, and the bucket that holds the position is divided again until it is a single time.
    """
    bounds = [(int(chunk.min()), int(chunk.max())) for chunk in _kept_times(spool, keep) if len(chunk)]
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    while low < high:
        width = -(-(high - low + 1) // _BUCKETS)
        counts = np.zeros(_BUCKETS, dtype=np.int64)
        for chunk in _kept_times(spool, keep):
            inside = chunk[(chunk >= low) & (chunk <= high)]
            bucket = (inside.view(np.uint64) - np.array(low, dtype=np.int64).view(np.uint64)) // np.uint64(width)
            counts += np.bincount(bucket.astype(np.int64), minlength=_BUCKETS)
        bucket_ends = np.cumsum(counts)
        found = int(np.searchsorted(bucket_ends, position, side="right"))
        position -= int(bucket_ends[found] - counts[found])
        low, high = low + found * width, min(high, low + (found + 1) * width - 1)
    return low


def _kept_times(spool: Spool, keep: NDArray[np.bool_]) -> Iterator[NDArray[np.int64]]:
    for _, events in spool.chunks():
        yield spool.read("times", events)[keep[events]]
