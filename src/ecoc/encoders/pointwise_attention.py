"""Causal attention without softmax, O = SiLU(Q K^T + bias) V, as HSTU uses it; docs/equations.md §4.12.

Queries are read in chunks, and a chunk meets only the keys up to its own end, so most of the upper triangle is never
computed. The gradient is written by hand: autograd's would keep five matrices [L, L] per chunk and scatter the time
bias one element at a time.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import silu

CHUNK = 64
"""Queries per chunk."""


def chunks(length: int) -> Iterator[tuple[int, int]]:
    """First and last + 1 query of each chunk; an exported graph has one, because its length is not known."""
    if torch.compiler.is_exporting():
        return iter([(0, length)])
    return ((first, min(first + CHUNK, length)) for first in range(0, length, CHUNK))


def pointwise_attention(
    query: Tensor, key: Tensor, value: Tensor, by_distance: Tensor, by_bucket: Tensor, buckets: list[Tensor]
) -> Tensor:
    """Sum over s <= t of SiLU(q_t k_s + by_distance[t - s] + by_bucket[bucket of t, s]) v_s: [B, heads, L, w].

    `by_distance` is [L]; `by_bucket` is [N], one table that every row shares. `buckets` holds for each chunk of queries
    the int32 bucket numbers [B, queries, keys] plus N * b in row b; an empty list adds no such bias.
    """
    if not torch.is_grad_enabled():
        return _attend(query, key, value, by_distance, by_bucket, buckets, [])
    result: Tensor = _PointwiseAttention.apply(query, key, value, by_distance, by_bucket, *buckets)  # type: ignore[no-untyped-call]
    return result


def _toeplitz(by_distance: Tensor, first: int, stop: int) -> Tensor:
    """Entry [t, s] is by_distance[first + t - s] for s <= first + t, and anything above: [stop - first, stop]."""
    return by_distance[_distances(first, stop, by_distance.device)]


def _distances(first: int, stop: int, device: torch.device) -> Tensor:
    steps = torch.arange(stop, device=device)
    return (steps[first:, None] - steps).clamp_(min=0)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    by_distance: Tensor,
    by_bucket: Tensor,
    buckets: Sequence[Tensor],
    scores: list[Tensor],
) -> Tensor:
    """The attention; appends Q K^T + bias of each chunk, [B, heads, T, S], to `scores`."""
    by_row, mixed = by_bucket.repeat(query.shape[0]), []
    for place, (first, stop) in enumerate(chunks(query.shape[2])):
        score = query[:, :, first:stop] @ key[:, :, :stop].mT
        bias = _toeplitz(by_distance, first, stop)
        if buckets:
            chunk = buckets[place]
            bias = by_row.index_select(0, chunk.view(-1)).view(chunk.shape).add_(bias)[:, None]
        score += bias
        scores.append(score)
        mixed.append(silu(score).tril_(first) @ value[:, :, :stop])
    return torch.cat(mixed, 2)


class _PointwiseAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, by_distance: Tensor, by_bucket: Tensor, *buckets: Tensor
    ) -> Tensor:
        scores: list[Tensor] = []
        mixed = _attend(query, key, value, by_distance, by_bucket, buckets, scores)
        ctx.save_for_backward(query, key, value, by_distance, by_bucket, *buckets, *scores)
        ctx.time_chunks = len(buckets)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        query, key, value, by_distance, by_bucket, *kept = ctx.saved_tensors
        buckets, scores = kept[: ctx.time_chunks], kept[ctx.time_chunks :]
        of_query, of_key, of_value = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        of_distance, of_bucket = torch.zeros_like(by_distance), torch.zeros_like(by_bucket)
        for place, (first, stop) in enumerate(chunks(query.shape[2])):
            score, mixed = scores[place], gradient[:, :, first:stop]
            of_value[:, :, :stop] += silu(score).tril_(first).mT @ mixed
            of_weight = mixed @ value[:, :, :stop].mT
            of_score = torch.ops.aten.silu_backward(of_weight, score).tril_(first)
            of_query[:, :, first:stop] = of_score @ key[:, :, :stop]
            of_key[:, :, :stop] += of_score.mT @ query[:, :, first:stop]
            of_bias = of_score.sum(1)  # [B, T, S]; heads share it
            distances = _distances(first, stop, of_bias.device)
            of_distance.index_add_(0, distances.view(-1), of_bias.sum(0).view(-1))
            if buckets:
                width = len(by_bucket)
                sums = torch.bincount(buckets[place].view(-1), of_bias.view(-1), minlength=len(query) * width)
                of_bucket += sums.view(-1, width).sum(0)
        return of_query, of_key, of_value, of_distance, of_bucket, *(None for _ in buckets)
