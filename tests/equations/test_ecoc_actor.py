"""What reaches the actor and what does not: L_DC, the critic's gradient, and other ways to move the actor by value."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from slow_ecoc import (
    CATALOGUE,
    PLACES,
    Eyes,
    Floats,
    Place,
    batch_of,
    gradient,
    look,
    make,
    slow_h,
    softmax,
    unit,
)
from torch import Tensor

import ecoc.methods.ecoc.method as module
from ecoc.batch import Batch, History
from ecoc.encoders import PredictionTask
from ecoc.losses.sampling import Pool
from ecoc.methods.ecoc.method import ECoC
from ecoc.policies.critic import TowerCritic


def with_leaf(method: ECoC, batch: Batch) -> Tensor:
    """Mu of the method as a leaf: what its losses do to it is in its gradient."""
    leaf = method.policy.states(batch.history).detach().requires_grad_()
    wanted = batch.target != 0
    asked = PredictionTask(leaf[wanted], batch.target[wanted], all_states=leaf)
    method.policy.encoder.prediction_task = lambda items, batch: asked  # type: ignore[method-assign]
    return leaf


def untouched(method: ECoC, *prefixes: str) -> bool:
    """Whether no gradient came to the parameters with these prefixes."""
    named = [(name, weight) for name, weight in method.policy.named_parameters() if name.startswith(prefixes)]
    assert named
    return all(not gradient(weight).any() for _, weight in named)


def backward(*parts: Tensor) -> None:
    torch.stack(parts).sum().backward()  # type: ignore[no-untyped-call]


def slow_dc(method: ECoC, eyes: Eyes, mu: Floats) -> float:
    """mean -min_j nu_j(s) . h_j(mu / |mu|) with nu as it is; of the first critic if told."""
    heads, values = len(method.policy.critic.h.weights[0]), []
    for place in PLACES:
        q = []
        for j, nu in enumerate(eyes.nu):
            h = slow_h(method.policy.critic.h, j % heads, unit(mu[place])[None])[0]
            q.append(float(np.dot(nu[place], h)))
        values.append(-(q[0] if method.config.dc_q == "first" else min(q)))
    return float(np.mean(values))


@pytest.mark.parametrize(
    "case",
    [
        {"critic": "shared"},
        {"critic": "shared", "hidden": 0, "encoder": "sasrec"},
        {"critic": "separate"},
        {"critic": "separate", "clip": "vector"},
        {"critic": "separate", "heads": 2, "dc_q": "first"},
        {"critic": "shared", "dc_q": "first"},
    ],
    ids=lambda case: "-".join(map(str, case.values())),
)
def test_directional_control_turns_the_actor_and_nothing_else(case: dict[str, Any]) -> None:
    """Check 5: its gradient by mu is the formula's, at right angles to mu; none to the critic and none to nu."""
    method, batch = make(dc=1.7, **case), batch_of()
    eyes = look(method.policy, batch.history, clip=method.config.clip)
    leaf = with_leaf(method, batch)
    dc = method.loss(batch).parts["dc"]
    assert dc.item() == pytest.approx(1.7 * slow_dc(method, eyes, eyes.mu), rel=1e-9)
    backward(dc)
    assert untouched(method, "critic.", "table", "encoder.")
    found, mu = gradient(leaf), leaf.detach().numpy()
    for place in PLACES:
        assert abs(np.dot(found[place], mu[place])) < 1e-12
        for k in range(mu.shape[-1]):
            sides = []
            for step in (1e-6, -1e-6):
                moved = mu.copy()
                moved[(*place, k)] += step
                sides.append(slow_dc(method, eyes, moved))
            assert found[(*place, k)] == pytest.approx(1.7 * (sides[0] - sides[1]) / 2e-6, rel=1e-5, abs=1e-8)
    assert sum(np.abs(found[place]).max() > 1e-3 for place in PLACES) > len(PLACES) / 2  # h has dead corners
    assert not found[1, 2:].any()  # padding


