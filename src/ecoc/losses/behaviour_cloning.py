"""L_BC: tie each state to the item that was logged after it. Softmax over all items or a shared pool, or BPR.

Every loss scores N states against K shared columns and knows its gradient in closed form, so one pass makes both, in
chunks that stay in cache; no N x K matrix outlives its chunk.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from ecoc.batch import PAD

_ROWS = 256  # states a chunk


def softmax_loss(
    states: Tensor, vectors: Tensor, own: Tensor, correction: Tensor | None = None, weight: Tensor | None = None
) -> Tensor:
    """Mean of -ln softmax(y)_own over columns; `correction` [K] is added to every logit but the state's own.

    states [N, d], vectors [K, d], own [N]; `weight` [N], a constant, multiplies each state's loss.
    """
    return _Fused.apply(states, vectors, own, correction, weight, "softmax")  # type: ignore[no-untyped-call]


def bpr_loss(states: Tensor, vectors: Tensor, own: Tensor, drawn: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of -ln sigmoid(y_own - y_k) over the drawn columns k; a state's own item is no negative of it."""
    return _Fused.apply(states, vectors, own, drawn, weight, "bpr")  # type: ignore[no-untyped-call]


def all_items_loss(states: Tensor, items: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Softmax over the whole catalogue; `items` [V, d] has PAD's row first, which is no candidate."""
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
            part, mine = states[first : first + _ROWS], own[first : first + _ROWS, None]
            truth = (part * vectors[mine.squeeze(1)]).sum(1, keepdim=True)  # [n, 1]
            logits = part @ vectors.T  # [n, K]; becomes the gradient in place
            step = _softmax_chunk if kind == "softmax" else _bpr_chunk
            losses = step(logits, truth, mine, columns)  # [n]
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
    weight = weight.expand_as(logits).scatter(1, own, 0.0)  # collisions are no negatives
    weight = weight / weight.sum(1, keepdim=True).clamp(min=1)
    logits.sub_(truth)
    loss = (softplus(logits) * weight).sum(1)
    logits.sigmoid_().mul_(weight)
    logits.scatter_(1, own, -logits.sum(1, keepdim=True))
    return loss
