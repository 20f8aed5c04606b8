"""The processor time that a training may take: a plan of steps and validations for it, and a stop when it is spent."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ecoc.data.loader import open_cases
from ecoc.data.sequences import Dataset
from ecoc.durations import readable
from ecoc.errors import InputError
from ecoc.evaluation.ranks import rank_cases
from ecoc.methods import METHODS
from ecoc.progress import Callback, StepResult
from ecoc.runs.config import RunConfig, TrainConfig
from ecoc.runs.derived import Choice, as_settings
from ecoc.runs.folder import Run
from ecoc.training.cost import Steps, open_steps, timed
from ecoc.training.loop import CALIBRATION_WINDOWS

_PLANNED = 0.9  # share of the budget that is planned; the rest is a reserve for a busy machine
_VALIDATING = 0.15  # largest share of the plan for validations
_VALIDATIONS, _LEAST_VALIDATIONS = 20, 4
_CASES, _LEAST_CASES = 512, 500  # ranked to measure the time per case; fewest in a validation
_MOST_PASSES = 100  # over the training events, however long the budget is


class Budget(Callback):
    """`seconds` of processor time per thread, counted from now on."""

    def __init__(self, seconds: float, config: TrainConfig) -> None:
        if config.max_steps is not None:
            raise InputError("budget: it plans the number of steps, so train.max_steps cannot be given too")
        self.seconds, self._threads = seconds, config.threads
        self._began, self._validation = time.process_time(), 0.0

    def on_step(self, run: Run, result: StepResult) -> bool:
        """Ask for the end of training when only the last validation still fits."""
        return self._spent() + self._validation > self.seconds

    def plan(
        self, data: Dataset, choices: Sequence[Choice], composed: Callable[[Mapping[str, Any]], RunConfig]
    ) -> list[Choice]:
        """The choices with a number of steps and of validations that fit; `composed` makes the settings of choices."""
        config = composed(as_settings(choices))
        if not METHODS[config.method_name].is_trained:
            return list(choices)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.train.seed)
            steps, windows = open_steps(data, config)
            step = timed(steps).cpu / self._threads
            fixed, case = self._validation_cost(steps, data, config, windows.sample(CALIBRATION_WINDOWS))
        left = _PLANNED * self.seconds - self._spent()
        cases = len(_validation_cases(data, config, config.train.validation_cases))
        fewer = (_VALIDATING * left / _LEAST_VALIDATIONS - fixed) / case if case else cases
        ranked = int(np.clip(fewer, min(cases, _LEAST_CASES), cases))
        self._validation = fixed + ranked * case
        validations = int(np.clip(_VALIDATING * left / max(self._validation, 1e-9), 1, _VALIDATIONS))
        count = min(int((left - validations * self._validation) / step), _MOST_PASSES * windows.steps)
        if count < 1:
            raise InputError(
                f"budget: {readable(self.seconds)} is too short: {readable(self._spent())} passed until the first step,"
                f" a step takes {step:.2g} s and a validation {self._validation:.2g} s"
            )
        planned = [
            Choice("train", "max_steps", count, self._reason(count, step, windows.steps)),
            Choice("train", "validate_every", -(-count // validations), f"a validation takes {self._validation:.2g} s"),
        ]
        if ranked < cases:
            planned.append(Choice("train", "validation_cases", ranked, f"ranking takes {1000 * case:.2g} ms per case"))
        return [*(choice for choice in choices if choice.key != "max_epochs"), *planned]

    def _reason(self, count: int, step: float, epoch: int) -> str:
        return (
            f"{count / epoch:.1f} passes over the training events, at {1000 * step:.3g} ms per step, fit a budget of"
            f" {readable(self.seconds)}"
        )

    def _validation_cost(self, steps: Steps, data: Dataset, config: RunConfig, windows: Any) -> tuple[float, float]:
        """Processor seconds per thread of a validation: a fixed part, and a part per case."""
        cases = _validation_cases(data, config, _CASES)
        if not len(cases):
            return 0.0, 0.0
        policies = 1 if steps.train_step.averaged is None else 2  # both are ranked
        policy = steps.method.policy
        clocks = [time.process_time()]
        with torch.no_grad():
            steps.method.calibrate(policy.train(False), windows)
        clocks.append(time.process_time())
        rank_cases(policy.ranked_by("policy"), data, cases, exclude_seen=config.train.exclude_seen)
        clocks.append(time.process_time())
        fixed, ranking = np.diff(clocks) * policies / self._threads
        return float(fixed), float(ranking) / len(cases)

    def _spent(self) -> float:
        return (time.process_time() - self._began) / self._threads


def _validation_cases(data: Dataset, config: RunConfig, most: int) -> Any:
    return open_cases(data, "validation", min_history=config.train.min_history, most=most, seed=config.train.seed)
