"""Estimators against loops in plain Python, and in a world of two states and three actions whose values are known."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ecoc.errors import InputError
from ecoc.evaluation.estimators import Decisions, Estimate, SessionLog, one_step, sessions
from ecoc.evaluation.statistics import sample_weights

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ONE_STEP = ("ips", "snips", "dm", "dr", "switch")
SESSIONS = ("snips", "dr", "switch")

STATE = np.array([0.3, 0.7])
LOGGING = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]])
TARGET = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
REWARD = np.array([[0.2, 0.5, 0.9], [0.7, 0.1, 0.4]])
TRUTH = float((STATE[:, None] * TARGET * REWARD).sum())
WRONG_MODEL = np.array([[0.8, 0.1, 0.3], [0.1, 0.3, 0.2]])
WRONG_CHANCES = np.array([[0.2, 0.2, 0.6], [0.6, 0.1, 0.3]])


def named(found: list[Estimate]) -> dict[str, Estimate]:
    return {one.estimator: one for one in found}


def rows_of(value: Any, rows: Ints) -> Any:
    """The same kind of log with chosen rows."""
    return replace(
        value, **{f.name: getattr(value, f.name)[rows] for f in fields(value) if getattr(value, f.name) is not None}
    )


def sample_rows(chances: Floats, rng: np.random.Generator) -> Ints:
    """One column of each row [N, columns], by its chances."""
    drawn: Ints = (chances.cumsum(1) < rng.random((len(chances), 1))).sum(1)
    return drawn


# One decision, by hand


def few_decisions() -> Decisions:
    return Decisions(
        reward=np.array([1.0, 0.0, 3.0, 2.0, 5.0]),
        weight=np.array([0.5, 2.0, 0.0, 25.0, 4.0]),
        model=np.array([0.8, 0.4, 2.0, 2.5, 3.0]),
        policy_model=np.array([1.2, 0.6, 1.9, 2.2, 3.3]),
        user=np.array([7, 3, 7, 5, 3]),
    )


def slow_one_step(d: Decisions, limit: float, times: list[float] | None = None) -> dict[str, float]:
    """Each decision counted so many times."""
    total = dict.fromkeys(ONE_STEP, 0.0)
    count, weights = 0.0, 0.0
    for k in range(len(d.reward)):
        n = 1.0 if times is None else times[k]
        w, r, q, v = d.weight[k], d.reward[k], d.model[k], d.policy_model[k]
        count, weights = count + n, weights + n * w
        total["ips"] += n * w * r
        total["snips"] += n * w * r
        total["dm"] += n * v
        total["dr"] += n * (v + w * (r - q))
        total["switch"] += n * (v + (w * (r - q) if w <= limit else 0.0))
    return {
        name: total[name] / below if below else math.nan
        for name in ONE_STEP
        for below in [weights if name == "snips" else count]
    }


def slow_ess(weights: list[float]) -> float:
    squares = sum(w * w for w in weights)
    return sum(weights) ** 2 / squares if squares else 0.0


@pytest.mark.parametrize("limit", [20.0, 3.0, 0.1])
def test_estimators_of_a_decision_are_their_formulas(limit: float) -> None:
    d = few_decisions()
    found, slow = named(one_step(d, limit=limit)), slow_one_step(d, limit)
    assert tuple(found) == ONE_STEP
    for name in ONE_STEP:
        assert found[name].value == pytest.approx(slow[name], rel=1e-12), name
    weights = d.weight.tolist()
    for name in ("ips", "snips", "dr"):
        assert found[name].ess == pytest.approx(slow_ess(weights))
    assert found["dm"].ess == 5
    assert found["switch"].ess == pytest.approx(slow_ess([w for w in weights if w <= limit]))


def test_a_weight_at_the_limit_is_still_trusted() -> None:
    d = few_decisions()
    assert named(one_step(d, limit=25.0))["switch"].value == named(one_step(d))["dr"].value
    assert named(one_step(d, limit=24.9))["switch"].value != named(one_step(d))["dr"].value


@pytest.mark.parametrize("seed", [0, 1])
def test_intervals_draw_whole_users(seed: int) -> None:
    d = few_decisions()
    users = sorted(set(d.user.tolist()))
    drawn: dict[str, list[float]] = {name: [] for name in ONE_STEP}
    for _, _, counts in sample_weights(len(users), 1000, np.random.default_rng(seed)):
        for resample in counts:
            slow = slow_one_step(d, 20.0, [resample[users.index(user)] for user in d.user])
            for name in ONE_STEP:
                drawn[name].append(slow[name])
    assert len(drawn["ips"]) == 1000
    for name, one in named(one_step(d, seed=seed)).items():
        assert [one.low, one.high] == pytest.approx(np.nanquantile(drawn[name], [0.025, 0.975]), rel=1e-9), name


# Sessions, by hand


def few_sessions() -> SessionLog:
    """Four sessions of 3, 1, 2 and 3 decisions; what stands after their end must not matter."""
    counted = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]], bool)
    rng = np.random.default_rng(4)
    reward, model, policy_model = (np.where(counted, rng.uniform(0, 4, (4, 3)), 99.0) for _ in range(3))
    weight = np.where(counted, rng.uniform(0.2, 3.0, (4, 3)), 99.0)
    return SessionLog(reward, weight, model, policy_model, counted)


def slow_sessions(log: SessionLog, limit: float, times: list[float] | None = None) -> tuple[dict[str, float], Floats]:
    """Values, and the product of weights at each session's end [sessions]."""
    count, steps = log.reward.shape
    total, decisions = dict.fromkeys(SESSIONS, 0.0), 0.0
    product, last = [[1.0] * (steps + 1) for _ in range(count)], np.zeros(count)
    for k in range(count):
        for t in range(steps):
            if log.counted[k, t]:
                product[k][t + 1] = last[k] = product[k][t] * log.weight[k, t]
    for t in range(steps):
        here = [k for k in range(count) if log.counted[k, t]]
        n = {k: 1.0 if times is None else times[k] for k in here}
        for name in SESSIONS:
            most = limit if name == "switch" else math.inf
            before = {k: n[k] * min(product[k][t], most) for k in here}
            upto = {k: n[k] * min(product[k][t + 1], most) for k in here}
            if name == "snips":
                value = sum(upto[k] * log.reward[k, t] for k in here) / sum(upto.values())
            else:
                value = sum(before[k] * log.policy_model[k, t] for k in here) / sum(before.values())
                missed = sum(upto[k] * (log.reward[k, t] - log.model[k, t]) for k in here)
                value += missed / sum(upto.values())
            total[name] += sum(n.values()) * value
        decisions += sum(n.values())
    return {name: total[name] / decisions for name in SESSIONS}, last


