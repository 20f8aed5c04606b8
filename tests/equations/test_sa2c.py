"""SA2C against loops written from its formulas (docs/equations.md §3.2), on three or four items."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from differences import slopes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders import ENCODERS
from ecoc.errors import InputError
from ecoc.losses.sampling import sample_negatives
from ecoc.methods import BuildContext, Phase
from ecoc.methods import sa2c as module
from ecoc.methods.sa2c import SA2C
from ecoc.policies.base import DensePolicy, Head

Floats = NDArray[np.float64]
Place = tuple[int, int]
ITEMS, DIM, LENGTH = 4, 3, 4
DIMS = Dims(ITEMS, 2)
WARMUP, AFTER = 0, 1
DRAWN = torch.tensor([[1, 3], [4, 4], [2, 4], [3, 1], [2, 3], [1, 2], [4, 1], [2, 1]])  # a row a transition


@pytest.fixture
def known_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sample_negatives", lambda item, count, items: DRAWN)


def make(encoder: str = "gru4rec", **settings: object) -> SA2C:
    """With high heads, so that copies disagree and advantages have either sign; padding's rows are higher than any."""
    kind = ENCODERS[encoder]
    sizes = {"hidden": 4, "head": 0} if encoder == "gru4rec" else {"heads": 1, "inner": 4}
    config = kind.Config.build({"dim": DIM, "length": LENGTH, "dropout": 0.0, "init": 0.5, **sizes})
    torch.manual_seed(3)
    parts = BuildContext(DIMS, config, lambda **changes: kind(config.model_copy(update=changes), DIMS))
    method = SA2C(SA2C.Config.build({"negatives": 2, **settings}), parts).double()
    with torch.no_grad():
        for head in (method.policy.head, method.twin.head, method.q, method.twin_q):
            head.weight.normal_()
            head.weight[PAD] = 9.0
    return method


