"""SDAC beside its formulas: what lags, rests, is drawn, phased in, seen, and what it learns."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from slow_sdac import (
    DIM,
    DIMS,
    ETA,
    GAMMA,
    ITEMS,
    KINDS,
    backward,
    log_pi_at,
    make,
    make_batch,
    networks,
    parts_of,
    places,
    slow_ce,
    slow_pi,
    slow_q,
    slow_td,
    soft_value_at,
    values_at,
)
from torch import Tensor

from ecoc.batch import PAD, Batch, History, TrainSequences
from ecoc.encoders import Encoder
from ecoc.methods import BuildContext, Loss
from ecoc.methods.sdac import SDAC, SDACDC, SDACSR
from ecoc.methods.targets import Targets
from ecoc.training.optimiser import Optimiser


@pytest.mark.parametrize("kind", KINDS)
def test_padding_is_never_a_candidate(kind: type[SDAC]) -> None:
    method, batch = make(kind), make_batch()
    before = {name: part.item() for name, part in method.loss(batch).parts.items()}
    copy = method.lagged["critics"].copy
    with torch.no_grad():
        for network in (*networks(method).values(), copy.first, copy.second):
            network.head.weight[PAD] = 100.0
    loss = method.loss(batch)
    assert {name: part.item() for name, part in loss.parts.items()} == before
    backward(loss.total)
    for network in networks(method).values():
        for gradient in (network.head.weight.grad, network.table.grad):
            assert gradient is not None
            assert gradient.any()
            assert not gradient[PAD].any()
    with torch.no_grad():
        items, _ = method.policy.train(False).topk(method.policy.query(batch.history), 9)
    assert sorted(items[0].tolist()) == [1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_lagged_critics_follow_by_tau(kind: type[SDAC]) -> None:
    for tau, late in ((1.0, 0), (0.25, 10**9), (1e-12, 10**12)):
        method = make(kind, tau=tau)
        lagged = method.lagged["critics"]
        assert isinstance(lagged, Targets)
        before = [p.clone() for p in lagged.copy.parameters()]
        lagged.update(late)
        for old, new, online in zip(before, lagged.copy.parameters(), method.critics.parameters(), strict=True):
            torch.testing.assert_close(new, old + tau * (online - old))
    assert not any("lagged" in name or "targets" in name for name, _ in method.named_parameters())


def test_lagged_critics_learn_what_encoders_take_of_the_sessions() -> None:
    method = make(SDACDC, parts=parts_of("dhcn"))
    method.fit_statistics(TrainSequences(np.array([1, 2, 3, 1]), np.array([0, 2, 4])))
    copy = method.lagged["critics"].copy
    for network in (*networks(method).values(), copy.first, copy.second):
        assert network.encoder.members.tolist() == [1, 2, 1, 3]
    loss = method.loss(make_batch())
    assert set(loss.parts) == {"td", "pi", "behaviour", "ssl"}
    assert method.sparse_parameters() == set()
    assert loss.total.isfinite()


def drop_first(rate: float) -> BuildContext:
    """Dropout in the first encoder that is made, the actor's, alone."""
    plain, made = parts_of(), []

    def make_encoder(**changes: Any) -> Encoder:
        made.append(1)
        return plain.make_encoder(**changes, **({"dropout": rate} if len(made) == 1 else {}))

    return BuildContext(DIMS, plain.encoder, make_encoder)


@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_is_valued_by_the_actor_at_rest(kind: type[SDAC]) -> None:
    method, batch = make(kind, parts=drop_first(0.5)), make_batch()
    found = []
    for seed in range(5):
        torch.manual_seed(seed)
        found.append({name: part.item() for name, part in method.loss(batch).parts.items()})
        assert all(module.training for module in method.modules())
    assert len({parts["td"] for parts in found}) == 1
    assert len({parts["pi"] for parts in found}) > 1
    assert found[0]["td"] == pytest.approx(slow_td(method.train(False), batch))


@pytest.mark.parametrize("mode", [True, False])
def test_a_policy_that_rested_goes_on_as_it_was(mode: bool) -> None:
    policy, history = make(SDACSR, parts=parts_of(dropout=0.5)).policy, make_batch().history
    expected = policy.train(False).states(history).detach()
    policy.train(mode)
    found = policy.eval_states(history)
    assert torch.equal(found, expected)
    assert not found.requires_grad
    assert all(module.training is mode for module in policy.modules())


