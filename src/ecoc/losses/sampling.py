"""Items drawn for a step: shared pools with their logQ correction (docs/equations.md §2.1), and negatives."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ecoc.batch import PAD


@dataclass(frozen=True)
class Pool:
    """The shared candidates of one step: distinct items, how often each was drawn, and the column of each target."""

    items: Tensor  # [K] int64, distinct
    drawn: Tensor  # [K] float32; 0 for an item that is a target but was not drawn
    expected: Tensor  # [K] float32; expected number of draws
    own: Tensor  # [N] int64; the column of each state's own target

    @property
    def correction(self) -> Tensor:
        """The logQ correction ln(drawn / expected), [K]: an item that is rarely drawn counts for more."""
        return self.drawn.log() - self.expected.log()


def sample_pool(target: Tensor, frequency: Tensor, uniform: int, *, in_batch: bool) -> Pool:
    """A pool of the targets [N] if `in_batch`, and of `uniform` draws from the catalogue.

    `frequency` [V] is each item's share of the training events, that is, its probability of being a target.
    """
    items_count = len(frequency) - 1
    extra = torch.randint(PAD + 1, items_count + 1, (uniform,))
    items, column = torch.unique(torch.cat([target, extra]), return_inverse=True)
    counted = column if in_batch else column[len(target) :]
    drawn = torch.bincount(counted, minlength=len(items)).float()
    expected = frequency[items] * (len(target) * in_batch) + uniform / items_count
    return Pool(items, drawn, expected, column[: len(target)])


def sample_negatives(item: Tensor, count: int, items: int) -> Tensor:
    """`count` uniform draws per transition of the items other than its own: [N] -> [N, count]; never PAD."""
    drawn = torch.randint(PAD + 1, items, (len(item), count))  # one item fewer than there are: the logged one
    return drawn + (drawn >= item[:, None])


def effective_support(share: Tensor) -> Tensor:
    """Number of items that a distribution effectively covers, the exponential of its entropy: [N, K] -> [N]."""
    entropy: Tensor = torch.special.entr(share).sum(1)
    return entropy.exp()
