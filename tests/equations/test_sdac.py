"""SDAC against loops written from its formulas (methods.md section 3.3), on three items."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecoc.batch import Batch, Dims, History, Sessions
from ecoc.encoders import ENCODERS, Encoder
from ecoc.methods import Loss, Parts
from ecoc.methods.sdac import SDAC, SDACDC, SDACSR, resting_states
from ecoc.policy import DensePolicy
from ecoc.schema import PAD
from ecoc.targets import Targets
from ecoc.training.optimiser import Optimiser

Floats = NDArray[np.float64]
ITEMS, DIM, LENGTH = 3, 4, 4
DIMS = Dims(ITEMS, 3, 2)
GAMMA, ETA, LAM = 0.6, 0.3, 1.7
KINDS = [SDACSR, SDACDC]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def parts_of(name: str = "gru4rec", **options: Any) -> Parts:
    kind = ENCODERS[name]
    sizes = {"hidden": 5, "head": 0} if name == "gru4rec" else {}
    config = kind.Config.build(
        {"dim": DIM, "length": LENGTH, "dropout": 0.0, "init": 0.5, "scale": False, **sizes, **options}
    )

    def make_encoder(**changes: Any) -> Encoder:
        return kind(config.model_copy(update=changes), DIMS)

    return Parts(DIMS, config, make_encoder)


def make(kind: type[SDAC], *, parts: Parts | None = None, seed: int = 0, **settings: Any) -> Any:
    """A method in float64, in its last phase, whose lagged critics are not where the critics are."""
    torch.manual_seed(seed)
    settings = {"gamma": GAMMA, "lam": LAM, **({"eta": ETA} if kind is SDACSR else {}), **settings}
    method: Any = kind(kind.Config.build(settings), parts or parts_of())  # type: ignore[arg-type]
    method.double().train()
    copy = method.lagged["critics"].copy.double()
    with torch.no_grad():
        for network in networks(method).values():  # far from uniform, biases too
            network.head.weight[1:] += torch.randn_like(network.head.weight[1:])
        for parameter in copy.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.5)
        for critic in (copy.first, copy.second):
            critic.head.weight[PAD] = 0
            critic.table[PAD] = 0
    method.phase = len(method.phases) - 1
    return method


def networks(method: nn.Module) -> dict[str, DensePolicy]:
    return {name: module for name, module in method.named_modules() if isinstance(module, DensePolicy)}


def make_batch(done: list[list[int]] | None = None) -> Batch:
    """Three rows: an end within a row, a position without a target, and two targets whose outcome lies outside."""
    items = torch.tensor([[1, 2, 3, 1], [3, 2, 0, 0], [2, 0, 0, 0]])
    target = torch.tensor([[2, 3, 1, 2], [0, 1, 0, 0], [3, 0, 0, 0]])
    reward = torch.tensor([[0.5, 2.0, -1.0, 3.0], [0.0, 1.5, 0.0, 0.0], [0.7, 0.0, 0.0, 0.0]]).double()
    ends = torch.tensor(done or [[0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]).double()
    return Batch(History(items, users=torch.tensor([1, 2, 3])), target, reward, ends)


def backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


# The slow method: one state, one item at a time.


def values_at(network: DensePolicy, history: History, row: int, place: int) -> Floats:
    """W z + b of items 1..3."""
    with torch.no_grad():
        state = network.states(history)[row, place].numpy()
    weight = network.head.weight.detach().numpy()
    return np.array([sum(state * weight[item, :-1]) + weight[item, -1] for item in range(1, ITEMS + 1)])


def log_pi_at(network: DensePolicy, history: History, row: int, place: int) -> Floats:
    logits = values_at(network, history, row, place)
    return logits - math.log(sum(math.exp(y) for y in logits))


def penalty_at(method: Any, history: History, row: int, place: int) -> Floats:
    log_pi = log_pi_at(method.policy, history, row, place)
    if isinstance(method, SDACSR):
        return ETA * log_pi
    return LAM * (log_pi - log_pi_at(method.behaviour, history, row, place))


def soft_value_at(method: Any, critics: Any, history: History, row: int, place: int) -> float:
    log_pi, penalty = log_pi_at(method.policy, history, row, place), penalty_at(method, history, row, place)
    first, second = (values_at(critic, history, row, place) for critic in (critics.first, critics.second))
    return float(sum(math.exp(log_pi[a]) * (min(first[a], second[a]) - penalty[a]) for a in range(ITEMS)))


def places(batch: Batch) -> list[tuple[int, int]]:
    return [(int(row), int(place)) for row, place in batch.target.nonzero()]


def slow_td(method: Any, batch: Batch, gamma: float = GAMMA) -> float:
    history, losses = batch.history, []
    for row, place in places(batch):
        is_end = bool(batch.done[row, place])
        is_followed = place + 1 < LENGTH and history.items[row, place + 1] != PAD
        if not is_end and not is_followed:
            continue
        goal = float(batch.reward[row, place])
        if not is_end:
            goal += gamma * soft_value_at(method, method.lagged["critics"].copy, history, row, place + 1)
        own = int(batch.target[row, place]) - 1
        for critic in (method.critics.first, method.critics.second):
            losses.append(0.5 * (values_at(critic, history, row, place)[own] - goal) ** 2)
    return float(sum(losses)) / (len(losses) / 2)


def slow_q(method: Any, batch: Batch) -> list[Floats]:
    """min_j Q_j(s, .) of every transition."""
    return [
        np.minimum(*(values_at(critic, batch.history, *at) for critic in (method.critics.first, method.critics.second)))
        for at in places(batch)
    ]


def slow_pi(method: Any, batch: Batch, q_scale: bool) -> float:
    q = slow_q(method, batch)
    scale = float(np.mean([abs(value) for values in q for value in values])) if q_scale else 1.0
    total = 0.0
    for values, at in zip(q, places(batch), strict=True):
        log_pi, penalty = log_pi_at(method.policy, batch.history, *at), penalty_at(method, batch.history, *at)
        total += sum(math.exp(log_pi[a]) * (penalty[a] - values[a] / scale) for a in range(ITEMS))
    return total / len(q)


def slow_ce(network: DensePolicy, batch: Batch) -> float:
    losses = [-log_pi_at(network, batch.history, *at)[int(batch.target[at]) - 1] for at in places(batch)]
    return float(sum(losses)) / len(losses)


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
    assert loss.seen == {}


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
        mine = {p: p.grad for name, p in method.named_parameters() if method.tower(name) == tower}
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
    reached = {method.tower(name) for name, p in method.named_parameters() if p.grad is not None and bool(p.grad.any())}
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
    method.is_watched = True
    loss = method.loss(alone)
    assert loss.parts["td"].item() == 0
    assert loss.seen["td_error"].item() == 0
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
    method.learn(Sessions(np.array([1, 2, 3, 1]), np.array([0, 2, 4])))
    copy = method.lagged["critics"].copy
    for network in (*networks(method).values(), copy.first, copy.second):
        assert network.encoder.members.tolist() == [1, 2, 1, 3]
    loss = method.loss(make_batch())
    assert set(loss.parts) == {"td", "pi", "behaviour", "ssl"}
    assert method.few_rows() == set()
    assert loss.total.isfinite()


def drop_first(rate: float) -> Parts:
    """Dropout in the first encoder that is made, the actor's, alone."""
    plain, made = parts_of(), []

    def make_encoder(**changes: Any) -> Encoder:
        made.append(1)
        return plain.make_encoder(**changes, **({"dropout": rate} if len(made) == 1 else {}))

    return Parts(DIMS, plain.encoder, make_encoder)


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
    found = resting_states(policy, history)
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
    method.is_watched = True
    seen = {name: value.item() for name, value in method.loss(batch).seen.items()}
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
    names = sparse.few_rows()
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
    assert method.worries({"q/policy": 1e9}) == {}  # rewards are not known yet
    rewards = np.array([1.0, 3.0, -5.0, 0.0], np.float32)
    method.learn(Sessions(np.array([1, 2, 3, 1]), np.array([0, 4]), rewards))
    highest = (3 + 0.5 * 0.1 * math.log(ITEMS)) / 0.5
    assert method.worries({"q/policy": highest - 0.01}) == {}
    assert method.worries({"td_error": 9.0}) == {}
    assert list(method.worries({"q/policy": highest + 0.01})) == ["overestimate"]


def train(method: Any, batch: Batch, steps: int = 100) -> list[int]:
    """The list for a history of item 1 after training."""
    optimiser = Optimiser(method, betas=(0.9, 0.98), decay=0.0, sparse=set(), tower=method.tower)
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
