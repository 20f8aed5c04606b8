"""DHCN: self-supervised hypergraph convolutions for sessions (Xia et al., 2021); docs/equations.md §4.8."""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders.base import Encoder, EncoderConfig, PredictionTask, at
from ecoc.encoders.hypergraph import Hypergraph, incidence, overlap

_CELLS = 1 << 18
"""Most floats per block of query-key pairs (at least one query); the fastest of 2^16..2^19 as measured."""


class DHCN(Encoder):
    """Items are smoothed over the training sessions with them; attention with reversed positions reads a session.

    x*_j = tanh(W1 [x_j; pos_{t-j+1}] + b), state_t = sum_{j<=t} (f . sigmoid(W2 mean_{j<=t} x + W3 x*_j + c)) x_j.
    In training a second view of the batch's sessions, smoothed over their overlap, is contrasted with their states.

    Differs from the paper: the contrast is a mean over the batch, and its gradient also flows through the second view.
    """

    class Config(EncoderConfig):
        """Settings of DHCN."""

        layers: int = Field(
            3, gt=0, le=16, description="number of convolutions over the hypergraph and over the line graph"
        )
        ssl: float = Field(
            0.01, ge=0, description="weight of the contrastive loss of the two views, a mean over the rows of a batch"
        )

    transforms_items: ClassVar[bool] = True
    members: Tensor  # [nnz] int32; distinct items of each training session
    offsets: Tensor  # [S + 1] int32; where the items of each begin

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.layers, self.ssl = config.layers, config.ssl
        self.register_buffer("members", torch.empty(0, dtype=torch.int32))
        self.register_buffer("offsets", torch.zeros(1, dtype=torch.int32))
        self._hypergraph: Hypergraph | None = None
        self.positions = nn.Parameter(torch.empty(config.length, config.dim))
        self.item_part = nn.Linear(config.dim, config.dim)  # W1 and b
        self.position_part = nn.Linear(config.dim, config.dim, bias=False)
        self.mean_key = nn.Linear(config.dim, config.dim, bias=False)  # W2
        self.key = nn.Linear(config.dim, config.dim)  # W3 and c
        self.score = nn.Parameter(torch.empty(config.dim))  # f
        nn.init.uniform_(self.positions, -(config.dim**-0.5), config.dim**-0.5)
        nn.init.uniform_(
            self.score, 0, config.dim**-0.5
        )  # negative weights would point away from the items and stay there

    def fit_statistics(self, sessions: TrainSequences) -> None:
        self.members, self.offsets = (part.to(self.members.device) for part in incidence(sessions))

    def has_sound_statistics(self) -> bool:
        offsets, members = self.offsets, self.members
        if not len(offsets) or int(offsets[0]) or int(offsets[-1]) != len(members):
            return False
        return bool((offsets.diff() >= 0).all()) and bool(((members > PAD) & (members <= self.dims.items)).all())

    def items(self, table: Tensor) -> Tensor:
        if self._hypergraph is None or not self._hypergraph.made_of(self.members, self.offsets, table):
            self._hypergraph = Hypergraph(self.members, self.offsets, self.layers, table)
        return self._hypergraph.smooth(table)

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        steps = torch.arange(1, embedded.shape[1] + 1, device=embedded.device)
        mean = self._query(embedded.cumsum(1) / steps[:, None])
        places = self.position_part(self.positions)
        weights = _Weights.apply(self.item_part(embedded), places, mean, self.key.weight, self.score)  # type: ignore[no-untyped-call]
        return weights @ embedded

    def last(self, embedded: Tensor, history: History) -> Tensor:
        lengths = history.lengths[:, None]
        back = lengths - 1 - torch.arange(embedded.shape[1], device=embedded.device)  # [B, L]
        mean = self._query(embedded.sum(1) / lengths)  # [B, d]; padding is zero
        mixed = torch.tanh(self.item_part(embedded) + self.position_part(self.positions)[back.clamp(min=0)])
        weights = torch.sigmoid(mixed @ self.key.weight.T + mean[:, None]) @ self.score * (back >= 0)  # [B, L]
        return (weights[:, None] @ embedded).squeeze(1)

    def prediction_task(self, items: Tensor, batch: Batch) -> PredictionTask:
        history = batch.history
        embedded = self.embed(items, history)
        states = self(embedded, history)
        extra = {} if self.ssl == 0 else {"ssl": self.ssl * self._contrast(states, embedded, history)}
        return PredictionTask(batch.states_before(states), batch.target.flatten()[batch.positions()], extra, states)

    def _query(self, mean: Tensor) -> Tensor:
        """W2 mean + c."""
        return self.mean_key(mean) + self.key.bias

    def _contrast(self, states: Tensor, embedded: Tensor, history: History) -> Tensor:
        """Mean of -ln sigmoid(h . l) - ln(1 - sigmoid(l . h~)): states h, line-graph view l, and h~ shuffled states."""
        lengths = history.lengths
        own = at(states, (lengths - 1).clamp(min=0))  # [B, d]
        line = self._line(embedded.sum(1) / lengths.clamp(min=1)[:, None], history.items)  # padding is zero
        shuffled = own[torch.randperm(own.shape[0])][:, torch.randperm(own.shape[1])]
        return (softplus(-(own * line).sum(1)) + softplus((line * shuffled).sum(1))).mean()

    def _line(self, means: Tensor, items: Tensor) -> Tensor:
        """Mean item vectors [B, d] of sessions, spread over their overlap: the average of all layers, [B, d]."""
        shares = overlap(items, means.dtype)
        shares = shares / shares.sum(1, keepdim=True)
        total = means
        for _ in range(self.layers):
            total = means + shares @ total  # by Horner's rule, as (1 + A (1 + A (1 + A))) x
        return total / (self.layers + 1)


