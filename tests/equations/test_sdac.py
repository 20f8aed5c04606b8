"""SDAC against loops written from its formulas (docs/equations.md §3.3), on three items."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from slow_sdac import (
    DIM,
    ETA,
    ITEMS,
    KINDS,
    LAM,
    backward,
    log_pi_at,
    make,
    make_batch,
    places,
    slow_ce,
    slow_pi,
    slow_q,
    slow_td,
)
from torch import Tensor, nn

from ecoc.batch import Batch, History
from ecoc.methods.sdac import SDAC, SDACDC, SDACSR


@pytest.mark.parametrize("q_scale", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_losses_are_the_formulas(kind: type[SDAC], q_scale: bool, seed: int) -> None:
    method, batch = make(kind, q_scale=q_scale, seed=seed), make_batch()
    loss = method.loss(batch)
    found = {name: part.item() for name, part in loss.parts.items()}
    expected = {"td": slow_td(method, batch), "pi": slow_pi(method, batch, q_scale)}
    if kind is SDACSR:
        expected["bc"] = slow_ce(method.policy, batch)
        total = expected["td"] + expected["pi"] + LAM * expected["bc"]
    else:
        expected["behaviour"] = slow_ce(method.behaviour, batch)
        total = sum(expected.values())
    assert found == pytest.approx(expected, rel=1e-10)
    assert loss.total.item() == pytest.approx(total, rel=1e-10)
    assert loss.diagnostics == {}


def test_one_state_by_hand() -> None:
    """pi = (1/2, 1/4, 1/4), Q_1 = (4, 0, 0), Q_2 = (2, 8, 0): the least is (2, 0, 0), of which pi expects 1."""
    method = make(SDACSR, q_scale=False, eta=1.0)
    rows = {"policy": [2.0, 1.0, 1.0], "critics.first": [4.0, 0.0, 0.0], "critics.second": [2.0, 8.0, 0.0]}
    with torch.no_grad():
        for name, values in rows.items():
            weight = method.get_submodule(name).head.weight
            weight.zero_()
            weight[1:, -1] = torch.tensor(values).log() if name == "policy" else torch.tensor(values)
    batch = Batch(
        History(torch.tensor([[1]])), torch.tensor([[2]]), torch.tensor([[5.0]]).double(), torch.ones(1, 1).double()
    )
    parts = method.loss(batch).parts
    entropy = 0.5 * math.log(2) + 0.5 * math.log(4)
    assert parts["pi"].item() == pytest.approx(-entropy - 1)
    assert parts["bc"].item() == pytest.approx(math.log(4))
    assert parts["td"].item() == pytest.approx((5**2 + 3**2) / 2)


TOWERS = {
    SDACSR: {"policy": {"pi": 1.0, "bc": LAM}, "critics": {"td": 1.0}},
    SDACDC: {"policy": {"pi": 1.0}, "critics": {"td": 1.0}, "behaviour": {"behaviour": 1.0}},
}


def slope(method: Any, batch: Batch, weights: dict[str, float], steps: dict[nn.Parameter, Tensor]) -> float:
    """Change of weighted losses along a direction, by central differences."""
    step = 1e-6
    ends: list[float] = []
    for sign in (1, -1):
        with torch.no_grad():
            for parameter, direction in steps.items():
                parameter.add_(direction, alpha=sign * step)
            loss = method.loss(batch)
            ends.append(sum(weight * loss.parts[name].item() for name, weight in weights.items()))
            for parameter, direction in steps.items():
                parameter.sub_(direction, alpha=sign * step)
    return (ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q_scale", [False, True])
def test_each_network_follows_its_own_losses_alone(kind: type[SDAC], q_scale: bool) -> None:
    """Finite differences of a tower's own losses are its whole gradient: nothing reaches it from the others."""
    method, batch = make(kind, q_scale=q_scale), make_batch()
    backward(method.loss(batch).total)
    for tower, weights in TOWERS[kind].items():
        mine = {p: p.grad for name, p in method.named_parameters() if method.clip_group(name) == tower}
        assert mine
        assert all(gradient is not None for gradient in mine.values())
        for _ in range(4):
            steps = {p: torch.randn_like(p) for p in mine}
            along = sum(float((gradient * steps[p]).sum()) for p, gradient in mine.items() if gradient is not None)
            assert along == pytest.approx(slope(method, batch, weights, steps), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("part", "tower"), [("td", "critics"), ("pi", "policy"), ("bc", "policy")])
