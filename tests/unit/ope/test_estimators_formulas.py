"""Estimators and their intervals against loops in plain Python."""

import math
from dataclasses import replace

import numpy as np
import pytest
from estimators_case import ONE_STEP, SESSIONS, Floats, few_decisions, few_sessions, named, rows_of

from ecoc.evaluation.statistics import sample_weights
from ecoc.ope.estimators import Decisions, SessionLog, one_step, sessions

# One decision, by hand


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
