"""Train, validation and test: the training part of each sequence, and the sequences held out for validation."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ecoc.data.baskets import has_two_baskets, split_before_baskets
from ecoc.data.filters import Filters, time_at
from ecoc.data.sorted_events import SortedEvents, sums_of
from ecoc.data.sources.base import PrepareConfig
from ecoc.errors import InputError


@dataclass(frozen=True)
class Split:
    """Per sequence: number of kept events, number of leading training events, and whether it is validation."""

    lengths: NDArray[np.int64]
    train_lengths: NDArray[np.int64]
    is_validation: NDArray[np.bool_]


def split(sorted_events: SortedEvents, filters: Filters, config: PrepareConfig) -> tuple[Split, int | None]:
    """Split by the rule in `config`; also return the first test time of a global time split."""
    rule, _, share_text = config.split.partition(":")
    lengths = filters.lengths
    cut = None
    if rule == "time":
        cut = time_at(sorted_events, filters.keep, int(Fraction(share_text) * int(lengths.sum())))
        train_lengths = _count(sorted_events, filters.keep, "times", cut)
    elif rule == "source":
        train_lengths = _count(sorted_events, filters.keep, "is_test", True)
    elif rule == "leave-one-out":
        train_lengths = np.where(lengths > 1, lengths - 1, lengths)
    else:
        share = Fraction(share_text)
        train_lengths = np.maximum(lengths * share.numerator // share.denominator, np.minimum(lengths, 1))
    has_targets = train_lengths >= 2
    if config.baskets:
        if rule != "time":  # events with equal times are on one side of the cut already
            train_lengths = split_before_baskets(sorted_events, filters.keep, lengths, train_lengths)
        has_targets = has_two_baskets(sorted_events, filters.keep, lengths, train_lengths)
    if not train_lengths.any():
        raise InputError(f"split {config.split} leaves no training events; choose a later cut")
    return Split(lengths, train_lengths, choose_validation(has_targets, config.validation, config.seed)), cut


def _count(sorted_events: SortedEvents, keep: NDArray[np.bool_], name: str, below: int) -> NDArray[np.int64]:
    """Number of kept events per sequence whose value of `name` is smaller than `below`."""
    return np.concatenate(
        [
            sums_of(keep[events] & (sorted_events.read(name, events) < below), sorted_events.lengths[sequences])
            for sequences, events in sorted_events.chunks()
        ]
    )


def choose_validation(has_targets: NDArray[np.bool_], share: float, seed: int) -> NDArray[np.bool_]:
    """A seeded sample of `share` of the sequences whose training part holds an event to predict."""
    eligible = np.flatnonzero(has_targets)
    chosen = np.zeros(len(has_targets), dtype=np.bool_)
    count = round(share * len(eligible))
    chosen[np.random.Generator(np.random.PCG64(seed)).permutation(eligible)[:count]] = True
    return chosen
