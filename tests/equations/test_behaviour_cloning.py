"""L_BC against loops written from its formulas (docs/equations.md §2.1), on a handful of items."""

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from ecoc.batch import PAD
from ecoc.losses.behaviour_cloning import all_items_loss, bpr_loss, softmax_loss
from ecoc.losses.sampling import Pool, sample_pool

Floats = NDArray[np.float64]
Slow = tuple[float, Floats, Floats]  # loss and its gradients by states and vectors
CHUNK = 256


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=draw)


def integers(low: int, high: int, count: int, seed: int = 0) -> Tensor:
    return torch.randint(low, high, (count,), generator=torch.Generator().manual_seed(seed))


def slow_softmax(states: Tensor, vectors: Tensor, own: Tensor, correction: list[float] | None = None) -> Slow:
    """mean -ln softmax(y)_i; a column's correction is left out of the logit of the state that owns it."""
    s, v = states.detach().numpy(), vectors.detach().numpy()
    total, by_state, by_vector = 0.0, np.zeros_like(s), np.zeros_like(v)
    for n, mine in enumerate(own.tolist()):
        logits = [
            float(np.dot(s[n], v[k])) + (correction[k] if correction and k != mine else 0.0) for k in range(len(v))
        ]
        highest = max(logits)
        mass = sum(math.exp(y - highest) for y in logits)
        total -= logits[mine] - highest - math.log(mass)
        for k, y in enumerate(logits):
            slope = math.exp(y - highest) / mass - (k == mine)
            by_state[n] += slope * v[k] / len(s)
            by_vector[k] += slope * s[n] / len(s)
    return total / len(s), by_state, by_vector


def slow_bpr(states: Tensor, vectors: Tensor, own: Tensor, draws: list[int]) -> Slow:
    """mean (1 / N2) sum_k -ln sigmoid(y_i - y_jk) over the draws j_k that are not the state's own item."""
    s, v = states.detach().numpy(), vectors.detach().numpy()
    total, by_state, by_vector = 0.0, np.zeros_like(s), np.zeros_like(v)
    for n, mine in enumerate(own.tolist()):
        negatives = [k for k in draws if k != mine]
        for k in negatives:
            gap = float(np.dot(s[n], v[mine])) - float(np.dot(s[n], v[k]))
            weight = 1 / (len(negatives) * len(s))
            total += weight * (math.log1p(math.exp(-abs(gap))) + max(-gap, 0.0))
            slope = weight * (1 - math.tanh(gap / 2)) / 2  # sigmoid(-gap): minus the derivative by the gap
            by_state[n] += slope * (v[k] - v[mine])
            by_vector[k] += slope * s[n]
            by_vector[mine] -= slope * s[n]
    return total, by_state, by_vector


