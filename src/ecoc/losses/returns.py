"""Transitions of a batch, and the values that temporal differences aim at."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ecoc.batch import PAD, Batch


@dataclass(frozen=True)
class Transitions:
    """The N transitions (s, i, r, s', done) of a batch. State t of row b is row b * L + t; s' is the row after s."""

    length: int  # L
    place: Tensor  # [N] row of s
    item: Tensor  # [N]
    reward: Tensor  # [N]
    done: Tensor  # [N]
    is_whole: Tensor  # [N] bool; s' lies in the window, or there is none because the sequence ended

    @classmethod
    def of(cls, batch: Batch) -> "Transitions":
        """Every position with a target."""
        length = batch.target.shape[1]
        place = (batch.target != PAD).flatten().nonzero().squeeze(1)
        done = batch.done.flatten()[place]
        followed = torch.nn.functional.pad(batch.history.items[:, 1:] != PAD, (0, 1)).flatten()[place]
        return cls(
            length, place, batch.target.flatten()[place], batch.reward.flatten()[place], done, followed | (done > 0)
        )

    def kept(self) -> Tensor:
        """Numbers of the transitions whose outcome is known, [N']."""
        return self.is_whole.nonzero().squeeze(1)

    def whole(self) -> "Transitions":
        """Those whose outcome is known: what temporal differences learn from."""
        kept = self.kept()
        return Transitions(
            self.length, self.place[kept], self.item[kept], self.reward[kept], self.done[kept], self.is_whole[kept]
        )

    def current(self, states: Tensor) -> Tensor:
        """States before the transitions: [B, L, ..] -> [N, ..]."""
        return states.flatten(0, 1).index_select(0, self.place)  # its backward is several times that of indexing

    def next(self, states: Tensor) -> Tensor:
        """States after the transitions: [B, L, ..] -> [N, ..]; means nothing where `done`."""
        return states.flatten(0, 1).index_select(0, (self.place + 1).clamp(max=states.shape[0] * states.shape[1] - 1))


def lambda_returns(moves: Transitions, ahead: Tensor, own: Tensor, gamma: float, trace: float) -> Tensor:
    """Targets y of whole transitions, [N].

    c_k = r_k + gamma (1 - done_k) ahead_k, where ahead_k is the value of s'_k: the one-step target (trace 0). With a
    trace, G_k = c_k + sum_{u > k} (gamma trace)^(u - k) (c_u - own_u) over the transitions u that follow k without a
    break in the window, where own_u is the value of (s_u, i_u).
    """
    one_step = moves.reward + gamma * (1 - moves.done) * ahead  # [N]
    if not trace or not len(one_step):
        return one_step
    length, place = moves.length, moves.place
    rows = int(place[-1]) // length + 1  # places ascend
    surprise = one_step.new_zeros(rows * length).index_copy_(0, place, one_step - own).view(rows, length)
    follows = (place[1:] == place[:-1] + 1) & (moves.done[:-1] == 0)  # goes on where the one before ended
    linked = torch.zeros(rows * length, dtype=torch.bool).index_copy_(0, place[1:], follows).view(rows, length)
    segment = (~linked).cumsum(1)  # [B, L]; a row begins a segment of its own in any case
    weight = _decay(length, gamma * trace, one_step.dtype) * (segment[:, :, None] == segment[:, None, :])
    return one_step + (weight @ surprise[..., None]).flatten()[place]  # weight [B, L, L]


@lru_cache(maxsize=16)
def _decay(length: int, rate: float, dtype: torch.dtype) -> Tensor:
    """rate^(u - k) in row k and column u > k, else 0; [L, L]."""
    steps = torch.arange(length)
    gap = steps[None, :] - steps[:, None]
    return torch.where(gap > 0, rate ** gap.clamp(min=0).to(dtype), 0.0)
