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
    previous: NDArray[np.int64] | None = None  # place of the last item before each one's basket, -1 if none; None: next

    def frequency(self, items: int) -> Tensor:
        """Share of the events that belong to each item, [V]; an item that never occurs counts once."""
        import torch

        counts = torch.bincount(torch.from_numpy(self.items), minlength=items + 1).float()
        return counts.clamp(min=1) / counts.sum()

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each item that is predicted, after the last item of its history: both [pairs]."""
        previous = np.arange(-1, len(self.items) - 1) if self.previous is None else self.previous
        has_history = previous >= 0
        if self.previous is None:
            has_history[self.offsets[:-1][np.diff(self.offsets) > 0]] = False  # no pairs across two sequences
        return self.items[previous[has_history]], self.items[has_history]

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
    state: Tensor | None = None  # [B, L] int64; position whose state predicts the target; None: its own
    after: Tensor | None = None  # [B, L] int64; position of the state after the target, L if none; None: the next

    def positions(self) -> Tensor:
        """Flat positions b * L + t of the targets, ascending, [N]."""
        return (self.target != PAD).flatten().nonzero().squeeze(1)

    def states_before(self, states: Tensor) -> Tensor:
        """The state that predicts each target, in their order: [B, L, ..] -> [N, ..]."""
        # the backward of index_select is several times faster than that of indexing
        return states.flatten(0, 1).index_select(0, self.state_positions())

    def state_positions(self) -> Tensor:
        """Flat position of the state that predicts each target, [N]."""
        position, length = self.positions(), self.target.shape[1]
        if self.state is None:
            return position
        return position - position % length + self.state.flatten()[position]

    @property
    def transitions(self) -> int:
        """Number of positions that have a target."""
        return int((self.target != PAD).sum())
