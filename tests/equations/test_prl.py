"""PRL against loops written from its formulas (docs/equations.md §3.4), on three items."""

import math

import numpy as np
import pytest
import torch
from differences import slopes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders import ENCODERS, PredictionTask
from ecoc.methods import BuildContext
from ecoc.methods.prl import PRL, PromptedPolicy
from ecoc.policies.base import load_weights

Floats = NDArray[np.float64]
ITEMS, DIM, LENGTH = 3, 3, 4
DIMS = Dims(ITEMS, 2)


def make(encoder: str = "gru4rec", dropout: float = 0.0, **settings: object) -> PRL:
    """With prompts as loud as the state, and a row of padding higher than any."""
    kind = ENCODERS[encoder]
    sizes = {"hidden": 4, "head": 0} if encoder == "gru4rec" else {"heads": 1, "inner": 4}
    config = kind.Config.build({"dim": DIM, "length": LENGTH, "dropout": dropout, "init": 0.5, **sizes})
    torch.manual_seed(0)
    parts = BuildContext(DIMS, config, lambda **changes: kind(config.model_copy(update=changes), DIMS))
    method = PRL(PRL.Config.build(settings), parts).double()
    policy = method.policy
    with torch.no_grad():
        for weight in (policy.steps, policy.reward, policy.head.weight, policy.mix.bias, *policy.mix.parameters()):
            weight.normal_()
        policy.mix.weight.abs_()
        policy.mix.bias.add_(0.5)  # so that the ReLU passes some
        policy.head.weight[PAD] = 9.0
        policy.rho = torch.tensor([3.0, 2.5, 1.5, 1.0, 0.5]).double()
        policy.size = torch.tensor(1.6).double()
    return method


def batch_of() -> Batch:
    """The end of a long sequence, a short one, and one whose first position has no target."""
    items = torch.tensor([[1, 2, 3, 1], [2, 1, 0, 0], [3, 1, 2, 0]])
    target = torch.tensor([[2, 3, 1, 2], [1, 3, 0, 0], [0, 2, 3, 0]])
    before = torch.tensor([[3, 4, 5, 9], [1, 2, 0, 0], [0, 2, 3, 0]])
    returns = torch.tensor([[3.2, 2.7, 1.7, 2.0], [2.2, 1.5, 0.0, 0.0], [0.0, 1.3, -1.1, 0.0]]).double()
    zeros = torch.zeros(3, 4).double()
    return Batch(History(items, users=torch.tensor([1, 2, 0])), target, zeros, zeros, before, returns)


def encoded(policy: PromptedPolicy, history: History) -> Floats:
    with torch.no_grad():
        return policy.states(history).numpy()


def slow_prompted(policy: PromptedPolicy, z: Floats, step: int, to_go: float) -> Floats:
    """The vector x of one state."""
    weights = {name: weight.detach().numpy() for name, weight in policy.named_parameters()}
    tokens = [z, weights["steps"][min(step, LENGTH)], to_go / float(policy.size) * weights["reward"]]
    read = [weights["attention.read.weight"] @ token + weights["attention.read.bias"] for token in tokens]
    query, key, value = ([row[k * DIM : (k + 1) * DIM] for row in read] for k in range(3))
    x = np.full(DIM, weights["mix.bias"][0])
    for c in range(3):
        scores = [math.exp(float(query[c] @ key[k]) / math.sqrt(DIM)) for k in range(3)]
        attended = tokens[c] + sum(score / sum(scores) * value[k] for k, score in enumerate(scores))
        x = x + weights["mix.weight"][0, c] * attended
    return np.asarray(np.maximum(x, 0))


def slow_logits(policy: PromptedPolicy, z: Floats, step: int, to_go: float) -> list[float]:
    """Of all items, padding left out."""
    x, weight = slow_prompted(policy, z, step, to_go), policy.head.weight.detach().numpy()
    return [float(weight[a, :-1] @ x + weight[a, -1]) for a in range(1, ITEMS + 1)]


def slow_loss(policy: PromptedPolicy, batch: Batch) -> float:
    z, losses = encoded(policy, batch.history), []
    assert batch.before is not None
    assert batch.returns is not None
    for b, row in enumerate(batch.target.tolist()):
        for t, item in enumerate(row):
            if item:
                logits = slow_logits(policy, z[b, t], int(batch.before[b, t]), float(batch.returns[b, t]))
                losses.append(math.log(sum(math.exp(y) for y in logits)) - logits[item - 1])
    return float(np.mean(losses))


