"""L_REG: keep the critic pessimistic about actions that were explored but not logged; docs/equations.md §2.1.

As in `behaviour_cloning`, one pass over chunks of states computes loss and gradient; no N x K matrix of values outlives
its chunk. V(s) of a dueling critic is the same on both sides of each difference and cancels.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

Form = Literal["weighted", "logsumexp", "bpr"]

_ROWS = 256  # states per chunk


def conservatism_loss(states: Tensor, actions: Tensor, own: Tensor, log_weight: Tensor | None, *, form: Form) -> Tensor:
    """L_REG, summed over critics j, mean over states.

    q_k = states_j . actions_jk is the value of candidate k, which counts with weight exp(log_weight_k); -inf: it is not
    explored. own [J, N] is the value of the logged action. states [J or 1, N, d], actions [J or 1, K, d], log_weight
    [N, K].

        weighted   sum_k w_k q_k - own,  w = softmax(q + log_weight);  dq_k: w_k (1 + q_k - w.q)
        logsumexp  log of the mean of exp(q) - own;                    dq_k: w_k
        bpr        mean of -ln sigmoid(own - q)
    """
    return _Fused.apply(states, actions, own, log_weight, form)  # type: ignore[no-untyped-call]


class _Fused(torch.autograd.Function):
    """Loss and gradients in one pass over chunks of states, critic by critic."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, actions: Tensor, own: Tensor, log_weight: Tensor | None, form: Form
    ) -> Tensor:
        critics, count = own.shape
        total = own.new_zeros((), dtype=torch.float64)
        by_state, by_action, by_own = torch.zeros_like(states), torch.zeros_like(actions), torch.empty_like(own)
        for first in range(0, count, _ROWS):
            rows = slice(first, first + _ROWS)
            weight = None if log_weight is None else log_weight[rows]
            for critic in range(critics):
                s, a = critic % len(states), critic % len(actions)
                part, logged = states[s, rows], own[critic, rows, None]
                q = part @ actions[a].T  # [n, K]; becomes the gradient
                if form == "bpr":
                    q, losses = _bpr_chunk(q, logged, weight)
                    by_own[critic, rows] = -q.sum(1)
                else:
                    q, explored = _explored_chunk(q, weight, form)
                    losses = explored - logged
                    by_own[critic, rows] = -1.0
                total += losses.sum(dtype=torch.float64)
                by_state[s, rows].addmm_(q, actions[a])
                by_action[a].addmm_(q.T, part)
        for gradient in (by_state, by_action, by_own):
            gradient.div_(count)
        ctx.save_for_backward(by_state, by_action, by_own)
        return (total / count).to(states.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        by_state, by_action, by_own = ctx.saved_tensors
        return by_state * grads[0], by_action * grads[0], by_own * grads[0], None, None


def _explored_chunk(q: Tensor, log_weight: Tensor | None, form: Form) -> tuple[Tensor, Tensor]:
    """Gradient by q [n, K] and value [n, 1] of the explored side."""
    logits = q if log_weight is None else q + log_weight
    if form == "logsumexp":
        mass = q.new_tensor(float(q.shape[1])).log() if log_weight is None else log_weight.logsumexp(1, keepdim=True)
        value = logits.logsumexp(1, keepdim=True)
        return (logits - value).exp_(), value - mass
    weight = logits.softmax(1)
    value = (weight * q).sum(1, keepdim=True)
    return weight.mul_(q.sub_(value).add_(1.0)), value


def _bpr_chunk(q: Tensor, logged: Tensor, log_weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gradient by q [n, K] and losses [n, 1]."""
    share = torch.full_like(q, 1 / q.shape[1]) if log_weight is None else log_weight.softmax(1)
    gap = q.sub_(logged)
    return gap.sigmoid() * share, (softplus(gap) * share).sum(1, keepdim=True)