@pytest.mark.parametrize("name", ["bert4rec", "ssept", "sasrec"])
@pytest.mark.parametrize("kind", KINDS)
def test_encoders_that_are_asked_something_else_still_give_states_everywhere(kind: type[SDAC], name: str) -> None:
    method, batch = make(kind, parts=parts_of(name)), make_batch()
    loss = method.loss(batch)
    assert loss.parts["td"].item() == pytest.approx(slow_td(method, batch), rel=1e-8)
    assert loss.parts["pi"].item() == pytest.approx(slow_pi(method, batch, True), rel=1e-8)
    backward(loss.total)
    for network in networks(method).values():
        assert network.table.grad is not None
        assert network.table.grad.isfinite().all()


def pi_of(method: Any, batch: Batch, seed: int) -> tuple[float, Tensor]:
    torch.manual_seed(seed)
    loss = method.loss(batch).parts["pi"]
    (gradient,) = torch.autograd.grad(loss, method.policy.head.weight)
    return loss.item(), gradient


def test_a_drawn_item_estimates_the_sum_over_all() -> None:
    exact, drawn, batch = make(SDACSR), make(SDACSR, estimator="gumbel"), make_batch()
    samples = [pi_of(drawn, batch, seed) for seed in range(300)]
    values = [value for value, _ in samples]
    expected, direction = pi_of(exact, batch, 0)
    assert len(set(values)) > 10
    assert np.mean(values) == pytest.approx(expected, abs=5 * float(np.std(values)) / math.sqrt(300))
    mean = torch.stack([gradient for _, gradient in samples]).mean(0)
    assert torch.nn.functional.cosine_similarity(mean.flatten(), direction.flatten(), 0) > 0.5  # biased, yet downhill


def test_the_straight_through_gradient_by_hand() -> None:
    """The value is that of the drawn item; the gradient takes the soft draw's place for the hard one."""
    method, batch = make(SDACSR, estimator="gumbel", q_scale=False), make_batch()
    found, gradient = pi_of(method, batch, 3)
    torch.manual_seed(3)
    noise = -torch.empty(len(places(batch)), ITEMS).double().exponential_().log().numpy()
    value, expected = 0.0, np.zeros((ITEMS + 1, DIM + 1))
    with torch.no_grad():
        states = method.policy.states(batch.history).numpy()
    for q, at, gumbel in zip(slow_q(method, batch), places(batch), noise, strict=True):
        log_pi = log_pi_at(method.policy, batch.history, *at)
        soft = np.exp(log_pi + gumbel) / np.exp(log_pi + gumbel).sum()
        chosen = int(np.argmax(log_pi + gumbel))
        charge = ETA * log_pi - q
        value += charge[chosen] / len(noise)
        for item in range(ITEMS):
            by_logit = soft[item] * (charge[item] - float(soft @ charge))
            by_logit += ETA * ((item == chosen) - math.exp(log_pi[item]))
            expected[item + 1] += by_logit / len(noise) * np.append(states[at], 1.0)
    assert found == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_seen(kind: type[SDAC]) -> None:
    method, batch = make(kind), make_batch()
    method.collect_diagnostics = True
    seen = {name: value.item() for name, value in method.loss(batch).diagnostics.items()}
    q = slow_q(method, batch)
    log_pi = [log_pi_at(method.policy, batch.history, *at) for at in places(batch)]
    own = [int(batch.target[at]) - 1 for at in places(batch)]
    errors = []
    for row, place in [(0, 0), (0, 1), (0, 2), (1, 1)]:
        ahead = soft_value_at(method, method.lagged["critics"].copy, batch.history, row, place + 1) if place != 1 else 0
        goal = float(batch.reward[row, place]) + GAMMA * ahead
        for critic in (method.critics.first, method.critics.second):
            at = int(batch.target[row, place]) - 1
            errors.append(abs(values_at(critic, batch.history, row, place)[at] - goal))
    assert seen == pytest.approx(
        {
            "td_error": np.mean(errors),
            "q/logged": np.mean([values[item] for values, item in zip(q, own, strict=True)]),
            "q/policy": np.mean([float(np.exp(part) @ values) for part, values in zip(log_pi, q, strict=True)]),
            "support": np.mean([math.exp(-float(np.exp(part) @ part)) for part in log_pi]),
        }
    )
    assert 1 < seen["support"] < ITEMS


