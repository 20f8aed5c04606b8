import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoc.errors import InputError
from ecoc.world.market import Market, MarketConfig, MarketState, _pick
from ecoc.world.policies import plan

KINDS = ["bait", "satiation"]


def tiny(kind: str, **changes: Any) -> Market:
    """Three items over two topics, at least one of them bait in the bait world."""
    return Market(
        MarketConfig.build({"kind": kind, "items": 3, "topics": 2, "steps": 3, "dim": 4, "seed": 5, **changes})
    )


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


class SlowUser:
    """The equations of `market`'s docstring for one user, item by item, in plain Python."""

    def __init__(self, market: Market, interest: list[float]) -> None:
        self.market = market
        self.config = market.config
        self.z = interest
        self.b = [0.0] * self.config.topics
        self.g = self.config.trust_start
        self.rec = [0.0] * self.config.items

    def copy(self) -> "SlowUser":
        twin = SlowUser(self.market, list(self.z))
        twin.b, twin.g, twin.rec = list(self.b), self.g, list(self.rec)
        return twin

    def click(self, i: int) -> float:
        c = self.config
        u = self._affinity(i) + float(self.market.appeal[i]) + c.click_offset
        u -= c.boredom * self.b[self.market.topic[i]] + c.repeat * self.rec[i]
        return self.g * math.exp(-c.wear * sum(self.b)) * sigma(u)

    def reward(self, i: int) -> float:
        buy = sigma(self._affinity(i) + self.config.buy_offset - float(self.market.log_price[i]))
        favourite = (1 - buy) * sigma(self._affinity(i) + self.config.favourite_offset)
        return self.click(i) * (3 * buy + 2 * favourite + 1 * (1 - buy - favourite))

    def show(self, i: int, clicked: bool) -> None:
        c = self.config
        if clicked:
            moved = [z + c.drift * float(v) for z, v in zip(self.z, self.market.vector[i], strict=True)]
            norm = math.sqrt(sum(x * x for x in moved))
            self.z = [round(x / norm * 2048) / 2048 for x in moved]
        self.b = [c.boredom_decay * load for load in self.b]
        self.b[self.market.topic[i]] += float(self.market.load[i])
        self.g = (1 - c.trust_loss) * self.g if self.market.bait[i] else self.g + c.trust_gain * (1 - self.g)
        self.rec = [c.repeat_decay * rec for rec in self.rec]
        self.rec[i] = 1.0

    def best(self, shown: frozenset[int], horizon: int) -> float:
        """Value of the best plan without repeats."""
        return max(self.value(i, shown, horizon) for i in range(self.config.items) if i not in shown)

    def value(self, i: int, shown: frozenset[int], horizon: int) -> float:
        total = self.reward(i)
        if horizon > 1:
            for clicked, chance in ((True, self.click(i)), (False, 1 - self.click(i))):
                after = self.copy()
                after.show(i, clicked)
                total += chance * after.best(shown | {i}, horizon - 1)
        return total

    def _affinity(self, i: int) -> float:
        return self.config.affinity * sum(z * float(v) for z, v in zip(self.z, self.market.vector[i], strict=True))


def after_some_steps(market: Market, n: int, steps: int) -> MarketState:
    rng = np.random.default_rng(0)
    state = market.start(n, rng)
    for _ in range(steps):
        state, _, _ = market.step(state, rng.integers(market.config.items, size=n, dtype=np.int32), rng)
    return state


