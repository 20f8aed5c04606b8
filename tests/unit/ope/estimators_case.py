"""Few decisions and few sessions, and how to look at what estimators make of them."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecoc.ope.estimators import Decisions, Estimate, SessionLog

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ONE_STEP = ("ips", "snips", "dm", "dr", "switch")
SESSIONS = ("snips", "dr", "switch")


def named(found: list[Estimate]) -> dict[str, Estimate]:
    return {one.estimator: one for one in found}


def rows_of(value: Any, rows: Ints) -> Any:
    """The same kind of log with chosen rows."""
    return replace(
        value, **{f.name: getattr(value, f.name)[rows] for f in fields(value) if getattr(value, f.name) is not None}
    )


def few_decisions() -> Decisions:
    return Decisions(
        reward=np.array([1.0, 0.0, 3.0, 2.0, 5.0]),
        weight=np.array([0.5, 2.0, 0.0, 25.0, 4.0]),
        model=np.array([0.8, 0.4, 2.0, 2.5, 3.0]),
        policy_model=np.array([1.2, 0.6, 1.9, 2.2, 3.3]),
        user=np.array([7, 3, 7, 5, 3]),
    )


def few_sessions() -> SessionLog:
    """Four sessions of 3, 1, 2 and 3 decisions; what stands after their end must not matter."""
    counted = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]], bool)
    rng = np.random.default_rng(4)
    reward, model, policy_model = (np.where(counted, rng.uniform(0, 4, (4, 3)), 99.0) for _ in range(3))
    weight = np.where(counted, rng.uniform(0.2, 3.0, (4, 3)), 99.0)
    return SessionLog(reward, weight, model, policy_model, counted)
