"""Simulations of several seeds as one estimate per policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ecoc.ope.results import LOGGED, PolicyValue, SimulationResult


@dataclass(frozen=True)
class PolicyEstimate:
    """Reward of a policy over seeds, relative to that of the logging policy unless a field says otherwise."""

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
    simulations: Sequence[SimulationResult], truth: Mapping[str, Sequence[float]] | None = None
) -> list[PolicyEstimate]:
    """Means over seeds; an interval joins those of the seeds with the variation between seeds."""
    values: dict[str, list[tuple[PolicyValue, float]]] = {}
    for simulation in simulations:
        for policy in simulation.policies:
            values.setdefault(policy.name, []).append((policy, simulation.logged.reward))
    return [_estimate(name, rows, (truth or {}).get(name, ())) for name, rows in values.items()]


def _estimate(name: str, rows: Sequence[tuple[PolicyValue, float]], truth: Sequence[float]) -> PolicyEstimate:
    ratios = np.array([policy.ratio for policy, _ in rows])
    half = np.mean([(policy.high - policy.low) / 2 for policy, _ in rows]) / len(rows) ** 0.5
    between = 1.96 * ratios.std(ddof=1) / len(rows) ** 0.5 if len(rows) > 1 else 0.0
    mean, reach = float(ratios.mean()), float(np.hypot(half, between))
    return PolicyEstimate(
        name,
        rows[0][0].kind == "run",
        mean,
        mean - reach,
        mean + reach,
        float(np.mean([policy.unpenalised / unit if unit else 0.0 for policy, unit in rows])),
        float(np.mean([policy.one_step["conditional"].ratio for policy, _ in rows])),
        float(np.mean([policy.items_shown for policy, _ in rows])),
        list(dict.fromkeys(reason for policy, _ in rows for reason in policy.reasons)),
        float(np.mean(truth)) if len(truth) else None,
        float(np.std(truth, ddof=1)) if len(truth) > 1 else None,
    )