def test_a_loss_reaches_one_network_only(kind: type[SDAC], part: str, tower: str) -> None:
    method = make(kind)
    method.phase = 0 if part == "bc" else 1
    if part not in method.loss(make_batch()).parts:
        method.phase = 0
    backward(method.loss(make_batch()).parts[part])
    reached = {
        method.clip_group(name) for name, p in method.named_parameters() if p.grad is not None and bool(p.grad.any())
    }
    assert reached == {tower}
    assert all(p.grad is None for p in method.lagged["critics"].copy.parameters())


def test_the_gradient_of_the_actor_by_hand() -> None:
    """d L_pi / d logit_b = pi_b (c_b - sum_a pi_a c_a) / N with the charge c = eta log pi - Q."""
    method, batch = make(SDACSR, q_scale=False), make_batch()
    backward(method.loss(batch).parts["pi"])
    expected = np.zeros((ITEMS + 1, DIM + 1))
    with torch.no_grad():
        states = method.policy.states(batch.history).numpy()
    for q, at in zip(slow_q(method, batch), places(batch), strict=True):
        log_pi = log_pi_at(method.policy, batch.history, *at)
        charge = ETA * log_pi - q
        mean = sum(math.exp(log_pi[a]) * charge[a] for a in range(ITEMS))
        for item in range(ITEMS):
            by_logit = math.exp(log_pi[item]) * (charge[item] - mean) / len(places(batch))
            expected[item + 1] += by_logit * np.append(states[at], 1.0)
    np.testing.assert_allclose(method.policy.head.weight.grad.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_that_ended_is_worth_its_reward(kind: type[SDAC]) -> None:
    ended = make_batch([[1, 1, 1, 1], [0, 1, 0, 0], [1, 0, 0, 0]])
    found = [make(kind, gamma=gamma).loss(ended).parts["td"].item() for gamma in (0.0, 0.9)]
    assert found[0] == found[1]
    assert found[0] == pytest.approx(slow_td(make(kind), ended, gamma=0.0))
    going = [make(kind, gamma=gamma).loss(make_batch()).parts["td"].item() for gamma in (0.0, 0.9)]
    assert going[0] != going[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_without_a_known_outcome_teaches_critics_nothing(kind: type[SDAC]) -> None:
    method = make(kind)
    batch = make_batch()
    rows = torch.tensor([2])
    alone = Batch(batch.history.rows(rows), batch.target[rows], batch.reward[rows], batch.done[rows])
    method.collect_diagnostics = True
    loss = method.loss(alone)
    assert loss.parts["td"].item() == 0
    assert loss.diagnostics["td_error"].item() == 0
    backward(loss.total)
    for name, parameter in method.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert not name.startswith("critics") or not parameter.grad.any()


def test_the_least_value_is_below_both() -> None:
    method = make(SDACSR)
    states = torch.randn(50, DIM).double(), torch.randn(50, DIM).double()
    least = method.critics.least(states)
    each = [critic.head(z) for critic, z in zip((method.critics.first, method.critics.second), states, strict=True)]
    assert least.shape == (50, ITEMS)
    assert all((least <= values).all() for values in each)
    assert ((least == each[0]) | (least == each[1])).all()
    assert (least < each[0]).any()
    assert (least < each[1]).any()
    items = torch.arange(50) % ITEMS + 1
    rows = torch.arange(50)
    for found, values in zip(method.critics.of(states, items), each, strict=True):
        torch.testing.assert_close(found, values[rows, items - 1])