@pytest.mark.parametrize("limit", [20.0, 1.5])
def test_estimators_of_sessions_are_their_formulas(limit: float) -> None:
    log = few_sessions()
    found = named(sessions(log, limit=limit))
    slow, last = slow_sessions(log, limit)
    assert tuple(found) == SESSIONS
    for name in SESSIONS:
        assert found[name].value == pytest.approx(slow[name], rel=1e-12), name
    assert last.max() > 1.5, "so that something is clipped"
    assert found["snips"].ess == found["dr"].ess == pytest.approx(slow_ess(last.tolist()))
    assert found["switch"].ess == pytest.approx(slow_ess(np.minimum(last, limit).tolist()))


def test_sessions_without_clipping_switch_to_nothing() -> None:
    log = few_sessions()
    found = named(sessions(log, limit=math.inf))
    assert found["switch"].value == found["dr"].value
    assert (found["switch"].low, found["switch"].high) == (found["dr"].low, found["dr"].high)


def test_sessions_of_one_step_are_self_normalised_decisions() -> None:
    d = few_decisions()
    reward, weight, model, value = (x[:, None] for x in (d.reward, d.weight, d.model, d.policy_model))
    log = SessionLog(reward, weight, model, value, np.ones((5, 1), bool))
    alone, whole = named(one_step(d)), named(sessions(log))
    assert whole["snips"].value == pytest.approx(alone["snips"].value)
    correction = float((d.weight * (d.reward - d.model)).sum() / d.weight.sum())
    assert whole["dr"].value == pytest.approx(alone["dm"].value + correction)


