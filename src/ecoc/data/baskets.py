"""Baskets: events of a sequence at one time are a set without order; the state before it predicts each of them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ecoc.data.sorted_events import SortedEvents, offsets_of

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Baskets:
    """The first event of each event's basket, and the first event after it. One entry per event."""

    first: Ints
    stop: Ints


def baskets_of(times: Ints, offsets: Ints) -> Baskets:
    """The baskets of sequences: runs of equal times within `offsets[k]:offsets[k + 1]`."""
    starts = np.ones(len(times), dtype=np.bool_)
    starts[1:] = times[1:] != times[:-1]
    starts[offsets[:-1][np.diff(offsets) > 0]] = True
    first = np.flatnonzero(starts)
    sizes = np.diff(np.append(first, len(times)))
    return Baskets(np.repeat(first, sizes), np.repeat(first + sizes, sizes))


def count_sharing(sorted_events: SortedEvents) -> int:
    """Number of events that have the time of another event of their sequence."""
    count = 0
    for sequences, events in sorted_events.chunks():
        lengths = sorted_events.lengths[sequences]
        baskets = baskets_of(sorted_events.read("times", events), offsets_of(lengths))
        count += int(np.count_nonzero(baskets.stop - baskets.first > 1))
    return count


def first_sizes(times: Ints, lengths: Ints) -> Ints:
    """Size of the first basket of each sequence; 0 where a sequence is empty."""
    offsets = offsets_of(lengths)
    sizes = np.zeros(len(lengths), dtype=np.int64)
    start = offsets[:-1][lengths > 0]
    sizes[lengths > 0] = baskets_of(times, offsets).stop[start] - start
    return sizes


def split_before_baskets(
    sorted_events: SortedEvents, keep: NDArray[np.bool_], lengths: Ints, train_lengths: Ints
) -> Ints:
    """`train_lengths` moved down to the start of a basket, but at least the first one; `lengths` counts kept events."""
    result = train_lengths.copy()
    for sequences, events in sorted_events.chunks():
        size, train = lengths[sequences], train_lengths[sequences]
        times, offsets = sorted_events.read("times", events)[keep[events]], offsets_of(size)
        is_cut = train < size
        start = offsets[:-1][is_cut]
        moved = baskets_of(times, offsets).first[start + train[is_cut]] - start
        result[sequences][is_cut] = np.maximum(moved, first_sizes(times, size)[is_cut])
    return result


def has_two_baskets(
    sorted_events: SortedEvents, keep: NDArray[np.bool_], lengths: Ints, train_lengths: Ints
) -> NDArray[np.bool_]:
    """Whether the training part of each sequence holds more than its first basket."""
    sizes = [
        first_sizes(sorted_events.read("times", events)[keep[events]], lengths[sequences])
        for sequences, events in sorted_events.chunks()
    ]
    has_two: NDArray[np.bool_] = train_lengths > np.concatenate(sizes)
    return has_two


@dataclass(frozen=True)
class TrainPart:
    """Training parts of sequences, as absolute events: the first one, the one after the last, and the first target."""

    first: Ints
    stop: Ints
    target: Ints


def next_start(baskets: Baskets, event: Ints) -> Ints:
    """The first event, from each event on, that begins a basket; it may lie behind the last event."""
    return np.where(baskets.first[event] == event, event, baskets.stop[event])


def tile(baskets: Baskets, part: TrainPart, length: int) -> tuple[Ints, Ints, Ints]:
    """Adjacent windows of at most `length` + 1 events, from the end backwards: sequence, first event, size.

    The first basket that begins in a window, after its first event, is the first that it predicts: of an earlier one
    the state before it is not there. The next window ends before that basket. Of a basket of more than `length` items
    only the first `length` are in a window.
    """
    stop, rows, firsts, sizes = part.stop.copy(), [], [], []
    row = np.flatnonzero(stop > part.target)
    while len(row):
        end = stop[row]
        earliest = np.maximum(end - length - 1, part.first[row])
        start = next_start(baskets, earliest + 1)
        is_longer = start >= end  # the last basket is longer than the window
        start = np.where(is_longer, baskets.first[end - 1], start)
        first = np.where(is_longer, start - 1, earliest)
        rows.append(row)
        firsts.append(first)
        sizes.append(np.minimum(end - first, length + 1))
        stop[row] = start
        row = row[start > part.target[row]]
    order = np.argsort(np.concatenate(rows), kind="stable")
    return np.concatenate(rows)[order], np.concatenate(firsts)[order], np.concatenate(sizes)[order]
