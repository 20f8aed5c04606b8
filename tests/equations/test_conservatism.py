"""L_REG against loops written from its formulas (docs/equations.md §2.1), on a handful of actions."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from ecoc.losses.conservatism import Form, conservatism_loss

Floats = NDArray[np.float64]
Slow = tuple[float, Floats, Floats, Floats]  # loss and its gradients by states, actions and the logged values
CHUNK = 256
FORMS: list[Form] = ["weighted", "logsumexp", "bpr"]
LOGS = ["none", "finite", "masked", "counts"]


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=draw)


def log_weight_of(kind: str, rows: int, columns: int) -> Tensor | None:
    """None, the policy's logits, a mask of what was explored, or the logarithms of how often each was drawn."""
    if kind == "none":
        return None
    if kind == "finite":
        return normal(rows, columns, seed=5, scale=2.0)
    draw = torch.Generator().manual_seed(6)
    counts = torch.randint(0, 2 if kind == "masked" else 4, (rows, columns), generator=draw).double()
    counts[torch.arange(rows), torch.randint(0, columns, (rows,), generator=draw)] = 1.0  # no row explores nothing
    return counts.log()


def slow_row(q: list[float], own: float, log_weight: list[float], form: Form) -> tuple[float, list[float]]:
    """Loss of one state and critic, and its slope by each q_k; the slope by own is not among them."""
    heights = [value + log for value, log in zip(q, log_weight, strict=True)]
    highest = max(heights)
    mass = sum(math.exp(height - highest) for height in heights)
    w = [math.exp(height - highest) / mass for height in heights]
    if form == "weighted":
        mean = sum(weight * value for weight, value in zip(w, q, strict=True) if weight)
        slopes = [weight * (1 + value - mean) for weight, value in zip(w, q, strict=True)]
        return mean - own, slopes
    counts = [math.exp(log) for log in log_weight]
    if form == "logsumexp":  # ln (sum_k c_k e^q_k / sum_k c_k)
        return math.log(mass) + highest - math.log(sum(counts)) - own, w
    share = [count / sum(counts) for count in counts]
    total = sum(s * (max(v - own, 0.0) + math.log1p(math.exp(-abs(v - own)))) for s, v in zip(share, q, strict=True))
    return total, [s * (1 + math.tanh((v - own) / 2)) / 2 for s, v in zip(share, q, strict=True)]


def slow(states: Tensor, actions: Tensor, own: Tensor, log_weight: Tensor | None, form: Form) -> Slow:
    """sum_j mean_n of what `slow_row` says; one state or action vector for all critics, or one each."""
    s, a, logged = states.numpy(), actions.numpy(), own.numpy()
    critics, count = logged.shape
    total, by_state, by_action, by_own = 0.0, np.zeros_like(s), np.zeros_like(a), np.zeros_like(logged)
    for j in range(critics):
        mine, its = (0 if len(s) == 1 else j), (0 if len(a) == 1 else j)
        for n in range(count):
            q = [float(np.dot(s[mine, n], action)) for action in a[its]]
            logs = [0.0] * len(q) if log_weight is None else log_weight[n].tolist()
            loss, slopes = slow_row(q, float(logged[j, n]), logs, form)
            total += loss / count
            for k, slope in enumerate(slopes):
                by_state[mine, n] += slope * a[its, k] / count
                by_action[its, k] += slope * s[mine, n] / count
            by_own[j, n] = (-sum(slopes) if form == "bpr" else -1.0) / count
    return total, by_state, by_action, by_own


def assert_same(
    states: Tensor, actions: Tensor, own: Tensor, log_weight: Tensor | None, form: Form, expected: Slow
) -> None:
    """Value and gradients, that a factor after the loss reaches them, and that nothing given was changed."""
    given_ = [states, actions, own]
    leaves = [values.clone().requires_grad_() for values in given_]
    logs = None if log_weight is None else log_weight.clone()
    found = conservatism_loss(leaves[0], leaves[1], leaves[2], logs, form=form)
    assert found.shape == ()
    assert found.dtype == states.dtype
    assert found.item() == pytest.approx(expected[0], rel=1e-9, abs=1e-12)
    (-2.5 * found).backward()  # type: ignore[no-untyped-call]
    for leaf, before, slope in zip(leaves, given_, expected[1:], strict=True):
        assert leaf.grad is not None
        np.testing.assert_allclose(leaf.grad.numpy(), -2.5 * slope, rtol=1e-8, atol=1e-12)
        assert torch.equal(leaf.detach(), before)
    assert log_weight is None or (logs is not None and torch.equal(logs, log_weight))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("vectors", [(1, 2), (2, 1), (2, 2)])
def test_value_and_gradients_are_the_formula(form: Form, kind: str, vectors: tuple[int, int]) -> None:
    branches, heads = vectors
    states, actions = normal(branches, 5, 3), normal(heads, 6, 3, seed=1)
    own, logs = normal(2, 5, seed=2), log_weight_of(kind, 5, 6)
    expected = slow(states, actions, own, logs, form)
    assert_same(states, actions, own, logs, form, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "count"), [("none", CHUNK), ("finite", CHUNK + 1), ("masked", 2 * CHUNK + 77)])
def test_many_states_go_in_chunks_as_one_by_one(form: Form, kind: str, count: int) -> None:
    states, actions = normal(2, count, 2), normal(1, 3, 2, seed=1)
    own, logs = normal(2, count, seed=2), log_weight_of(kind, count, 3)
    assert_same(states, actions, own, logs, form, slow(states, actions, own, logs, form))