def test_intervals_of_sessions_draw_sessions() -> None:
    log = few_sessions()
    counted = np.ones_like(log.counted)  # no step is then without a session in any resample
    log = SessionLog(log.reward % 4, log.weight % 3 + 0.1, log.model % 4, log.policy_model % 4, counted)
    drawn: dict[str, list[float]] = {name: [] for name in SESSIONS}
    for _, _, counts in sample_weights(4, 1000, np.random.default_rng(3)):
        for resample in counts:
            for name, value in slow_sessions(log, 20.0, resample.tolist())[0].items():
                drawn[name].append(value)
    for name, one in named(sessions(log, seed=3)).items():
        assert [one.low, one.high] == pytest.approx(np.quantile(drawn[name], [0.025, 0.975]), rel=1e-9), name


def test_sessions_of_a_user_are_drawn_together() -> None:
    log = few_sessions()
    twice = rows_of(log, np.tile(np.arange(4), 2))
    doubled = named(sessions(replace(twice, user=np.tile(np.arange(4), 2))))
    for name, one in named(sessions(log)).items():
        assert (doubled[name].low, doubled[name].high) == pytest.approx((one.low, one.high)), name
    alone = named(sessions(twice))
    assert alone["snips"].high - alone["snips"].low < doubled["snips"].high - doubled["snips"].low


# The world


@dataclass(frozen=True)
class Drawn:
    state: Ints
    action: Ints
    reward: Floats
    user: Ints

    def decisions(self, chances: Floats = LOGGING, model: Floats = REWARD) -> Decisions:
        weight = (TARGET / chances)[self.state, self.action]
        value = (TARGET * model).sum(1)[self.state]
        return Decisions(self.reward, weight, model[self.state, self.action], value, self.user)


def sample_decisions(rng: np.random.Generator, users: int, each: int, *, fixed: bool) -> Drawn:
    """Logged decisions; a fixed user is in one state all the time, so that decisions of a user are alike."""
    user = np.repeat(np.arange(users), each)
    state = (rng.random(users)[user] if fixed else rng.random(len(user))) > STATE[0]
    action = sample_rows(LOGGING[state.astype(int)], rng)
    reward = (rng.random(len(user)) < REWARD[state.astype(int), action]).astype(np.float64)
    return Drawn(state.astype(np.int64), action, reward, user)


@pytest.fixture(scope="module")
def many() -> Drawn:
    return sample_decisions(np.random.default_rng(11), 50, 6000, fixed=False)


def values(decisions: Decisions) -> dict[str, float]:
    return {name: one.value for name, one in named(one_step(decisions)).items()}


def test_with_the_right_chances_all_but_the_wrong_model_find_the_value(many: Drawn) -> None:
    found = values(many.decisions(LOGGING, WRONG_MODEL))
    for name in ("ips", "snips", "dr", "switch"):
        assert found[name] == pytest.approx(TRUTH, abs=0.008), name
    assert abs(found["dm"] - TRUTH) > 0.05
    assert abs(float(many.reward.mean()) - TRUTH) > 0.05, "the log itself earns something else"


def test_with_the_right_model_doubly_robust_needs_no_chances(many: Drawn) -> None:
    found = values(many.decisions(WRONG_CHANCES, REWARD))
    for name in ("dm", "dr", "switch"):
        assert found[name] == pytest.approx(TRUTH, abs=0.008), name
    assert min(abs(found[name] - TRUTH) for name in ("ips", "snips")) > 0.05


def test_with_neither_nothing_is_right(many: Drawn) -> None:
    assert abs(values(many.decisions(WRONG_CHANCES, WRONG_MODEL))["dr"] - TRUTH) > 0.05


def test_the_right_model_makes_doubly_robust_sharper(many: Drawn) -> None:
    found = named(one_step(many.decisions()))
    assert found["dr"].high - found["dr"].low < 0.8 * (found["ips"].high - found["ips"].low)


