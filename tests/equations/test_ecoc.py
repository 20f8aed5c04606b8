"""ECoC's losses against loops written from their formulas (docs/equations.md §2.1 to §2.3), on five items."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from slow_ecoc import (
    CATALOGUE,
    ITEMS,
    PLACES,
    WHOLE,
    Eyes,
    Floats,
    Place,
    batch_of,
    gradient,
    look,
    make,
    policy_logs,
    slow_aims,
    slow_bc,
    slow_reg,
    slow_td,
)
from torch import Tensor

import ecoc.methods.ecoc.method as module
from ecoc.batch import Batch, History, TrainSequences
from ecoc.encoders import PredictionTask
from ecoc.errors import InputError
from ecoc.losses.returns import Transitions
from ecoc.losses.sampling import Pool
from ecoc.methods.ecoc.method import ECoC
from ecoc.policies.critic import clipped, q_all


def lagged_eyes(method: ECoC, batch: Batch) -> tuple[Eyes, Eyes]:
    """The lagged critic at s', and the actor that explores there."""
    config, online = method.config, look(method.policy, batch.history)
    mu = torch.from_numpy(online.mu) if config.next_from == "online" and config.critic == "tower" else None
    lagged = look(method.target_policy.copy, batch.history, mu, clip=config.clip)
    return lagged, lagged if config.next_from == "target" else online


def aims_of(method: ECoC, batch: Batch) -> dict[Place, float]:
    return slow_aims(*lagged_eyes(method, batch), batch, method.config)


def found_aims(method: ECoC, batch: Batch) -> list[float]:
    with torch.no_grad():
        mu = method.policy.states(batch.history)
        return method.td_target(method.step_tensors(batch, mu, method.policy.item_vectors())).tolist()


CASES: list[dict[str, Any]] = [
    {},
    {"encoder": "sasrec"},
    {"trace": 0.8},
    {"trace": 1.0, "critic": "separate", "clip": "vector"},
    {"critic": "shared"},
    {"critic": "shared", "encoder": "sasrec", "next_from": "online", "trace": 0.5},
    {"critic": "separate"},
    {"critic": "separate", "heads": 2, "clip": "vector", "hidden": 0},
    {"critic": "separate", "heads": 2, "trace": 0.5},
    {"critic": "tower", "heads": 1, "dueling": False},
    {"next_from": "online"},
    {"next_from": "online", "critic": "separate"},
    {"entropy": 0.3},
    {"next_from": "online", "entropy": 0.1},
    {"reg": "logsumexp", "gamma": 1.0},
    {"reg": "bpr", "critic": "separate", "gamma": 0.0},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())) or "default")
def test_every_part_is_the_formula(case: dict[str, Any]) -> None:
    method, batch = make(**case), batch_of()
    eyes, config = look(method.policy, batch.history), method.config
    loss = method.loss(batch)
    assert list(loss.parts) == ["bc", "reg", "td"]
    assert loss.parts["bc"].item() == pytest.approx(1.3 * slow_bc(eyes, batch), rel=1e-9)
    reg = slow_reg(eyes, policy_logs(eyes), batch, config.reg)
    assert loss.parts["reg"].item() == pytest.approx(0.7 * reg, rel=1e-9)
    assert loss.parts["td"].item() == pytest.approx(slow_td(eyes, aims_of(method, batch), batch), rel=1e-9)
    assert loss.total.item() == pytest.approx(sum(part.item() for part in loss.parts.values()), rel=1e-12)
    assert not loss.diagnostics


@pytest.mark.parametrize("critic", ["tower", "shared", "separate"])
def test_y_is_the_least_over_critics_of_the_lagged_networks(critic: str) -> None:
    """Check 8: never above what either critic says, at times below both; r alone where the episode ends."""
    method, batch = make(critic=critic), batch_of()
    y = found_aims(method, batch)
    lagged, guide = lagged_eyes(method, batch)
    assert y == pytest.approx([slow_aims(lagged, guide, batch, method.config)[place] for place in WHOLE], rel=1e-9)
    each = [slow_aims(lagged, guide, batch, method.config, j=j) for j in range(2)]
    below = 0
    for value, place in zip(y, WHOLE, strict=True):
        if batch.done[place]:
            assert value == float(batch.reward[place])
        else:
            least = min(each[0][place], each[1][place])
            assert value <= least + 1e-12
            below += value < least - 1e-6
    assert below  # the least is taken item by item, not of two expectations


