"""SQN against loops written from its formulas (docs/equations.md §3.1), on three items."""

import numpy as np
import pytest
import torch
from differences import slopes
from numpy.typing import NDArray
from torch import Tensor, nn

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders import ENCODERS, PredictionTask
from ecoc.methods import BuildContext
from ecoc.methods.sqn import SQN
from ecoc.policies.base import DensePolicy, Head
from ecoc.training.optimiser import Optimiser

Floats = NDArray[np.float64]
ITEMS, DIM, LENGTH = 3, 3, 4
DIMS = Dims(ITEMS, 2)


def make(encoder: str = "gru4rec", dropout: float = 0.0, **settings: object) -> SQN:
    """With high heads, so that the copies disagree, and padding's rows higher than any."""
    kind = ENCODERS[encoder]
    sizes = {"hidden": 4, "head": 0} if encoder == "gru4rec" else {"heads": 1, "inner": 4}
    config = kind.Config.build({"dim": DIM, "length": LENGTH, "dropout": dropout, "init": 0.5, **sizes})
    torch.manual_seed(2)
    parts = BuildContext(DIMS, config, lambda **changes: kind(config.model_copy(update=changes), DIMS))
    method = SQN(SQN.Config.build(settings), parts).double()
    with torch.no_grad():
        for head in (method.policy.head, method.twin.head, method.q, method.twin_q):
            head.weight.normal_()
            head.weight[PAD] = 9.0
    return method


