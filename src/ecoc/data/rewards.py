"""Rewards as methods see them: divided by one number, and optionally shuffled among training events as a control."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ecoc.data.sequences import Dataset

Ints = NDArray[np.int64]

_USUAL, _HEAVY = 0.999, 10.0  # quantile of rewards that are no outliers; outliers exceed it by this factor
_KINDS = 100  # with more distinct rewards than this, rewards are amounts


@dataclass(frozen=True)
class RewardScaler:
    """Divides the rewards of all events by one number, clips outliers, and replaces shuffled ones."""

    factor: float
    limit: float = float("inf")  # scaled rewards are clipped to [-limit, limit]
    clipped: tuple[int, int] = (0, 0)  # training rewards below -limit and above limit
    shuffled: NDArray[np.float32] | None = None  # rewards of all events, in place of the dataset's

    def of(self, data: Dataset, events: Ints) -> NDArray[np.float32]:
        """Scaled rewards of events."""
        rewards = data.rewards[events] if self.shuffled is None else self.shuffled[events]
        return np.clip(np.asarray(rewards * np.float32(self.factor), np.float32), -self.limit, self.limit)

    def __str__(self) -> str:
        below, above = self.clipped
        text = f"divided by {1 / self.factor:.6g}"
        if self.limit == float("inf"):
            return text
        text += f", then clipped to [-{self.limit:g}, {self.limit:g}] because larger amounts are rare outliers"
        return f"{text} (training events clipped: {above:,} at the top, {below:,} at the bottom)"


def open_reward_scaler(data: Dataset, scale: str | float, *, shuffle: bool, seed: int) -> RewardScaler:
    """The scaler for `scale`: none, mean or max (of the absolute training rewards), auto, or a number to divide by.

    auto is max. But if rewards are amounts and the largest exceeds ten times the 99.9th percentile, auto divides by
    that percentile and clips to [-1, 1]: a large return of goods is an outlier as a large purchase is. Both sides have
    one scale, so a return still costs what the purchase earned.
    """
    events, _ = training_events(data)
    signed = np.asarray(data.rewards[events], np.float64)
    size = np.abs(signed)
    largest, usual = float(size.max()), float(np.quantile(size, _USUAL))
    # a reward of one of a few values is meaningful however rare it is; a very large amount is an outlier
    is_heavy = scale == "auto" and 0 < usual < largest / _HEAVY and len(np.unique(size)) > _KINDS
    named = {"none": 1.0, "mean": float(size.mean()), "max": largest, "auto": usual if is_heavy else largest}
    by = named[scale] if isinstance(scale, str) else scale
    rewards = None
    if shuffle:
        rewards = np.array(data.rewards, np.float32)
        rewards[events] = rewards[np.random.default_rng([seed, 1]).permutation(events)]
    factor = 1.0 / by if by else 1.0
    if not is_heavy:
        return RewardScaler(factor, shuffled=rewards)
    clipped = int(np.count_nonzero(signed * factor < -1)), int(np.count_nonzero(signed * factor > 1))
    return RewardScaler(factor, 1.0, clipped, rewards)


def training_events(data: Dataset) -> tuple[Ints, Ints]:
    """Training events, sequence by sequence, and the offset of each sequence among them."""
    kept = np.where(np.asarray(data.is_validation), 0, np.asarray(data.train_lengths))
    sequence = np.flatnonzero(kept)
    counts = kept[sequence]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    event = np.arange(offsets[-1]) + np.repeat(np.asarray(data.offsets)[sequence] - offsets[:-1], counts)
    return event, offsets