def test_the_loss_and_its_gradient_are_the_formula() -> None:
    method, batch = make(), batch_of()
    loss = method.loss(batch)
    assert list(loss.parts) == ["bc"]
    assert loss.total.item() == pytest.approx(slow_loss(method.policy, batch), rel=1e-9)
    loss.total.backward()  # type: ignore[no-untyped-call]
    for name, weight in method.policy.named_parameters():
        assert weight.grad is not None, name
        expected = slopes(lambda: slow_loss(method.policy, batch), weight)
        np.testing.assert_allclose(weight.grad.numpy(), expected, rtol=1e-5, atol=1e-8, err_msg=name)
    assert method.policy.reward.grad is not None
    assert method.policy.reward.grad.abs().min() > 1e-4  # the return is heard


def test_a_return_is_what_it_is_in_units_of_the_mean() -> None:
    method, batch = make(), batch_of()
    assert batch.returns is not None
    with torch.no_grad():
        found = method.loss(batch).total.item()
        method.policy.size *= 7
        scaled = Batch(batch.history, batch.target, batch.reward, batch.done, batch.before, 7 * batch.returns)
        assert method.loss(scaled).total.item() == pytest.approx(found)
        assert method.loss(batch).total.item() != pytest.approx(found, rel=1e-3)


def test_what_is_not_a_target_does_not_count() -> None:
    method, batch = make(), batch_of()
    assert batch.before is not None
    assert batch.returns is not None
    empty = batch.target == PAD
    odd = Batch(
        batch.history,
        batch.target,
        batch.reward + 5,
        batch.done,
        batch.before.masked_fill(empty, 4),
        batch.returns.masked_fill(empty, 99.0),
    )
    assert method.loss(odd).total.item() == method.loss(batch).total.item()


@pytest.mark.parametrize("missing", ["before", "returns"])
def test_batches_without_prompts_are_refused(missing: str) -> None:
    batch = batch_of()
    parts = {"before": batch.before, "returns": batch.returns, missing: None}
    with pytest.raises(TypeError, match="steps and returns"):
        make().loss(Batch(batch.history, batch.target, batch.reward, batch.done, **parts))
    assert PRL.needs_returns


@pytest.mark.parametrize("encoder", ["bert4rec", "ssept"])
def test_a_task_of_the_encoders_own_gives_way_to_the_batch(encoder: str) -> None:
    method, batch = make(encoder), batch_of()
    assert method.loss(batch).parts["bc"].item() == pytest.approx(slow_loss(method.policy, batch), rel=1e-9)


def test_losses_of_the_encoders_own_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = make(), batch_of()
    extra = {"ssl": method.policy.table.square().sum()}
    monkeypatch.setattr(
        method.policy.encoder,
        "prediction_task",
        lambda items, batch: PredictionTask(
            items[:1], torch.tensor([1]), extra, all_states=method.policy.states(batch.history)
        ),
    )
    loss = method.loss(batch)
    assert loss.parts["bc"].item() == pytest.approx(slow_loss(method.policy, batch), rel=1e-9)
    assert loss.total.item() == pytest.approx(loss.parts["bc"].item() + extra["ssl"].item())


TOY = TrainSequences(
    np.array([1, 2, 3, 1, 2, 2]), np.array([0, 3, 4, 6]), np.array([1.0, 2.0, 3.0, 5.0, 0.0, 4.0], np.float32)
)


def test_reward_to_go_of_a_toy_session() -> None:
    to_go = TOY.rewards_to_go()
    assert to_go.tolist() == [6, 5, 3, 5, 4, 4]


def test_what_is_learnt_of_a_toy_session() -> None:
    method = make()
    method.fit_statistics(TOY)
    assert method.policy.rho.tolist() == [5, 4.5, 3, 3, 3]  # no sequence reached steps 3 and 4
    assert float(method.policy.size) == 4  # of 5, 3 and 4: the first event of a sequence is no target
    assert method.policy.rho.dtype == method.policy.size.dtype == torch.float32
    assert "4" in method.describe()["prompt"]


@pytest.mark.parametrize("rewards", [None, np.zeros(6, np.float32)])
def test_without_rewards_prompts_are_zero_and_finite(rewards: NDArray[np.float32] | None) -> None:
    method, batch = make(), batch_of()
    method.fit_statistics(TrainSequences(TOY.items, TOY.offsets, rewards))
    assert method.policy.rho.tolist() == [0] * 5
    assert float(method.policy.size) == 1
    assert math.isfinite(method.loss(batch).total.item())