@pytest.mark.parametrize("next_from", ["target", "online"])
def test_y_comes_from_the_lagged_networks_alone(next_from: str) -> None:
    """Moving the online networks moves y only through the actor that explores at s', if that is the online one."""
    method, batch = make(critic="separate", next_from=next_from, trace=0.5), batch_of()
    before = found_aims(method, batch)
    with torch.no_grad():
        for weight in method.policy.critic.parameters():
            weight.mul_(3.0)
    assert found_aims(method, batch) == before
    with torch.no_grad():
        for weight in (method.policy.table, *method.policy.encoder.parameters()):
            weight.mul_(1.5)
    assert (found_aims(method, batch) == before) == (next_from == "target")


def test_a_step_where_everything_ends_aims_at_rewards() -> None:
    method, batch = make(gamma=1.0, trace=1.0), batch_of()
    batch = Batch(batch.history, batch.target, batch.reward, (batch.target != 0).double())
    assert found_aims(method, batch) == [float(batch.reward[place]) for place in PLACES]


def test_least_vector_is_not_the_least_value() -> None:
    """v1 = (1, 0), v2 = (0, 1), h = (-1, -1): both critics say -1, their element-wise minimum says 0."""
    states = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    action = torch.tensor([[[-1.0, -1.0]]])
    assert q_all(clipped(states, "q"), action).amin(0).item() == -1.0
    assert q_all(clipped(states, "vector"), action).amin(0).item() == 0.0


@pytest.mark.parametrize("entropy", [0.0, 0.4])
def test_a_sampled_backup_is_the_value_of_the_item_drawn(monkeypatch: pytest.MonkeyPatch, entropy: float) -> None:
    method, batch = make(backup="sample", entropy=entropy), batch_of()
    lagged, guide = lagged_eyes(method, batch)
    asked: list[Tensor] = []

    def draw(logits: Tensor) -> Tensor:
        asked.append(logits)
        return torch.arange(len(logits)) % ITEMS

    monkeypatch.setattr(module, "sample_one", draw)
    y = found_aims(method, batch)
    assert len(asked) == 1
    for n, (b, t) in enumerate(WHOLE):
        expected = float(batch.reward[b, t])
        if not batch.done[b, t]:
            logits = guide.logits((b, t + 1), CATALOGUE)
            assert asked[0][n].tolist() == pytest.approx(logits, rel=1e-9)
            surprise = math.log(sum(map(math.exp, logits))) - logits[n % ITEMS]
            expected += 0.6 * (min(lagged.q((b, t + 1), 1 + n % ITEMS)) + entropy * surprise)
        assert y[n] == pytest.approx(expected, rel=1e-9)


def test_a_sampled_backup_is_the_expected_one_on_average() -> None:
    method, batch = make(backup="sample", entropy=0.2), batch_of()
    torch.manual_seed(0)
    draws = np.array([found_aims(method, batch) for _ in range(600)])
    expected = np.array([slow_aims(*lagged_eyes(method, batch), batch, method.config)[place] for place in WHOLE])
    spread = draws.std(0) / len(draws) ** 0.5
    assert (np.abs(draws.mean(0) - expected) <= 4 * spread + 1e-9).all()
    assert (draws.std(0) > 0).any()


@pytest.mark.parametrize("entropy", [0.0, 0.1])
def test_the_nearest_are_explored_and_valued_alone(entropy: float) -> None:
    """xi = topk: L_REG looks at the N1 highest, and s' is valued by the policy restricted to them."""
    method, batch = make(xi="topk", n1=2, entropy=entropy), batch_of()
    eyes = look(method.policy, batch.history)
    logs = {}
    for place in PLACES:
        logits = eyes.logits(place, CATALOGUE)
        logs[place] = [0.0 if logit >= sorted(logits)[-2] else -math.inf for logit in logits]
    loss = method.loss(batch)
    assert loss.parts["reg"].item() == pytest.approx(0.7 * slow_reg(eyes, logs, batch), rel=1e-9)
    assert loss.parts["td"].item() == pytest.approx(slow_td(eyes, aims_of(method, batch), batch), rel=1e-9)


