"""Logs that need no folder and simulators that need no fitting, for the tests of off-policy evaluation."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from ecoc.data.sequences import Dataset
from ecoc.ope.fitting import Episodes
from ecoc.ope.response import ResponseConfig, ResponseModel
from ecoc.ope.simulator import Simulator

Ints = NDArray[np.int64]
TINY = ResponseConfig(dim=4, hidden=4, lasting=2, width=8, dropout=0.1)
NAMES = ("ignore", "click", "buy")


def log_of(
    sequences: Sequence[Sequence[int]],
    *,
    trained: Sequence[int] | None = None,
    validation: Sequence[bool] | None = None,
    names: Sequence[str] = NAMES,
) -> Dataset:
    """What is read of a dataset: event e got feedback e modulo the kinds and is worth e + 0.5."""
    lengths = np.array([len(one) for one in sequences])
    event = np.arange(lengths.sum())
    found = SimpleNamespace(
        path=Path("toy"),
        items=np.concatenate([np.array(one, np.int32) for one in sequences]),
        feedback=(event % len(names)).astype(np.uint8),
        rewards=(event + 0.5).astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        train_lengths=lengths if trained is None else np.array(trained),
        is_validation=np.zeros(len(lengths), bool) if validation is None else np.array(validation),
        counts=SimpleNamespace(items=max(max(one) for one in sequences)),
        manifest=SimpleNamespace(feedback=SimpleNamespace(names=tuple(names))),
    )
    return cast(Dataset, found)


def episodes_of(items: Ints, feedback: Ints, reward: NDArray[np.float32] | None = None) -> Episodes:
    """Whole sequences of one length, [N, T] each; without a reward, a feedback is worth its code."""
    worth = feedback.astype(np.float32) if reward is None else reward
    wanted = torch.ones(len(items), items.shape[1] - 1, dtype=torch.bool)
    return Episodes(
        torch.from_numpy(items),
        torch.from_numpy(feedback + 1),
        torch.from_numpy(worth),
        wanted,
        np.arange(len(items)),
    )


def tiny_simulator(
    items: int, *, members: int = 2, names: Sequence[str] = NAMES, lengths: Sequence[int] = (9,), seed: int = 0
) -> Simulator:
    """Users of random, strong opinions; item i that got feedback b is worth b + i / 100, `none` nothing."""
    models = []
    with torch.random.fork_rng(devices=[]):
        for number in range(members):
            torch.manual_seed(1000 * seed + number)
            model = ResponseModel(items, len(names), TINY)
            with torch.no_grad():
                for weight in model.parameters():
                    weight.add_(0.4 * torch.randn(weight.shape))
                model.table.weight[0] = 0
            models.append(model.eval())
    worth = torch.arange(len(names)) + torch.arange(items + 1)[:, None] / 100
    ignores = names[-1] == "none"
    if ignores:
        worth[:, -1] = 0
    return Simulator(models, worth.float(), list(names), np.sort(np.array(lengths)), has_negatives=ignores)