def test_intervals_of_decisions_hold_the_truth_as_often_as_they_say() -> None:
    rng, repeats = np.random.default_rng(21), 200
    held = dict.fromkeys(("ips", "snips", "dr"), 0)
    for number in range(repeats):
        found = named(one_step(sample_decisions(rng, 60, 40, fixed=True).decisions(), seed=number))
        for name in held:
            held[name] += found[name].low <= TRUTH <= found[name].high
    for name, count in held.items():
        assert 0.90 <= count / repeats <= 0.99, (name, count)


STEPS = 4
CHANCE_OF_ONE = np.array([[0.2, 0.5, 0.8], [0.9, 0.6, 0.1]])  # of state 1 next, by state and action
NEAR = 0.6 * LOGGING + 0.4 * TARGET


def session_truth(policy: Floats) -> float:
    """What a step earns: sessions last 2, 3 or 4 steps, whatever happens in them."""
    chance, total, steps = STATE, 0.0, 0.0
    for lasts in (1.0, 1.0, 2 / 3, 1 / 3):
        total += lasts * float((chance[:, None] * policy * REWARD).sum())
        steps += lasts
        one = float((chance[:, None] * policy * CHANCE_OF_ONE).sum())
        chance = np.array([1 - one, one])
    return total / steps


def sample_sessions(
    rng: np.random.Generator, count: int, chances: Floats = LOGGING, model: Floats = REWARD, *, moves: bool = True
) -> SessionLog:
    """With `moves`, what is shown decides the next state; else states come by chance."""
    counted = np.arange(STEPS) < rng.integers(2, STEPS + 1, count)[:, None]
    columns: list[list[Floats]] = [[], [], [], []]
    state = (rng.random(count) > STATE[0]).astype(int)
    for _ in range(STEPS):
        action = sample_rows(LOGGING[state], rng)
        reward = (rng.random(count) < REWARD[state, action]).astype(np.float64)
        now = (reward, (NEAR / chances)[state, action], model[state, action], (NEAR * model).sum(1)[state])
        for column, value in zip(columns, now, strict=True):
            column.append(value)
        state = (rng.random(count) < (CHANCE_OF_ONE[state, action] if moves else STATE[1])).astype(int)
    reward, weight, q, v = (np.stack(column, 1) for column in columns)
    return SessionLog(reward, weight, q, v, counted)


def big_sessions(chances: Floats, model: Floats, *, moves: bool = True) -> dict[str, float]:
    """Values from 20,000 sessions, a few at a time because of what resampling costs."""
    rng = np.random.default_rng(31)
    parts = [named(sessions(sample_sessions(rng, 2000, chances, model, moves=moves))) for _ in range(10)]
    return {name: float(np.mean([part[name].value for part in parts])) for name in SESSIONS}


def test_sessions_with_the_right_chances_find_the_value() -> None:
    assert abs(session_truth(NEAR) - session_truth(LOGGING)) > 0.03
    found = big_sessions(LOGGING, WRONG_MODEL)
    for name in ("snips", "dr"):
        assert found[name] == pytest.approx(session_truth(NEAR), abs=0.008), name


def test_sessions_with_the_right_model_need_no_chances_where_states_come_by_themselves() -> None:
    found = big_sessions(WRONG_CHANCES, REWARD, moves=False)
    truth = float((STATE[:, None] * NEAR * REWARD).sum())
    for name in ("dr", "switch"):
        assert found[name] == pytest.approx(truth, abs=0.01), name
    assert abs(found["snips"] - truth) > 0.03


def test_intervals_of_sessions_hold_the_truth_as_often_as_they_say() -> None:
    rng, repeats, truth = np.random.default_rng(41), 200, session_truth(NEAR)
    held = dict.fromkeys(SESSIONS, 0)
    for number in range(repeats):
        for name, one in named(sessions(sample_sessions(rng, 150), seed=number)).items():
            held[name] += one.low <= truth <= one.high
    for name, count in held.items():
        assert 0.90 <= count / repeats <= 0.99, (name, count)


# What always holds

amount = st.floats(-5, 5).map(lambda x: round(x, 3))
ratio = st.one_of(st.just(0.0), st.floats(0.01, 50).map(lambda x: round(x, 3)))


