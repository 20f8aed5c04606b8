"""Learned policies in a built-in world, where their true reward is known."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ecoc.batch import PAD
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.model import Model
from ecoc.ope.rollout import recent
from ecoc.policies.base import Policy
from ecoc.world import Evaluation, Market, MarketConfig, Observation, evaluate
from ecoc.world.log import item_ids
from ecoc.world.market import FEEDBACK, Ints
from ecoc.world.policies import MarketPolicy


def open_market(data: Dataset) -> Market:
    """The world a dataset was generated from."""
    settings = data.manifest.settings.get("world")
    if not isinstance(settings, dict):
        raise InputError(f"{data.path}: no log of a built-in world, so its truth is not known")
    return Market(MarketConfig.build(settings))


@dataclass(frozen=True)
class ModelInWorld:
    """A learned policy that acts in its world: it shows the best item that the session has not shown yet.

    Events whose feedback never occurs in its log are left out of its histories.
    """

    policy: Policy
    index: Ints  # [items] the policy's index of each of the world's items, PAD if it never saw it
    place: Ints  # [items + 1] the other way round
    feedback: Ints  # [feedback] the policy's code of each of the world's answers

    def __call__(self, seen: Observation, rng: np.random.Generator, /) -> Ints:
        items = torch.from_numpy(self.index[seen.items].astype(np.int64))
        given = torch.from_numpy(self.feedback[seen.feedback].astype(np.int64))
        remembered = torch.where(given > 0, items, PAD) if self.feedback.any() else items
        history = recent(remembered, given, self.policy.length)
        with torch.inference_mode():
            chosen, _ = self.policy.topk(self.policy.query(history), 1, exclude=items)
        shown: Ints = self.place[chosen.squeeze(1).numpy()]
        return shown


def true_reward(model: Model, market: Market, users: int, *, seed: int = 0) -> Evaluation:
    """True reward of a model in its world."""
    return evaluate(market, in_world(model, market), users, seed=seed)


def in_world(model: Model, market: Market) -> ModelInWorld:
    """A model as a policy of its world."""
    known = item_ids(market)
    index = model.vocab.indices(known).astype(np.int32)
    place = np.zeros(len(model.vocab) + 1, np.int32)
    place[index] = np.arange(len(known), dtype=np.int32)
    codes = np.array([model.feedback_code(name) for name in FEEDBACK], np.int32)
    return ModelInWorld(model.policy, index, place, codes)


@dataclass(frozen=True)
class TrueLog:
    """Sessions of the logging policy and how likely it really was to show each item. [S, T] each."""

    items: Ints  # the world's numbers
    feedback: NDArray[np.int8]
    reward: NDArray[np.float32]
    chance: NDArray[np.float64]


def sample_log(market: Market, sessions: int, *, seed: int) -> TrueLog:
    """Another log of the same world, with other users and other random draws."""
    parts = []
    for index, first in enumerate(range(0, sessions, market.chunk)):
        random = np.random.default_rng([market.config.seed, 7, seed, index])
        state = market.start(min(market.chunk, sessions - first), random)
        steps = []
        for _ in range(market.config.steps):
            items = market.behave(state, random)
            chance = market.behaviour(state)[np.arange(len(items)), items]
            state, feedback, reward = market.step(state, items, random)
            steps.append((items, feedback, reward, chance))
        parts.append([np.stack(column, axis=1) for column in zip(*steps, strict=True)])
    return TrueLog(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def mixed(market: Market, policy: Callable[[Observation, np.random.Generator], Ints], share: float) -> MarketPolicy:
    """A policy in a share of the decisions, the logging policy in the others."""

    def choose(seen: Observation, rng: np.random.Generator, /) -> Ints:
        logged = market.behave(seen.truth, rng)
        return np.where(rng.random(len(logged)) < share, policy(seen, rng), logged).astype(np.int32)

    return choose
