"""Off-policy estimators from logged decisions and their propensities: by weights, by a model, or by both.

One decision at a logged state, with weight w = pi(a|s) / b(a|s), model q(s, a) and v(s) = sum_a pi(a|s) q(s, a):

    ips      mean w r                                    unbiased if b is right; high variance if pi differs from b
    snips    sum w r / sum w                             the same, on the scale of the rewards
    dm       mean v                                      the model alone
    dr       mean v + w (r - q)                          right if either b or q is
    switch   mean v + w [w <= limit] (r - q)             dr that trusts the model where the weight is large

Sessions, with W_t = prod_{u <= t} w_u and the mean over sessions of each step weighed by it:

    snips    mean_t sum W_t r_t / sum W_t
    dr       mean_t sum W_{t-1} v_t / sum W_{t-1} + sum W_t (r_t - q_t) / sum W_t          weighted doubly robust
    switch   the same with W_t no larger than the limit

Weights are normalised because their mean is not exactly 1. Intervals resample users.

Estimated propensities c of a policy's actions are calibrated first, because they are too low where the policy predicts
the log better than the propensity model does: P(shown) = sigmoid(a + b logit c). a and b maximise the likelihood of
whether the log showed the action, with a unit Gaussian prior around a = 0, b = 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit

from ecoc.errors import InputError
from ecoc.evaluation.statistics import sample_weights

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SWITCH = 20.0
"""Weight above which `switch` uses the model alone."""

_RESAMPLES = 1000
_LEAST_CHANCE = 1e-9


@dataclass(frozen=True)
class Decisions:
    """Logged decisions, and the weight and model value of a policy. [N] each."""

    reward: Floats
    weight: Floats  # pi(a|s) / b(a|s) of the logged action
    model: Floats  # q(s, a) of the logged action
    policy_model: Floats  # v(s)
    user: Ints

    def __post_init__(self) -> None:
        sizes = {len(self.reward), len(self.weight), len(self.model), len(self.policy_model), len(self.user)}
        if len(sizes) != 1 or not len(self.reward):
            raise InputError(f"all arrays need the same length, above 0; found lengths {sorted(sizes)}")
        _check(self.reward, self.weight, self.model, self.policy_model)


@dataclass(frozen=True)
class Estimate:
    """A value, its 95 % interval over users, and its effective sample size."""

    estimator: str
    value: float
    low: float
    high: float
    ess: float


def one_step(decisions: Decisions, *, limit: float = SWITCH, seed: int = 0) -> list[Estimate]:
    """Every estimator of a single decision."""
    d = decisions
    ones, error = np.ones_like(d.reward), d.reward - d.model
    trusted = d.weight * (d.weight <= limit)
    parts = {
        "ips": (d.weight * d.reward, ones, d.weight),
        "snips": (d.weight * d.reward, d.weight, d.weight),
        "dm": (d.policy_model, ones, ones),
        "dr": (d.policy_model + d.weight * error, ones, d.weight),
        "switch": (d.policy_model + trusted * error, ones, trusted),
    }
    ratios = _ratios([(above, below) for above, below, _ in parts.values()], d.user, seed)
    return [
        Estimate(name, *ratio, _effective(weight))
        for (name, (_, _, weight)), ratio in zip(parts.items(), ratios, strict=True)
    ]


def ratio_estimate(name: str, above: Floats, below: Floats, user: Ints, *, seed: int = 0) -> Estimate:
    """Sum of `above` over sum of `below`, over all decisions."""
    [ratio] = _ratios([(above, below)], user, seed)
    return Estimate(name, *ratio, float(len(above)))


@dataclass(frozen=True)
class SessionLog:
    """Decisions of sessions, in order: [S, T] each; steps after the end of a session are not counted."""

    reward: Floats
    weight: Floats
    model: Floats
    policy_model: Floats
    counted: NDArray[np.bool_]
    user: Ints | None = None  # [S]; none: every session is another user's

    def __post_init__(self) -> None:
        parts = self.reward, self.weight, self.model, self.policy_model
        shapes = {part.shape for part in (*parts, self.counted)}
        if len(shapes) != 1 or not self.counted.any() or (self.user is not None and len(self.user) != len(self.reward)):
            raise InputError(f"all arrays need the same shape, with a counted decision; found shapes {sorted(shapes)}")
        _check(*(part[self.counted] for part in parts))


def _check(reward: Floats, weight: Floats, model: Floats, policy_model: Floats) -> None:
    if not ((weight >= 0) & np.isfinite(weight)).all():
        raise InputError("weights are ratios of chances, 0 or more; a propensity is missing, zero or negative")
    for name, values in (("reward", reward), ("model", model), ("policy's model", policy_model)):
        if not np.isfinite(values).all():
            raise InputError(f"the {name} of a decision is not a finite number")


def sessions(log: SessionLog, *, limit: float = SWITCH, seed: int = 0) -> list[Estimate]:
    """Reward per step of whole sessions."""
    running: Floats = np.cumprod(np.where(log.counted, log.weight, 1.0), axis=1, dtype=np.float64)
    clipped: Floats = np.minimum(running, limit)
    error = log.reward - log.model
    return [
        _session_estimate("snips", running, log.reward, None, log, seed),
        _session_estimate("dr", running, error, log.policy_model, log, seed),
        _session_estimate("switch", clipped, error, log.policy_model, log, seed),
    ]


def calibrated(chance: Floats, happened: NDArray[np.bool_]) -> Floats:
    """Probabilities [N] of events that did or did not happen [N], calibrated to their frequency."""
    bounded = np.clip(chance, _LEAST_CHANCE, 1 - _LEAST_CHANCE)
    terms = np.stack([np.ones_like(bounded), logit(bounded)], axis=1)  # [N, 2]
    start, sign = np.array([0.0, 1.0]), np.where(happened, 1.0, -1.0)

    def loss(weights: Floats) -> float:
        return float(((weights - start) ** 2).sum() / 2 - log_expit(sign * (terms @ weights)).sum())

    def slope(weights: Floats) -> Floats:
        gradient: Floats = weights - start + terms.T @ (expit(terms @ weights) - happened)
        return gradient

    def bend(weights: Floats) -> Floats:
        share = expit(terms @ weights)
        hessian: Floats = np.eye(2) + (terms * (share * (1 - share))[:, None]).T @ terms
        return hessian

    calibrated_chance: Floats = expit(terms @ minimize(loss, start, method="trust-exact", jac=slope, hess=bend).x)
    return calibrated_chance


def _session_estimate(
    name: str, running: Floats, error: Floats, model: Floats | None, log: SessionLog, seed: int
) -> Estimate:
    """Mean over steps of the weighed means over the sessions that have the step."""
    before = np.concatenate([np.ones((len(running), 1)), running[:, :-1]], axis=1) * log.counted
    running = running * log.counted
    known = running if model is None else before  # weights of the mean of each step
    modelled = np.zeros_like(before) if model is None else before * np.where(log.counted, model, 0.0)
    residual = running * np.where(log.counted, error, 0.0)
    columns = np.concatenate([modelled, known, residual, running, log.counted.astype(np.float64)], axis=1)
    if log.user is not None:
        users, row = np.unique(log.user, return_inverse=True)
        together = np.zeros((len(users), columns.shape[1]))
        np.add.at(together, row, columns)
        columns = together
    drawn = np.zeros((_RESAMPLES, columns.shape[1]))
    for picked, block, counts in sample_weights(len(columns), _RESAMPLES, np.random.default_rng(seed)):
        drawn[picked] += counts @ columns[block]
    value, *values = _weighed(np.concatenate([columns.sum(0)[None], drawn]))
    last = running[np.arange(len(running)), np.maximum(log.counted.sum(1) - 1, 0)]
    low, high = _interval(np.array(values))
    return Estimate(name, float(value), low, high, _effective(last))


def _weighed(sums: Floats) -> Floats:
    """Reward per step from the sums [B, 5 T] of `_session_estimate`; a step without any weight is left out."""
    modelled, known, residual, running, count = np.split(sums, 5, axis=1)
    share = np.divide(modelled, known, out=np.zeros_like(known), where=known > 0)
    share += np.divide(residual, running, out=np.zeros_like(running), where=running > 0)
    count = count * (known > 0)
    steps = count.sum(1)
    means: Floats = np.divide((share * count).sum(1), steps, out=np.full(len(sums), np.nan), where=steps > 0)
    return means


def _interval(values: Floats) -> tuple[float, float]:
    """95 % of the resamples in which there was any weight."""
    if not np.isfinite(values).any():
        return float("nan"), float("nan")
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)


def _effective(weight: Floats) -> float:
    """Effective sample size: number of equal weights with the same variance."""
    total = float((weight**2).sum())
    return float(weight.sum() ** 2 / total) if total else 0.0


def _ratios(pairs: Sequence[tuple[Floats, Floats]], user: Ints, seed: int) -> list[tuple[float, float, float]]:
    """Sum over sum of each pair and its interval; all pairs share the resamples of users."""
    users, row = np.unique(user, return_inverse=True)
    sums = np.stack([np.bincount(row, part, len(users)) for pair in pairs for part in pair], axis=1)  # [users, 2 pairs]
    drawn = np.zeros((_RESAMPLES, sums.shape[1]))
    for picked, block, counts in sample_weights(len(sums), _RESAMPLES, np.random.default_rng(seed)):
        drawn[picked] += counts @ sums[block]
    whole = np.concatenate([sums.sum(0)[None], drawn])
    above, below = whole[:, 0::2], whole[:, 1::2]
    values = np.divide(above, below, out=np.full_like(above, np.nan), where=below != 0)
    return [(float(column[0]), *_interval(column[1:])) for column in values.T]
