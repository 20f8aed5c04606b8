"""HSTU: hierarchical sequential transduction units (Zhai et al., 2024); docs/equations.md §4.12.

The paper is "Actions Speak Louder than Words", arXiv 2402.17152.
"""

from typing import Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import silu

from ecoc.batch import Dims, History
from ecoc.encoders.base import Encoder, EncoderConfig, at
from ecoc.encoders.dropout import Dropout
from ecoc.encoders.pointwise_attention import chunks, pointwise_attention

BUCKETS = 65
"""Number of time buckets: 0 if a time is unknown, then one per factor e^0.301 of the gap, up to 5 years."""
_LOG_WIDTH = 0.301
_EPSILON = 0.04
# The paper divides A V by the length n before a norm with epsilon 1e-6: the same as 1e-6 n^2 without division. Its n is
# 200. A much smaller epsilon makes states of short histories jump where the sum of their weights changes its sign.
_LONGEST = 2**30  # seconds, 34 years: gaps fit into 32 bits


class HSTU(Encoder):
    """Causal pointwise attention, biased by distance and by the time from each event to the request.

    The state after event t is used when event t + 1 happens, so its time is part of the question, and is read.
    Where times are unknown, positions alone are used; a share of the training windows hides its times to learn that.

    Differs from the paper: L_BC instead of sampled softmax over unit vectors; a layer norm, not a unit norm, at the
    end; A V is not divided by the length, and the epsilon of the norm after it makes up for that; linear layers have
    biases.
    """

    class Config(EncoderConfig):
        """Settings of HSTU."""

        dropout: float = Field(0.2, ge=0, lt=1, description="share of cells set to zero in training")
        blocks: int = Field(2, gt=0, le=64, description="number of attention blocks")
        heads: int = Field(2, gt=0, description="number of attention heads per block")
        hidden_times: float = Field(0.1, ge=0, le=1, description="share of training windows whose times are hidden")

        @model_validator(mode="after")
        def _check(self) -> Self:
            if self.dim % self.heads:
                raise ValueError(f"dim {self.dim} is not a multiple of heads {self.heads}")
            return self

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.hidden_times = config.hidden_times
        self.positions = nn.Parameter(torch.empty(config.length, config.dim))
        nn.init.normal_(self.positions, std=0.02)
        self.blocks = nn.ModuleList(
            Block(config.dim, config.heads, config.length, config.dropout) for _ in range(config.blocks)
        )
        self.norm = nn.LayerNorm(config.dim)

    def embed(self, items: Tensor, history: History) -> Tensor:
        vectors = self.look_up(items, history)
        return self.dropout(vectors + self.positions[: vectors.shape[1]])

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        buckets = self._buckets(history)
        for block in self.blocks:
            embedded = block(embedded, buckets)
        return self.norm(embedded)

    def last(self, embedded: Tensor, history: History) -> Tensor:
        index, buckets = history.lengths - 1, self._buckets(history) if len(self.blocks) > 1 else []
        for block in self.blocks[:-1]:
            embedded = block(embedded, buckets)
        return self.norm(cast(Block, self.blocks[-1]).last(embedded, index, _last_buckets(history, index)))

    def _buckets(self, history: History) -> list[Tensor]:
        """Time buckets of each chunk of queries, as `pointwise_attention` takes them; all blocks share them."""
        if history.times is None or history.request_times is None:
            return []
        times, requests = history.times, history.request_times
        if self.training and self.hidden_times:
            requests = requests * (torch.rand(len(requests), 1, device=requests.device) >= self.hidden_times)
        times, requests, known, requested = _relative(times, requests)
        row = BUCKETS * torch.arange(times.shape[0], dtype=torch.int32, device=times.device)[:, None, None]
        return [
            bucket(requests[:, first:stop, None], times[:, None, :stop])
            .mul_(requested[:, first:stop, None])
            .mul_(known[:, None, :stop])
            .add_(row)
            for first, stop in chunks(times.shape[1])
        ]


