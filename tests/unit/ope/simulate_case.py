"""A world, runs on it and simulators of a few steps, for the tests of `ecoc simulate` and the choice of w."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.ope import fitting
from ecoc.ope.results import PolicyValue, RolloutConfig, SimulationResult
from ecoc.ope.rollout import Rollouts

SMALL = RolloutConfig(users=30, horizon=5, members=2, penalty=4.0)


@contextmanager
def hasty() -> Iterator[None]:
    """Simulators of a few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_EPOCHS", 2)
        patch.setattr(fitting, "_ROUNDS", 4)
        yield


def trained(data: Dataset, path: Path, method: str, **train: Any) -> Path:
    config = {
        "encoder": {"dim": 8, "length": 8},
        "train": {"max_steps": 6, "threads": 1, "validation_cases": 50, **train},
    }
    ecoc.train(data, path, method=method, config=config)
    return path


@cache
def simulated_runs(folder: Path) -> Path:
    """A world and runs on it, made once in a folder; tests copy what they change."""
    path = folder / "simulated"
    path.mkdir()
    data = ecoc.prepare("world:small", path / "data", threads=1, events=2000, validation=0.2)
    for name in ("supervised", "ecoc"):
        trained(data, path / name, name)
    trained(data, path / "retrained", "ecoc", seed=1)
    trained(ecoc.prepare("world:small", path / "other_data", threads=1, events=400, seed=3), path / "other", "markov")
    return path


def rows(facts: SimulationResult) -> dict[str, PolicyValue]:
    return {row.name: row for row in facts.policies}


def played(log_behaviour: list[list[float]], reward: float = 1.0, ensemble_std: float = 0.0) -> Rollouts:
    """One member, every step counted."""
    logs = np.array([log_behaviour])
    shape = logs.shape
    items = np.ones(shape, np.int64)
    return Rollouts(np.full(shape, reward), np.full(shape, ensemble_std), logs, items, np.ones(shape[1:], bool))
