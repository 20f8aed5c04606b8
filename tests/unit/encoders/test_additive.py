"""The blocked additive attention against plain loops and against all pairs at once."""

from math import exp

import pytest
import torch
from torch import Tensor

from ecoc.encoders import additive
from ecoc.encoders.additive import additive_attention, attend

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


pytestmark = pytest.mark.usefixtures("one_thread")


def draw(count: int, length: int, hidden: int, dim: int, seed: int = 0) -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    return normal(count, length, hidden), normal(count, length, hidden), normal(hidden), normal(count, length, dim)


def draw_weights(count: int, length: int, seed: int = 1) -> Tensor:
    """Counts of a past, some of it left out, rows of different lengths: lower triangular."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, length + 1, (count, 1, 1), generator=generator)
    weights = torch.randint(0, 4, (count, length, length), generator=generator).double().tril()
    return weights * (torch.arange(length) < lengths)


def dense(inputs: Inputs, weights: Tensor | None) -> Tensor:
    key_t, key_o, v, values = inputs
    if weights is None:
        weights = torch.ones(key_t.shape[1], key_t.shape[1], dtype=key_t.dtype).tril()
    return ((torch.sigmoid(key_t[:, :, None] + key_o[:, None]) * v).sum(-1) * weights) @ values


def gradients(out: Tensor, inputs: Inputs) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(2)
    return torch.autograd.grad(out, inputs, torch.randn(out.shape, generator=generator, dtype=out.dtype))


def test_the_sum_is_the_formula_term_by_term() -> None:
    inputs = draw(2, 5, 3, 4)
    weights = draw_weights(2, 5)
    key_t, key_o, v, values = (part.tolist() for part in inputs)
    for given in (None, weights):
        found = additive_attention(*inputs, given).tolist()
        for b in range(2):
            for t in range(5):
                expected = [0.0] * 4
                for o in range(t + 1):
                    pairs = zip(v, key_t[b][t], key_o[b][o], strict=True)
                    score = sum(part / (1 + exp(-asked - told)) for part, asked, told in pairs)
                    score *= 1.0 if given is None else float(given[b, t, o])
                    expected = [sofar + score * value for sofar, value in zip(expected, values[b][o], strict=True)]
                assert found[b][t] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("count", "length", "hidden", "dim"), [(1, 1, 1, 1), (3, 10, 4, 6), (5, 11, 3, 2), (4, 37, 8, 5)]
)
@pytest.mark.parametrize("cells", [1, 700, 1 << 18])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients_are_those_of_all_pairs_at_once(
    monkeypatch: pytest.MonkeyPatch, count: int, length: int, hidden: int, dim: int, cells: int, weighted: bool
) -> None:
    monkeypatch.setattr(additive, "_CELLS", cells)
    inputs = draw(count, length, hidden, dim)
    weights = draw_weights(count, length) if weighted else None
    found, expected = additive_attention(*inputs, weights), dense(inputs, weights)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found, inputs), gradients(expected, inputs))


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_pass_the_numerical_check(monkeypatch: pytest.MonkeyPatch, weighted: bool) -> None:
    monkeypatch.setattr(additive, "_ROWS", 2)
    weights = draw_weights(2, 5) if weighted else None
    assert torch.autograd.gradcheck(lambda t, o, v, s: additive_attention(t, o, v, s, weights), draw(2, 5, 3, 2))


def test_weights_get_no_gradient() -> None:
    inputs, weights = draw(2, 4, 3, 2), draw_weights(2, 4).requires_grad_()
    *found, of_weights = torch.autograd.grad(
        additive_attention(*inputs, weights).sum(), (*inputs, weights), allow_unused=True
    )
    assert of_weights is None
    assert all(part is not None for part in found)


def test_the_future_and_other_rows_change_nothing() -> None:
    key_t, key_o, v, values = draw(3, 25, 4, 3)
    before = additive_attention(key_t, key_o, v, values)
    later = torch.zeros(3, 25, 1, dtype=torch.float64)
    later[:, 13:] = later[1] = 5.0
    after = additive_attention(key_t + later, key_o + later, v, values + later)
    torch.testing.assert_close(after[0, :13], before[0, :13], rtol=0, atol=0)
    assert not torch.allclose(after[0, 13:], before[0, 13:])


@pytest.mark.parametrize("size", [39.0, 1e3, 1e30])
def test_large_keys_stay_finite(size: float) -> None:
    key_t = torch.tensor([[[size], [-size], [size]]]).requires_grad_()
    key_o = torch.tensor([[[size], [-size], [size / 2]]]).requires_grad_()
    v, values = torch.ones(1).requires_grad_(), torch.ones(1, 3, 1).requires_grad_()
    found = additive_attention(key_t, key_o, v, values)
    torch.testing.assert_close(found.flatten(), torch.tensor([1.0, 0.5, 2.5]))
    assert all(part.isfinite().all() for part in torch.autograd.grad(found.sum(), (key_t, key_o, v, values)))


def test_a_few_queries_are_the_same_rows() -> None:
    inputs, weights = draw(3, 12, 4, 5), draw_weights(3, 12)
    key_t, *rest = inputs
    found = attend(key_t[:, [3, 11]], rest[0], rest[1], rest[2], weights[:, [3, 11]])
    torch.testing.assert_close(found, additive_attention(*inputs, weights)[:, [3, 11]])


def test_no_pair_is_kept_for_the_backward_pass() -> None:
    sizes: list[int] = []

    def note(kept: Tensor) -> Tensor:
        sizes.append(kept.numel())
        return kept

    inputs = draw(4, 20, 30, 10)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda kept: kept):
        additive_attention(*inputs)
    assert sizes
    assert max(sizes) <= 4 * 20 * 30
    with torch.no_grad():
        assert not additive_attention(*inputs).requires_grad


class Attention(torch.nn.Module):
    """What an encoder does with the kernel, to be exported."""

    def forward(self, key_t: Tensor, key_o: Tensor, v: Tensor, values: Tensor) -> Tensor:
        return additive_attention(key_t, key_o, v, values)


def test_it_is_exported_for_any_number_of_rows() -> None:
    batch = {0: torch.export.Dim.DYNAMIC}
    program = torch.export.export(Attention(), draw(3, 12, 4, 5), dynamic_shapes=(batch, batch, None, batch))
    for count in (1, 7):
        inputs = draw(count, 12, 4, 5, seed=count)
        torch.testing.assert_close(program.module()(*inputs), additive_attention(*inputs))
