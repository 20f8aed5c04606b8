"""Policies to evaluate off policy: runs, and the controls that any run is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ecoc.data.loader import open_train_sequences
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.model import Model
from ecoc.ope.results import LOGGED
from ecoc.ope.rollout import Actor, fixed_actor, logging_actor, policy_actor, random_actor
from ecoc.ope.simulator import PRIOR_EVENTS
from ecoc.policies.base import Policy


@dataclass(frozen=True)
class Candidate:
    """A policy to evaluate."""

    name: str
    actor: Actor
    policy: Policy | None = None  # of a run
    score: torch.Tensor | None = None  # [V] of a control that orders items alike for everyone
    is_control: bool = False
    may_repeat: bool = False

    @property
    def is_logging_policy(self) -> bool:
        """Whether this is the reference, the policy that wrote the log."""
        return self.name == LOGGED


def controls(data: Dataset) -> list[Candidate]:
    """The logging policy, random items, the most popular items, the items with the highest mean reward."""
    sessions = open_train_sequences(data)
    count = np.bincount(sessions.items, minlength=data.counts.items + 1).astype(np.float64)
    rewards = np.zeros(0) if sessions.rewards is None else sessions.rewards.astype(np.float64)
    total = np.bincount(sessions.items, rewards, minlength=data.counts.items + 1)
    best = (total + PRIOR_EVENTS * rewards.mean()) / (count + PRIOR_EVENTS)
    return [
        Candidate(LOGGED, logging_actor(), is_control=True, may_repeat=True),
        Candidate("random", random_actor(data.counts.items), is_control=True),
        _fixed("popular", torch.from_numpy(count).float()),
        _fixed("best item", torch.from_numpy(best).float()),
    ]


def _fixed(name: str, score: torch.Tensor) -> Candidate:
    return Candidate(name, fixed_actor(score), score=score, is_control=True)


def views(models: Sequence[Model], *, cloned: bool) -> list[Candidate]:
    """Each run in its ranking mode; with `cloned`, one that ranks by a value also as its cloned policy."""
    candidates: list[Candidate] = []
    for model in models:
        candidates.append(Candidate(model.name, policy_actor(model.policy), model.policy))
        if cloned and model.policy.ranking_mode != "policy":
            policy = model.ranked_by("policy").policy
            name = f"{model.name}, cloned policy"
            candidates.append(Candidate(name, policy_actor(policy), policy, is_control=True))
    return candidates


def check_names(candidates: Sequence[Candidate]) -> None:
    """Refuse candidates that results could not tell apart."""
    names = [candidate.name for candidate in candidates]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two runs are called '{name}'; rename a folder so that they can be told apart")
