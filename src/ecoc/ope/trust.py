"""How far a roll-out's figure can be trusted: what the log never shows, what members dispute, what a run unlearnt."""

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
"""Share by which a run's imitation loss may exceed the best run's."""

REFUSED = 0.05
"""Share of events of no worth from which a log says what users refuse; a shop gives a few things away."""

_RARE = 0.01  # share of the log's own decisions that are rarer than a usual one
_MOST_RARE = 0.2  # share of a policy's decisions that may be
_MOST_DOUBT = 0.2  # of the reward
_LEAST_SKILL = 0.06  # share of the log-loss of the feedback's shares that simulators have to take away
_LEAST_EVENTS = 50  # an item; with 30 of them roll-outs ranked policies at a correlation of .4, with 100 above .93
_CASES = 2000
_ROWS, _CELLS = 256, 1 << 26  # cases at a time, and most scores kept: 256 MB


@dataclass(frozen=True)
class UsualBehaviour:
    """Log-likelihoods below which the log has one per cent of its own actions and sessions."""

    action: float
    session: float


def usual_behaviour(reference: Rollouts) -> UsualBehaviour:
    """How likely the log's own decisions and sessions are, at their rarest per cent."""
    steps = reference.log_behaviour[:, reference.counted]
    whole = _session_means(reference)
    return UsualBehaviour(float(np.quantile(steps, _RARE)), float(np.quantile(whole, _RARE)))


def _session_means(played: Rollouts) -> np.ndarray[Any, np.dtype[np.float64]]:
    counts = np.maximum(played.counted.sum(1), 1)
    found: np.ndarray[Any, np.dtype[np.float64]] = (played.log_behaviour * played.counted).sum(2) / counts
    return found


def simulator_warnings(quality: SimulatorQuality) -> list[str]:
    """What speaks against every figure of simulators that learnt too little; these agree, too, and dispute nothing.

    Items at random that stand for refusals are no help: in a built-in world whose log had lost its refusals, roll-outs
    ranked learned policies in nearly the reverse of the true order.
    """
    skill = 1 - quality.log_loss / quality.log_loss_of_shares if quality.log_loss_of_shares else 1.0
    found = ["the simulators know little more than how often each feedback is given"] * (skill < _LEAST_SKILL)
    if quality.events_per_item < _LEAST_EVENTS:
        found.append(f"the simulators saw {quality.events_per_item:.1f} events an item, and need {_LEAST_EVENTS}")
    if quality.refused < REFUSED:
        found.append(f"only {quality.refused:.1%} of the log's events are refusals: it hardly says what users leave")
    return found


def support_warnings(played: Rollouts, usual: UsualBehaviour) -> list[str]:
    """What speaks against a figure."""
    rare = float((played.log_behaviour[:, played.counted] < usual.action).mean())
    odd = float((_session_means(played) < usual.session).mean())
    ensemble_std = played.mean_doubt
    share = ensemble_std / abs(played.value()) if played.value() else float(ensemble_std > 0)
    found = []
    if rare > _MOST_RARE:
        found.append(f"{rare:.0%} of what it shows the log hardly ever shows there")
    if odd > _MOST_RARE:
        found.append(f"{odd:.0%} of its sessions are unlike any logged one")
    if share > _MOST_DOUBT:
        found.append(f"the simulators dispute {share:.0%} of what it earns")
    return found


@dataclass(frozen=True)
class ImitationLoss:
    """Cross-entropy of held-out events, and its excess over the best run's as a share."""

    loss: float
    excess: float


@torch.inference_mode()
def imitation_losses(data: Dataset, policies: Mapping[str, Policy]) -> dict[str, ImitationLoss]:
    """How badly each run's cloned policy predicts held-out events: cross-entropy at the best temperature, and excess.

    A run whose encoder was broken by its other losses shows here first; the excess is over the best run's.
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
