"""The time-major dilated causal convolution against torch's conv1d on a padded copy."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

from ecoc.encoders.dilated import causal_conv

Inputs = tuple[Tensor, Tensor, Tensor]


pytestmark = pytest.mark.usefixtures("one_thread")


def draw(length: int, count: int, wide: int, out: int, taps: int, seed: int = 0) -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    return normal(length, count, wide), normal(taps, wide, out), normal(out)


def reference(x: Tensor, weight: Tensor, bias: Tensor, dilation: int) -> Tensor:
    padded = pad(x.permute(1, 2, 0), ((weight.shape[0] - 1) * dilation, 0))  # [B, in, L + past]
    return conv1d(padded, weight.permute(2, 1, 0), bias, dilation=dilation).permute(2, 0, 1)


def gradients(out: Tensor, inputs: Inputs) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(2)
    return torch.autograd.grad(out, inputs, torch.randn(out.shape, generator=generator, dtype=out.dtype))


@pytest.mark.parametrize("dilation", [1, 2, 4, 9, 16])
@pytest.mark.parametrize("taps", [1, 2, 3, 5])
@pytest.mark.parametrize(("length", "count", "wide", "out"), [(1, 1, 1, 1), (1, 3, 2, 2), (9, 1, 3, 3), (20, 4, 3, 5)])
def test_values_and_gradients_are_those_of_conv1d(
    length: int, count: int, wide: int, out: int, taps: int, dilation: int
) -> None:
    inputs = draw(length, count, wide, out, taps)
    found, expected = causal_conv(*inputs, dilation), reference(*inputs, dilation)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found, inputs), gradients(expected, inputs))


@pytest.mark.parametrize("dilation", [1, 3, 7])
def test_gradients_pass_the_numerical_check(dilation: int) -> None:
    assert torch.autograd.gradcheck(lambda x, w, b: causal_conv(x, w, b, dilation), draw(6, 2, 3, 2, 3))


def test_transposed_inputs_and_gradients_give_the_same() -> None:
    x, weight, bias = draw(8, 3, 4, 4, 3)
    factor = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    turned = x.detach().transpose(0, 1).contiguous().requires_grad_()
    found = causal_conv(turned.transpose(0, 1), weight, bias, 2).transpose(0, 1)
    expected = causal_conv(x, weight, bias, 2)
    torch.testing.assert_close(found, expected.transpose(0, 1))
    (gradient,) = torch.autograd.grad((found * factor).sum(), turned)
    (other,) = torch.autograd.grad((expected * factor.transpose(0, 1).contiguous()).sum(), x)
    torch.testing.assert_close(gradient.transpose(0, 1), other)


class Convolution(torch.nn.Module):
    """What an encoder does with the kernel, to be exported."""

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return causal_conv(x, weight, bias, 4)


def test_it_is_exported_for_any_number_and_length_of_rows() -> None:
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    program = torch.export.export(Convolution(), draw(12, 3, 4, 4, 3), dynamic_shapes=(free, None, None))
    for length, count in ((12, 1), (3, 7), (20, 2)):
        inputs = draw(length, count, 4, 4, 3, seed=length)
        torch.testing.assert_close(program.module()(*inputs), causal_conv(*inputs, 4))