@pytest.mark.parametrize("form", FORMS)
def test_one_critic_alone_is_half_of_two_alike(form: Form) -> None:
    states, actions, own, logs = normal(1, 4, 3), normal(1, 5, 3, seed=1), normal(1, 4, seed=2), normal(4, 5, seed=3)
    one = conservatism_loss(states, actions, own, logs, form=form)
    two = conservatism_loss(states, actions, own.expand(2, 4), logs, form=form)
    assert two.item() == pytest.approx(2 * one.item(), rel=1e-12)
    assert one.item() == pytest.approx(slow(states, actions, own, logs, form)[0], rel=1e-9)


@pytest.mark.parametrize("form", FORMS[:2])
@pytest.mark.parametrize("is_masked", [False, True])
def test_one_explored_action_is_the_difference_of_two_values(form: Form, is_masked: bool) -> None:
    states, actions, own = normal(1, 4, 3), normal(2, 1, 3, seed=1), normal(2, 4, seed=2)
    logs = None
    if is_masked:  # one of four explored
        actions = torch.cat([normal(2, 3, 3, seed=4), actions], 1)
        logs = torch.tensor([-torch.inf, -torch.inf, -torch.inf, 0.7]).double().expand(4, 4)
    found = conservatism_loss(states, actions, own, logs, form=form).item()
    expected = sum((float(states[0, n] @ actions[j, -1]) - float(own[j, n])) / 4 for j in range(2) for n in range(4))
    assert found == pytest.approx(expected, rel=1e-12)


def test_what_lies_far_below_the_mean_is_pushed_up_by_the_weights_gradient() -> None:
    """Minimising moves q_k by -w_k (1 + q_k - w.q): up if q_k is more than 1 below w.q."""
    q = torch.tensor([[0.0, 0.5, 3.0]]).double()
    states, own = torch.ones(1, 1, 1).double(), torch.zeros(1, 1).double()
    mean = float((q.softmax(1) * q).sum())
    assert mean - 0.5 > 1
    for form, sign in (("weighted", -1.0), ("logsumexp", 1.0)):
        actions = q.T[None].clone().requires_grad_()
        conservatism_loss(states, actions, own, None, form=form).backward()  # type: ignore[no-untyped-call, arg-type]
        assert actions.grad is not None
        assert actions.grad.sign().flatten().tolist() == [sign, sign, 1.0]
        assert float(actions.grad.sum()) == pytest.approx(1.0)  # the weights sum to 1, and so do the slopes


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", LOGS)
def test_the_value_of_the_state_cancels(form: Form, kind: str) -> None:
    """Q + V on both sides, V a coordinate of the state that every action meets with 1, changes nothing."""
    states, actions = normal(2, 5, 3), normal(1, 4, 3, seed=1)
    own, logs = normal(2, 5, seed=2), log_weight_of(kind, 5, 4)
    worth = normal(2, 5, seed=3, scale=3.0)
    raised = torch.cat([states, worth[..., None]], 2), torch.cat([actions, torch.ones(1, 4, 1).double()], 2)
    found = []
    for vectors, logged in (((states, actions), own), (raised, own + worth)):
        leaf = vectors[0].clone().requires_grad_()
        loss = conservatism_loss(leaf, vectors[1], logged, logs, form=form)
        loss.backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        found.append((loss.item(), leaf.grad[..., :3].numpy()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_a_constant_added_to_the_log_weights_changes_nothing(form: Form) -> None:
    states, actions, own, logs = normal(1, 4, 3), normal(2, 5, 3, seed=1), normal(2, 4, seed=2), normal(4, 5, seed=3)
    plain = conservatism_loss(states, actions, own, logs, form=form).item()
    moved = conservatism_loss(states, actions, own, logs + normal(4, 1, seed=4, scale=9), form=form)
    assert moved.item() == pytest.approx(plain, rel=1e-9)


def test_a_mean_of_exponentials_is_what_sampling_estimates() -> None:
    """Counts of draws and a mask of them are means over what was drawn: repeated columns, or those columns alone."""
    states, actions, own = normal(1, 1, 3), normal(2, 3, 3, seed=1), normal(2, 1, seed=2)
    counts = torch.tensor([[2.0, 0.0, 3.0]]).double()
    for form in FORMS:
        repeated = actions[:, [0, 0, 2, 2, 2]]
        by_count = conservatism_loss(states, actions, own, counts.log(), form=form)
        one_by_one = conservatism_loss(states, repeated, own, None, form=form)
        assert by_count.item() == pytest.approx(one_by_one.item(), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(get_args(Form)),
    st.sampled_from(LOGS),
    st.integers(1, 4),
    st.integers(1, 5),
    st.floats(0.0, 1e4),
    st.integers(0, 99),
)
def test_values_of_any_size_stay_finite(
    form: Form, kind: str, rows: int, columns: int, scale: float, seed: int
) -> None:
    states, actions = normal(1, rows, 2, seed=seed).float(), normal(2, columns, 2, seed=seed + 1, scale=scale).float()
    own, logs = normal(2, rows, seed=seed + 2, scale=scale).float(), log_weight_of(kind, rows, columns)
    leaves = [values.requires_grad_() for values in (states, actions, own)]
    loss = conservatism_loss(states, actions, own, None if logs is None else logs.float(), form=form)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    for leaf in leaves:
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()
    if form != "bpr":
        least, most = (states[0] @ actions.mT).detach().aminmax(dim=-1)  # an average lies between its ends
        slack = 1e-4 * (1 + scale)
        logged = own.detach()
        assert float((least - logged).mean(1).sum()) - slack <= loss.item()
        assert loss.item() <= float((most - logged).mean(1).sum()) + slack