def batch_of(done: Tensor | None = None) -> Batch:
    """A sequence to its end, one cut off by its window, and one whose first position has no target."""
    items = torch.tensor([[1, 2, 3, 1], [2, 1, 0, 0], [3, 1, 2, 0]])
    target = torch.tensor([[2, 3, 1, 2], [1, 3, 0, 0], [0, 2, 3, 0]])
    reward = torch.tensor([[0.5, 1.0, -0.3, 2.0], [0.7, 1.5, 0.0, 0.0], [0.0, 0.2, 1.1, 0.0]]).double()
    ends = torch.tensor([[0.0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]).double()
    return Batch(History(items, users=torch.tensor([1, 2, 0])), target, reward, ends if done is None else done)


def seed_of(is_second: bool) -> int:
    """A seed whose coin makes that copy the main one."""
    for seed in range(50):
        torch.manual_seed(seed)
        if bool(torch.randint(2, ())) == is_second:
            return seed
    raise AssertionError


def copies(method: SQN, is_second: bool) -> tuple[DensePolicy, Head, DensePolicy, Head]:
    first, second = (method.policy, method.q), (method.twin, method.twin_q)
    return (*second, *first) if is_second else (*first, *second)


def read(policy: DensePolicy, head: Head, batch: Batch) -> Floats:
    """W z + b at every position by the head's rows, padding's included: [B, L, V]."""
    with torch.no_grad():
        z = policy.states(batch.history).numpy()
    weight = head.weight.detach().numpy()
    return np.asarray(z @ weight[:, :-1].T + weight[:, -1])


def slow_ce(logits: Floats, batch: Batch) -> float:
    losses = []
    for b, row in enumerate(batch.target.tolist()):
        for t, item in enumerate(row):
            if item:
                mass = sum(np.exp(logits[b, t, a]) for a in range(1, ITEMS + 1))
                losses.append(np.log(mass) - logits[b, t, item])
    return float(np.mean(losses))


def slow_targets(main: Floats, other: Floats, batch: Batch, gamma: float) -> dict[tuple[int, int], float]:
    """y of every transition whose outcome is known, by its place; Q of both copies everywhere are given."""
    found: dict[tuple[int, int], float] = {}
    items, target = batch.history.items.tolist(), batch.target.tolist()
    for b, row in enumerate(target):
        for t, item in enumerate(row):
            reward, is_done = float(batch.reward[b, t]), bool(batch.done[b, t])
            if item and is_done:
                found[b, t] = reward
            elif item and t + 1 < len(row) and items[b][t + 1]:
                best = max(range(1, ITEMS + 1), key=lambda a, b=b, t=t: main[b, t + 1, a])  # type: ignore[misc]
                found[b, t] = reward + gamma * other[b, t + 1, best]
    return found


def slow_td(q: Floats, targets: dict[tuple[int, int], float], batch: Batch) -> float:
    errors = [y - q[b, t, int(batch.target[b, t])] for (b, t), y in targets.items()]
    return float(np.mean([error**2 / 2 for error in errors]))


def gradient(weight: Tensor) -> Floats:
    return np.zeros(weight.shape) if weight.grad is None else weight.grad.to_dense().numpy()


@pytest.mark.parametrize("is_second", [False, True])
def test_the_loss_and_its_gradient_are_the_formula(is_second: bool) -> None:
    method, batch = make(gamma=0.6), batch_of()
    policy, q, other, other_q = copies(method, is_second)
    mine, theirs = read(policy, q, batch), read(other, other_q, batch)
    targets = slow_targets(mine, theirs, batch, 0.6)
    assert set(targets) == {(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (2, 1), (2, 2)}
    ahead = [(b, t + 1) for b, t in targets if not batch.done[b, t]]
    picks = [(int(mine[place][1:].argmax()), int(theirs[place][1:].argmax())) for place in ahead]
    assert any(pick != their for pick, their in picks)  # or a single Q would pass

    torch.manual_seed(seed_of(is_second))
    loss = method.loss(batch)
    assert list(loss.parts) == ["bc", "td"]
    assert not loss.diagnostics
    assert loss.parts["bc"].item() == pytest.approx(slow_ce(read(policy, policy.head, batch), batch), rel=1e-9)
    assert loss.parts["td"].item() == pytest.approx(slow_td(mine, targets, batch), rel=1e-9)
    assert loss.total.item() == pytest.approx(loss.parts["bc"].item() + loss.parts["td"].item())
    loss.total.backward()  # type: ignore[no-untyped-call]

    def slow() -> float:  # y is a constant
        return slow_ce(read(policy, policy.head, batch), batch) + slow_td(read(policy, q, batch), targets, batch)

    for weight in (*policy.parameters(), *q.parameters()):
        np.testing.assert_allclose(gradient(weight), slopes(slow, weight), rtol=1e-5, atol=1e-8)
    assert all(weight.grad is None for weight in (*other.parameters(), *other_q.parameters()))
    assert not gradient(q.weight)[PAD].any()
    assert not gradient(policy.head.weight)[PAD].any()


@pytest.mark.parametrize("is_second", [False, True])
def test_adam_leaves_the_other_copy_as_it_is(is_second: bool) -> None:
    method = make()
    before = {name: weight.detach().clone() for name, weight in method.named_parameters()}
    optimiser = Optimiser(method, betas=(0.9, 0.999), decay=0.1, sparse=set())
    torch.manual_seed(seed_of(is_second))
    method.loss(batch_of()).total.backward()  # type: ignore[no-untyped-call]
    optimiser.step(0.01, 0.0)
    for name, weight in method.named_parameters():
        is_main = name.startswith("twin") == is_second
        assert torch.equal(weight, before[name]) != is_main, name


def test_a_step_whose_transitions_all_end_aims_at_the_reward_alone() -> None:
    method = make(gamma=1.0)
    batch = batch_of(done=(batch_of().target != PAD).double())
    q, losses = read(method.policy, method.q, batch), []
    for b, t in (batch.target != PAD).nonzero().tolist():
        losses.append((float(batch.reward[b, t]) - q[b, t, int(batch.target[b, t])]) ** 2 / 2)
    seed = seed_of(False)
    torch.manual_seed(seed)
    found = method.loss(batch).parts["td"].item()
    assert found == pytest.approx(np.mean(losses), rel=1e-9)
    with torch.no_grad():
        method.twin_q.weight.mul_(100)
    torch.manual_seed(seed)
    assert method.loss(batch).parts["td"].item() == found


def test_a_step_without_a_known_outcome_only_imitates() -> None:
    method = make()
    whole = batch_of(done=torch.zeros(3, 4).double())
    batch = Batch(
        History(whole.history.items[1:2, :2]), torch.tensor([[0, 3]]), whole.reward[1:2, :2], whole.done[1:2, :2]
    )
    method.collect_diagnostics = True
    torch.manual_seed(seed_of(False))
    loss = method.loss(batch)
    assert loss.parts["td"].item() == 0
    assert loss.total.item() == loss.parts["bc"].item()
    assert not loss.diagnostics
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert all(not gradient(weight).any() for weight in method.q.parameters())


def test_the_coin_is_fair_and_the_generators() -> None:
    method, batch = make(), batch_of()
    seconds = 0
    for seed in range(200):
        torch.manual_seed(seed)
        expected = bool(torch.randint(2, ()))
        torch.manual_seed(seed)
        main = method.step_tensors(batch).main
        assert (main.policy is method.twin) == (main.q is method.twin_q) == expected
        seconds += expected
    assert 70 < seconds < 130


@pytest.mark.parametrize("is_second", [False, True])
def test_only_the_main_copy_is_dropped_out(is_second: bool) -> None:
    method, batch = make(dropout=0.5), batch_of()
    policy, _, other, _ = copies(method, is_second)
    torch.manual_seed(seed_of(is_second))
    step = method.step_tensors(batch)
    assert not step.other_states.requires_grad
    assert step.states.requires_grad
    assert all(module.training for module in method.modules())
    method.train(False)
    assert torch.equal(step.other_states, other.states(batch.history))
    assert not torch.allclose(step.states, policy.states(batch.history))
    method.step_tensors(batch)
    assert not any(module.training for module in method.modules())


def test_what_is_seen_is_by_the_formula_and_only_when_watched() -> None:
    method, batch = make(), batch_of()
    q, other = read(method.policy, method.q, batch), read(method.twin, method.twin_q, batch)
    targets = slow_targets(q, other, batch, 0.5)
    method.collect_diagnostics = True
    torch.manual_seed(seed_of(False))
    seen = method.loss(batch).diagnostics
    logged = {place: q[(*place, int(batch.target[place]))] for place in targets}
    assert set(seen) == {"q/logged", "q/policy", "td_error"}
    assert float(seen["q/logged"]) == pytest.approx(np.mean(list(logged.values())))
    assert float(seen["q/policy"]) == pytest.approx(np.mean([q[place][1:].max() for place in targets]))
    assert float(seen["td_error"]) == pytest.approx(np.mean([abs(y - logged[place]) for place, y in targets.items()]))
    assert not any(value.requires_grad for value in seen.values())


def test_a_task_of_the_encoders_own_is_imitated_while_q_reads_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = make(), batch_of()
    task, target = torch.randn(2, DIM, dtype=torch.float64), torch.tensor([3, 1])
    extra = {"ssl": method.policy.table.square().sum()}
    monkeypatch.setattr(
        method.policy.encoder, "prediction_task", lambda items, batch: PredictionTask(task, target, extra)
    )
    torch.manual_seed(seed_of(False))
    loss = method.loss(batch)
    logits = method.policy.head(task).detach()
    expected = nn.functional.cross_entropy(logits, target - 1).item()
    q = read(method.policy, method.q, batch)
    targets = slow_targets(q, read(method.twin, method.twin_q, batch), batch, 0.5)
    assert loss.parts["bc"].item() == pytest.approx(expected, rel=1e-9)
    assert loss.parts["td"].item() == pytest.approx(slow_td(q, targets, batch), rel=1e-9)
    assert loss.total.item() == pytest.approx(sum(part.item() for part in loss.parts.values()), rel=1e-9)
    assert set(loss.parts) == {"bc", "td", "ssl"}


@pytest.mark.parametrize("encoder", ["bert4rec", "ssept", "sasrec"])
def test_encoders_with_and_without_a_task_of_their_own_reach_every_head(encoder: str) -> None:
    method, batch = make(encoder), batch_of()
    torch.manual_seed(seed_of(False))
    loss = method.loss(batch)
    q = read(method.policy, method.q, batch)
    targets = slow_targets(q, read(method.twin, method.twin_q, batch), batch, 0.5)
    assert loss.parts["td"].item() == pytest.approx(slow_td(q, targets, batch), rel=1e-9)
    loss.total.backward()  # type: ignore[no-untyped-call]
    for weight in (method.q.weight, method.policy.head.weight, method.policy.table):
        assert gradient(weight)[1:].any()


def test_copies_are_two_and_complete() -> None:
    method = make()
    names = {name for name, _ in method.policy.named_parameters()}
    assert names == {name for name, _ in method.twin.named_parameters()}
    assert len({id(weight) for weight in method.parameters()}) == 2 * (len(names) + 1)
    assert not torch.equal(method.policy.table, method.twin.table)
    assert not torch.equal(method.q.weight, method.twin_q.weight)


def test_both_encoders_learn_from_the_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    method, told = make(), []
    for policy in (method.policy, method.twin):
        monkeypatch.setattr(policy.encoder, "fit_statistics", lambda sessions, policy=policy: told.append(policy))
    method.fit_statistics(TrainSequences(np.array([1, 2]), np.array([0, 2])))
    assert told == [method.policy, method.twin]


def test_it_acts_by_the_first_copys_ce_head_and_never_picks_padding() -> None:
    method, batch = make(), batch_of()
    method.train(False)
    history = batch.history.rows(torch.tensor([1]))
    with torch.inference_mode():
        best, _ = method.policy.topk(method.policy.query(history), ITEMS)
    logits = read(method.policy, method.policy.head, batch)[1, 1, 1:]
    assert best[0].tolist() == (np.argsort(-logits) + 1).tolist()
    assert method.q.weight is not method.policy.head.weight


def test_many_states_are_judged_in_chunks_as_one_by_one() -> None:
    method = make()
    step = method.step_tensors(batch_of())
    states = torch.randn(600, DIM, dtype=torch.float64)
    expected = method.q(states).argmax(1) + 1
    main = step.main if step.main.q is method.q else step.other
    assert torch.equal(main.best(states).squeeze(1), expected)
    assert main.best(states[:0]).shape == (0, 1)
