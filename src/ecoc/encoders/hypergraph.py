"""The two graphs of DHCN: training sessions as hyperedges over items, and the overlap of a batch's sessions."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

from ecoc.batch import PAD, TrainSequences

_DENSE_ITEMS = 8192
"""Most rows of a dense operator, which takes up to 256 MB."""

_DENSE_COST = 2
"""A dense operator is used if it has at most this many cells per entry that the sparse products would read."""

_DENSE_COLUMNS = 1 << 24
"""Most floats of a session-by-item matrix while the dense operator is computed."""


def incidence(sessions: TrainSequences) -> tuple[Tensor, Tensor]:
    """Distinct items of each session, one session after the other, and where each begins; int32, [nnz] and [S + 1]."""
    count, width = len(sessions.offsets) - 1, int(sessions.items.max(initial=0)) + 1
    owner = np.repeat(np.arange(count), np.diff(sessions.offsets))
    pairs = np.unique(owner * width + sessions.items)
    offsets = np.searchsorted(pairs, np.arange(count + 1) * width)
    return torch.from_numpy((pairs % width).astype(np.int32)), torch.from_numpy(offsets.astype(np.int32))


class Hypergraph:
    """Smooths item vectors: X^ = (X + PX + ... + P^layers X) / (layers + 1) with P = D^-1 H B^-1 H'.

    H [V, S] is 1 where a session contains an item; D counts the sessions of an item, B the items of a session. H H' is
    never formed: a layer is two sums over the entries of H. Where it is cheaper, a dense [V, V] operator is used. An
    item in no session has no neighbours and keeps X / (layers + 1), so that a vector that training never moved does not
    outweigh the others. The graph never changes; copies of a model share it.
    """

    def __init__(self, members: Tensor, offsets: Tensor, layers: int, table: Tensor) -> None:
        self.layers = layers
        self.members, self.offsets = members.clone(), offsets.clone()
        self.kind = (table.shape[0], table.dtype, table.device)
        degree = torch.bincount(members, minlength=table.shape[0])  # [V]
        size = offsets.diff()  # [S]
        owner = torch.arange(len(size), dtype=torch.int32, device=size.device).repeat_interleave(size)
        self.holders = owner[torch.argsort(members, stable=True)]  # sessions of item 1, of item 2, ...
        self.starts = torch.cat([degree.new_zeros(1), degree.cumsum(0)]).to(torch.int32)
        self.per_size = size.clamp(min=1).to(table.dtype).reciprocal()[:, None]  # [S, 1]
        self.per_degree = degree.clamp(min=1).to(table.dtype).reciprocal()[:, None]  # [V, 1]
        self.operator: Tensor | None = None
        if self._dense_is_cheaper():
            self.operator = self._dense()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Hypergraph":
        return self

    def made_of(self, members: Tensor, offsets: Tensor, table: Tensor) -> bool:
        """Whether it was made from these sessions and fits the table."""
        return (
            self.kind == (table.shape[0], table.dtype, table.device)
            and torch.equal(self.members, members)
            and torch.equal(self.offsets, offsets)
        )

    def smooth(self, table: Tensor) -> Tensor:
        """Item vectors [V, d] -> X^ [V, d], with gradient."""
        return _Smooth.apply(table, self)  # type: ignore[no-untyped-call]

    def apply(self, x: Tensor) -> Tensor:
        """A X, where A = (I + P + ... + P^layers) / (layers + 1)."""
        if self.operator is not None:
            return self.operator @ x
        total = x
        for _ in range(self.layers):
            total = x + self._neighbours(total).mul_(self.per_degree)
        return total / (self.layers + 1)

    def apply_transposed(self, x: Tensor) -> Tensor:
        """A' X."""
        if self.operator is not None:
            return self.operator.T @ x
        total = x
        for _ in range(self.layers):
            total = x + self._neighbours(total * self.per_degree)
        return total / (self.layers + 1)

    def _neighbours(self, x: Tensor) -> Tensor:
        """H B^-1 H' X."""
        by_session = embedding_bag(self.members, x, self.offsets, mode="sum", include_last_offset=True)
        return embedding_bag(
            self.holders, by_session.mul_(self.per_size), self.starts, mode="sum", include_last_offset=True
        )

    def _dense_is_cheaper(self) -> bool:
        rows = self.kind[0]
        return rows <= _DENSE_ITEMS and rows * rows <= _DENSE_COST * 2 * self.layers * len(self.members)

    def _dense(self) -> Tensor:
        """A as a matrix [V, V]: the sparse products, applied to the columns of I."""
        rows, dtype, device = self.kind
        identity = torch.eye(rows, dtype=dtype, device=device)
        columns = max(1, _DENSE_COLUMNS // len(self.per_size))
        parts = [self.apply(identity[:, first : first + columns].contiguous()) for first in range(0, rows, columns)]
        return torch.cat(parts, 1)


class _Smooth(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, graph: Hypergraph) -> Tensor:
        ctx.graph = graph
        return graph.apply(table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.graph.apply_transposed(grad.contiguous()), None


def overlap(items: Tensor, dtype: torch.dtype) -> Tensor:
    """Jaccard index of the item sets of each two rows, [B, L] -> [B, B]; 1 on the diagonal."""
    distinct, column = torch.unique(items, return_inverse=True)
    holds = torch.zeros(len(items), len(distinct), dtype=dtype, device=items.device)
    holds.scatter_(1, column, (items != PAD).to(dtype))  # [B, distinct]
    common, size = holds @ holds.T, holds.sum(1)
    shares = common / (size[:, None] + size - common).clamp(min=1)
    return shares.fill_diagonal_(1)
