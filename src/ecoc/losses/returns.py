"""Transitions of a batch, and the targets of temporal-difference learning; docs/equations.md §2.1."""

from dataclasses import dataclass, fields
from functools import lru_cache

import torch
from torch import Tensor

from ecoc.batch import PAD, Batch


@dataclass(frozen=True)
class Transitions:
    """The N transitions (s, i, r, s', done) of a batch. State t of row b has position b * L + t.

    Without baskets s' is the next position. All items of a basket share s and s', the states before and after it.
    """

    length: int  # L
    position: Tensor  # [N] position of the target, ascending
    before: Tensor  # [N] position of s
    after: Tensor  # [N] position of s'; meaningless where there is none
    item: Tensor  # [N]
    reward: Tensor  # [N]
    done: Tensor  # [N]
    is_whole: Tensor  # [N] bool; s' lies in the window, or there is none because the sequence ended

    @classmethod
    def of(cls, batch: Batch) -> "Transitions":
        """One transition per position with a target."""
        length, position = batch.target.shape[1], batch.positions()
        done = batch.done.flatten()[position]
        row, step = position // length, position % length
        after = step + 1 if batch.after is None else batch.after.flatten()[position]
        followed = torch.nn.functional.pad(batch.history.items != PAD, (0, 1))[row, after]
        after = (row * length + after).clamp(max=batch.target.numel() - 1)
        item, reward = batch.target.flatten()[position], batch.reward.flatten()[position]
        return cls(length, position, batch.state_positions(), after, item, reward, done, followed | (done > 0))

    def whole_rows(self) -> Tensor:
        """Row numbers of the whole transitions, [N']."""
        return self.is_whole.nonzero().squeeze(1)

    def whole(self) -> "Transitions":
        """The transitions whose outcome is known: only these have a TD target."""
        rows = self.whole_rows()
        return Transitions(
            self.length, *(getattr(self, field.name)[rows] for field in fields(self) if field.name != "length")
        )

    def current(self, states: Tensor) -> Tensor:
        """States before the transitions: [B, L, ..] -> [N, ..]."""
        return states.flatten(0, 1).index_select(0, self.before)  # its backward is faster than indexing's

    def next(self, states: Tensor) -> Tensor:
        """States after the transitions: [B, L, ..] -> [N, ..]; meaningless where `done`."""
        return states.flatten(0, 1).index_select(0, self.after)


def td_targets(reward: Tensor, done: Tensor | float, next_value: Tensor, gamma: float) -> Tensor:
    """One-step targets c = r + gamma (1 - done) v(s'), [N]."""
    return reward + gamma * (1 - done) * next_value


def lambda_returns(
    transitions: Transitions, next_value: Tensor, logged_value: Tensor, gamma: float, trace: float
) -> Tensor:
    """Targets y of whole transitions along the log, [N].

        y_k = c_k + sum_{u > k} (gamma trace)^(u - k) (c_u - logged_value_u)

    c are the one-step targets. u runs over the transitions that follow k in its window without a gap or an end. A
    transition follows another if it starts in the state where that one ended, so a basket's items do not follow each
    other.
    `next_value` [N] is the value of s', `logged_value` [N] that of (s, i). With trace = 0, y = c.
    """
    one_step = td_targets(transitions.reward, transitions.done, next_value, gamma)  # [N]
    if not trace or not len(one_step):
        return one_step
    length, position = transitions.length, transitions.position
    rows = int(position[-1]) // length + 1
    error = one_step.new_zeros(rows * length).index_copy_(0, position, one_step - logged_value).view(rows, length)
    follows = (position[1:] == position[:-1] + 1) & (transitions.done[:-1] == 0)
    follows &= transitions.before[1:] == transitions.after[:-1]
    linked = torch.zeros(rows * length, dtype=torch.bool).index_copy_(0, position[1:], follows).view(rows, length)
    segment = (~linked).cumsum(1)  # [B, L]; numbers the uninterrupted runs of a row
    weight = _decay(length, gamma * trace, one_step.dtype) * (segment[:, :, None] == segment[:, None, :])
    return one_step + (weight @ error[..., None]).flatten()[position]  # weight [B, L, L]


def half_squared_error(error: Tensor, transitions: int) -> Tensor:
    """Half the sum of squared TD errors, divided by the number of transitions; 0 if there are none."""
    return 0.5 * error.square().sum() / max(transitions, 1)


@lru_cache(maxsize=16)
def _decay(length: int, rate: float, dtype: torch.dtype) -> Tensor:
    """rate^(u - k) in row k and column u > k, else 0; [L, L]."""
    steps = torch.arange(length)
    gap = steps[None, :] - steps[:, None]
    return torch.where(gap > 0, rate ** gap.clamp(min=0).to(dtype), 0.0)