def test_directional_control_turns_the_whole_actor_through_its_states() -> None:
    method, batch = make(critic="shared", dc=1.0), batch_of()
    backward(method.loss(batch).parts["dc"])
    assert untouched(method, "critic.")
    assert not untouched(method, "encoder.")
    assert not untouched(method, "table")


@pytest.mark.parametrize("xi", ["all", "topk"])
@pytest.mark.parametrize("critic", ["shared", "separate"])
def test_the_critic_does_not_move_items_through_actions(critic: str, xi: str) -> None:
    """Check 6: with mu given, nothing of L_TD and L_REG reaches the item table."""
    method, batch = make(critic=critic, xi=xi, trace=0.5), batch_of()
    with_leaf(method, batch)
    parts = method.loss(batch).parts
    backward(parts["td"], parts["reg"])
    assert untouched(method, "table", "encoder.")
    assert not untouched(method, "critic.")


def test_separate_branches_leave_the_actor_alone() -> None:
    method, batch = make(critic="separate"), batch_of()
    parts = method.loss(batch).parts
    backward(parts["td"], parts["reg"])
    assert untouched(method, "table", "encoder.")
    assert all(gradient(encoder.gru.weight_ih_l0).any() for encoder in method.policy.critic.encoders)  # type: ignore[union-attr]


