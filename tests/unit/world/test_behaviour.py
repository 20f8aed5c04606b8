"""How likely the world's logger shows an item, and how often it does; fresh logs; policies in a share of decisions."""

import numpy as np
import pytest

from ecoc.ope.truth import mixed, sample_log
from ecoc.world import Market, MarketConfig, MarketState, Observation, evaluate
from ecoc.world.market import REWARDS, Ints
from ecoc.world.policies import POLICIES


def market(**options: float) -> Market:
    values = {"items": 12, "topics": 3, "sessions": 50, "steps": 6, **options}
    return Market(MarketConfig.build(values, where="toy"))


def later(world: Market, users: int, steps: int, seed: int = 0) -> MarketState:
    """Users who have seen a few items."""
    rng = np.random.default_rng(seed)
    state = world.start(users, rng)
    for _ in range(steps):
        state, _, _ = world.step(state, world.behave(state, rng), rng)
    return state


def slow_behaviour(world: Market, state: MarketState) -> list[list[float]]:
    config, found = world.config, []
    for row in world.expected_reward(state).tolist():
        odds = [np.exp(value / config.temperature) for value in row]
        found.append([config.greed * one / sum(odds) + (1 - config.greed) / config.items for one in odds])
    return found


@pytest.mark.parametrize("greed", [0.0, 0.75, 1.0])
def test_behaviour_is_a_mixture_of_a_softmax_and_anything(greed: float) -> None:
    world = market(greed=greed)
    state = later(world, 7, 3)
    found = world.behaviour(state)
    assert found.shape == (7, 12)
    assert found.sum(1) == pytest.approx(np.ones(7))
    assert found == pytest.approx(np.array(slow_behaviour(world, state)))
    if greed == 0:
        assert found == pytest.approx(np.full((7, 12), 1 / 12))


@pytest.mark.parametrize("kind", ["bait", "satiation"])
def test_behaviour_is_how_often_the_logger_shows_an_item(kind: str) -> None:
    world = Market(MarketConfig.build({"kind": kind, "items": 12, "topics": 3, "steps": 6}, where="toy"))
    one = later(world, 2, 3, seed=1)
    count = 20_000
    for row in range(2):
        state = one.take(np.full(count, row))
        shown = world.behave(state, np.random.default_rng(row))
        seen = np.bincount(shown, minlength=12) / count
        expected = world.behaviour(one)[row]
        spread = np.sqrt(expected * (1 - expected) / count)
        assert (np.abs(seen - expected) < 5 * spread + 1e-6).all()


def test_a_fresh_log_says_how_likely_each_item_was() -> None:
    world = market()
    log = sample_log(world, 3000, seed=0)
    assert log.items.shape == log.feedback.shape == log.reward.shape == log.chance.shape == (3000, 6)
    assert (log.chance > 0.25 / 12 - 1e-9).all() and (log.chance <= 1).all()
    assert (log.reward == np.asarray(REWARDS, np.float32)[log.feedback]).all()
    assert (1 / log.chance).mean() == pytest.approx(12, rel=0.05), "weights of uniform choice have mean 1"
    other = sample_log(world, 3000, seed=1)
    assert (other.items != log.items).any()
    again = sample_log(world, 3000, seed=0)
    assert (again.items == log.items).all() and (again.chance == log.chance).all()


def test_chances_of_a_fresh_log_are_those_of_the_state_it_was_in() -> None:
    world = market()
    log = sample_log(world, 40, seed=2)
    state = world.start(40, np.random.default_rng([world.config.seed, 7, 2, 0]))
    for step in range(6):
        chance = slow_behaviour(world, state)
        expected = [row[item] for row, item in zip(chance, log.items[:, step].tolist(), strict=True)]
        assert log.chance[:, step] == pytest.approx(expected)
        state = world.advance(state, log.items[:, step], log.feedback[:, step] > 0)


def seen_by(state: MarketState) -> Observation:
    return Observation(state.shown, np.zeros(state.shown.shape, np.int8), state)


class Chooses:
    """Always the same item."""

    def __init__(self, item: int) -> None:
        self.item = item

    def __call__(self, seen: Observation, rng: np.random.Generator, /) -> Ints:
        return np.full(len(seen.truth), self.item, np.int32)


def test_no_share_is_the_log_and_the_whole_is_the_policy() -> None:
    world = market()
    seen = seen_by(later(world, 500, 2))
    logged = world.behave(seen.truth, np.random.default_rng(3))
    assert (mixed(world, Chooses(4), 0.0)(seen, np.random.default_rng(3)) == logged).all()
    assert (mixed(world, Chooses(4), 1.0)(seen, np.random.default_rng(3)) == 4).all()
    half = mixed(world, Chooses(4), 0.5)(seen, np.random.default_rng(3))
    assert ((half == 4) | (half == logged)).all()
    chance = float(world.behaviour(seen.truth)[:, 4].mean())
    assert (half == 4).mean() == pytest.approx(0.5 + 0.5 * chance, abs=0.08)
    assert half.dtype == np.int32


def test_earnings_of_shares_lie_at_their_ends() -> None:
    world = market()
    myopic = POLICIES["myopic"](world)
    whole = evaluate(world, mixed(world, myopic, 1.0), 300, warm=1)
    assert whole.reward == pytest.approx(evaluate(world, myopic, 300, warm=1).reward)
    none = evaluate(world, mixed(world, myopic, 0.0), 2000, warm=1)
    log = evaluate(world, POLICIES["logged"](world), 2000, warm=1)
    assert none.reward == pytest.approx(log.reward, abs=2 * (log.high - log.low))
