"""Whether a figure can be trusted: skill of the simulators, support in the log, their disagreement, imitation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ecoc.data.loader import histories, open_cases
from ecoc.data.sequences import Dataset
from ecoc.ope.results import SimulatorQuality
from ecoc.ope.rollout import Rollouts
from ecoc.policies.base import Policy

IMITATION = 0.03
"""Largest excess of a run's imitation loss over the best run's, as a share."""

REFUSED = 0.05
"""Share of events without reward from which a log shows what users refuse; a few purchases are free in any shop."""

_RARE = 0.01  # share of the log's own decisions that count as rare
_MOST_RARE = 0.2  # largest share of a policy's decisions that may be rare
_MOST_DISAGREEMENT = 0.2  # of the reward
_LEAST_SKILL = 0.06  # smallest reduction of the log-loss below that of the feedback's shares, as a share of it
_LEAST_EVENTS = 50  # per item; with 30 of them roll-outs ranked policies at a correlation of .4, with 100 above .93
_CASES = 2000
_ROWS, _CELLS = 256, 1 << 26  # cases at a time, and most scores kept: 256 MB


@dataclass(frozen=True)
class UsualBehaviour:
    """Log-likelihoods below which the log has one per cent of its own actions and sessions."""

    action: float
    session: float


def usual_behaviour(reference: Rollouts) -> UsualBehaviour:
    """The rarest per cent of the logging policy's own decisions and sessions."""
    steps = reference.log_behaviour[:, reference.counted]
    whole = _session_means(reference)
    return UsualBehaviour(float(np.quantile(steps, _RARE)), float(np.quantile(whole, _RARE)))


def _session_means(rollouts: Rollouts) -> np.ndarray[Any, np.dtype[np.float64]]:
    counts = np.maximum(rollouts.counted.sum(1), 1)
    means: np.ndarray[Any, np.dtype[np.float64]] = (rollouts.log_behaviour * rollouts.counted).sum(2) / counts
    return means


def simulator_warnings(quality: SimulatorQuality) -> list[str]:
    """Why no figure of these simulators can be trusted; simulators that learned little also agree with each other.

    Random items that stand for refusals do not replace them: in a built-in world whose log had lost its refusals,
    roll-outs ranked learned policies in nearly the reverse of the true order.
    """
    skill = 1 - quality.log_loss / quality.log_loss_of_shares if quality.log_loss_of_shares else 1.0
    warnings = ["the simulators predict feedback hardly better than its overall shares do"] * (skill < _LEAST_SKILL)
    if quality.events_per_item < _LEAST_EVENTS:
        warnings.append(f"the log has {quality.events_per_item:.1f} events per item; simulators need {_LEAST_EVENTS}")
    if quality.refused < REFUSED:
        warnings.append(f"only {quality.refused:.1%} of logged events are refusals; simulators need {REFUSED:.0%}")
    return warnings


def support_warnings(rollouts: Rollouts, usual: UsualBehaviour) -> list[str]:
    """Why the figure of one policy cannot be trusted."""
    rare = float((rollouts.log_behaviour[:, rollouts.counted] < usual.action).mean())
    odd = float((_session_means(rollouts) < usual.session).mean())
    disagreement, reward = rollouts.mean_ensemble_std, abs(rollouts.value())
    share = disagreement / reward if reward else float(disagreement > 0)
    warnings = []
    if rare > _MOST_RARE:
        warnings.append(f"{rare:.0%} of its actions are rare in the log at such states")
    if odd > _MOST_RARE:
        warnings.append(f"{odd:.0%} of its sessions are unlike any logged session")
    if share > _MOST_DISAGREEMENT:
        warnings.append(f"the simulators disagree about {share:.0%} of its reward")
    return warnings


@dataclass(frozen=True)
class ImitationLoss:
    """Cross-entropy of held-out events, and its excess over the best run's as a share."""

    loss: float
    excess: float


@torch.inference_mode()
def imitation_losses(data: Dataset, policies: Mapping[str, Policy]) -> dict[str, ImitationLoss]:
    """Cross-entropy of each run's cloned policy on held-out events, at its best temperature.

    It is high for a run whose encoder was damaged by its other losses.
    """
    most = min(_CASES, max(_ROWS, _CELLS // data.counts.items))
    cases = open_cases(data, "validation", min_history=1, most=most, seed=0)
    if not len(cases):
        return {}
    target = torch.from_numpy(np.asarray(data.items[cases.event], np.int64))
    losses = {}
    for name, policy in policies.items():
        cloned = policy.ranked_by("policy") if policy.has_critic else policy
        cloned.train(False)
        scores = []
        for first in range(0, len(cases), _ROWS):
            rows = slice(first, first + _ROWS)
            query = cloned.query(histories(data, cases.part(rows), cloned.length))
            scores.append(cloned.scores(query, 1, cloned.items + 1))
        losses[name] = _best_loss(torch.cat(scores), target - 1)
    best = min(losses.values(), default=0.0)
    return {name: ImitationLoss(loss, loss / best - 1 if best else 0.0) for name, loss in losses.items()}


def _best_loss(scores: torch.Tensor, target: torch.Tensor) -> float:
    size = float(scores.std()) or 1.0
    sharpness = torch.logspace(-3, 4, 29, base=2.0) / size
    return min(float(torch.nn.functional.cross_entropy(scores * float(scale), target)) for scale in sharpness)
