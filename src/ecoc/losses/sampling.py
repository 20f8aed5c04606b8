"""Pools of items shared by a step, and the logQ correction for how likely each item was to be in the pool."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pool:
    """The columns of one step: distinct items, how often each was drawn, and which column is each state's own item."""

    items: Tensor  # [K] int64, distinct
    drawn: Tensor  # [K] float32; 0 for an item that is only someone's target
    expected: Tensor  # [K] float32; how often it was expected to be drawn
    own: Tensor  # [N] int64

    @property
    def correction(self) -> Tensor:
        """log(drawn / expected), the logQ correction: a column stands for as many items as it was under-drawn; [K]."""
        return self.drawn.log() - self.expected.log()


def sample_pool(target: Tensor, frequency: Tensor, uniform: int, *, in_batch: bool) -> Pool:
    """Negatives shared by a step: the batch's own targets if `in_batch`, and `uniform` draws from the catalogue.

    `frequency` [V] is each item's share of the training events, that is, of being a target.
    """
    catalogue = len(frequency) - 1
    extra = torch.randint(1, catalogue + 1, (uniform,))
    items, column = torch.unique(torch.cat([target, extra]), return_inverse=True)
    counted = column if in_batch else column[len(target) :]
    drawn = torch.bincount(counted, minlength=len(items)).float()
    expected = frequency[items] * (len(target) * in_batch) + uniform / catalogue
    return Pool(items, drawn, expected, column[: len(target)])
