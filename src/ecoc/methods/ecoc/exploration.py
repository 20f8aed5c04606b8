"""xi: which items near pi(s) are explored, and with what weight.

Everything works on logits [N, K] of K candidate columns and answers with log weights [N, K]: how much each column
counts as an explored action, -inf where it is not one. So every form of xi is used in the same way, by one product.
"""

from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

Xi = Literal["all", "gumbel", "cdf", "topk", "pool"]
"""How items near pi(s) are found.

all     every candidate, weighted by the policy: the expectation that sampling estimates
gumbel  N1 distinct items, drawn exactly without replacement (Gumbel top-k)
cdf     N1 draws with replacement, by inversion of the cumulated probabilities
topk    the N1 highest-scoring items
pool    a pool of candidates shared by the step, weighted by the policy and by how likely each was to be in the pool
"""

_NOISE = 1 << 22


def log_weights(logits: Tensor, xi: Xi, n1: int) -> Tensor | None:
    """Weights of the explored actions, from the policy's logits [N, K]; none: every column counts the same."""
    if xi in ("all", "pool"):
        return logits
    if xi == "cdf":
        return sample_columns(logits, n1).log_()
    if n1 >= logits.shape[1]:
        return None
    perturbed = logits + sample_gumbel(*logits.shape) if xi == "gumbel" else logits
    least = perturbed.topk(n1, 1, sorted=False).values.amin(1, keepdim=True)
    return torch.zeros_like(logits).masked_fill_(perturbed < least, -torch.inf)


def sample_columns(logits: Tensor, count: int) -> Tensor:
    """How often each column was drawn in `count` draws with replacement from softmax(logits), [N, K]."""
    cumulated = logits.softmax(1).cumsum(1)
    drawn = torch.searchsorted(cumulated, torch.rand(len(logits), count, dtype=logits.dtype))
    drawn = drawn.clamp_(max=logits.shape[1] - 1)  # sums of floats may end below 1
    return torch.zeros_like(logits).scatter_add_(1, drawn, torch.ones_like(drawn, dtype=logits.dtype))


def sample_one(logits: Tensor) -> Tensor:
    """One column from softmax(logits) for each row, [N]."""
    return (logits + sample_gumbel(*logits.shape)).argmax(1)


def sample_gumbel(rows: int, columns: int) -> Tensor:
    """Gumbel noise [rows, columns]: each row a window, at a random place, of noise that was drawn once.

    A fresh draw for every cell costs more than everything else xi does. The draws of a row are independent of each
    other; rows whose windows overlap share noise, though for other items.
    """
    noise = _gumbel(max(_NOISE, 4 * columns))
    return noise.unfold(0, columns, 1)[torch.randint(0, len(noise) - columns + 1, (rows,))]


@lru_cache(2)
def _gumbel(count: int) -> Tensor:
    """Always the same noise, so that draws depend on the seed alone."""
    return -torch.empty(count).exponential_(generator=torch.Generator().manual_seed(1)).log_()


def effective_support(share: Tensor) -> Tensor:
    """Exponential of the entropy of shares [N, K]: how many actions are really explored, [N]."""
    entropy: Tensor = torch.special.entr(share).sum(1)
    return entropy.exp()