def test_sequences_of_one_event_say_nothing_of_returns() -> None:
    method = make()
    method.fit_statistics(TrainSequences(np.array([1, 2]), np.array([0, 1, 2]), np.array([2.0, 4.0], np.float32)))
    assert method.policy.rho.tolist() == [3] * 5
    assert float(method.policy.size) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=6))
def test_learning_is_the_loop(worth: list[list[int]]) -> None:
    lengths = [len(row) for row in worth]
    rewards = np.array([r for row in worth for r in row], np.float32)
    sessions = TrainSequences(np.ones(len(rewards), np.int64), np.cumsum([0, *lengths]), rewards)
    at_step: dict[int, list[int]] = {}
    for row in worth:
        for t in range(len(row)):
            at_step.setdefault(min(t, LENGTH), []).append(sum(row[t:]))
    targets = [sum(row[t:]) for row in worth for t in range(1, len(row))]
    method = make()
    method.fit_statistics(sessions)
    expected = [float(np.mean(at_step[max(s for s in at_step if s <= t)])) for t in range(LENGTH + 1)]
    assert method.policy.rho.tolist() == pytest.approx(expected, rel=1e-6)
    assert float(method.policy.size) == pytest.approx(np.mean(targets) if any(targets) else 1.0, rel=1e-6)


@pytest.mark.parametrize("kappa", [0.0, 1.0, 2.0])
def test_to_act_it_asks_for_kappa_times_what_was_usual(kappa: float) -> None:
    method = make(kappa=kappa)
    policy = method.train(False).policy
    history = batch_of().history
    z = encoded(policy, history)
    with torch.inference_mode():
        query = policy.query(history)
        scores = policy.scores(query, 1, ITEMS + 1)
        items, _ = policy.topk(query, ITEMS + 5)
    for b, length in enumerate([4, 2, 3]):
        logits = slow_logits(policy, z[b, length - 1], length, kappa * [3.0, 2.5, 1.5, 1.0, 0.5][length])
        assert scores[b].tolist() == pytest.approx(logits, rel=1e-9)
        assert items[b, :ITEMS].tolist() == (np.argsort([-y for y in logits]) + 1).tolist()
    assert PAD not in items[:, :ITEMS]
    assert PRL.Config().kappa == 2.0


def test_a_history_longer_than_the_table_of_steps_is_at_its_last() -> None:
    policy = make(kappa=1.0).train(False).policy
    states, last = torch.randn(2, DIM).double(), torch.tensor([LENGTH, LENGTH])
    with torch.no_grad():
        expected = policy.prompted(states, last, torch.tensor([1.0, 2.0]))
        assert torch.equal(policy.prompted(states, last + 7, torch.tensor([1.0, 2.0])), expected)
        long = History(torch.tensor([[1, 2, 3, 1, 2, 3]]))
        z = encoded(policy, long)[0, -1]
        expected_long = slow_logits(policy, z, LENGTH, 0.5)
        assert policy.scores(policy.query(long), 1, ITEMS + 1)[0].tolist() == pytest.approx(expected_long)


def test_rows_answer_as_they_would_alone() -> None:
    policy = make().train(False).policy
    history = batch_of().history
    with torch.inference_mode():
        together = policy.query(history).vector
        for b, length in enumerate([4, 2, 3]):
            alone = policy.query(History(history.items[b : b + 1, :length])).vector
            torch.testing.assert_close(alone[0], together[b])


def test_dropout_is_heard_in_training_only() -> None:
    policy = make(dropout=0.5).policy
    states, step, to_go = torch.randn(64, DIM).double(), torch.full((64,), 2), torch.ones(64).double()
    with torch.no_grad():
        trained = policy.prompted(states, step, to_go)
        policy.train(False)
        rested = policy.prompted(states, step, to_go)
        assert not torch.allclose(trained, rested)
        assert torch.equal(rested, policy.prompted(states, step, to_go))


def test_what_was_learnt_of_returns_is_saved_with_the_policy() -> None:
    method = make()
    method.fit_statistics(TOY)
    saved = {name: tensor.clone() for name, tensor in method.policy.float().state_dict().items()}
    fresh = make().policy.float()
    load_weights(fresh, saved, where="here")
    assert torch.equal(fresh.rho, method.policy.rho)
    assert torch.equal(fresh.size, method.policy.size)
    history = batch_of().history
    assert torch.equal(fresh.train(False).query(history).vector, method.policy.train(False).query(history).vector)
