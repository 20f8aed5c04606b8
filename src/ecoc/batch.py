"""History and Batch: what encoders read and methods learn from, as tensors with shapes."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PAD = 0
"""Index of the padding item. Real items are 1..n."""


@dataclass(frozen=True)
class History:
    """What users did so far, one row a user, oldest first, padded on the right."""

    items: Tensor  # [B, L] int64; PAD after the end
    feedback: Tensor | None = None  # [B, L] int64; feedback code + 1, 0 unknown or padding
    users: Tensor | None = None  # [B] int64; 1..n of the training sequences, 0 unknown

    @property
    def lengths(self) -> Tensor:
        """Number of items in each row, [B]."""
        return (self.items != PAD).sum(1)

    def rows(self, index: Tensor) -> "History":
        """The chosen rows."""
        feedback = None if self.feedback is None else self.feedback[index]
        return History(self.items[index], feedback, None if self.users is None else self.users[index])


@dataclass(frozen=True)
class Dims:
    """Sizes that networks take from the data."""

    items: int
    users: int = 0
    feedback: int = 0


@dataclass(frozen=True)
class TrainSequences:
    """The training sequences, for what looks at all of them at once: k is `items[offsets[k]:offsets[k + 1]]`."""

    items: NDArray[np.int64]
    offsets: NDArray[np.int64]
    rewards: NDArray[np.float32] | None = None  # scaled as in batches; of each item

    def frequency(self, items: int) -> Tensor:
        """Each item's share of the events, that is, of being a target; [V], an item that never occurs counts once."""
        counts = torch.bincount(torch.from_numpy(self.items), minlength=items + 1).float()
        return counts.clamp(min=1) / counts.sum()

    def rewards_to_go(self) -> NDArray[np.float64]:
        """R_t = sum of r_t' over t' >= t in the same sequence, not discounted, of every event."""
        if self.rewards is None:
            return np.zeros(len(self.items))
        before = np.concatenate([[0.0], np.cumsum(self.rewards, dtype=np.float64)])
        to_go: NDArray[np.float64] = np.repeat(before[self.offsets[1:]], np.diff(self.offsets)) - before[:-1]
        return to_go


@dataclass(frozen=True)
class Batch:
    """Windows of logged sequences: at each position, what came next and what it was worth."""

    history: History
    target: Tensor  # [B, L] int64; the item that followed, PAD where there is no transition to learn from
    reward: Tensor  # [B, L] float32; worth of the target
    done: Tensor  # [B, L] float32; 1 where the target ended its sequence
    before: Tensor | None = None  # [B, L] int64; events of the sequence before the target
    returns: Tensor | None = None  # [B, L] float32; worth of the target and all that followed it in training

    @property
    def transitions(self) -> int:
        """How many positions have a target."""
        return int((self.target != PAD).sum())
