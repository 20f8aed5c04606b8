"""What a policy would have earned, from logged decisions and how likely the log made each: weights, models, or both.

One decision at a logged state, with weight w = pi(a|s) / b(a|s), model q(s, a) and v(s) = sum_a pi(a|s) q(s, a):

    ips      mean w r                                    unbiased if b is right; wild if pi leaves the log
    snips    sum w r / sum w                             the same, on the scale of the rewards
    dm       mean v                                      the model alone
    dr       mean v + w (r - q)                          right if either b or q is
    switch   mean v + w [w <= limit] (r - q)             dr that trusts the model where the weight is large

Sessions, with W_t = prod_{u <= t} w_u and the mean over sessions of each step weighed by it:

    snips    mean_t sum W_t r_t / sum W_t
    dr       mean_t sum W_{t-1} v_t / sum W_{t-1} + sum W_t (r_t - q_t) / sum W_t          weighted doubly robust
    switch   the same with W_t no larger than the limit

Weights are normalised because estimated propensities do not make them average one. Intervals resample users.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ecoc.errors import InputError
from ecoc.evaluation.statistics import sample_weights

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SWITCH = 20.0
"""Weight beyond which `switch` trusts the model."""

_RESAMPLES = 1000


@dataclass(frozen=True)
class Decisions:
    """Logged decisions and what a policy would have done. [N] each."""

    reward: Floats
    weight: Floats  # pi(a|s) / b(a|s) of the logged action
    model: Floats  # q(s, a) of the logged action
    policy_model: Floats  # v(s)
    user: Ints

    def __post_init__(self) -> None:
        sizes = {len(self.reward), len(self.weight), len(self.model), len(self.policy_model), len(self.user)}
        if len(sizes) != 1 or not len(self.reward):
            raise InputError(f"decisions come with one of everything each; found {sorted(sizes)}")
        if not (self.weight >= 0).all():
            raise InputError("weights are ratios of chances, 0 or more; a propensity is missing or negative")


@dataclass(frozen=True)
class Estimate:
    """A value, its 95 % interval over users, and how many decisions it rests on."""

    estimator: str
    value: float
    low: float
    high: float
    ess: float


def one_step(decisions: Decisions, *, limit: float = SWITCH, seed: int = 0) -> list[Estimate]:
    """Every estimator of a single decision."""
    d = decisions
    one, miss = np.ones_like(d.reward), d.reward - d.model
    trusted = d.weight * (d.weight <= limit)
    parts = {
        "ips": (d.weight * d.reward, one, d.weight),
        "snips": (d.weight * d.reward, d.weight, d.weight),
        "dm": (d.policy_model, one, one),
        "dr": (d.policy_model + d.weight * miss, one, d.weight),
        "switch": (d.policy_model + trusted * miss, one, trusted),
    }
    return [_estimate(name, above, below, weight, d.user, seed) for name, (above, below, weight) in parts.items()]


@dataclass(frozen=True)
class SessionLog:
    """Decisions of sessions, in order: [S, T] each; what is not counted comes after a session's end."""

    reward: Floats
    weight: Floats
    model: Floats
    policy_model: Floats
    counted: NDArray[np.bool_]


def sessions(log: SessionLog, *, limit: float = SWITCH, seed: int = 0) -> list[Estimate]:
    """What a step of whole sessions is worth."""
    running: Floats = np.cumprod(np.where(log.counted, log.weight, 1.0), axis=1, dtype=np.float64)
    clipped: Floats = np.minimum(running, limit)
    return [
        _session_estimate("snips", running, log.reward, np.zeros_like(log.model), log.counted, seed),
        _session_estimate("dr", running, log.reward - log.model, log.policy_model, log.counted, seed),
        _session_estimate("switch", clipped, log.reward - log.model, log.policy_model, log.counted, seed),
    ]


def _session_estimate(
    name: str, running: Floats, miss: Floats, model: Floats, counted: NDArray[np.bool_], seed: int
) -> Estimate:
    """Mean over steps of the weighed means over the sessions that have the step."""
    before = np.concatenate([np.ones((len(running), 1)), running[:, :-1]], axis=1) * counted
    running = running * counted
    columns = np.concatenate([before * model, before, running * miss, running, counted.astype(np.float64)], axis=1)
    drawn = np.zeros((_RESAMPLES, columns.shape[1]))
    for picked, block, counts in sample_weights(len(running), _RESAMPLES, np.random.default_rng(seed)):
        drawn[picked] += counts @ columns[block]
    value, *values = _weighed(np.concatenate([columns.sum(0)[None], drawn]))
    last = running[np.arange(len(running)), np.maximum(counted.sum(1) - 1, 0)]
    low, high = np.quantile(values, [0.025, 0.975])
    return Estimate(name, float(value), float(low), float(high), _effective(last))


def _weighed(sums: Floats) -> Floats:
    """From sums [B, 5 T] of what `_session_estimate` lays side by side."""
    modelled, before, missed, running, count = np.split(sums, 5, axis=1)
    share = np.divide(modelled, before, out=np.zeros_like(before), where=before > 0)
    share += np.divide(missed, running, out=np.zeros_like(running), where=running > 0)
    found: Floats = (share * count).sum(1) / count.sum(1)
    return found


def _effective(weight: Floats) -> float:
    """Number of equal weights that would tell as much."""
    total = float((weight**2).sum())
    return float(weight.sum() ** 2 / total) if total else 0.0


def _estimate(name: str, above: Floats, below: Floats, weight: Floats, user: Ints, seed: int) -> Estimate:
    """Sum of `above` over sum of `below`; resampled by user."""
    _, row = np.unique(user, return_inverse=True)
    pair = np.stack([np.bincount(row, above), np.bincount(row, below)])  # [2, users]
    drawn = np.zeros((2, _RESAMPLES))
    for picked, block, counts in sample_weights(pair.shape[1], _RESAMPLES, np.random.default_rng(seed)):
        drawn[:, picked] += (counts @ pair[:, block].T).T
    with np.errstate(divide="ignore", invalid="ignore"):
        values = drawn[0] / drawn[1]
        value = float(above.sum() / below.sum()) if below.sum() else float("nan")
    low, high = np.nanquantile(values, [0.025, 0.975]) if np.isfinite(values).any() else (np.nan, np.nan)
    return Estimate(name, value, float(low), float(high), _effective(weight))
