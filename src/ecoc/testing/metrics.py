"""The contract of a metric: one finite value per case, from the ranks of the true items alone."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ecoc.evaluation.metrics import Metric
from ecoc.testing.suite import require, run_checks, titled

_RANKS = np.array([1.0, 1.5, 2.0, 3.0, 5.5, 10.0, 11.0, 20.0, 1000.0, 1e6, np.inf])  # mid-ranks; infinity: not ranked


def check_metric(metric: Metric) -> None:
    """Check that a metric keeps the contract; AssertionError says which part of it is broken."""
    require(isinstance(getattr(metric, "name", None), str) and metric.name, f"{metric!r:.60}: has no `name`")
    run_checks(metric.name, METRIC_CHECKS, metric)


def gives_a_value_per_case(metric: Metric) -> None:
    """One finite number per case."""
    for ranks in (_RANKS, _RANKS[:1], _RANKS[:0]):
        values = np.asarray(metric(ranks.copy()))
        require(values.shape == ranks.shape, f"{len(ranks)} cases give values of shape {values.shape}")
        require(values.dtype.kind in "fiub", f"values are {values.dtype}, not numbers")
        wrong = ranks[~np.isfinite(values.astype(np.float64))]
        require(not len(wrong), f"the value of rank {wrong[:1]} is not finite")


def judges_each_case_alone(metric: Metric) -> None:
    """The value of a case does not depend on other cases."""
    together = _values(metric, _RANKS)
    order = np.random.default_rng(0).permutation(len(_RANKS))
    require(np.array_equal(_values(metric, _RANKS[order]), together[order]), "the order of cases changes their values")
    for place in range(len(_RANKS)):
        alone = _values(metric, _RANKS[place : place + 1])
        require(np.array_equal(alone, together[place : place + 1]), f"rank {_RANKS[place]} alone has another value")


def never_prefers_a_worse_rank(metric: Metric) -> None:
    """A better rank never has a smaller value."""
    values = _values(metric, _RANKS)
    require((np.diff(values) <= 0).all(), f"values rise with the rank: {values.tolist()}")
    require(values[0] > values[-1], "the first rank is worth no more than not being ranked at all")


def leaves_ranks_alone(metric: Metric) -> None:
    """Ranks are left as they were, and the same ranks have the same values again."""
    ranks = _RANKS.copy()
    first, second = (np.array(metric(ranks), dtype=np.float64) for _ in range(2))
    require(np.array_equal(ranks, _RANKS), "ranks were changed in place")
    require(np.array_equal(first, second), "the same ranks have other values the second time")


def _values(metric: Metric, ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array(metric(ranks.copy()), dtype=np.float64)


METRIC_CHECKS: dict[str, Callable[[Metric], None]] = titled(
    gives_a_value_per_case, leaves_ranks_alone, judges_each_case_alone, never_prefers_a_worse_rank
)
"""Every part of the contract, by what it states."""
