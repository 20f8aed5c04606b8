"""Estimators in a world of two states and three actions whose values are known."""

from dataclasses import dataclass

import numpy as np
import pytest
from estimators_case import SESSIONS, Floats, Ints, named

from ecoc.ope.estimators import Decisions, SessionLog, one_step, sessions

STATE = np.array([0.3, 0.7])
LOGGING = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]])
TARGET = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
REWARD = np.array([[0.2, 0.5, 0.9], [0.7, 0.1, 0.4]])
TRUTH = float((STATE[:, None] * TARGET * REWARD).sum())
WRONG_MODEL = np.array([[0.8, 0.1, 0.3], [0.1, 0.3, 0.2]])
WRONG_CHANCES = np.array([[0.2, 0.2, 0.6], [0.6, 0.1, 0.3]])


def sample_rows(chances: Floats, rng: np.random.Generator) -> Ints:
    """One column of each row [N, columns], by its chances."""
    drawn: Ints = (chances.cumsum(1) < rng.random((len(chances), 1))).sum(1)
    return drawn


# Decisions


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


# Sessions

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