@pytest.mark.parametrize("share", [0.0, 0.25, 0.6])
def test_a_share_of_the_critics_gradient_reaches_mu(share: float) -> None:
    found, heads = {}, {}
    for value in (share, 1.0):
        method, batch = make(critic="shared", critic_grad=value), batch_of()
        leaf = with_leaf(method, batch)
        parts = method.loss(batch).parts
        backward(parts["td"], parts["reg"])
        found[value], heads[value] = gradient(leaf), gradient(method.policy.critic.h.weights[0])
    assert np.abs(found[1.0]).max() > 1e-3
    np.testing.assert_allclose(found[share], share * found[1.0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(heads[share], heads[1.0], rtol=1e-9, atol=1e-12)  # the critic learns as ever
    if share == 0:
        method, batch = make(critic="shared", critic_grad=0.0), batch_of()
        parts = method.loss(batch).parts
        backward(parts["td"], parts["reg"])
        assert untouched(method, "table", "encoder.")


def test_with_a_share_the_critic_teaches_the_encoder() -> None:
    method, batch = make(critic="shared", critic_grad=1.0), batch_of()
    parts = method.loss(batch).parts
    backward(parts["td"], parts["reg"])
    assert not untouched(method, "table")
    assert not untouched(method, "encoder.")


@pytest.mark.parametrize("encoder", ["gru4rec", "sasrec"])
@pytest.mark.parametrize("more", [{}, {"control": 0.8, "trace": 0.7, "next_from": "online", "xi": "gumbel"}])
def test_two_towers_the_actor_feels_imitation_alone(encoder: str, more: dict[str, Any]) -> None:
    """To the last bit."""
    actor = ("table", "encoder.")
    found = []
    for is_alone in (False, True):
        method, batch = make(encoder, critic="tower", **more), batch_of()
        torch.manual_seed(0)
        loss = method.loss(batch)
        backward(loss.parts["bc"] if is_alone else loss.total)
        found.append({n: gradient(w) for n, w in method.policy.named_parameters() if n.startswith(actor)})
        assert untouched(method, "critic.") == is_alone
    assert found[0].keys() == found[1].keys()
    for name, expected in found[1].items():
        assert np.array_equal(found[0][name], expected), name
    assert found[1]["table"].any()


def test_the_critics_own_items_learn_from_histories_and_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    """History 1, logged 2, explored 3; 4 and 5 play no part."""
    method = make(critic="tower", xi="pool")
    pool = Pool(torch.tensor([3]), torch.ones(1), torch.ones(1), torch.zeros(1, dtype=torch.int64))
    monkeypatch.setattr(module, "sample_pool", lambda *given, **named: pool)
    one = torch.ones(1, 1).double()
    loss = method.loss(Batch(History(torch.tensor([[1]])), torch.tensor([[2]]), one, one))
    critic = method.policy.critic
    assert isinstance(critic, TowerCritic)
    td = torch.autograd.grad(loss.parts["td"], critic.items, retain_graph=True)[0]
    assert td.any(1).tolist() == [False, True, True, False, False, False]
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert gradient(critic.items).any(1).tolist() == [False, True, True, True, False, False]
    assert gradient(critic.bridge.weight).any()


def mean_advantage(eyes: Eyes, place: Place, item: int) -> float:
    return float(np.mean(eyes.advantages(place, item)))


@pytest.mark.parametrize("xi", ["all", "topk"])
@pytest.mark.parametrize("critic", ["tower", "shared", "separate"])
def test_distilling_is_the_cross_entropy_to_value(critic: str, xi: str) -> None:
    """-sum softmax(Q) ln pi over the items explored as a teacher; only the actor learns."""
    method, batch = make(critic=critic, distil=0.9, xi=xi, n1=3), batch_of()
    eyes, losses = look(method.policy, batch.history), []
    for place in PLACES:
        logits = eyes.logits(place, CATALOGUE)
        explored = [xi == "all" or logit >= sorted(logits)[-3] for logit in logits]
        values = [
            mean_advantage(eyes, place, i) if kept else -math.inf for i, kept in zip(CATALOGUE, explored, strict=True)
        ]
        pairs = zip(softmax(values), softmax(logits), strict=True)
        losses.append(-sum(teacher * math.log(share) for teacher, share in pairs))
    distil = method.loss(batch).parts["distil"]
    assert distil.item() == pytest.approx(0.9 * float(np.mean(losses)), rel=1e-9)
    backward(distil)
    assert untouched(method, "critic.")
    assert not untouched(method, "table")
    assert not untouched(method, "encoder.")


@pytest.mark.parametrize("critic", ["tower", "shared", "separate"])
def test_the_control_head_learns_the_blend_and_moves_nothing_else(critic: str) -> None:
    """-sum softmax(mu . M + w Q) ln softmax((mu + G(mu)) . M)."""
    method, batch = make(critic=critic, control=0.6, w=2.0), batch_of()
    head = method.policy.head
    assert head is not None
    eyes, losses = look(method.policy, batch.history), []
    with torch.no_grad():
        turned = eyes.mu + head(torch.from_numpy(eyes.mu)).numpy()
    for place in PLACES:
        logits = eyes.logits(place, CATALOGUE)
        blend = [logit + 2.0 * mean_advantage(eyes, place, i) for logit, i in zip(logits, CATALOGUE, strict=True)]
        shares = softmax([float(np.dot(turned[place], eyes.items[i])) for i in CATALOGUE])
        losses.append(-sum(p * math.log(share) for p, share in zip(softmax(blend), shares, strict=True)))
    control = method.loss(batch).parts["control"]
    assert control.item() == pytest.approx(0.6 * float(np.mean(losses)), rel=1e-9)
    backward(control)
    assert untouched(method, "critic.", "table", "encoder.")
    assert not untouched(method, "head.")


def test_ways_to_move_the_actor_are_off_without_their_weight() -> None:
    method, batch = make(critic="shared"), batch_of()
    assert not {"dc", "distil", "control"} & set(method.loss(batch).parts)
    assert method.policy.head is None


def test_every_way_at_once_is_the_sum_of_its_parts() -> None:
    method, batch = make(critic="shared", dc=1.0, distil=0.5, control=0.5, explorers=5), batch_of()
    torch.manual_seed(1)
    loss = method.loss(batch)
    assert set(loss.parts) == {"bc", "reg", "td", "dc", "distil", "control"}
    assert loss.total.item() == pytest.approx(sum(part.item() for part in loss.parts.values()), rel=1e-12)
