"""Additive attention, out[t] = sum_o M[t, o] (v . sigmoid(key_t[t] + key_o[o])) S[o], for NARM, STAMP and SR-GNN.

The pairs of keys, [B, L, L, h], are computed in blocks that stay in the cache, twice, and never stored. Two
exponentials per position serve all pairs: sigmoid(a + b) = 1 / (1 + exp(-a) exp(-b)).
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_LIMIT = 40.0
"""Keys are clamped to +-40, so that a product of two exponentials fits float32."""

_ROWS = 10
"""Queries per block. A block reads no key after its last query, so fewer rows waste less work on future positions."""

_CELLS = 1 << 18
"""Most floats per block; the fastest of 2^16..2^19 as measured."""


def additive_attention(
    key_t: Tensor, key_o: Tensor, v: Tensor, values: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Every position over its past: keys [B, L, h], v [h], values [B, L, d] -> [B, L, d].

    `weights` M [B, L, L] must be zero where o > t and gets no gradient; none: 1 wherever o <= t.
    """
    if torch.compiler.is_compiling():
        if weights is None:
            weights = torch.ones(key_t.shape[1], key_t.shape[1], dtype=key_t.dtype, device=key_t.device).tril()
        return attend(key_t, key_o, v, values, weights)
    return _Additive.apply(_cut(key_t), _cut(key_o), v, values, weights)  # type: ignore[no-untyped-call]


def attend(key_t: Tensor, key_o: Tensor, v: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """The same for few queries, all pairs at once: key_t [B, T, h], weights [B, T, L] -> [B, T, d]."""
    pairs = torch.sigmoid(_cut(key_t)[:, :, None] + _cut(key_o)[:, None])  # [B, T, L, h]
    return (pairs @ v * weights) @ values


def _cut(key: Tensor) -> Tensor:
    return key.clamp(-_LIMIT, _LIMIT)


def _blocks(count: int, length: int, width: int) -> Iterator[tuple[slice, slice, slice]]:
    """Sequences, queries and keys of each block; keys after the last query of a block are left out."""
    for first in range(0, length, _ROWS):
        end = min(first + _ROWS, length)
        step = max(1, _CELLS // ((end - first) * end * width))
        for sequence in range(0, count, step):
            yield slice(sequence, sequence + step), slice(first, end), slice(0, end)


class _Additive(torch.autograd.Function):
    """Keeps exp(-keys) and the weighted scores [B, L, L]; the backward pass computes the pairs again."""

    @staticmethod
    def forward(ctx: Any, key_t: Tensor, key_o: Tensor, v: Tensor, values: Tensor, weights: Tensor | None) -> Tensor:
        exp_t, exp_o = key_t.neg().exp_(), key_o.neg().exp_()
        unit = exp_t.new_ones(())
        scores = exp_t.new_zeros(*key_t.shape[:2], key_t.shape[1])  # [B, L, L]
        for rows, t, o in _blocks(*key_t.shape):
            pairs = torch.addcmul(unit, exp_t[rows, t, None], exp_o[rows, None, o]).reciprocal_()
            scores[rows, t, o] = pairs @ v
        scores = scores.tril_() if weights is None else scores.mul_(weights)
        ctx.save_for_backward(exp_t, exp_o, v, values, weights, scores)
        return scores @ values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        exp_t, exp_o, v, values, weights, scores = ctx.saved_tensors
        unit = exp_t.new_ones(())
        grad_scores = grad @ values.mT
        grad_scores = grad_scores.tril_() if weights is None else grad_scores.mul_(weights)
        grad_t, grad_o, grad_v = torch.empty_like(exp_t), torch.zeros_like(exp_o), torch.zeros_like(v)
        for rows, t, o in _blocks(*exp_t.shape):
            pairs = torch.addcmul(unit, exp_t[rows, t, None], exp_o[rows, None, o]).reciprocal_()  # [b, t, o, h]
            block = grad_scores[rows, t, o].contiguous()
            grad_v.addmv_(pairs.view(-1, v.shape[0]).T, block.view(-1))
            pairs.addcmul_(pairs, pairs, value=-1).mul_(block[..., None])  # the sigmoid's slope, s - s^2
            grad_t[rows, t] = pairs.sum(2)
            grad_o[rows, o] += pairs.sum(1)
        return grad_t.mul_(v), grad_o.mul_(v), grad_v, scores.mT @ grad, None
