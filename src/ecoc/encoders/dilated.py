"""Dilated causal convolution in time-major layout, in which a delay is a shift of rows: no padding and no copy."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor, dilation: int) -> Tensor:
    """`conv1d` over the past only: x [L, B, in], weight [k, in, out], oldest tap first, bias [out] -> [L, B, out].

    y[t] = bias + sum_j x[t - j dilation] weight[k - 1 - j].
    """
    if torch.compiler.is_compiling():
        return _plain(x, weight, bias, dilation)
    return _CausalConv.apply(x, weight, bias, dilation)  # type: ignore[no-untyped-call]


def _plain(x: Tensor, weight: Tensor, bias: Tensor, dilation: int) -> Tensor:
    """The same on a padded copy, for tracing: no branch depends on a size."""
    length, taps = x.shape[0], weight.shape[0]
    padded = pad(x, (0, 0, 0, 0, (taps - 1) * dilation, 0))
    for tap in range(taps):
        bias = bias + padded[tap * dilation : tap * dilation + length] @ weight[tap]
    return bias


def _delays(weight: Tensor, shift: int) -> list[tuple[int, int]]:
    """Every tap but the newest, with its delay in rows."""
    newest = weight.shape[0] - 1
    return [(tap, (newest - tap) * shift) for tap in range(newest)]


class _CausalConv(torch.autograd.Function):
    """One matrix product per tap, on contiguous rows of [L B, in]; a delay of one step is a shift of B rows.

    A tap that reaches before the start of the sequences gets no rows, and costs nothing.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, dilation: int) -> Tensor:
        length, count, _ = x.shape
        x = x.flatten(0, 1)
        ctx.save_for_backward(x, weight)
        ctx.shift, ctx.count = dilation * count, count
        out = torch.addmm(bias, x, weight[-1])  # [L B, out]
        for tap, delay in _delays(weight, ctx.shift):
            out[delay:].addmm_(x[:-delay], weight[tap])
        return out.view(length, count, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.flatten(0, 1)
        grad_x, grad_weight = grad @ weight[-1].T, torch.zeros_like(weight)
        torch.mm(x.T, grad, out=grad_weight[-1])
        for tap, delay in _delays(weight, ctx.shift):
            grad_x[:-delay].addmm_(grad[delay:], weight[tap].T)
            torch.mm(x[:-delay].T, grad[delay:], out=grad_weight[tap])
        return grad_x.view(-1, ctx.count, x.shape[1]), grad_weight, grad.sum(0), None