def batch_of() -> Batch:
    """A sequence to its end, one cut off by its window, and one whose first position has no target."""
    items = torch.tensor([[1, 2, 4, 1], [2, 1, 0, 0], [3, 1, 2, 0]])
    target = torch.tensor([[2, 3, 1, 2], [1, 3, 0, 0], [0, 2, 4, 0]])
    reward = torch.tensor([[0.5, 1.0, -0.3, 2.0], [0.7, 1.5, 0.0, 0.0], [0.0, 0.2, 1.1, 0.0]]).double()
    done = torch.tensor([[0.0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]).double()
    return Batch(History(items, users=torch.tensor([1, 2, 0])), target, reward, done)


def places(batch: Batch) -> list[Place]:
    return [(b, t) for b, row in enumerate(batch.target.tolist()) for t, item in enumerate(row) if item]


def set_coin(is_second: bool) -> None:
    """Seed so that the coin makes that copy the main one."""
    for seed in range(50):
        torch.manual_seed(seed)
        if bool(torch.randint(2, ())) == is_second:
            torch.manual_seed(seed)
            return


def copies(method: SA2C, is_second: bool) -> tuple[DensePolicy, Head, DensePolicy, Head]:
    first, second = (method.policy, method.q), (method.twin, method.twin_q)
    return (*second, *first) if is_second else (*first, *second)


def read(policy: DensePolicy, head: Head, batch: Batch) -> Floats:
    """W z + b at every position, padding's row included: [B, L, V]."""
    with torch.no_grad():
        z = policy.states(batch.history).numpy()
    weight = head.weight.detach().numpy()
    return np.asarray(z @ weight[:, :-1].T + weight[:, -1])


def best(values: Floats) -> int:
    """The item of the highest value, padding left out."""
    return max(range(1, ITEMS + 1), key=lambda a: values[a])


def slow_targets(main: Floats, other: Floats, batch: Batch, gamma: float) -> dict[Place, tuple[float, float]]:
    """y and y' of every transition whose outcome is known."""
    found: dict[Place, tuple[float, float]] = {}
    items = batch.history.items
    for b, t in places(batch):
        reward, is_done = float(batch.reward[b, t]), bool(batch.done[b, t])
        if not is_done and (t + 1 == LENGTH or items[b, t + 1] == PAD):
            continue
        ahead = 0.0 if is_done else other[b, t + 1, best(main[b, t + 1])]
        found[b, t] = reward + gamma * ahead, gamma * other[b, t, best(main[b, t])]
    return found


def slow_q_loss(q: Floats, targets: dict[Place, tuple[float, float]], batch: Batch) -> float:
    losses = []
    for n, (b, t) in enumerate(places(batch)):
        if (b, t) in targets:
            y, stay = targets[b, t]
            loss = (y - q[b, t, int(batch.target[b, t])]) ** 2 / 2
            losses.append(loss + sum((stay - q[b, t, a]) ** 2 / 2 for a in DRAWN[n].tolist()))
    return float(np.mean(losses))


def slow_advantages(q: Floats, batch: Batch) -> list[float]:
    """Not clipped."""
    found = []
    for n, (b, t) in enumerate(places(batch)):
        own = q[b, t, int(batch.target[b, t])]
        found.append(own - (own + sum(q[b, t, a] for a in DRAWN[n].tolist())) / (1 + len(DRAWN[n])))
    return found


def slow_ce(logits: Floats, batch: Batch, weight: list[float] | None = None) -> float:
    losses = []
    for n, (b, t) in enumerate(places(batch)):
        mass = sum(math.exp(logits[b, t, a]) for a in range(1, ITEMS + 1))
        loss = math.log(mass) - logits[b, t, int(batch.target[b, t])]
        losses.append(loss * (1 if weight is None else weight[n]))
    return float(np.mean(losses))


@pytest.mark.usefixtures("known_draws")
@pytest.mark.parametrize("is_second", [False, True])
@pytest.mark.parametrize("phase", [WARMUP, AFTER])
def test_the_loss_and_its_gradient_are_the_formula(phase: int, is_second: bool) -> None:
    method, batch = make(gamma=0.6, weight=0.7, clip_high=0.8), batch_of()
    policy, q, other, other_q = copies(method, is_second)
    mine, theirs = read(policy, q, batch), read(other, other_q, batch)
    targets = slow_targets(mine, theirs, batch, 0.6)
    assert len(targets) == len(places(batch)) - 1
    assert any(best(mine[place]) != best(theirs[place]) for place in targets)  # or a single Q would pass
    raw = slow_advantages(mine, batch)
    assert min(raw) < 0 < max(raw)
    assert max(raw) > 0.8
    assert any(0 < a < 0.8 for a in raw)
    factor = [min(max(a, 0.0), 0.8) for a in raw] if phase == AFTER else None
    w = 0.7 if phase == AFTER else 1.0

    method.phase = phase
    set_coin(is_second)
    loss = method.loss(batch)
    assert list(loss.parts) == ["bc", "td"]
    assert not loss.diagnostics
    assert loss.parts["td"].item() == pytest.approx(slow_q_loss(mine, targets, batch), rel=1e-9)
    assert loss.parts["bc"].item() == pytest.approx(slow_ce(read(policy, policy.head, batch), batch, factor), rel=1e-9)
    assert loss.total.item() == pytest.approx(loss.parts["bc"].item() + w * loss.parts["td"].item(), rel=1e-9)
    loss.total.backward()  # type: ignore[no-untyped-call]

    def slow() -> float:  # y, y' and A are constants
        ce = slow_ce(read(policy, policy.head, batch), batch, factor)
        return ce + w * slow_q_loss(read(policy, q, batch), targets, batch)

    for weight in (*policy.parameters(), *q.parameters()):
        found = np.zeros(weight.shape) if weight.grad is None else weight.grad.numpy()
        np.testing.assert_allclose(found, slopes(slow, weight), rtol=1e-5, atol=1e-8)
    assert all(weight.grad is None for weight in (*other.parameters(), *other_q.parameters()))


@pytest.mark.usefixtures("known_draws")
@pytest.mark.parametrize("smooth", [0.5, 1.0])
def test_the_propensity_correction_multiplies_ce(smooth: float) -> None:
    method, batch = make(smooth=smooth), batch_of()
    method.fit_statistics(TrainSequences(np.repeat([1, 2, 3, 4], [69, 20, 1, 10]), np.array([0, 100])))
    popularity = [0.0, 0.69, 0.2, 0.01, 0.1]
    logits, q = read(method.policy, method.policy.head, batch), read(method.policy, method.q, batch)
    factor, ratios = [], []
    for advantage, (b, t) in zip(slow_advantages(q, batch), places(batch), strict=True):
        item = int(batch.target[b, t])
        chance = math.exp(logits[b, t, item]) / sum(math.exp(logits[b, t, a]) for a in range(1, ITEMS + 1))
        ratios.append(chance / popularity[item])
        factor.append(min(max(advantage, 0.0), 10.0) * min(max(ratios[-1], 0.1), 10.0) ** smooth)
    assert max(ratios) > 10
    assert any(0.1 < ratio < 10 for ratio in ratios)
    method.phase = AFTER
    set_coin(False)
    assert method.loss(batch).parts["bc"].item() == pytest.approx(slow_ce(logits, batch, factor), rel=1e-6)
    method.phase = WARMUP
    set_coin(False)
    assert method.loss(batch).parts["bc"].item() == pytest.approx(slow_ce(logits, batch), rel=1e-9)


def test_an_item_never_counted_has_a_finite_propensity() -> None:
    method = make(smooth=1.0)
    method.fit_statistics(TrainSequences(np.array([1, 2, 2]), np.array([0, 3])))
    assert method.popularity[1:].tolist() == pytest.approx([1 / 3, 2 / 3, 1 / 3, 1 / 3])
    method.phase = AFTER
    assert math.isfinite(method.loss(batch_of()).total.item())


def test_the_phases_are_those_of_the_settings() -> None:
    assert make().phases == (Phase(0.0), Phase(0.4, 0.2))
    assert make(warmup=0.25, lr_drop=0.1).phases == (Phase(0.0), Phase(0.25, 0.1))
    assert make().phase == WARMUP


@pytest.mark.usefixtures("known_draws")
def test_after_the_switch_a_task_of_the_encoders_own_gives_way_to_the_batch() -> None:
    method, batch = make("bert4rec"), batch_of()
    logits, q = read(method.policy, method.policy.head, batch), read(method.policy, method.q, batch)
    factor = [min(max(a, 0.0), 10.0) for a in slow_advantages(q, batch)]
    found = []
    for phase in (WARMUP, AFTER):
        method.phase = phase
        set_coin(False)
        found.append(method.loss(batch).parts["bc"].item())
    assert found[0] != pytest.approx(slow_ce(logits, batch), rel=1e-3)  # what was asked is another question
    assert found[1] == pytest.approx(slow_ce(logits, batch, factor), rel=1e-9)


@pytest.mark.usefixtures("known_draws")
def test_what_is_seen_is_by_the_formula_and_only_when_watched() -> None:
    method, batch = make(clip_high=0.8), batch_of()
    q, other = read(method.policy, method.q, batch), read(method.twin, method.twin_q, batch)
    raw, targets = slow_advantages(q, batch), slow_targets(q, other, batch, 0.5)
    method.collect_diagnostics = True
    common = {"q/logged", "q/policy", "td_error"}
    set_coin(False)
    assert set(method.loss(batch).diagnostics) == common
    method.phase = AFTER
    set_coin(False)
    seen = method.loss(batch).diagnostics
    assert set(seen) == common | {"advantage", "advantage_clipped"}
    assert float(seen["advantage"]) == pytest.approx(np.mean([min(max(a, 0.0), 0.8) for a in raw]))
    assert float(seen["advantage_clipped"]) == pytest.approx(np.mean([not 0 <= a <= 0.8 for a in raw]))
    errors = [abs(y - q[(*place, int(batch.target[place]))]) for place, (y, _) in targets.items()]
    assert float(seen["td_error"]) == pytest.approx(np.mean(errors))
    assert float(seen["q/policy"]) == pytest.approx(np.mean([q[place][1:].max() for place in targets]))
    assert not any(value.requires_grad for value in seen.values())


def test_advantages_that_are_nearly_all_clipped_are_a_worry() -> None:
    method = make()
    assert not method.warnings({"advantage_clipped": 0.5})
    assert not method.warnings({})
    assert "97%" in method.warnings({"advantage_clipped": 0.97})["advantage"]


def test_a_step_without_a_known_outcome_still_weighs_what_it_imitates() -> None:
    method = make()
    batch = Batch(History(torch.tensor([[2, 1]])), torch.tensor([[0, 3]]), torch.ones(1, 2).double(), torch.zeros(1, 2))
    for phase in (WARMUP, AFTER):
        method.phase = phase
        loss = method.loss(batch)
        assert loss.parts["td"].item() == 0
        assert loss.total.item() == loss.parts["bc"].item()


def test_limits_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(InputError, match="clip_low 3 is greater than clip_high 2"):
        SA2C.Config.build({"clip_low": 3, "clip_high": 2})


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 9), st.integers(1, 20), st.integers(1, 12), st.integers(0, 2**32), st.data())
def test_a_negative_is_an_item_and_never_the_logged_one(
    items: int, count: int, negatives: int, seed: int, data: st.DataObject
) -> None:
    logged = torch.tensor(data.draw(st.lists(st.integers(1, items), min_size=count, max_size=count)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        drawn = sample_negatives(logged, negatives, items)
    assert drawn.shape == (count, negatives)
    assert drawn.dtype == torch.int64
    assert drawn.min() > PAD
    assert drawn.max() <= items
    assert not (drawn == logged[:, None]).any()


@pytest.mark.parametrize("logged", [1, 3, 5])
def test_negatives_are_uniform_over_all_others(logged: int) -> None:
    torch.manual_seed(0)
    drawn = sample_negatives(torch.full((2000,), logged), 4, 5)
    counts = Counter(drawn.flatten().tolist())
    assert set(counts) == {1, 2, 3, 4, 5} - {logged}
    assert all(abs(times - 2000) < 200 for times in counts.values())  # five standard deviations
    assert len({tuple(row) for row in drawn.tolist()}) > 100  # each transition has its own


def test_the_loss_draws_as_many_negatives_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def spy(item: Tensor, count: int, items: int) -> Tensor:
        asked.append((len(item), count, items))
        return sample_negatives(item, count, items)

    monkeypatch.setattr(module, "sample_negatives", spy)
    make(negatives=7).loss(batch_of())
    assert asked == [(8, 7, ITEMS)]
    assert SA2C.Config().negatives == 10
