"""An approximate index of the item table: items in clusters, and the clusters nearest to given states.

xi = topk uses it in training where the catalogue is too large to score. All its tensors are part of the module's state,
so a resumed run continues with the same index.
"""

import torch
from torch import Tensor, nn

from ecoc.batch import PAD

_ROUNDS = 3  # rounds of Lloyd's algorithm
_ROWS = 65536  # items assigned at a time


class ClusterIndex(nn.Module):
    """About sqrt(V) clusters by inner product; rebuilt after every `every` searches, because the table moves."""

    def __init__(self, items: int, dim: int, *, every: int) -> None:
        super().__init__()
        self.every = every
        self.clusters = max(1, round(items**0.5))
        self.centres: Tensor
        self.cluster: Tensor
        self.looks: Tensor
        self.register_buffer("centres", torch.zeros(self.clusters, dim))
        self.register_buffer("cluster", torch.zeros(items, dtype=torch.int64))
        self.register_buffer("looks", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def nearest(self, states: Tensor, table: Tensor, count: int) -> Tensor:
        """Items [K] of the clusters that score highest for any of the states [n, d]; at least `count` if possible."""
        if int(self.looks) % self.every == 0:
            self._build(table[PAD + 1 :])
        self.looks += 1
        order = (states @ self.centres.T).amax(0).argsort(descending=True)  # [C]
        sizes = torch.bincount(self.cluster, minlength=self.clusters)[order]
        enough = int((sizes.cumsum(0) < count).sum()) + 1
        chosen = torch.zeros(self.clusters, dtype=torch.bool)
        chosen[order[:enough]] = True
        return chosen[self.cluster].nonzero().squeeze(1) + (PAD + 1)

    def _build(self, vectors: Tensor) -> None:
        """Lloyd's algorithm from random items. Items join the nearest direction; centres are means of vectors."""
        self.centres.copy_(vectors[torch.randperm(len(vectors))[: self.clusters]])
        for _ in range(_ROUNDS):
            directions = nn.functional.normalize(self.centres, dim=1).T
            for first in range(0, len(vectors), _ROWS):
                self.cluster[first : first + _ROWS] = (vectors[first : first + _ROWS] @ directions).argmax(1)
            sizes = torch.bincount(self.cluster, minlength=self.clusters)
            sums = torch.zeros_like(self.centres).index_add_(0, self.cluster, vectors)
            filled = sizes > 0
            self.centres[filled] = sums[filled] / sizes[filled, None]