@st.composite
def any_decisions(draw: st.DrawFn) -> Decisions:
    rows = draw(st.lists(st.tuples(amount, ratio, amount, amount, st.integers(0, 4)), min_size=1, max_size=12))
    reward, weight, model, value, user = (np.array(column) for column in zip(*rows, strict=True))
    return Decisions(reward, weight, model, value, user)


@st.composite
def any_sessions(draw: st.DrawFn) -> SessionLog:
    count, steps = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    counted = np.arange(steps) < rng.integers(1, steps + 1, count)[:, None]
    weight = rng.choice([0.0, 0.5, 1.0, 4.0][draw(st.integers(0, 1)) :], (count, steps))
    reward, model, value = (rng.uniform(1, 5, (count, steps)) for _ in range(3))
    return SessionLog(reward, weight, model, value, counted)


def same(one: Estimate, other: Estimate, *, factor: float = 1.0, ess: float = 1.0, interval: bool = True) -> None:
    """`other` is `one` with values times a factor, and so many times the decisions."""
    bounds = sorted([factor * one.low, factor * one.high])
    size = 1e-9 * (1 + abs(factor))
    assert other.value == pytest.approx(factor * one.value, rel=1e-9, abs=size, nan_ok=True)
    assert other.ess == pytest.approx(ess * one.ess, rel=1e-9)
    if interval:
        assert sorted([other.low, other.high]) == pytest.approx(bounds, rel=1e-9, abs=size, nan_ok=True)


@settings(max_examples=40, deadline=None)
@given(any_decisions(), st.randoms(use_true_random=False))
def test_the_order_of_decisions_and_the_names_of_users_do_not_matter(d: Decisions, random: Any) -> None:
    order = np.array(random.sample(range(len(d.user)), len(d.user)))
    numbers = np.array(random.sample(range(100), 5))
    renamed = replace(rows_of(d, order), user=numbers[d.user[order]])
    for one, moved, other in zip(one_step(d), one_step(rows_of(d, order)), one_step(renamed), strict=True):
        same(one, moved)
        same(one, other, interval=False)


@settings(max_examples=40, deadline=None)
@given(any_sessions(), st.randoms(use_true_random=False))
def test_the_order_of_sessions_does_not_matter(log: SessionLog, random: Any) -> None:
    order = np.array(random.sample(range(len(log.reward)), len(log.reward)))
    for one, other in zip(sessions(log), sessions(rows_of(log, order)), strict=True):
        same(one, other, interval=False)


@settings(max_examples=40, deadline=None)
@given(any_decisions(), any_sessions())
def test_everything_logged_twice_says_the_same(d: Decisions, log: SessionLog) -> None:
    for one, other in zip(one_step(d), one_step(rows_of(d, np.tile(np.arange(len(d.user)), 2))), strict=True):
        same(one, other, ess=2)
    twice = rows_of(log, np.tile(np.arange(len(log.reward)), 2))
    for one, other in zip(sessions(log), sessions(twice), strict=True):
        same(one, other, ess=2, interval=False)


@settings(max_examples=40, deadline=None)
@given(any_decisions(), any_sessions(), st.sampled_from([-3.0, 0.001, 0.5, 100.0]))
def test_rewards_on_another_scale_give_values_on_that_scale(d: Decisions, log: SessionLog, factor: float) -> None:
    def scaled(value: Any) -> Any:
        return replace(value, **{name: factor * getattr(value, name) for name in ("reward", "model", "policy_model")})

    for one, other in zip(one_step(d), one_step(scaled(d)), strict=True):
        same(one, other, factor=factor)
    for one, other in zip(sessions(log), sessions(scaled(log)), strict=True):
        same(one, other, factor=factor)


@settings(max_examples=60, deadline=None)
@given(any_decisions(), any_sessions())
def test_self_normalised_estimates_stay_within_the_rewards(d: Decisions, log: SessionLog) -> None:
    pairs = [(named(one_step(d))["snips"], d.reward), (named(sessions(log))["snips"], log.reward[log.counted])]
    for found, reward in pairs:
        for value in (found.value, found.low, found.high):
            assert math.isnan(value) or reward.min() - 1e-9 <= value <= reward.max() + 1e-9


