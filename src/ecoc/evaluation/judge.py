"""Judge a policy on logged cases: the rank of what really came next, among all items."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from ecoc.data.loader import Cases, histories
from ecoc.data.sequences import Dataset
from ecoc.policy import Policy
from ecoc.schema import PAD

_CASES = 1024  # encoded at a time


def rank_cases(
    policy: Policy,
    data: Dataset,
    cases: Cases,
    *,
    exclude_seen: bool = False,
    k: int = 0,
    watch: Callable[[int], None] = lambda done: None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rank of each case's item, and the policy's k best items for each, [cases] and [cases, k].

    Cases of like history length go together, so little is padded; memory does not grow with cases or items. `stop` is
    asked now and then whether to give up; what is returned then means nothing.
    """
    past = cases.event - np.asarray(data.offsets)[cases.sequence]
    order = np.argsort(np.minimum(past, policy.length), kind="stable")
    ranks = np.ones(len(cases))
    lists = np.zeros((len(cases), min(k, policy.items)), np.int64)
    was_training = policy.training
    policy.train(False)
    with torch.inference_mode(), _restored(policy, was_training):
        for first in range(0, len(order), _CASES):
            rows = order[first : first + _CASES]
            part = cases.part(rows)
            query = policy.query(histories(data, part, policy.length))
            target = torch.from_numpy(data.items[part.event].astype(np.int64))
            exclude = torch.from_numpy(everything_before(data, part)) if exclude_seen else None
            ranks[rows] = policy.ranks(query, target, exclude).numpy()
            if k:
                lists[rows] = policy.topk(query, k, exclude=exclude)[0].numpy()
            watch(first + len(rows))
            if stop():
                break
    return ranks, lists


@contextmanager
def _restored(policy: Policy, was_training: bool) -> Iterator[None]:
    try:
        yield
    finally:
        policy.train(was_training)


def everything_before(data: Dataset, cases: Cases) -> NDArray[np.int64]:
    """All items of each case's past, PAD where short, [cases, longest]."""
    first = np.asarray(data.offsets)[cases.sequence]
    past = cases.event - first
    steps = np.arange(past.max() if len(past) else 0)
    inside = steps < past[:, None]
    return np.where(inside, data.items[np.where(inside, first[:, None] + steps, 0)], PAD).astype(np.int64)


def is_seen(data: Dataset, cases: Cases) -> NDArray[np.bool_]:
    """Whether each case's item occurred before in its sequence."""
    result = np.zeros(len(cases), bool)
    for first in range(0, len(cases), _CASES):
        part = cases.part(slice(first, first + _CASES))
        result[first : first + _CASES] = (everything_before(data, part) == data.items[part.event][:, None]).any(1)
    return result
