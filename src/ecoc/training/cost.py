"""Cost of training steps of a method: processor time and parameters, without the training loop."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from pydantic import Field

from ecoc.batch import Batch, Dims, History, TrainSequences
from ecoc.data.loader import Windows, dims_of, open_cases, open_train_sequences
from ecoc.data.rewards import open_reward_scaler
from ecoc.data.sequences import Dataset
from ecoc.evaluation.ranks import rank_cases
from ecoc.methods import Method, Phase
from ecoc.methods.build import build_method
from ecoc.progress import ProgressCallback, no_progress
from ecoc.result import Result
from ecoc.runs.config import RunConfig
from ecoc.training.opening import is_sparse, open_windows
from ecoc.training.step import TrainStep

_CASES = 256  # ranked to measure the time per case
_REPEATS = 3
_PLANNED = 1_000_000  # steps, so that the steps timed in a phase do not reach the next one
_FEEDBACK, _LOGGED, _SESSION = 4, 200_000, 50  # of a generated log


class StepCost(Result):
    """Cost of training a method on a dataset with one thread. Times are in seconds."""

    cpu: float = Field(description="processor time per training step")
    wall: float = Field(description="time per training step by the clock, which depends on the load of the machine")
    targets: float = Field(description="transitions per step")
    epoch_steps: int
    epoch_targets: int
    parameters: int = Field(description="number of trained parameters")
    start: float = Field(description="time until the first step")
    case: float = Field(description="time to rank one case")

    @property
    def epoch_seconds(self) -> float:
        """Processor time of the training steps of an epoch."""
        return self.cpu * self.epoch_steps


class Steps:
    """Training steps on numbered batches, in any phase of the method."""

    def __init__(self, method: Method, config: RunConfig, batch: Callable[[int], Batch], *, sparse: bool) -> None:
        self.method, self.batch, self.number, self.step = method, batch, 0, 0
        self.train_step = TrainStep(method, config.train, steps=_PLANNED, sparse=sparse)

    def enter(self, phase: Phase) -> None:
        """Go on at the first step of a phase."""
        self.step = round(phase.start * _PLANNED)

    def __call__(self) -> int:
        """Take one step; returns the transitions learned from."""
        result = self.train_step(self.batch(self.number), self.step)
        self.number += 1
        self.step += 1
        return result.transitions


@dataclass(frozen=True)
class Timed:
    """Seconds and transitions per step."""

    cpu: float
    wall: float
    targets: float


def timed(steps: Steps, *, repeat_seconds: float = 0.2, progress: ProgressCallback = no_progress) -> Timed:
    """Median of a few repeats after a warm-up; the phases of a method are timed separately and weighted by share."""
    phases = steps.method.phases
    ends = [*(phase.start for phase in phases[1:]), 1.0]
    total = Timed(0.0, 0.0, 0.0)
    for phase, end in zip(phases, ends, strict=True):
        share = end - phase.start
        if share <= 0:
            continue
        steps.enter(phase)
        part = _repeats(steps, repeat_seconds, progress)
        total = Timed(
            total.cpu + share * part.cpu, total.wall + share * part.wall, total.targets + share * part.targets
        )
    return total


def _repeats(steps: Steps, seconds: float, progress: ProgressCallback) -> Timed:
    steps()  # the first step allocates memory
    progress("time steps", 0, _REPEATS)
    began = time.perf_counter()
    steps()
    count = max(1, min(200, round(seconds / max(time.perf_counter() - began, 1e-6))))
    rows = []
    for number in range(_REPEATS):
        clocks, transitions = (time.process_time(), time.perf_counter()), 0
        for _ in range(count):
            transitions += steps()
        rows.append((time.process_time() - clocks[0], time.perf_counter() - clocks[1], transitions))
        progress("time steps", number + 1, _REPEATS)
    cpu, wall, targets = (statistics.median(row[column] for row in rows) / count for column in range(3))
    return Timed(cpu, wall, targets)


def measure(
    data: Dataset, config: RunConfig, progress: ProgressCallback = no_progress, *, repeat_seconds: float = 0.2
) -> StepCost:
    """Measure the cost of a method on a dataset."""
    began = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        steps, windows = open_steps(data, config)
        start = time.perf_counter() - began
        steps_timed = timed(steps, repeat_seconds=repeat_seconds, progress=progress)
        return StepCost(
            **asdict(steps_timed),
            epoch_steps=windows.steps,
            epoch_targets=windows.targets,
            parameters=sum(p.numel() for p in steps.method.parameters() if p.requires_grad),
            start=start,
            case=_case_seconds(steps.method, data, config.train.min_history),
        )


def open_steps(data: Dataset, config: RunConfig) -> tuple[Steps, Windows]:
    """Training steps of a method on the windows of a dataset, and these windows."""
    train = config.train
    method = build_method(config, dims_of(data))
    reward_scaler = open_reward_scaler(data, train.reward_scale, shuffle=train.shuffle_rewards, seed=train.seed)
    method.fit_statistics(open_train_sequences(data, reward_scaler))
    windows = open_windows(data, config, method, reward_scaler)
    return Steps(method, config, windows.__getitem__, sparse=is_sparse(config, method, data)), windows


def _case_seconds(method: Method, data: Dataset, min_history: int) -> float:
    for split in ("validation", "test"):
        cases = open_cases(data, split, min_history=min_history, most=_CASES, seed=0)
        if len(cases):
            began = time.perf_counter()
            rank_cases(method.policy.ranked_by("policy"), data, cases)
            return (time.perf_counter() - began) / len(cases)
    return 0.0


def random_steps(config: RunConfig, items: int, windows: int, *, sparse: bool) -> Steps:
    """Training steps on random events, for a catalogue of any size: the cost does not depend on which items occur."""
    method = build_method(config, Dims(items, windows, _FEEDBACK))
    random, length = np.random.default_rng(0), config.encoder.length
    logged = random.integers(1, items + 1, _LOGGED)
    offsets = np.arange(0, len(logged) + 1, _SESSION)
    method.fit_statistics(TrainSequences(logged, offsets, np.ones(len(logged), np.float32)))

    def batch(number: int) -> Batch:
        events = torch.randint(1, items + 1, (windows, length + 1))
        feedback = torch.randint(1, _FEEDBACK + 1, (windows, length))
        history = History(events[:, :-1], feedback, torch.arange(windows) + 1)
        rewards = torch.rand(windows, length)
        places = torch.arange(1, length + 1).repeat(windows, 1)
        returns = rewards.flip(1).cumsum(1).flip(1) if method.needs_returns else None
        return Batch(history, events[:, 1:], rewards, torch.zeros(windows, length), places, returns)

    return Steps(method, config, batch, sparse=sparse and bool(method.sparse_parameters()))
