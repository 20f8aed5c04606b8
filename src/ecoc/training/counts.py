"""Adds the counts term to a trained policy, and chooses its weight on validation; docs/equations.md §3.7."""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecoc.data.loader import Cases, open_train_sequences
from ecoc.data.sequences import Dataset
from ecoc.evaluation.metrics import metrics
from ecoc.evaluation.ranks import queries
from ecoc.evaluation.statistics import paired
from ecoc.policies.base import Policy
from ecoc.policies.counts import PolicyWithCounts, Transitions
from ecoc.policies.ranking import Query
from ecoc.runs.folder import COUNTS, Run
from ecoc.runs.result import CountsChoice
from ecoc.storage.checkpoint import save_checkpoint

Block = tuple[NDArray[np.int64], Query, Tensor | None]

_COARSE = (1 / 64, 1 / 16, 1 / 4, 1.0, 4.0)  # then half and twice the best of them
_LEVEL = 0.05  # largest p at which an improvement counts
_CELLS, _FEWEST = 1 << 28, 1000  # most scores per weight, and the cases that are ranked even if they are more


def add_counts(
    run: Run,
    data: Dataset,
    policy: Policy,
    setting: float | Literal["auto"],
    cases: Cases,
    *,
    monitor: str,
    exclude_seen: bool,
) -> CountsChoice:
    """Count the training sequences, choose the weight (`auto`) or take it, and save the counts if it is above 0."""
    if setting == "auto" and not len(cases):
        return CountsChoice(weight=0)
    transitions = Transitions.count(open_train_sequences(data), policy.items)
    choice = CountsChoice(weight=0 if setting == "auto" else setting)
    if setting == "auto":
        counted = PolicyWithCounts(policy.ranked_by("policy").train(False), transitions, 0.0)
        choice = choose_counts_weight(counted, data, cases, monitor=monitor, exclude_seen=exclude_seen)
    if not choice.weight:
        return choice
    digest = save_checkpoint(run.checkpoints, COUNTS, transitions.state_dict(), {})
    return choice.model_copy(update={"sha256": digest})


def choose_counts_weight(
    policy: PolicyWithCounts, data: Dataset, cases: Cases, *, monitor: str, exclude_seen: bool
) -> CountsChoice:
    """The weight with the best mean of `monitor`; 0 unless it improves significantly over sequences, paired."""
    most = max(_FEWEST, _CELLS // policy.items)
    if len(cases) > most:
        cases = cases.part(np.sort(np.random.default_rng(0).permutation(len(cases))[:most]))
    blocks = list(queries(policy, data, cases, exclude_seen))
    values: dict[float, NDArray[np.float64]] = {}

    def rank(weights: tuple[float, ...]) -> float:
        for weight in weights:
            ranks = _ranks(policy.weighted(weight), data, cases, blocks)
            values[weight] = metrics(ranks, (monitor,))[monitor]
        return max(values, key=lambda weight: float(values[weight].mean()))

    coarse = rank((0.0, *_COARSE))
    best = rank((coarse / 2, coarse * 2)) if coarse else coarse
    gain = paired(values[best][None], values[0.0][None], cases.sequence)
    is_better = gain.difference[0] > 0 and gain.p[0] < _LEVEL
    return CountsChoice(
        weight=best if is_better else 0.0,
        monitor=monitor,
        without_counts=float(values[0.0].mean()),
        best_weight=best,
        with_best_weight=float(values[best].mean()),
        cases=len(cases),
    )


def _ranks(policy: Policy, data: Dataset, cases: Cases, blocks: list[Block]) -> NDArray[np.float64]:
    ranks = np.ones(len(cases))
    for rows, query, exclude in blocks:
        target = torch.from_numpy(data.items[cases.event[rows]].astype(np.int64))
        with torch.inference_mode():
            ranks[rows] = policy.ranks(query, target, exclude).numpy()
    return ranks
