"""History and Batch: what encoders read and methods learn from, as tensors with shapes.

Torch is loaded only when tensors are made: `ecoc prepare` needs `PAD` and must start without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

PAD = 0
"""Index of the padding item. Real items are 1..n."""


@dataclass(frozen=True)
class History:
    """What users did so far: one row per user, oldest event first, padded on the right."""

    items: Tensor  # [B, L] int64; PAD after the end
    feedback: Tensor | None = None  # [B, L] int64; feedback code + 1, 0 unknown or padding
    users: Tensor | None = None  # [B] int64; 1..n of the training sequences, 0 unknown
    times: Tensor | None = None  # [B, L] int64; time of each event in seconds since 1970, 0 unknown or padding
    request_times: Tensor | None = None
    """[B, L] int64; when the state after each event is used, as `times`. In a log it is the time of the next event."""

    @property
    def lengths(self) -> Tensor:
        """Number of items in each row, [B]."""
        return (self.items != PAD).sum(1)

    def rows(self, index: Tensor) -> History:
        """The rows at `index`."""
        optional = (self.feedback, self.users, self.times, self.request_times)
        return History(self.items[index], *(None if values is None else values[index] for values in optional))


@dataclass(frozen=True)
class Dims:
    """Sizes that networks take from the data."""

    items: int
    users: int = 0
    feedback: int = 0


@dataclass(frozen=True)
class TrainSequences:
    """All training sequences at once: sequence k is `items[offsets[k]:offsets[k + 1]]`."""

    items: NDArray[np.int64]
    offsets: NDArray[np.int64]
    rewards: NDArray[np.float32] | None = None  # one per item, scaled as in batches

    def frequency(self, items: int) -> Tensor:
        """Share of the events that belong to each item, [V]; an item that never occurs counts once."""
        import torch

        counts = torch.bincount(torch.from_numpy(self.items), minlength=items + 1).float()
        return counts.clamp(min=1) / counts.sum()

    def rewards_to_go(self) -> NDArray[np.float64]:
        """R_t = sum of r_t' over t' >= t in the same sequence, undiscounted, one per event."""
        if self.rewards is None:
            return np.zeros(len(self.items))
        before = np.concatenate([[0.0], np.cumsum(self.rewards, dtype=np.float64)])
        to_go: NDArray[np.float64] = np.repeat(before[self.offsets[1:]], np.diff(self.offsets)) - before[:-1]
        return to_go


@dataclass(frozen=True)
class Batch:
    """Windows of logged sequences: at each position, the item that came next and its reward."""

    history: History
    target: Tensor  # [B, L] int64; the item that followed, PAD where there is no transition to learn from
    reward: Tensor  # [B, L] float32; reward of the target
    done: Tensor  # [B, L] float32; 1 where the target ended its sequence
    before: Tensor | None = None  # [B, L] int64; events of the sequence before the target
    returns: Tensor | None = (
        None  # [B, L] float32; sum of the rewards of the target and of all training events after it
    )

    @property
    def transitions(self) -> int:
        """Number of positions that have a target."""
        return int((self.target != PAD).sum())
