"""Exploration xi: which candidates near pi(s) count as explored actions, and with what weight; docs/equations.md §2.3.

Every form maps the logits [N, K] of K candidates to log weights [N, K], -inf for a candidate that is not explored.
"""

from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Xi = Literal["all", "gumbel", "cdf", "topk", "pool"]
"""Form of exploration.

all     every item, weighted by the policy: the expectation that sampling estimates
pool    a pool of items shared by the step, weighted by the policy and the logQ correction
gumbel  N1 items drawn without replacement (Gumbel top-k)
cdf     N1 draws with replacement, by inversion of the cumulative distribution
topk    the N1 highest-scoring items
"""

_NOISE = 1 << 22


def log_weights(logits: Tensor, xi: Xi, n1: int) -> Tensor | None:
    """Log weights of the explored actions, from the policy's logits [N, K]; none: all candidates count the same."""
    if xi in ("all", "pool"):
        return logits
    if xi == "cdf":
        return sample_columns(logits, n1).log_()
    if n1 >= logits.shape[1]:
        return None
    perturbed = logits + sample_gumbel(*logits.shape) if xi == "gumbel" else logits
    first = logits.shape[1] - n1
    least = np.partition(perturbed.numpy(), first, axis=1)[:, first, None]  # faster than torch's topk
    return torch.where(perturbed < torch.from_numpy(least), -torch.inf, 0.0)


def sample_columns(logits: Tensor, count: int) -> Tensor:
    """How often each candidate was drawn in `count` draws with replacement from softmax(logits), [N, K]."""
    cumulated = logits.softmax(1).cumsum(1)
    drawn = torch.searchsorted(cumulated, torch.rand(len(logits), count, dtype=logits.dtype))
    drawn = drawn.clamp_(max=logits.shape[1] - 1)  # rounding may leave the sum below 1
    return torch.zeros_like(logits).scatter_add_(1, drawn, torch.ones_like(drawn, dtype=logits.dtype))


def sample_one(logits: Tensor) -> Tensor:
    """One candidate per row, drawn from softmax(logits), [N]."""
    return (logits + sample_gumbel(*logits.shape)).argmax(1)


def sample_gumbel(rows: int, columns: int) -> Tensor:
    """Gumbel noise [rows, columns]: each row is a window, at a random offset, of noise that was drawn once.

    Fresh noise for every cell would cost more than the rest of xi. The draws within a row are independent; rows whose
    windows overlap share noise, but for different items.
    """
    noise = _gumbel(max(_NOISE, 4 * columns))
    return noise.unfold(0, columns, 1)[torch.randint(0, len(noise) - columns + 1, (rows,))]


@lru_cache(2)
def _gumbel(count: int) -> Tensor:
    """Noise from a fixed seed, so that draws depend on the seed of the run alone."""
    return -torch.empty(count).exponential_(generator=torch.Generator().manual_seed(1)).log_()
