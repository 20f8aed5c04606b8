"""What always holds of estimators, what they say where nothing is in common, and the nonsense they refuse."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from estimators_case import few_decisions, few_sessions, named, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoc.errors import InputError
from ecoc.ope.estimators import Decisions, Estimate, SessionLog, one_step, sessions

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
    with pytest.raises(InputError, match="all arrays need the same"):
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
