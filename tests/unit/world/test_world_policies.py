import numpy as np
import pytest

import ecoc.world
from ecoc.errors import InputError
from ecoc.world.market import Ints, Market, MarketConfig
from ecoc.world.policies import POLICIES, Observation, best_unseen, evaluate, far_sighted, logged, myopic, optimal, plan

# True reward per step measured in the prototypes this world was built after (findings.md).
REFERENCE = {
    "bait": {"random": 0.37, "logged": 0.66, "myopic": 0.61, "far_sighted": 1.58},
    "satiation": {"random": 0.27, "logged": 0.71, "myopic": 0.99, "far_sighted": 1.47},
}


@pytest.mark.parametrize("kind", ["bait", "satiation"])
def test_reference_points(kind: str) -> None:
    market = Market(MarketConfig.build({"kind": kind}))
    found = {name: evaluate(market, POLICIES[name](market), 600) for name in REFERENCE[kind]}
    for name, reward in REFERENCE[kind].items():
        assert found[name].reward == pytest.approx(reward, rel=0.1), name
    ratio = found["far_sighted"].reward / found["myopic"].reward
    assert ratio > (2 if kind == "bait" else 1.3)
    assert found["myopic"].tempting > found["random"].tempting + 0.1 > found["far_sighted"].tempting


def reduced_bait_world() -> Market:
    """Only trust is left: one topic, one vector, no boredom, no fatigue, no drift."""
    plain = {
        "topics": 1,
        "spread": 0.0,
        "quality_std": 0.0,
        "price_std": 0.0,
        "boredom": 0.0,
        "repeat": 0.0,
        "drift": 0.0,
    }
    return Market(MarketConfig.build({"items": 40, "steps": 40, "bait_share": 0.5, **plain}))


def test_greed_is_bounded_and_honesty_grows_in_the_reduced_bait_world() -> None:
    market = reduced_bait_world()
    config, steps = market.config, market.config.steps
    rng = np.random.default_rng(0)
    users = market.start(5, rng)
    bait, clean = (np.full(5, np.flatnonzero(market.bait == flag)[0], np.int32) for flag in (True, False))
    worth = {
        flag: market.expected_reward_of(users, items) / config.trust_start for flag, items in ((1, bait), (0, clean))
    }
    assert np.all(worth[1] > worth[0])  # so greed always takes the bait
    totals = {}
    for flag, items in ((1, bait), (0, clean)):
        state, total = users, np.zeros(5)
        for step in range(steps):
            total += market.expected_reward_of(state, items)
            if flag:
                np.testing.assert_allclose(state.trust, config.trust_start * (1 - config.trust_loss) ** step, rtol=1e-4)
            state = market.advance(state, items, rng.random(5) < 0.5)
        totals[flag] = total
    assert np.all(totals[1] <= worth[1] * config.trust_start / config.trust_loss)  # bounded for every horizon
    assert np.all(totals[0] >= steps * config.trust_start * worth[0])  # linear in the horizon
    assert np.all(steps > worth[1] / (config.trust_loss * worth[0]))
    assert np.all(totals[0] > totals[1])


def test_myopic_policy_takes_only_bait_in_the_reduced_world() -> None:
    market = reduced_bait_world()
    found = evaluate(market, myopic(market), 50, warm=20)
    assert found.tempting > 0.5
    assert found.reward < evaluate(market, far_sighted(market), 50, warm=20).reward


@pytest.mark.parametrize("kind", ["bait", "satiation"])
def test_exact_plan_beats_myopic_on_a_small_world(kind: str) -> None:
    size = {
        "items": 6,
        "topics": 2,
        "steps": 5,
        "dim": 3,
        "trust_loss": 0.5,
        "wear": 0.4 if kind == "satiation" else 0.0,
    }
    market = Market(MarketConfig.build({"kind": kind, "seed": 1, **size}))
    best, greedy = (evaluate(market, policy(market), 60, warm=0) for policy in (optimal, myopic))
    gain = best.per_user - greedy.per_user
    assert gain.mean() > 0.05 * greedy.reward
    assert gain.mean() > 3 * gain.std() / len(gain) ** 0.5
    start = market.start(60, np.random.default_rng([1, 3, 0, 0]))  # the users `evaluate` met
    promised = plan(market, start, 5).max(axis=1).mean() / 5
    assert best.reward == pytest.approx(promised, rel=0.05)


