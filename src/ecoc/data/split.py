"""Train, validation and test: how much of each sequence is training, and which sequences are held out."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ecoc.data.filters import Filters, time_at
from ecoc.data.sorted_events import Spool, sums_of
from ecoc.data.sources.base import PrepareConfig
from ecoc.errors import InputError


@dataclass(frozen=True)
class Split:
    """Kept events of each sequence, how many leading ones are training, and which sequences are validation."""

    lengths: NDArray[np.int64]
    train_lengths: NDArray[np.int64]
    is_validation: NDArray[np.bool_]


def split(spool: Spool, filters: Filters, config: PrepareConfig) -> tuple[Split, int | None]:
    """Split by the rule of the settings; also the first test time of a global time split."""
    rule, _, share_text = config.split.partition(":")
    lengths = filters.lengths
    cut = None
    if rule == "time":
        cut = time_at(spool, filters.keep, int(Fraction(share_text) * int(lengths.sum())))
        train_lengths = _count(spool, filters.keep, "times", cut)
    elif rule == "source":
        train_lengths = _count(spool, filters.keep, "is_test", True)
    elif rule == "leave-one-out":
        train_lengths = np.where(lengths > 1, lengths - 1, lengths)
    else:
        share = Fraction(share_text)
        train_lengths = np.maximum(lengths * share.numerator // share.denominator, np.minimum(lengths, 1))
    if not train_lengths.any():
        raise InputError(f"split {config.split} leaves no training events; choose a later cut")
    return Split(lengths, train_lengths, choose_validation(train_lengths, config.validation, config.seed)), cut


def _count(spool: Spool, keep: NDArray[np.bool_], name: str, below: int) -> NDArray[np.int64]:
    """Kept events of each sequence whose value of `name` is smaller than `below`."""
    return np.concatenate(
        [
            sums_of(keep[events] & (spool.read(name, events) < below), spool.lengths[sequences])
            for sequences, events in spool.chunks()
        ]
    )


def choose_validation(train_lengths: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """A seeded draw of `share` of the sequences that have something to predict in training."""
    eligible = np.flatnonzero(train_lengths >= 2)
    chosen = np.zeros(len(train_lengths), dtype=np.bool_)
    count = round(share * len(eligible))
    chosen[np.random.Generator(np.random.PCG64(seed)).permutation(eligible)[:count]] = True
    return chosen