def assert_same(loss: Callable[[Tensor, Tensor], Tensor], states: Tensor, vectors: Tensor, expected: Slow) -> None:
    """Value and gradients of a loss, and that a factor after the loss reaches them."""
    s, v = states.clone().requires_grad_(), vectors.clone().requires_grad_()
    found = loss(s, v)
    assert found.shape == ()
    assert found.dtype == states.dtype
    assert found.item() == pytest.approx(expected[0], rel=1e-9, abs=1e-12)
    (3 * found).backward()  # type: ignore[no-untyped-call]
    assert s.grad is not None
    assert v.grad is not None
    np.testing.assert_allclose(s.grad.numpy(), 3 * expected[1], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(v.grad.numpy(), 3 * expected[2], rtol=1e-8, atol=1e-12)
    assert torch.equal(s.detach(), states)  # what was given is as it was
    assert torch.equal(v.detach(), vectors)


SHAPES = [(1, 1), (1, 4), (3, 2), (5, 5), (CHUNK, 3), (CHUNK + 1, 4), (2 * CHUNK + 77, 5)]


@pytest.mark.parametrize(("count", "columns"), SHAPES)
@pytest.mark.parametrize("is_corrected", [False, True])
def test_softmax_is_the_formula(count: int, columns: int, is_corrected: bool) -> None:
    states, vectors = normal(count, 3), normal(columns, 3, seed=1)
    own = integers(0, columns, count)
    correction = normal(columns, seed=2) if is_corrected else None
    expected = slow_softmax(states, vectors, own, None if correction is None else correction.tolist())
    assert_same(lambda s, v: softmax_loss(s, v, own, correction), states, vectors, expected)


@pytest.mark.parametrize(("count", "columns"), SHAPES)
def test_bpr_is_the_formula(count: int, columns: int) -> None:
    states, vectors = normal(count, 3), normal(columns, 3, seed=1)
    own = integers(0, columns, count)
    draws = integers(0, columns, 7, seed=3).tolist()
    drawn = torch.bincount(torch.tensor(draws), minlength=columns).double()
    expected = slow_bpr(states, vectors, own, draws)
    assert_same(lambda s, v: bpr_loss(s, v, own, drawn), states, vectors, expected)


def test_a_softmax_of_two_by_hand() -> None:
    states = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    vectors = torch.tensor([[math.log(3), 9.0], [0.0, -9.0]], dtype=torch.float64)
    assert softmax_loss(states, vectors, torch.tensor([0])).item() == pytest.approx(math.log(4 / 3))
    assert softmax_loss(states, vectors, torch.tensor([1])).item() == pytest.approx(math.log(4))
    tripled = torch.tensor([math.log(3), math.log(3)], dtype=torch.float64)
    assert softmax_loss(states, vectors, torch.tensor([0]), tripled).item() == pytest.approx(math.log(2))
    assert softmax_loss(states, vectors, torch.tensor([1]), tripled).item() == pytest.approx(math.log(10))


def test_a_bpr_of_three_by_hand() -> None:
    states = torch.ones(1, 1, dtype=torch.float64)
    vectors = torch.tensor([[math.log(3)], [0.0], [2 * math.log(3)]], dtype=torch.float64)
    drawn = torch.tensor([5.0, 3.0, 1.0])  # 5 collisions; 3 draws lost by ln 3, 1 by -ln 3
    expected = (3 * math.log(4 / 3) + math.log(4)) / 4
    assert bpr_loss(states, vectors, torch.tensor([0]), drawn).item() == pytest.approx(expected)


def test_the_whole_catalogue_without_padding() -> None:
    table, target = normal(5, 3, seed=1), torch.tensor([4, 1, 4, 2])
    states = normal(4, 3)
    loss, by_state, by_item = slow_softmax(states, table[1:], target - 1)
    by_table = np.concatenate([np.zeros((1, 3)), by_item])  # PAD's row is not looked at, though it is not zero here
    assert_same(lambda s, items: all_items_loss(s, items, target), states, table, (loss, by_state, by_table))


def test_gradients_by_finite_differences() -> None:
    states, vectors = normal(4, 3).requires_grad_(), normal(5, 3, seed=1).requires_grad_()
    own, correction = torch.tensor([0, 3, 3, 1]), torch.tensor([0.5, -torch.inf, 0.0, -2.0, 1.0]).double()
    drawn = torch.tensor([2.0, 0.0, 1.0, 4.0, 1.0])
    for loss in (
        lambda s, v: softmax_loss(s, v, own),
        lambda s, v: softmax_loss(s, v, own, correction),
        lambda s, v: bpr_loss(s, v, own, drawn),
        lambda s, v: all_items_loss(s, v, own + 1),
        lambda s, v: all_items_loss(s, v, torch.ones(4, dtype=torch.int64)),
    ):
        assert torch.autograd.gradcheck(loss, (states, vectors))


@pytest.mark.parametrize("needs", ["states", "vectors", "neither"])
def test_gradients_go_only_where_they_are_asked_for(needs: str) -> None:
    states = normal(3, 2).requires_grad_(needs == "states")
    vectors = normal(4, 2, seed=1).requires_grad_(needs == "vectors")
    loss = softmax_loss(states, vectors, torch.tensor([0, 1, 3]))
    assert loss.requires_grad == (needs != "neither")
    if needs != "neither":
        loss.backward()  # type: ignore[no-untyped-call]
    assert (states.grad is not None) == (needs == "states")
    assert (vectors.grad is not None) == (needs == "vectors")


@pytest.mark.parametrize("count", [1, 5])
def test_a_pool_of_one_item_teaches_nothing(count: int) -> None:
    states, vectors = normal(count, 3).requires_grad_(), normal(1, 3, seed=1).requires_grad_()
    own = torch.zeros(count, dtype=torch.int64)
    for loss in (softmax_loss(states, vectors, own), bpr_loss(states, vectors, own, torch.tensor([9.0]))):
        assert loss.item() == 0
        for gradient in torch.autograd.grad(loss, (states, vectors)):
            assert not gradient.any()


def test_a_state_whose_draws_all_collide_counts_as_zero() -> None:
    states, vectors = normal(2, 3), normal(2, 3, seed=1)
    own, drawn = torch.tensor([0, 1]), torch.tensor([4.0, 0.0])
    expected = slow_bpr(states, vectors, own, [0, 0, 0, 0])
    alone = slow_bpr(states[1:], vectors, own[1:], [0])
    assert expected[0] == pytest.approx(alone[0] / 2)
    assert_same(lambda s, v: bpr_loss(s, v, own, drawn), states, vectors, expected)


@pytest.mark.parametrize("scale", [1e-20, 30.0, 1e4])
def test_scores_of_any_height_give_finite_losses_and_gradients(scale: float) -> None:
    states, vectors = normal(300, 3, scale=scale), normal(4, 3, seed=1)
    own, drawn = integers(0, 4, 300), torch.tensor([1.0, 0.0, 2.0, 1.0])
    pairs: list[tuple[Callable[[Tensor, Tensor], Tensor], Slow]] = [
        (lambda s, v: softmax_loss(s, v, own), slow_softmax(states, vectors, own)),
        (lambda s, v: bpr_loss(s, v, own, drawn), slow_bpr(states, vectors, own, [0, 2, 2, 3])),
    ]
    for loss, slow in pairs:
        s, v = states.float().requires_grad_(), vectors.float().requires_grad_()
        found = loss(s, v)
        assert found.item() == pytest.approx(slow[0], rel=1e-4)
        for by, expected in zip(torch.autograd.grad(found, (s, v)), slow[1:], strict=True):
            np.testing.assert_allclose(by.numpy(), expected, rtol=1e-3, atol=1e-4 * abs(expected).max() + 1e-30)


def draws_of(pool: Pool, target: Tensor, *, in_batch: bool) -> Counter[int]:
    """How often each item was drawn uniformly, told from how often it was drawn at all."""
    drawn = Counter(dict(zip(pool.items.tolist(), map(int, pool.drawn.tolist()), strict=True)))
    if in_batch:
        drawn.subtract(target.tolist())
    return drawn


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 12), st.integers(1, 20), st.integers(0, 30), st.booleans(), st.integers(0, 2**32))
def test_what_a_pool_is(
    data: st.DataObject, catalogue: int, count: int, uniform: int, in_batch: bool, seed: int
) -> None:
    target = torch.tensor(data.draw(st.lists(st.integers(1, catalogue), min_size=count, max_size=count)))
    frequency = torch.rand(catalogue + 1, generator=torch.Generator().manual_seed(seed)) + 0.01
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pool = sample_pool(target, frequency, uniform, in_batch=in_batch)
    items = pool.items.tolist()
    assert len(set(items)) == len(items)
    assert PAD not in items
    assert all(1 <= item <= catalogue for item in items)
    assert torch.equal(pool.items[pool.own], target)
    extra = draws_of(pool, target, in_batch=in_batch)
    assert min(extra.values()) >= 0
    assert sum(extra.values()) == uniform
    assert set(items) == set(target.tolist()) | {item for item, times in extra.items() if times}
    for item, expected in zip(items, pool.expected.tolist(), strict=True):
        hoped = (count * frequency[item].item() if in_batch else 0.0) + uniform / catalogue
        assert expected == pytest.approx(hoped, rel=1e-5)
    if uniform:
        for times, expected, found in zip(
            pool.drawn.tolist(), pool.expected.tolist(), pool.correction.tolist(), strict=True
        ):
            assert found == (pytest.approx(math.log(times / expected), abs=1e-5) if times else -math.inf)


