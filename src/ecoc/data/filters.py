"""Filters on sorted events: splitting at pauses, rare items, short sequences, and the time of the split."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ecoc.data.schema import PreparationStep, Reason
from ecoc.data.sorted_events import SortedEvents, offsets_of, sums_of
from ecoc.data.sources.base import PrepareConfig

_BUCKETS = 1 << 16


class Filters:
    """Decides which events are kept (`keep`) and records each step with the number of events it dropped."""

    def __init__(self, sorted_events: SortedEvents, config: PrepareConfig, item_count: int) -> None:
        self._sorted_events = sorted_events
        self._config = config
        self._item_count = item_count
        self.keep: NDArray[np.bool_] = np.ones(len(sorted_events), dtype=np.bool_)
        self.lengths: NDArray[np.int64] = sorted_events.lengths.copy()
        """Number of kept events per sequence."""
        self.steps: list[PreparationStep] = []
        self.dropped: dict[Reason, int] = {}

    def support_and_length(self, rule: str) -> None:
        """Drop rare items and short sequences: once (`single-pass`), or until nothing changes (`k-core`)."""
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
        for _, events in self._sorted_events.chunks():
            counts += np.bincount(
                self._sorted_events.read("items", events)[self.keep[events]], minlength=self._item_count
            )
        return counts

    def _drop_rare_items(self, step: str) -> None:
        least = self._config.min_item_support
        if least <= 1:
            return
        is_frequent = self._item_counts() >= least
        before = int(self.keep.sum())
        for sequences, events in self._sorted_events.chunks():
            self.keep[events] &= is_frequent[self._sorted_events.read("items", events)]
            self.lengths[sequences] = sums_of(self.keep[events], self._sorted_events.lengths[sequences])
        self._record(step, Reason.RARE_ITEM, before)

    def _drop_short_sequences(self, step: str) -> None:
        is_short = (self.lengths < self._config.min_length) & (self.lengths > 0)
        if not is_short.any():
            return
        before = int(self.keep.sum())
        for sequences, events in self._sorted_events.chunks():
            self.keep[events] &= ~np.repeat(is_short[sequences], self._sorted_events.lengths[sequences])
        self.lengths[is_short] = 0
        self._record(step, Reason.SHORT_SEQUENCE, before)

    def _record(self, step: str, reason: Reason, before: int) -> None:
        dropped = before - int(self.keep.sum())
        if dropped:
            self.dropped[reason] = self.dropped.get(reason, 0) + dropped
            self.steps.append(self.count(step))

    def count(self, step: str) -> PreparationStep:
        """Numbers of interactions, sequences and items that are kept now."""
        return PreparationStep(
            name=step,
            interactions=int(self.keep.sum()),
            sequences=int(np.count_nonzero(self.lengths)),
            items=int(np.count_nonzero(self._item_counts())),
        )


def split_at_gaps(sorted_events: SortedEvents, gap: int) -> NDArray[np.int64]:
    """Split sequences where two events are more than `gap` apart; return each part's number within its owner."""
    owners, lengths = [], []
    for sequences, events in sorted_events.chunks():
        times, old = sorted_events.read("times", events), sorted_events.lengths[sequences]
        starts = np.zeros(len(times), dtype=np.bool_)
        # times may span all of int64: their difference may overflow int64, never uint64
        pause = times[1:].view(np.uint64) - times[:-1].view(np.uint64)
        starts[1:] = pause > np.uint64(gap)
        starts[offsets_of(old)[:-1]] = True
        first = np.flatnonzero(starts)
        lengths.append(np.diff(np.append(first, len(times))))
        owners.append(np.repeat(sorted_events.owners[sequences], old)[first])
    sorted_events.owners, sorted_events.lengths = np.concatenate(owners), np.concatenate(lengths)
    begins = np.flatnonzero(np.concatenate([[True], sorted_events.owners[1:] != sorted_events.owners[:-1]]))
    parts = np.diff(np.append(begins, len(sorted_events.owners)))
    return np.arange(len(sorted_events.owners)) - np.repeat(begins, parts)


def time_at(sorted_events: SortedEvents, keep: NDArray[np.bool_], position: int) -> int:
    """The exact time at `position` (from 0) of all kept events in time order, without sorting them or loading them all.

    Times are counted in buckets; the bucket that holds the position is divided again until it is a single time.
    """
    bounds = [(int(chunk.min()), int(chunk.max())) for chunk in _kept_times(sorted_events, keep) if len(chunk)]
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    while low < high:
        width = -(-(high - low + 1) // _BUCKETS)
        counts = np.zeros(_BUCKETS, dtype=np.int64)
        for chunk in _kept_times(sorted_events, keep):
            inside = chunk[(chunk >= low) & (chunk <= high)]
            bucket = (inside.view(np.uint64) - np.array(low, dtype=np.int64).view(np.uint64)) // np.uint64(width)
            counts += np.bincount(bucket.astype(np.int64), minlength=_BUCKETS)
        bucket_ends = np.cumsum(counts)
        chosen = int(np.searchsorted(bucket_ends, position, side="right"))
        position -= int(bucket_ends[chosen] - counts[chosen])
        low, high = low + chosen * width, min(high, low + (chosen + 1) * width - 1)
    return low


def _kept_times(sorted_events: SortedEvents, keep: NDArray[np.bool_]) -> Iterator[NDArray[np.int64]]:
    for _, events in sorted_events.chunks():
        yield sorted_events.read("times", events)[keep[events]]
