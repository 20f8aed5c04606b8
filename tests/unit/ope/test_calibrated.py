"""Propensities on the scale of how often things happened."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit

from ecoc.ope.estimators import calibrated

CHANCES = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30)


def slow(chance: list[float], happened: list[bool]) -> list[float]:
    """Penalised maximum likelihood by a general optimiser."""

    def loss(weights: list[float]) -> float:
        total = ((weights[0]) ** 2 + (weights[1] - 1) ** 2) / 2
        for one, did in zip(chance, happened, strict=True):
            found = weights[0] + weights[1] * logit(one)
            total += np.logaddexp(0, -found if did else found)
        return float(total)

    a, b = minimize(loss, [0.0, 1.0], tol=1e-12).x
    return [float(expit(a + b * logit(one))) for one in chance]


def test_it_is_the_most_likely_line_through_the_logits() -> None:
    chance, happened = [0.02, 0.1, 0.3, 0.05, 0.2, 0.01, 0.4], [False, True, True, False, True, False, False]
    assert calibrated(np.array(chance), np.array(happened)) == pytest.approx(slow(chance, happened), rel=1e-4)


@pytest.mark.parametrize("factor", [0.2, 0.5, 1.0, 2.0])
def test_chances_off_by_a_factor_are_put_right(factor: float) -> None:
    random = np.random.default_rng(0)
    true = random.uniform(0.01, 0.1, 1_000_000)
    found = calibrated(true * factor, random.random(len(true)) < true)
    assert np.abs(found / true - 1).max() < 0.1
    assert (found / true).mean() == pytest.approx(1, abs=0.02)


def test_weights_by_them_average_one_where_raw_ones_do_not() -> None:
    random = np.random.default_rng(1)
    true = random.uniform(0.02, 0.2, 100_000)
    happened = random.random(len(true)) < true
    raw = true / 2
    assert (happened / raw).mean() == pytest.approx(2, abs=0.05)
    assert (happened / calibrated(raw, happened)).mean() == pytest.approx(1, abs=0.02)


@given(CHANCES)
def test_whatever_comes_chances_stay_chances_and_in_their_order(rows: list[tuple[float, bool]]) -> None:
    chance, happened = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    found = calibrated(chance, happened)
    assert ((found > 0) & (found <= 1)).all()
    order = np.argsort(chance)
    steps = np.diff(found[order])
    assert (steps >= -1e-9).all() or (steps <= 1e-9).all()


def test_what_never_happened_is_not_made_impossible() -> None:
    found = calibrated(np.full(1000, 0.05), np.zeros(1000, bool))
    assert 0 < found[0] < 0.05
    always = calibrated(np.full(1000, 0.05), np.ones(1000, bool))
    assert 0.9 < always[0] <= 1
