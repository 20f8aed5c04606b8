"""Uncertainty of a mean over test cases: intervals, paired comparison, correction for many comparisons.

Cases of a user are not independent, so users are resampled, not cases (cluster bootstrap): a resample draws as many
users as there are, with replacement, and its statistic is the mean over all cases of the users drawn.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ecoc.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_USERS = 4096  # users of a block: its weights stay in the processor's cache
_CELLS = 1 << 20  # weights made at once: 8 MB, and three times as much while they are made
_ROUNDING = 1e-12  # of the mean absolute value: a sum nearer to zero than this is zero


@dataclass(frozen=True)
class Paired:
    """Run a minus run b over the same cases, per metric. [metrics] each."""

    difference: Floats
    low: Floats
    high: Floats
    p: Floats


def bootstrap(values: Floats, users: Ints, *, resamples: int = 1000, seed: int = 0, level: float = 0.95) -> Floats:
    """Percentile interval of the mean of each metric; all metrics share the resamples.

    [metrics, cases], [cases] -> [metrics, 2].
    """
    _check(values, users)
    return _interval(_resample(lambda cases: values[:, cases], users, resamples, seed).means, level)


def paired(a: Floats, b: Floats, users: Ints, *, resamples: int = 5000, seed: int = 0, level: float = 0.95) -> Paired:
    """Difference of two runs over the same cases, its percentile interval and two-sided p-value, per metric.

    [metrics, cases] twice, [cases] -> [metrics] each. Rows may also be the metrics of several pairs of runs, stacked:
    they share the resamples, at little more cost. No p is below 2 / (resamples + 1); times the number of comparisons
    that has to stay small, or `holm` can find nothing.
    """
    if a.shape != b.shape:
        raise InputError(f"the runs hold {a.shape} and {b.shape} values; evaluate both on the same test cases")
    _check(a, users)
    resampled = _resample(lambda cases: a[:, cases] - b[:, cases], users, resamples, seed)
    low, high = _interval(resampled.means, level).T
    return Paired(resampled.mean, low, high, _p_value(resampled))


def holm(p: Floats) -> Floats:
    """Holm's step-down p-values: below x they keep the chance of any false finding among all below x. [n] -> [n]."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


def sample_weights(users: int, resamples: int, rng: np.random.Generator) -> Iterator[tuple[slice, slice, Floats]]:
    """How often each resample drew each user, as blocks: which resamples, which users, counts [resamples, users].

    Draws are first shared among blocks of users (multinomial), then uniform within: the same distribution as drawing
    among all users, without a scattered walk through memory.
    """
    starts = np.arange(0, users, _USERS)
    sizes = np.diff(starts, append=users)
    shares = rng.multinomial(users, sizes / users, resamples)  # [resamples, blocks]
    for share, start, size in zip(shares.T, starts.tolist(), sizes.tolist(), strict=True):
        step = _CELLS // size
        for first in range(0, resamples, step):
            drawn = share[first : first + step]
            cells = np.repeat(np.arange(len(drawn)) * size, drawn)
            cells += rng.integers(0, size, len(cells), np.uint16)
            weights = np.bincount(cells, minlength=len(drawn) * size).reshape(len(drawn), size)
            yield slice(first, first + len(drawn)), slice(start, start + size), weights.astype(np.float64)


@dataclass(frozen=True)
class _Resampled:
    means: Floats  # [resamples, metrics]
    mean: Floats  # [metrics] of the cases themselves
    size: Floats  # [metrics] mean absolute value: what rounding is measured by
    differing: Ints  # [metrics] users whose sum differs from zero by more than rounding


def _check(values: Floats, users: Ints) -> None:
    if not len(users):
        raise InputError("there are no test cases; the split is empty, or none of its items is in the training split")
    if values.shape[1] != len(users):
        raise InputError(
            f"there are {values.shape[1]} values per metric but {len(users)} cases; evaluate the run again"
        )


def _resample(take: Callable[[Ints], Floats], users: Ints, resamples: int, seed: int) -> _Resampled:
    """Means of `take(cases)` [metrics, cases] in each resample; only a block of users is in memory at a time."""
    order = np.argsort(users, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(users[order])) + 1, len(users))  # [users] past the last case of each
    starts = np.append(0, ends[:-1])
    metrics = len(take(order[:1]))
    totals, counts = np.zeros((resamples, metrics)), np.zeros((resamples, 1))
    total, size, differing = np.zeros(metrics), np.zeros(metrics), np.zeros(metrics, np.int64)
    for picked, block, weights in sample_weights(len(ends), resamples, np.random.default_rng(seed)):
        if picked.start == 0:  # the first resamples of a new block
            first = starts[block.start]
            values = take(order[first : ends[block][-1]])
            sums = np.add.reduceat(values, starts[block] - first, axis=1)  # [metrics, users of the block]
            sizes = np.add.reduceat(np.abs(values), starts[block] - first, axis=1)
            cases = (ends[block] - starts[block]).astype(np.float64)
            total += sums.sum(1)
            size += sizes.sum(1)
            differing += np.count_nonzero(np.abs(sums) > _ROUNDING * sizes, axis=1)
        # Not `@`: BLAS would share products this thin among threads, three times slower on a busy machine.
        totals[picked] += np.vecdot(weights[:, None], sums)
        counts[picked, 0] += np.vecdot(weights, cases)
    return _Resampled(totals / counts, total / len(users), size / len(users), differing)


def _interval(means: Floats, level: float) -> Floats:
    bounds: Floats = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)  # [2, metrics]
    return bounds.T


def _p_value(resampled: _Resampled) -> Floats:
    """Twice the smaller tail beyond zero: about as calibrated as the shift method, and it agrees with the interval.

    Measured under a true null with 50 and 200 users, where the level was .05: the two are within .008 of each other for
    rank metrics, at .041 to .069; skewed differences are rejected at .076 and .059, by the shift method at .085 and
    .062. With 30 users and fewer both reject too often. It is never below 2^(1 - m), the least a sign test of the m
    users that differ can reach: with a few users that all agree, no resample contains a disagreement.
    """
    rounding = _ROUNDING * resampled.size
    below = np.count_nonzero(resampled.means <= rounding, axis=0)
    above = np.count_nonzero(resampled.means >= -rounding, axis=0)
    p: Floats = 2 * (1 + np.minimum(below, above)) / (1 + len(resampled.means))
    return np.clip(p, np.minimum(2.0 ** (1 - resampled.differing), 1), 1)