@settings(max_examples=20, deadline=None)
@given(any_decisions())
def test_a_policy_that_is_the_log_earns_what_was_logged(d: Decisions) -> None:
    as_logged = replace(d, weight=np.ones_like(d.weight), policy_model=d.model)
    for one in one_step(as_logged):
        if one.estimator != "dm":
            assert one.value == pytest.approx(float(d.reward.mean()), abs=1e-9)
        assert one.ess == pytest.approx(len(d.reward))


# Nothing in common, and nonsense


def test_a_policy_that_never_did_what_was_logged_rests_on_nothing() -> None:
    d = replace(few_decisions(), weight=np.zeros(5))
    found = named(one_step(d))
    assert [found[name].ess for name in ("ips", "snips", "dr", "switch")] == [0, 0, 0, 0]
    assert found["ips"].value == 0
    assert math.isnan(found["snips"].value) and math.isnan(found["snips"].low) and math.isnan(found["snips"].high)
    assert found["dr"].value == found["switch"].value == found["dm"].value


def test_sessions_without_anything_in_common_rest_on_nothing() -> None:
    log = few_sessions()
    found = named(sessions(replace(log, weight=np.zeros_like(log.weight))))
    assert [one.ess for one in found.values()] == [0, 0, 0]
    assert math.isnan(found["snips"].value) and math.isnan(found["snips"].low)
    first = float(log.policy_model[:, 0].mean())
    assert found["dr"].value == found["switch"].value == pytest.approx(first), "all that the model says of known states"


def test_a_step_that_nothing_is_known_of_is_left_out() -> None:
    reward = np.array([[4.0, 5.0], [4.0, 5.0], [4.0, 5.0]])
    weight = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    found = named(sessions(SessionLog(reward, weight, reward, reward, np.ones((3, 2), bool))))
    assert found["snips"].value == 4.0, "not 2, as if the second step had earned nothing"
    assert (found["snips"].low, found["snips"].high) == (4.0, 4.0)
    assert found["dr"].value == 4.5, "the model knows of the second step"


@pytest.mark.parametrize("name", ["reward", "weight", "model", "policy_model", "user"])
def test_decisions_of_different_lengths_are_refused(name: str) -> None:
    d = few_decisions()
    with pytest.raises(InputError, match="one of everything"):
        replace(d, **{name: getattr(d, name)[:-1]})


@pytest.mark.parametrize("name", ["reward", "weight", "model", "policy_model"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_decisions_that_are_no_numbers_are_refused(name: str, value: float) -> None:
    d = few_decisions()
    wrong = getattr(d, name).copy()
    wrong[2] = value
    with pytest.raises(InputError):
        replace(d, **{name: wrong})


def test_negative_weights_and_no_decisions_are_refused() -> None:
    d = few_decisions()
    with pytest.raises(InputError, match="weights"):
        replace(d, weight=-d.weight)
    nothing = np.zeros(0)
    with pytest.raises(InputError):
        Decisions(nothing, nothing, nothing, nothing, np.zeros(0, np.int64))


@pytest.mark.parametrize("name", ["reward", "weight", "model", "policy_model", "counted"])
def test_sessions_of_different_shapes_are_refused(name: str) -> None:
    log = few_sessions()
    with pytest.raises(InputError):
        replace(log, **{name: getattr(log, name)[:, :-1]})


@pytest.mark.parametrize("name", ["reward", "weight", "model", "policy_model"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_sessions_that_are_no_numbers_are_refused_where_they_count(name: str, value: float) -> None:
    log = few_sessions()
    wrong = getattr(log, name).copy()
    wrong[0, 1] = value
    with pytest.raises(InputError):
        replace(log, **{name: wrong})


def test_sessions_with_negative_weights_or_without_decisions_are_refused() -> None:
    log = few_sessions()
    with pytest.raises(InputError, match="weights"):
        replace(log, weight=-log.weight)
    with pytest.raises(InputError):
        replace(log, counted=np.zeros_like(log.counted))
    with pytest.raises(InputError):
        rows_of(log, np.zeros(0, np.int64))