def test_dual_constraints_begin_with_imitation() -> None:
    method, batch = make(SDACDC, warmup=0.3), make_batch()
    assert [phase.start for phase in method.phases] == [0.0, 0.3]
    method.phase = 0
    loss = method.loss(batch)
    expected = {
        "td": slow_td(method, batch),
        "bc": slow_ce(method.policy, batch),
        "behaviour": slow_ce(method.behaviour, batch),
    }
    assert {name: part.item() for name, part in loss.parts.items()} == pytest.approx(expected)
    assert loss.total.item() == pytest.approx(sum(expected.values()))
    assert [phase.start for phase in make(SDACSR).phases] == [0.0]


def test_without_divergence_nothing_is_charged() -> None:
    """Where the actor is pi_b, V(s') is the plain expectation, and L_pi that of -Q."""
    method, batch = make(SDACDC, q_scale=False), make_batch()
    method.behaviour.load_state_dict(method.policy.state_dict())
    expected = -np.mean(
        [
            float(np.exp(log_pi_at(method.policy, batch.history, *at)) @ q)
            for q, at in zip(slow_q(method, batch), places(batch), strict=True)
        ]
    )
    assert method.loss(batch).parts["pi"].item() == pytest.approx(expected)


def test_the_size_of_rewards_does_not_matter_to_a_scaled_actor() -> None:
    method, batch = make(SDACSR), make_batch()
    before = method.loss(batch).parts["pi"].item()
    with torch.no_grad():
        for critic in (method.critics.first, method.critics.second):
            critic.head.weight *= 1000
    assert method.loss(batch).parts["pi"].item() == pytest.approx(before)
    with torch.no_grad():
        for critic in (method.critics.first, method.critics.second):
            critic.head.weight.zero_()
    assert method.loss(batch).parts["pi"].isfinite()


@pytest.mark.parametrize("kind", KINDS)
def test_tables_move_only_where_histories_read(kind: type[SDAC]) -> None:
    dense, sparse, batch = make(kind), make(kind), make_batch()
    names = sparse.sparse_parameters()
    expected = {"policy.table", "critics.first.table", "critics.second.table"}
    assert names == expected | ({"behaviour.table"} if kind is SDACDC else set())
    for module in sparse.modules():
        if isinstance(module, Encoder):
            module.sparse = True
    for method in (dense, sparse):
        backward(method.loss(batch).total)
    for name in names:
        found = sparse.get_parameter(name).grad
        assert found is not None
        assert found.is_sparse
        torch.testing.assert_close(found.to_dense(), dense.get_parameter(name).grad)


def test_a_promise_above_every_return_is_a_worry() -> None:
    method = make(SDACSR, gamma=0.5, eta=0.1)
    assert method.warnings({"q/policy": 1e9}) == {}  # rewards are not known yet
    rewards = np.array([1.0, 3.0, -5.0, 0.0], np.float32)
    method.fit_statistics(TrainSequences(np.array([1, 2, 3, 1]), np.array([0, 4]), rewards))
    highest = (3 + 0.5 * 0.1 * math.log(ITEMS)) / 0.5
    assert method.warnings({"q/policy": highest - 0.01}) == {}
    assert method.warnings({"td_error": 9.0}) == {}
    assert list(method.warnings({"q/policy": highest + 0.01})) == ["overestimate"]


def train(method: Any, batch: Batch, steps: int = 100) -> list[int]:
    """The list for a history of item 1 after training."""
    optimiser = Optimiser(method, betas=(0.9, 0.98), decay=0.0, sparse=set(), clip_group=method.clip_group)
    for step in range(steps):
        torch.manual_seed(step)
        method.phase = 0 if step < steps // 5 else len(method.phases) - 1
        loss: Loss = method.loss(batch)
        backward(loss.total)
        optimiser.step(0.02, 5.0)
        optimiser.zero()
        method.lagged["critics"].update(step)
    policy = method.policy.train(False)
    with torch.no_grad():
        items: list[int] = policy.topk(policy.query(History(torch.tensor([[1]]))), 3)[0][0].tolist()
    return items


@pytest.mark.parametrize("kind", KINDS)
def test_a_rarer_item_of_higher_reward_comes_first(kind: type[SDAC]) -> None:
    """After item 1 came item 2 six times, worth nothing, and item 3 four times, worth one. CE alone would say 2."""
    target = torch.tensor([[2]] * 6 + [[3]] * 4)
    batch = Batch(
        History(torch.ones(10, 1, dtype=torch.int64)), target, (target == 3).double(), torch.ones(10, 1).double()
    )
    assert train(make(kind, lam=0.2), batch)[0] == 3
    assert train(make(kind, lam=50.0), batch) == [2, 3, 1]
