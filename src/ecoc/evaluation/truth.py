"""Learned policies in a built-in world, where what they earn is known exactly."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ecoc.batch import History
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.model import Model
from ecoc.policy import Policy
from ecoc.schema import PAD
from ecoc.world import Evaluation, Market, MarketConfig, Observation, evaluate
from ecoc.world.log import item_ids
from ecoc.world.market import FEEDBACK, Ints


def open_market(data: Dataset) -> Market:
    """The world a dataset was generated from."""
    settings = data.manifest.settings.get("world")
    if not isinstance(settings, dict):
        raise InputError(f"{data.path}: no log of a built-in world, so its truth is not known")
    return Market(MarketConfig.build(settings))


@dataclass(frozen=True)
class Acting:
    """A learned policy as one of the world: the best item that the session has not shown yet."""

    policy: Policy
    index: Ints  # [items] the policy's index of each of the world's items, PAD if it never saw it
    place: Ints  # [items + 1] the other way round
    feedback: Ints  # [feedback] the policy's code of each of the world's answers

    def __call__(self, seen: Observation, rng: np.random.Generator, /) -> Ints:
        items = torch.from_numpy(self.index[seen.items].astype(np.int64))
        history = _recent(items, torch.from_numpy(self.feedback[seen.feedback].astype(np.int64)), self.policy.length)
        with torch.inference_mode():
            chosen, _ = self.policy.topk(self.policy.query(history), 1, exclude=items)
        shown: Ints = self.place[chosen.squeeze(1).numpy()]
        return shown


def true_reward(model: Model, market: Market, users: int, *, seed: int = 0) -> Evaluation:
    """What a model's policy earns in its world, as it acts."""
    return evaluate(market, acting(model, market), users, seed=seed)


def acting(model: Model, market: Market) -> Acting:
    """A model in its world."""
    known = item_ids(market)
    index = model.vocab.indices(known).astype(np.int32)
    place = np.zeros(len(model.vocab) + 1, np.int32)
    place[index] = np.arange(len(known), dtype=np.int32)
    codes = np.array([model.feedback_code(name) for name in FEEDBACK], np.int32)
    return Acting(model.policy, index, place, codes)


def _recent(items: Tensor, feedback: Tensor, length: int) -> History:
    """The last `length` events whose items the policy knows, oldest first; one who knows none has seen item 1."""
    known = items != PAD
    order = (~known).sort(dim=1, stable=True).indices  # known ones to the front
    count = known.sum(1, keepdim=True)
    place = (count - length).clamp(min=0) + torch.arange(min(length, items.shape[1]))
    order = order.gather(1, place.clamp(max=items.shape[1] - 1))
    inside = place < count
    kept = (items.gather(1, order) * inside).index_put_(((count == 0).squeeze(1), torch.tensor(0)), torch.tensor(1))
    return History(kept, feedback.gather(1, order) * inside)