def test_uniform_draws_are_uniform_and_reach_both_ends_of_the_catalogue() -> None:
    torch.manual_seed(0)
    target, frequency = torch.tensor([2]), torch.full((6,), 0.2)
    total = Counter[int]()
    for _ in range(200):
        pool = sample_pool(target, frequency, 50, in_batch=False)
        total.update(draws_of(pool, target, in_batch=False))
    assert set(total) == {1, 2, 3, 4, 5}
    assert all(abs(times - 2000) < 200 for times in total.values())  # five standard deviations


MODES = [(True, 0), (True, 6), (False, 6), (False, 1)]


@pytest.mark.parametrize(("in_batch", "uniform"), MODES)
@pytest.mark.parametrize("target", [[3], [1, 5, 1, 1], [2, 4, 2, 5, 1, 3]])
@pytest.mark.parametrize("seed", range(3))
def test_the_sampled_softmax_is_the_formula(in_batch: bool, uniform: int, target: list[int], seed: int) -> None:
    """-ln of e^y_i over e^y_i + sum of e^(y_j + ln(times drawn / expected)) over the drawn j that are not i."""
    wanted, frequency = torch.tensor(target), torch.tensor([0.0, 0.5, 0.2, 0.15, 0.1, 0.05])
    table, states = normal(6, 3, seed=1), normal(len(target), 3)
    torch.manual_seed(seed)
    pool = sample_pool(wanted, frequency, uniform, in_batch=in_batch)
    times = draws_of(pool, wanted, in_batch=False)
    loss, by_state, by_table = 0.0, np.zeros((len(target), 3)), np.zeros((6, 3))
    for n, own in enumerate(target):
        weight = {j: c / (len(target) * in_batch * float(frequency[j]) + uniform / 5) for j, c in times.items() if c}
        weight[own] = 1.0
        mass = {j: w * math.exp(float(states[n] @ table[j])) for j, w in weight.items()}
        loss -= math.log(mass[own] / sum(mass.values())) / len(target)
        for j, part in mass.items():
            slope = (part / sum(mass.values()) - (j == own)) / len(target)
            by_state[n] += slope * table[j].numpy()
            by_table[j] += slope * states[n].numpy()

    s, items = states.clone().requires_grad_(), table.clone().requires_grad_()
    found = softmax_loss(s, items[pool.items], pool.own, pool.correction)
    assert found.item() == pytest.approx(loss, rel=1e-6)
    by = torch.autograd.grad(found, (s, items))
    np.testing.assert_allclose(by[0].numpy(), by_state, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(by[1].numpy(), by_table, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("in_batch", "uniform"), MODES[1:])
def test_the_sampled_bpr_is_the_formula(in_batch: bool, uniform: int) -> None:
    target, table = torch.tensor([2, 4, 2, 5, 1, 3]), normal(6, 3, seed=1)
    torch.manual_seed(5)
    pool = sample_pool(target, torch.full((6,), 0.2), uniform, in_batch=in_batch)
    draws = [k for k, times in enumerate(pool.drawn.tolist()) for _ in range(int(times))]
    states, vectors = normal(6, 3), table[pool.items]
    expected = slow_bpr(states, vectors, pool.own, draws)
    assert_same(lambda s, v: bpr_loss(s, v, pool.own, pool.drawn.double()), states, vectors, expected)


def test_a_target_that_was_not_drawn_is_no_negative_of_others() -> None:
    """Uniform draws only: moving an undrawn target's vector changes its own state's loss alone."""
    states, vectors = normal(2, 3), normal(3, 3, seed=1)
    drawn, expected = torch.tensor([0.0, 2.0, 0.0]), torch.tensor([0.5, 0.5, 0.5])
    pool = Pool(torch.tensor([4, 6, 8]), drawn, expected, torch.tensor([0, 2]))
    moved = vectors.clone()
    moved[0] += 1
    for one, other in ((vectors, moved), (moved, vectors)):
        alone = [softmax_loss(states[1:], v, pool.own[1:], pool.correction).item() for v in (one, other)]
        assert alone[0] == alone[1]
    both = [softmax_loss(states, v, pool.own, pool.correction).item() for v in (vectors, moved)]
    assert both[0] != both[1]
    assert all(map(math.isfinite, both))


@pytest.mark.parametrize(("in_batch", "uniform"), [(True, 0), (True, 40), (False, 60)])
def test_logq_makes_a_sample_estimate_the_whole_catalogue(in_batch: bool, uniform: int) -> None:
    """One state among others of a step, many steps: what it is told on average, against the full softmax."""
    items, count, steps = 60, 80, 300
    frequency = 1 / torch.arange(items + 1).clamp(min=1).double()
    frequency[PAD] = 0
    frequency = (frequency / frequency.sum()).float()
    table, state = normal(items + 1, 4, scale=0.7), normal(1, 4, seed=1)
    target = torch.tensor([7])
    whole = state.clone().requires_grad_()
    loss = all_items_loss(whole, table, target)
    (direction,) = torch.autograd.grad(loss, whole)
    mass = (table[1:] @ state[0]).exp().sum().item()

    torch.manual_seed(0)
    estimates: dict[str, list[float]] = {"corrected": [], "plain": []}
    gradients = {"corrected": torch.zeros(1, 4).double(), "plain": torch.zeros(1, 4).double()}
    for _ in range(steps):
        others = torch.multinomial(frequency, count, replacement=True)
        pool = sample_pool(torch.cat([target, others]), frequency, uniform, in_batch=in_batch)
        for name, correction in (("corrected", pool.correction), ("plain", None)):
            s = state.clone().requires_grad_()
            found = softmax_loss(s, table[pool.items], pool.own[:1], correction)
            gradients[name] += torch.autograd.grad(found, s)[0] / steps
            estimates[name].append(math.exp(found.item() + float(table[7] @ state[0])))
    error = {name: float((gradient - direction).norm() / direction.norm()) for name, gradient in gradients.items()}
    assert np.mean(estimates["corrected"]) == pytest.approx(mass, rel=0.05)
    assert abs(np.mean(estimates["plain"]) - mass) > 0.15 * mass
    assert error["corrected"] < 0.1
    assert error["corrected"] < error["plain"] / 2 or not in_batch
