"""Ranks logged cases by a policy: the rank of the true next item among all items."""

from collections.abc import Callable, Generator
from contextlib import closing

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecoc.batch import PAD
from ecoc.data.loader import Cases, histories
from ecoc.data.sequences import Dataset
from ecoc.policies.base import Policy
from ecoc.policies.ranking import Query

REPEATS = 0.2  # share of targets seen before, below which users seldom return to items
_CASES = 128  # encoded at a time; more do not fit the cache


def rank_cases(
    policy: Policy,
    data: Dataset,
    cases: Cases,
    *,
    exclude_seen: bool = False,
    watch: Callable[[int], None] = lambda done: None,
    stop: Callable[[], bool] = lambda: False,
) -> NDArray[np.float64]:
    """Rank of each case's item. Memory does not grow with cases or items.

    `stop` is called after each block of cases; if it is true, ranking ends and the result is not valid.
    """
    ranks, done = np.ones(len(cases)), 0
    with closing(queries(policy, data, cases, exclude_seen)) as blocks:
        for rows, query, exclude in blocks:
            target = torch.from_numpy(data.items[cases.event[rows]].astype(np.int64))
            with torch.inference_mode():
                ranks[rows] = policy.ranks(query, target, exclude).numpy()
            done += len(rows)
            watch(done)
            if stop():
                break
    return ranks


def list_cases(policy: Policy, data: Dataset, cases: Cases, k: int, *, exclude_seen: bool = False) -> NDArray[np.int64]:
    """The policy's k best items for each case, PAD where there are fewer, [cases, k]."""
    lists = np.zeros((len(cases), min(k, policy.items)), np.int64)
    for rows, query, exclude in queries(policy, data, cases, exclude_seen):
        with torch.inference_mode():
            lists[rows] = policy.topk(query, k, exclude=exclude)[0].numpy()
    return lists


def queries(
    policy: Policy, data: Dataset, cases: Cases, exclude_seen: bool
) -> Generator[tuple[NDArray[np.int64], Query, Tensor | None], None, None]:
    """Blocks of cases with similar history length: their rows, their queries, the items they may not list."""
    past = data.history_end(cases.event) - np.asarray(data.offsets)[cases.sequence]
    order = np.argsort(np.minimum(past, policy.length), kind="stable")
    was_training = policy.training
    policy.train(False)
    try:
        for first in range(0, len(order), _CASES):
            rows = order[first : first + _CASES]
            part = cases.part(rows)
            exclude = torch.from_numpy(everything_before(data, part)) if exclude_seen else None
            with torch.inference_mode():
                query = policy.query(histories(data, part, policy.length))
            yield rows, query, exclude
    finally:
        policy.train(was_training)


def everything_before(data: Dataset, cases: Cases) -> NDArray[np.int64]:
    """All items of each case's past, PAD where short, [cases, longest]."""
    first = np.asarray(data.offsets)[cases.sequence]
    past = data.history_end(cases.event) - first
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
