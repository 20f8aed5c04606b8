"""Simulations of several seeds as one estimate per policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ecoc.ope.results import LOGGED


@dataclass(frozen=True)
class PolicyEstimate:
    """What a policy would earn, relative to the log's policy where nothing else is said."""

    name: str
    is_learned: bool
    ratio: float
    low: float
    high: float
    unpenalised: float
    one_step: float  # the paper's ratio
    items_shown: float
    reasons: list[str]  # why it cannot be trusted, in any seed
    truth: float | None = None  # true reward per step
    truth_sd: float | None = None  # over seeds

    @property
    def is_reference(self) -> bool:
        """Whether this is the log's own policy, which is 1."""
        return self.name == LOGGED


def over_seeds(
    simulations: Sequence[Mapping[str, Any]], truth: Mapping[str, Sequence[float]] | None = None
) -> list[PolicyEstimate]:
    """Means over seeds; an interval joins those of the seeds with the variation between seeds."""
    rows: dict[str, list[tuple[Mapping[str, Any], float]]] = {}
    for simulation in simulations:
        for row in simulation["policies"]:
            rows.setdefault(row["name"], []).append((row, simulation["policies"][0]["reward"]))
    return [_estimate(name, of_name, (truth or {}).get(name, ())) for name, of_name in rows.items()]


def _estimate(name: str, rows: Sequence[tuple[Mapping[str, Any], float]], truth: Sequence[float]) -> PolicyEstimate:
    ratios = np.array([row["ratio"] for row, _ in rows])
    half = np.mean([(row["high"] - row["low"]) / 2 for row, _ in rows]) / len(rows) ** 0.5
    between = 1.96 * ratios.std(ddof=1) / len(rows) ** 0.5 if len(rows) > 1 else 0.0
    mean, reach = float(ratios.mean()), float(np.hypot(half, between))
    return PolicyEstimate(
        name,
        rows[0][0]["kind"] == "run",
        mean,
        mean - reach,
        mean + reach,
        float(np.mean([row["unpenalised"] / unit for row, unit in rows])),
        float(np.mean([row["one_step"]["conditional"]["ratio"] for row, _ in rows])),
        float(np.mean([row["items_shown"] for row, _ in rows])),
        list(dict.fromkeys(reason for row, _ in rows for reason in row["reasons"])),
        float(np.mean(truth)) if len(truth) else None,
        float(np.std(truth, ddof=1)) if len(truth) > 1 else None,
    )