def test_a_plan_of_one_step_is_myopic() -> None:
    market = Market(MarketConfig(items=25, topics=3))
    state = market.start(10, np.random.default_rng(0))
    assert np.array_equal(plan(market, state, 1), market.expected_reward(state))


def test_plans_that_cannot_be_made_are_refused() -> None:
    market = Market(MarketConfig(items=25, topics=3))
    state = market.start(1, np.random.default_rng(0))
    with pytest.raises(InputError, match="too many"):
        plan(market, state, 12)
    with pytest.raises(InputError, match="without repeats"):
        plan(market, state, 26)


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "logged"])
@pytest.mark.parametrize("kind", ["bait", "satiation"])
def test_no_policy_repeats_itself_in_a_session(kind: str, name: str) -> None:
    market = Market(MarketConfig.build({"kind": kind, "items": 20, "topics": 4}))
    policy, sessions = POLICIES[name](market), []

    def watched(seen: Observation, rng: np.random.Generator) -> Ints:
        items = policy(seen, rng)
        sessions.append(np.column_stack([seen.items, items]))
        return items

    evaluate(market, watched, 40, warm=0)
    whole = np.sort(sessions[-1], axis=1)
    assert np.array_equal(whole, np.tile(np.arange(20), (40, 1)))  # 20 steps show each of 20 items once


def test_every_policy_meets_the_same_users_and_the_same_warm_up() -> None:
    market = Market(MarketConfig())
    met = []

    def first_unseen(seen: Observation, rng: np.random.Generator) -> Ints:
        if seen.items.shape[1] == 3:
            met.append((seen.items, seen.feedback, seen.truth.interest))
        return best_unseen(rng.random((len(seen.items), 200), dtype=np.float32), seen.items)

    def last_item(seen: Observation, rng: np.random.Generator) -> Ints:
        if seen.items.shape[1] == 3:
            met.append((seen.items, seen.feedback, seen.truth.interest))
        return np.full(len(seen.items), 199, np.int32)

    evaluate(market, first_unseen, 100)
    evaluate(market, last_item, 100)
    assert all(np.array_equal(a, b) for a, b in zip(*met, strict=True))


def test_a_policy_that_sees_only_the_history_is_enough() -> None:
    market = Market(MarketConfig())

    def same_topic_as_last_click(seen: Observation, rng: np.random.Generator) -> Ints:
        assert seen.items.shape == seen.feedback.shape
        weight = (seen.feedback > 0) * np.arange(1, seen.items.shape[1] + 1)
        liked = market.topic[seen.items[np.arange(len(weight)), weight.argmax(axis=1)]]
        scores = (market.topic == liked[:, None]) & ~market.bait
        return best_unseen(scores.astype(np.float32), seen.items)

    found = evaluate(market, same_topic_as_last_click, 1500, seed=3)
    assert len(found.per_user) == 1500
    assert found.low < found.reward < found.high
    assert found.reward > evaluate(market, POLICIES["random"](market), 1500, seed=3).reward


def test_expected_and_sampled_rewards_have_one_mean() -> None:
    market = Market(MarketConfig())
    sampled = []

    def watched(seen: Observation, rng: np.random.Generator) -> Ints:
        sampled.append(seen.feedback[:, -1])
        return market.behave(seen.truth, rng)

    found = evaluate(market, watched, market.chunk, warm=1)  # one chunk: one list of steps
    assert np.mean(sampled[1:]) == pytest.approx(found.reward, rel=0.05)


def test_evaluation_depends_on_its_seed_only() -> None:
    market = Market(MarketConfig())
    first, again, other = (evaluate(market, logged(market), 1100, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.per_user, again.per_user)
    assert not np.array_equal(first.per_user, other.per_user)


def test_impossible_evaluations_are_refused() -> None:
    market = Market(MarketConfig())
    for users, warm in ((0, 3), (10, 20), (10, -1)):
        with pytest.raises(InputError, match="evaluate"):
            evaluate(market, logged(market), users, warm=warm)


@pytest.mark.parametrize(("old", "new"), [("Policy", "MarketPolicy"), ("State", "MarketState")])
def test_an_old_name_still_works_and_warns(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"ecoc.world.{old} is now ecoc.world.{new}"):
        renamed = getattr(ecoc.world, old)
    assert renamed is getattr(ecoc.world, new)
    with pytest.raises(AttributeError, match="no attribute 'NoSuch'"):
        _ = ecoc.world.NoSuch