class Block(nn.Module):
    """x + W (norm(A V) * U), where U, V, Q, K = SiLU(linear(LN x)) and A = SiLU(Q K^T + bias)."""

    def __init__(self, width: int, heads: int, length: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.project = nn.Linear(width, 4 * width)
        self.by_distance = nn.Parameter(torch.empty(length))
        self.by_bucket = nn.Parameter(torch.empty(BUCKETS))
        self.after = nn.LayerNorm(width, eps=_EPSILON)
        self.out = nn.Linear(width, width)
        self.dropout = Dropout(dropout)
        for bias in (self.by_distance, self.by_bucket):
            nn.init.normal_(bias, std=0.02)
        for linear in (self.project, self.out):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor, buckets: list[Tensor]) -> Tensor:
        """All positions, [B, L, d]."""
        gate, value, query, key = silu(self.project(self.before(x))).chunk(4, -1)
        length = x.shape[1]
        by_distance = self.by_distance[:length] if buckets else self.by_distance[:length] + self.by_bucket[0]
        mixed = pointwise_attention(
            self._split(query), self._split(key), self._split(value), by_distance, self.by_bucket, buckets
        )
        return self._finish(x, mixed, gate)

    def last(self, x: Tensor, index: Tensor, buckets: Tensor) -> Tensor:
        """Only position `index[b]` of each row, [B, d]; `buckets` [B, L] are those of its gaps to all events."""
        normed = self.before(x)
        width = x.shape[2]
        weight, bias = self.project.weight, self.project.bias
        gate, query = (
            silu(nn.functional.linear(at(normed, index), weight[part], bias[part])).unsqueeze(1)
            for part in (slice(width), slice(2 * width, 3 * width))
        )
        value, key = (
            silu(nn.functional.linear(normed, weight[part], bias[part]))
            for part in (slice(width, 2 * width), slice(3 * width, None))
        )
        distance = index[:, None] - torch.arange(x.shape[1], device=x.device)  # [B, L]
        bias_of_events = self.by_distance[distance.clamp(min=0)] + self.by_bucket[buckets]
        score = self._split(query) @ self._split(key).mT + bias_of_events[:, None, None]  # [B, heads, 1, L]
        mixed = (silu(score) * (distance >= 0)[:, None, None]) @ self._split(value)
        return self._finish(at(x, index)[:, None], mixed, gate).squeeze(1)

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)  # [B, heads, L, d / heads]

    def _finish(self, x: Tensor, mixed: Tensor, gate: Tensor) -> Tensor:
        return x + self.out(self.dropout(self.after(mixed.transpose(1, 2).flatten(2)) * gate))


def bucket(requests: Tensor, times: Tensor) -> Tensor:
    """1 + floor(log(max(1, |gap in seconds|)) / 0.301), at most BUCKETS - 1: int32."""
    gap = (requests - times).abs_().clamp_(min=1).float()
    return gap.log_().mul_(1 / _LOG_WIDTH).add_(1).to(torch.int32).clamp_(max=BUCKETS - 1)


def _relative(times: Tensor, requests: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Times as 32-bit seconds since the first known event of the row, and which times are known, as 0 and 1."""
    known, requested = times != 0, requests != 0
    origin = torch.where(known, times, torch.iinfo(torch.int64).max).amin(1, keepdim=True)

    def shifted(values: Tensor, is_known: Tensor) -> Tensor:
        return torch.where(is_known, values - origin, 0).clamp(-_LONGEST, _LONGEST).int()

    return shifted(times, known), shifted(requests, requested), known.int(), requested.int()


def _last_buckets(history: History, index: Tensor) -> Tensor:
    """Buckets of the gaps from each event to the request after the last one, [B, L]."""
    if history.times is None or history.request_times is None:
        return torch.zeros_like(history.items)
    request = history.request_times.gather(1, index[:, None])
    times, request, known, requested = _relative(history.times, request)
    return (bucket(request, times) * known * requested).long()