class _Weights(torch.autograd.Function):
    """f . sigmoid(query[t] + W3 tanh(mixed[j] + places[t - j])) for each j <= t, else 0: [B, L, L].

    The pairs [B, L, L, d] are computed in blocks of queries that stay in the cache, and again in the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, mixed: Tensor, places: Tensor, query: Tensor, key: Tensor, score: Tensor) -> Tensor:
        weights = mixed.new_zeros(*mixed.shape[:2], mixed.shape[1])
        for queries, _, _, gate in _blocks(mixed, places, query, key):
            weights[:, queries, : queries.stop] = gate @ score
        ctx.save_for_backward(mixed, places, query, key, score)
        return weights.tril_()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        mixed, places, query, key, score = ctx.saved_tensors
        by_mixed, by_places, by_query, by_key, by_score = (torch.zeros_like(part) for part in ctx.saved_tensors)
        grad, unit, width = grad.tril(), score.new_ones(()), len(score)
        for queries, back, pairs, gate in _blocks(mixed, places, query, key):
            block = grad[:, queries, : queries.stop].contiguous()  # [B, rows, keys]
            by_score.addmv_(gate.view(-1, width).T, block.view(-1))
            slope = gate.addcmul_(gate, gate, value=-1).mul_(block[..., None]).mul_(score)
            by_query[:, queries] = slope.sum(2)
            by_key.addmm_(slope.view(-1, width).T, pairs.view(-1, width))
            slope = torch.addcmul(unit, pairs, pairs, value=-1).mul_(slope @ key)
            by_mixed[:, : queries.stop] += slope.sum(1)
            by_places.index_add_(0, back.view(-1), slope.sum(0).view(-1, width))
        return by_mixed, by_places, by_query, by_key, by_score


def _blocks(
    mixed: Tensor, places: Tensor, query: Tensor, key: Tensor
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Queries; t - j [rows, keys], 0 for the future; tanh and sigmoid of each pair [B, rows, keys, d]."""
    length = mixed.shape[1]
    steps = torch.arange(length, device=mixed.device)
    rows = max(1, _CELLS // mixed.numel())
    for first in range(0, length, rows):
        queries = slice(first, min(first + rows, length))
        back = (steps[queries, None] - steps[: queries.stop]).clamp(min=0)
        pairs = (mixed[:, None, : queries.stop] + places[back]).tanh_()
        yield queries, back, pairs, (pairs @ key.T).add_(query[:, queries, None]).sigmoid_()