def test_xi_is_asked_with_the_online_actors_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it answers weighs L_REG; the value of s' is still expected over all items."""
    method, batch = make(xi="gumbel", n1=3), batch_of()
    eyes, answer = look(method.policy, batch.history), torch.tensor([0.0, -math.inf, 0.0, 0.0, -math.inf]).double()
    asked: list[tuple[Tensor, str, int]] = []

    def answered(logits: Tensor, xi: str, n1: int) -> Tensor:
        assert not logits.requires_grad
        asked.append((logits, xi, n1))
        return answer.expand_as(logits)

    monkeypatch.setattr(module, "log_weights", answered)
    loss = method.loss(batch)
    assert [(xi, n1) for _, xi, n1 in asked] == [("gumbel", 3)]
    for row, place in zip(asked[0][0].tolist(), PLACES, strict=True):
        assert row == pytest.approx(eyes.logits(place, CATALOGUE), rel=1e-9)
    logs = dict.fromkeys(PLACES, answer.tolist())
    assert loss.parts["reg"].item() == pytest.approx(0.7 * slow_reg(eyes, logs, batch), rel=1e-9)
    assert loss.parts["td"].item() == pytest.approx(slow_td(eyes, aims_of(method, batch), batch), rel=1e-9)


@pytest.mark.parametrize("critic", ["tower", "separate"])
def test_a_pool_stands_for_the_catalogue(monkeypatch: pytest.MonkeyPatch, critic: str) -> None:
    """Columns are the pool's, corrected; logged items need not be in it."""
    method, batch = make(xi="pool", critic=critic, trace=0.5), batch_of()
    chosen, correction = [1, 3, 4], [0.7, -0.4, 0.2]
    drawn = torch.tensor(correction).double().exp()
    asked: list[dict[str, Any]] = []

    def pool(target: Tensor, frequency: Tensor, uniform: int, *, in_batch: bool) -> Pool:
        asked.append({"target": target.tolist(), "uniform": uniform, "in_batch": in_batch})
        return Pool(torch.tensor(chosen), drawn, torch.ones(3).double(), torch.zeros(len(target), dtype=torch.int64))

    monkeypatch.setattr(module, "sample_pool", pool)
    eyes = look(method.policy, batch.history)
    loss = method.loss(batch)
    assert [(len(call["target"]), call["uniform"], call["in_batch"]) for call in asked] == [(2, 2, True)]
    wanted = batch.target[batch.target != 0].tolist()
    assert all(asked[0]["target"].count(item) <= wanted.count(item) for item in asked[0]["target"])

    def shifted(seen: Eyes) -> Eyes:
        """Seen with the correction added to the pool's logits, and everything else out of reach."""
        extra = np.full(ITEMS + 1, -1e4)
        extra[chosen] = correction
        mu = np.concatenate([seen.mu, np.ones_like(seen.mu[..., :1])], -1)
        return Eyes(mu, seen.nu, seen.worth, np.concatenate([seen.items, extra[:, None]], 1), seen.h)

    lagged = shifted(look(method.target_policy.copy, batch.history))
    reg = slow_reg(eyes, policy_logs(shifted(eyes)), batch)
    assert loss.parts["reg"].item() == pytest.approx(0.7 * reg, rel=1e-8)
    aims = slow_aims(lagged, lagged, batch, method.config)
    assert loss.parts["td"].item() == pytest.approx(slow_td(eyes, aims, batch), rel=1e-8)


def test_some_states_explore_for_all() -> None:
    method, batch = make(explorers=4), batch_of()
    torch.manual_seed(8)
    some = torch.randperm(len(PLACES))[:4].tolist()
    torch.manual_seed(8)
    loss = method.loss(batch)
    eyes = look(method.policy, batch.history)
    logs = {PLACES[n]: eyes.logits(PLACES[n], CATALOGUE) for n in some}
    assert loss.parts["reg"].item() == pytest.approx(0.7 * slow_reg(eyes, logs, batch), rel=1e-9)
    assert loss.parts["td"].item() == pytest.approx(slow_td(eyes, aims_of(method, batch), batch), rel=1e-9)
    assert make(explorers=len(PLACES)).loss(batch).parts["reg"].item() == make().loss(batch).parts["reg"].item()


def slopes(value: Callable[[], float], weight: Tensor, step: float = 1e-5) -> Floats:
    """Central differences of `value` by each entry of a parameter."""
    found, flat = np.zeros(weight.numel()), weight.detach().view(-1)
    for k in range(len(found)):
        old = float(flat[k])
        flat[k] = old + step
        above = value()
        flat[k] = old - step
        found[k] = (above - value()) / (2 * step)
        flat[k] = old
    return found.reshape(weight.shape)