@pytest.mark.parametrize("kind", KINDS)
def test_dynamics_equal_the_slow_reference(kind: str) -> None:
    market = tiny(kind)
    assert market.bait.any() == (kind == "bait")
    rng = np.random.default_rng(1)
    state = market.start(8, rng)
    users = [SlowUser(market, row.tolist()) for row in state.interest]
    for _ in range(12):  # many repeats
        chances = [[user.click(i) for i in range(3)] for user in users]
        rewards = [[user.reward(i) for i in range(3)] for user in users]
        np.testing.assert_allclose(market.click_chance(state), chances, atol=1e-3)
        np.testing.assert_allclose(market.expected_reward(state), rewards, atol=2e-3)
        items, clicked = rng.integers(3, size=8, dtype=np.int32), rng.random(8) < 0.5
        state = market.advance(state, items, clicked)
        for user, item, was_clicked in zip(users, items, clicked, strict=True):
            user.show(int(item), bool(was_clicked))
        np.testing.assert_allclose(state.interest, [user.z for user in users], atol=2e-3)
        np.testing.assert_allclose(state.load, [user.b for user in users], atol=1e-5)
        np.testing.assert_allclose(state.trust, [user.g for user in users], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_plan_equals_the_slow_reference(kind: str) -> None:
    market = tiny(kind)
    state = market.start(4, np.random.default_rng(2))
    users = [SlowUser(market, row.tolist()) for row in state.interest]
    for horizon in (1, 2, 3):
        slow = [[user.value(i, frozenset(), horizon) for i in range(3)] for user in users]
        np.testing.assert_allclose(plan(market, state, horizon), slow, atol=5e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_expected_reward_is_the_mean_of_sampled_rewards(kind: str) -> None:
    market = tiny(kind)
    user = after_some_steps(market, 1, 4)
    n = 100_000
    many = user.take(np.zeros(n, np.intp))
    expected = market.expected_reward(user)[0]
    rng = np.random.default_rng(3)
    for item in range(3):
        _, feedback, rewards = market.step(many, np.full(n, item, np.int32), rng)
        assert abs(rewards.mean() - expected[item]) < 4 * rewards.std() / n**0.5 + 1e-4
        assert np.array_equal(rewards, feedback)
        assert set(np.unique(feedback)) <= {0, 1, 2, 3}


@pytest.mark.parametrize("kind", KINDS)
def test_one_item_per_user_agrees_with_all_items(kind: str) -> None:
    market = Market(MarketConfig.build({"kind": kind, "items": 40, "topics": 5}))
    state = after_some_steps(market, 30, 15)
    items = np.where(np.arange(30) % 2, state.shown[:, 3], np.arange(30)).astype(np.int32)  # repeats among them
    all_items = market.expected_reward(state)[np.arange(30), items]
    np.testing.assert_allclose(market.expected_reward_of(state, items), all_items, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_many_users_at_once_equal_one_by_one(kind: str) -> None:
    market = Market(MarketConfig.build({"kind": kind, "items": 300, "topics": 7}))
    state = after_some_steps(market, 64, 5)
    items = np.arange(64, dtype=np.int32)
    luck = np.random.default_rng(4).random(64, dtype=np.float32)
    rewards, feedback = market.expected_reward(state), market.respond(state, items, luck)
    after = market.advance(state, items, feedback > 0)
    for row in range(64):
        one = np.array([row])
        alone = state.take(one)
        assert np.array_equal(market.expected_reward(alone)[0], rewards[row])
        assert market.respond(alone, items[one], luck[one])[0] == feedback[row]
        moved = market.advance(alone, items[one], feedback[one] > 0)
        assert np.array_equal(moved.interest[0], after.interest[row])
        assert np.array_equal(moved.load[0], after.load[row])


def test_better_luck_means_better_feedback() -> None:
    market = tiny("bait")
    state = market.start(1, np.random.default_rng(0)).take(np.zeros(1001, np.intp))
    luck = np.linspace(0, 0.999999, 1001, dtype=np.float32)
    feedback = market.respond(state, np.zeros(1001, np.int32), luck)
    assert np.all(np.diff(feedback) >= 0)
    assert feedback[0] == 0
    assert feedback[-1] == 3


def test_inner_products_on_the_grid_are_exact() -> None:
    market = Market(MarketConfig(dim=64))
    state = after_some_steps(market, 200, 3)
    exact = state.interest.astype(np.float64) @ market.vector.astype(np.float64).T
    assert np.array_equal(state.interest @ market.vector.T, exact)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(2**-10, 2**10, width=32), min_size=1, max_size=70), st.floats(0, 1 - 2**-10, width=32))
def test_pick_inverts_the_running_sum(weights: list[float], luck: float) -> None:
    picked = int(_pick(np.array([weights], np.float32), np.array([luck], np.float32))[0])
    running = np.cumsum(weights)
    slack = 1e-5 * running[-1]
    assert (running[picked - 1] if picked else 0) <= luck * running[-1] + slack
    assert luck * running[-1] <= running[picked] + slack


def test_behaviour_is_three_quarters_softmax() -> None:
    market = tiny("bait")
    user = after_some_steps(market, 1, 2)
    items = market.behave(user.take(np.zeros(60_000, np.intp)), np.random.default_rng(5))
    weights = np.exp(market.expected_reward(user)[0] / 0.15)
    np.testing.assert_allclose(np.bincount(items) / 60_000, 0.75 * weights / weights.sum() + 0.25 / 3, atol=0.01)


def test_a_workspace_changes_nothing() -> None:
    market = Market(MarketConfig())
    state = after_some_steps(market, 50, 4)
    plain = market.behave(state, np.random.default_rng(6))
    assert np.array_equal(plain, market.behave(state, np.random.default_rng(6), market.workspace(50)))


def test_seed_makes_another_world_of_the_same_kind() -> None:
    first, again, other = (Market(MarketConfig(seed=seed)) for seed in (0, 0, 1))
    assert np.array_equal(first.vector, again.vector)
    assert not np.array_equal(first.vector, other.vector)
    assert first.bait.sum() == other.bait.sum() == 70
    assert set(first.topic.tolist()) == set(range(10))


def test_kind_fills_in_what_is_not_given() -> None:
    config = MarketConfig(kind="satiation", drift=0.4)
    assert (config.items, config.wear, config.bait_share, config.drift) == (2000, 0.18, 0.0, 0.4)
    assert MarketConfig().wear == 0.0
    assert MarketConfig.build(config.model_dump()) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "baits"}, "kind"),
        ({"items": 15}, "steps: 20 is more than the 15 items"),
        ({"items": 30, "topics": 40}, "topics: 40 is more than the 30 items"),
        ({"load_low": 0.9, "load_high": 0.1}, "load_high"),
        ({"trust": 1}, "unknown option 'trust'"),
    ],
)
def test_wrong_settings_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MarketConfig.build(values)
