"""L_BC: rank the item that was logged after a state first; docs/equations.md §2.1. Softmax or BPR.

Every loss scores N states against K shared columns and has a gradient in closed form. So one pass computes both, in
chunks of states that stay in cache; no N x K matrix outlives its chunk.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from ecoc.batch import PAD

_ROWS = 256  # states per chunk


def softmax_loss(
    states: Tensor, vectors: Tensor, own: Tensor, correction: Tensor | None = None, weight: Tensor | None = None
) -> Tensor:
    """Mean of -ln softmax(y)_own over columns; `correction` [K] is added to every logit but the state's own.

    states [N, d], vectors [K, d], own [N]; `weight` [N], a constant, multiplies each state's loss.
    """
    return _Fused.apply(states, vectors, own, correction, weight, "softmax")  # type: ignore[no-untyped-call]


def bpr_loss(states: Tensor, vectors: Tensor, own: Tensor, drawn: Tensor) -> Tensor:
    """Mean of -ln sigmoid(y_own - y_k) over the drawn columns k; a state's own item is not its negative."""
    return _Fused.apply(states, vectors, own, drawn, None, "bpr")  # type: ignore[no-untyped-call]


def all_items_loss(states: Tensor, items: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Softmax over the whole catalogue; the first row of `items` [V, d] is PAD's and no candidate."""
    return softmax_loss(states, items[PAD + 1 :], target - (PAD + 1), weight=weight)


class _Fused(torch.autograd.Function):
    """Loss and gradients in one pass over chunks of states."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        vectors: Tensor,
        own: Tensor,
        columns: Tensor | None,
        weight: Tensor | None,
        kind: Literal["softmax", "bpr"],
    ) -> Tensor:
        total = states.new_zeros((), dtype=torch.float64)
        by_state, by_vector = torch.empty_like(states), torch.zeros_like(vectors)
        for first in range(0, len(states), _ROWS):
            part, column = states[first : first + _ROWS], own[first : first + _ROWS, None]
            truth = (part * vectors[column.squeeze(1)]).sum(1, keepdim=True)  # [n, 1]
            logits = part @ vectors.T  # [n, K]; becomes the gradient in place
            chunk_losses = _softmax_chunk if kind == "softmax" else _bpr_chunk
            losses = chunk_losses(logits, truth, column, columns)  # [n]
            if weight is not None:
                losses = losses * weight[first : first + _ROWS]
                logits *= weight[first : first + _ROWS, None]
            total += losses.sum(dtype=torch.float64)
            torch.mm(logits, vectors, out=by_state[first : first + _ROWS])
            by_vector.addmm_(logits.T, part)
        ctx.save_for_backward(by_state.div_(len(states)), by_vector.div_(len(states)))
        return (total / len(states)).to(states.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        by_state, by_vector = ctx.saved_tensors
        return by_state * grads[0], by_vector * grads[0], None, None, None, None


def _softmax_chunk(logits: Tensor, truth: Tensor, own: Tensor, correction: Tensor | None) -> Tensor:
    """The chunk's losses; `logits` becomes softmax - onehot."""
    if correction is not None:
        logits += correction
        logits.scatter_(1, own, truth)
    highest = logits.amax(1, keepdim=True)
    logits.sub_(highest).exp_()
    mass = logits.sum(1, keepdim=True)
    logits.div_(mass)
    logits.scatter_add_(1, own, torch.full_like(truth, -1.0))
    return (mass.log() + highest - truth).squeeze(1)


def _bpr_chunk(logits: Tensor, truth: Tensor, own: Tensor, drawn: Tensor | None) -> Tensor:
    """The chunk's losses; `logits` becomes their gradient."""
    weight = torch.ones_like(logits[0]) if drawn is None else drawn
    weight = weight.expand_as(logits).scatter(1, own, 0.0)  # an own item that was drawn is no negative
    weight = weight / weight.sum(1, keepdim=True).clamp(min=1)
    logits.sub_(truth)
    loss = (softplus(logits) * weight).sum(1)
    logits.sigmoid_().mul_(weight)
    logits.scatter_(1, own, -logits.sum(1, keepdim=True))
    return loss