@pytest.mark.parametrize("critic", ["tower", "shared", "separate"])
def test_the_critics_gradient_is_the_formulas(critic: str) -> None:
    """With y and xi's weights constant; its own item table feels it through histories and actions alike."""
    method, batch = make(critic=critic, hidden=2), batch_of()
    eyes = look(method.policy, batch.history)
    aims, logs, mu = aims_of(method, batch), policy_logs(eyes), torch.from_numpy(eyes.mu)
    loss = method.loss(batch)
    loss.total.backward()  # type: ignore[no-untyped-call]

    def slow() -> float:
        seen = look(method.policy, batch.history, mu)
        return slow_td(seen, aims, batch) + 0.7 * slow_reg(seen, logs, batch)

    for name, weight in method.policy.critic.named_parameters():
        expected = slopes(slow, weight)
        if "feedback" in name:
            expected[0] = 0.0  # of what is unknown nothing is learnt
        np.testing.assert_allclose(gradient(weight), expected, rtol=1e-5, atol=1e-7, err_msg=name)
        assert np.abs(expected).max() > 1e-6, name


def test_no_weight_leaves_a_part_out() -> None:
    batch = batch_of()
    assert "reg" not in make(alpha=0.0).loss(batch).parts
    loss = make(alpha=0.0, beta=0.0).loss(batch)
    assert loss.total.item() == loss.parts["td"].item()
    method = make(beta=0.0)
    method.loss(batch).total.backward()  # type: ignore[no-untyped-call]
    for weight in (method.policy.table, *method.policy.encoder.parameters()):
        assert not gradient(weight).any()
    assert any(gradient(weight).any() for weight in method.policy.critic.parameters())


def test_a_step_without_a_known_outcome_conserves_and_imitates() -> None:
    method, whole = make(trace=0.5), batch_of()
    batch = Batch(
        History(whole.history.items[1:2, :2]), torch.tensor([[0, 3]]), whole.reward[1:2, :2], whole.done[1:2, :2]
    )
    assert not Transitions.of(batch).is_whole.any()
    loss = method.loss(batch)
    assert loss.parts["td"].item() == 0
    assert loss.total.item() == pytest.approx(loss.parts["bc"].item() + loss.parts["reg"].item())
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert all(np.isfinite(gradient(weight)).all() for weight in method.parameters())


@pytest.mark.parametrize("critic", ["tower", "shared", "separate"])
def test_a_task_of_the_encoders_own_is_imitated_while_the_critic_reads_the_batch(
    monkeypatch: pytest.MonkeyPatch, critic: str
) -> None:
    method, batch = make(critic=critic), batch_of()
    task, target = torch.randn(2, 3, dtype=torch.float64), torch.tensor([3, 1])
    extra = {"ssl": method.policy.table.square().sum()}
    monkeypatch.setattr(
        method.policy.encoder, "prediction_task", lambda items, batch: PredictionTask(task, target, extra)
    )
    loss, eyes = method.loss(batch), look(method.policy, batch.history)
    logits = task @ method.policy.table[1:].T
    assert loss.parts["bc"].item() == pytest.approx(
        1.3 * torch.nn.functional.cross_entropy(logits, target - 1).item(), rel=1e-9
    )
    assert loss.parts["td"].item() == pytest.approx(slow_td(eyes, aims_of(method, batch), batch), rel=1e-9)
    assert loss.total.item() == pytest.approx(sum(part.item() for part in loss.parts.values()), rel=1e-12)
    assert set(loss.parts) == {"bc", "td", "reg", "ssl"}


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"critic": "tower", "dc": 1.0}, "dc"), ({"critic": "shared", "heads": 1}, "heads")],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=rf"method\.{word}"):
        make(**settings)


def test_what_it_learns_from_the_sequences() -> None:
    """How often items are targets, and what rewards allow Q to be."""
    method = make(gamma=0.75)
    told = TrainSequences(np.array([1, 2, 2]), np.array([0, 3]), np.array([0.5, -2.0, 1.0], np.float32))
    method.fit_statistics(told)
    assert method.bc.frequency[1:3].tolist() == pytest.approx([1 / 3, 2 / 3])
    assert "q" in method.warnings({"q/logged": 16.1})
    assert "q" not in method.warnings({"q/logged": 15.9})
