"""Rewards as methods see them: scaled alike for all, or shuffled among the training events as a control."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ecoc.data.sequences import Dataset

Ints = NDArray[np.int64]

_USUAL, _HEAVY = 0.999, 10.0  # share of rewards that are not outliers, and how far beyond them outliers begin
_KINDS = 100  # distinct rewards from which they are amounts


@dataclass(frozen=True)
class RewardScaler:
    """Rewards as methods see them: scaled alike for all, or shuffled among the training events as a control."""

    factor: float
    limit: float = float("inf")  # scaled rewards beyond it, either way, count as it
    shuffled: NDArray[np.float32] | None = None  # of all events, in place of the dataset's

    def of(self, data: Dataset, events: Ints) -> NDArray[np.float32]:
        """Scaled rewards of events."""
        found = data.rewards[events] if self.shuffled is None else self.shuffled[events]
        return np.clip(np.asarray(found * np.float32(self.factor), np.float32), -self.limit, self.limit)

    def __str__(self) -> str:
        cut = (
            ""
            if self.limit == float("inf")
            else ", larger ones cut to it: they are too rare and too large to learn from"
        )
        return f"divided by {1 / self.factor:.6g}{cut}"


def open_reward_scaler(data: Dataset, scale: str | float, *, shuffle: bool, seed: int) -> RewardScaler:
    """`scale`: none, mean or max (of the absolute rewards trained on), or what to divide by.

    auto: max; but where rewards are amounts and the largest is more than ten times the 99.9th percentile, the latter.
    """
    events, _ = training_events(data)
    size = np.abs(np.asarray(data.rewards[events], np.float64))
    largest, usual = float(size.max()), float(np.quantile(size, _USUAL))
    # rewards of a few kinds mean something, however rare the largest is; of amounts, outliers are just outliers
    is_heavy = scale == "auto" and 0 < usual < largest / _HEAVY and len(np.unique(size)) > _KINDS
    named = {"none": 1.0, "mean": float(size.mean()), "max": largest, "auto": usual if is_heavy else largest}
    by = named[scale] if isinstance(scale, str) else scale
    rewards = None
    if shuffle:
        rewards = np.array(data.rewards, np.float32)
        rewards[events] = rewards[np.random.default_rng([seed, 1]).permutation(events)]
    return RewardScaler(1.0 / by if by else 1.0, 1.0 if is_heavy else float("inf"), rewards)


def training_events(data: Dataset) -> tuple[Ints, Ints]:
    """Events that may be learnt from, sequence by sequence, and where each sequence begins among them."""
    kept = np.where(np.asarray(data.is_validation), 0, np.asarray(data.train_lengths))
    sequence = np.flatnonzero(kept)
    counts = kept[sequence]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    event = np.arange(offsets[-1]) + np.repeat(np.asarray(data.offsets)[sequence] - offsets[:-1], counts)
    return event, offsets
