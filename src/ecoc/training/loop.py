"""The training loop: steps, metrics, validation, checkpoints, early stop. A killed and resumed run ends as an unkilled.

Everything random in a step is drawn from a generator seeded by (seed, step). A checkpoint therefore holds weights,
moments and a few counters, and a step computes the same wherever the run was interrupted before it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor

from ecoc.batch import Batch
from ecoc.data.loader import Cases, Windows
from ecoc.data.sequences import Dataset
from ecoc.errors import ArtifactError, TrainingError
from ecoc.evaluation.metrics import NAMES, means
from ecoc.evaluation.ranks import rank_cases
from ecoc.methods import Method
from ecoc.policies.base import Policy, load_weights
from ecoc.progress import Callback, ProgressCallback, StepResult, ValidationResult
from ecoc.runs.config import TrainConfig
from ecoc.runs.folder import BEST, Run
from ecoc.storage.checkpoint import (
    Checkpoint,
    NotFiniteError,
    keep_last,
    latest_name,
    load_checkpoint,
    name_of,
    save_checkpoint,
)
from ecoc.training.metrics_log import MetricsLog
from ecoc.training.signals import Signals
from ecoc.training.step import DivergedError, TrainStep

_LOGGED_METRICS = ("hr@10", "ndcg@10", "ndcg@20")
CALIBRATION_WINDOWS = 20_000  # most training windows a policy is calibrated on before it is validated


@dataclass(frozen=True)
class Setup:
    """Settings of a training and everything it works with."""

    run: Run
    config: TrainConfig
    method: Method
    windows: Windows
    data: Dataset
    cases: Cases  # held-out events that a validation ranks
    metrics_log: MetricsLog
    progress: ProgressCallback
    callbacks: Sequence[Callback]
    sparse: bool  # whether only touched rows of item tables move


@dataclass
class State:
    """Where a run is, besides its tensors. The names are keys of a checkpoint's JSON."""

    step: int = 0  # steps taken
    validated: int = -1  # steps taken at the last validation
    best: dict[str, float] | None = None  # validation metrics of the best weights
    best_step: int = 0
    best_source: str = "online"
    stale: int = 0  # validations without improvement
    transitions: int = 0
    seconds: float = 0.0  # spent training, validations included
    is_over: bool = False
    sums: dict[str, float] = field(default_factory=dict)  # over the steps of the current line of metrics
    counts: dict[str, int] = field(default_factory=dict)  # steps that each sum covers
    journal: int = 0  # bytes of metrics.jsonl
    warned: list[str] = field(default_factory=list)  # names of the warnings given
    steps: int = 0  # planned
    data: str = ""  # path of the dataset


class Loop:
    """Trains a method into a run folder."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.run, self.config, self.method = setup, setup.run, setup.config, setup.method
        self.steps = self.config.max_steps or self.config.max_epochs * setup.windows.steps
        self.validate_every = self.config.validate_every or setup.windows.steps
        self.train_step = TrainStep(setup.method, self.config, steps=self.steps, sparse=setup.sparse)
        self.averaged = self.train_step.averaged
        self.state = State()
        if self.averaged is not None and self.config.act_with != "online":
            self.state.best_source = "ema"  # unless a validation prefers the online weights
        self.clock = setup.method.clock
        self._clock_at_last_line: dict[str, float] = {}
        self._is_stop_requested = False  # by a callback
        self._saved_at = self._counted_at = time.monotonic()

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint."""
        try:
            self.state = TypeAdapter(State).validate_python(checkpoint.state, extra="forbid")
            self.train_step.load(checkpoint.tensors, self.state.step)
        except (TypeError, KeyError, ValueError, RuntimeError) as error:
            text = " ".join(str(error).split())[:150]
            raise ArtifactError(f"{self.run.checkpoints}: the checkpoint does not fit this run ({text})") from None
        self.setup.metrics_log.rewind(self.state.journal)

    def fit(self) -> None:
        """Train to the end, or until a signal: then save, and raise what the signal would have raised."""
        self._saved_at = self._counted_at = time.monotonic()
        with Signals() as signals, torch.random.fork_rng(devices=[]):
            self.method.train()
            if self._is_validation_due():  # the run was interrupted between a step and its validation
                self._validate(signals)
            while not (self._is_finished() or signals.number):
                result = self._train()
                if self._is_log_due():
                    self._log(result)
                self._call_back_step(result)
                if self._is_validation_due() and not signals.number:
                    self._validate(signals)
                if self._is_checkpoint_due():
                    self.save()
            self.state.is_over = self._is_finished()
            self.save()
            signals.reraise()

    def _is_log_due(self) -> bool:
        return self.state.step % self.config.log_every == 0 or self.state.step == self.steps

    def _is_validation_due(self) -> bool:
        state = self.state
        at_interval = state.step % self.validate_every == 0 or self._is_last_step()
        return len(self.setup.cases) > 0 and state.step > 0 and at_interval and state.validated < state.step

    def _is_checkpoint_due(self) -> bool:
        is_late = time.monotonic() - self._saved_at > self.config.checkpoint_seconds
        return is_late or self.state.validated == self.state.step

    def _is_last_step(self) -> bool:
        return self.state.step >= self.steps or self._is_stop_requested

    def _is_finished(self) -> bool:
        is_patience_spent = bool(self.config.patience) and self.state.stale >= self.config.patience
        return is_patience_spent or (self._is_last_step() and not self._is_validation_due())

    def _train(self) -> StepResult:
        """Take one step and add it to the current line of metrics."""
        state = self.state
        with self.clock("batch"):
            batch = self.setup.windows[state.step]
        torch.manual_seed(step_seed(self.config.seed, state.step))
        ends_line = (state.step + 1) % self.config.log_every == 0 or state.step + 1 == self.steps
        try:
            result = self.train_step(batch, state.step, diagnostics=ends_line)
        except DivergedError as error:
            raise self._diverged(error.quantity, state.step + 1) from None
        state.step += 1
        state.transitions += result.transitions
        parts = {f"loss/{name}": value for name, value in result.parts.items()}
        for name, value in {"loss": result.loss, **parts, "norm": result.norm}.items():
            state.sums[name] = state.sums.get(name, 0.0) + value
            state.counts[name] = state.counts.get(name, 0) + 1
        return result

    def _log(self, result: StepResult) -> None:
        """Write a line of metrics: means over its steps, and the diagnostics of the last one."""
        state = self.state
        with self.clock("log"):
            seconds = self._count_seconds()
            self.setup.metrics_log.write(
                {
                    "step": state.step,
                    "epoch": self._epoch(),
                    "lr": result.lr,
                    **{name: total / state.counts[name] for name, total in state.sums.items()},
                    **result.diagnostics,
                    "transitions": state.transitions,
                    "seconds": seconds,
                    "time": self._time_shares(),
                }
            )
            state.sums.clear()
            state.counts.clear()
            for name, text in self.method.warnings(result.diagnostics).items():
                if name not in state.warned:  # each warning once per run
                    state.warned.append(name)
                    self.setup.metrics_log.warn(f"step {state.step}: {text}")
            self.setup.progress("train", state.step, self.steps, note=self._progress_note(seconds))

    def _time_shares(self) -> dict[str, float]:
        """Share of the time since the last line that each part of a step took."""
        spent = {part: total - self._clock_at_last_line.get(part, 0.0) for part, total in self.clock.seconds.items()}
        self._clock_at_last_line = dict(self.clock.seconds)
        whole = sum(spent.values())
        return {part: round(seconds / whole, 4) for part, seconds in spent.items()} if whole else {}

    def _progress_note(self, seconds: float) -> str:
        rate = f"{self.state.transitions / max(seconds, 1e-9):,.0f} targets/s"
        monitor, best = self.config.monitor, self.state.best
        return rate if best is None else f"{rate}, {monitor} {best[monitor]:.4f}"

    def _validate(self, signals: Signals) -> None:
        """Rank held-out events; save the weights if they are the best so far. A signal postpones it to the resume."""
        state, monitor = self.state, self.config.monitor
        with self.clock("validate"):
            metrics = {"online": self._measure(self.method.policy, signals)}
            if self.averaged is not None:
                self.averaged.sync_rows()
                metrics["ema"] = self._measure(self.averaged.copy, signals)
            if signals.number:
                return
            allowed = [name for name in metrics if self.config.act_with in ("best", name)] or list(metrics)
            source = max(allowed, key=lambda name: metrics[name][monitor])
            is_best = state.best is None or metrics[source][monitor] > state.best[monitor]
            state.validated = state.step
            state.stale = 0 if is_best else state.stale + 1
            if is_best:
                state.best, state.best_step, state.best_source = metrics[source], state.step, source
                self.save_best()
            result = ValidationResult(
                step=state.step,
                epoch=self._epoch(),
                metrics=metrics[source],
                source=source,
                monitor=monitor,
                is_best=is_best,
                without_improvement=state.stale,
            )
            self._log_validation(result, metrics)
        self._call_back(lambda callback: callback.on_validation(self.run, result))

    def _log_validation(self, result: ValidationResult, metrics: dict[str, dict[str, float]]) -> None:
        line = {"step": result.step, "epoch": result.epoch, "validation": metrics["online"]}
        line |= {"validation_ema": metrics["ema"]} if "ema" in metrics else {}
        self.setup.metrics_log.write({**line, "is_best": result.is_best, "seconds": self._count_seconds()})
        names = dict.fromkeys((*_LOGGED_METRICS, result.monitor))
        values = ", ".join(f"{name} {result.metrics[name]:.4f}" for name in names)
        best = ", best so far" if result.is_best else ""
        self.setup.metrics_log.detail(f"step {result.step}: validation {values} ({result.source}){best}")

    def _measure(self, policy: Policy, signals: Signals) -> dict[str, float]:
        self._adapt(policy, self.method.calibrate)
        ranked = policy.ranked_by("policy")
        ranks = rank_cases(
            ranked,
            self.setup.data,
            self.setup.cases,
            exclude_seen=self.config.exclude_seen,
            stop=lambda: bool(signals.number),
        )
        return means(ranks, tuple(dict.fromkeys((*NAMES, self.config.monitor))))

    def _adapt(self, policy: Policy, adapt: Callable[[Policy, Iterator[Batch]], None]) -> None:
        """Let the method calibrate or finalize a policy on training windows, without an effect on training."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            was_training = policy.training
            adapt(policy.train(False), self.setup.windows.sample(CALIBRATION_WINDOWS))
            policy.train(was_training)

    def _call_back_step(self, result: StepResult) -> None:
        self._call_back(lambda callback: callback.on_step(self.run, result))

    def _call_back(self, hook: Callable[[Callback], bool | None]) -> None:
        """Call each callback, apart from training's random generator; if one fails, save before the error goes on."""
        for callback in self.setup.callbacks:
            try:
                with torch.random.fork_rng(devices=[]):
                    self._is_stop_requested |= hook(callback) is True
            except BaseException:
                self.save()
                raise

    def _epoch(self) -> float:
        return self.state.step / self.setup.windows.steps

    def _count_seconds(self) -> float:
        now = time.monotonic()
        self.state.seconds += now - self._counted_at
        self._counted_at = now
        return self.state.seconds

    def save(self) -> None:
        """Write a checkpoint of the current step."""
        with self.clock("checkpoint"):
            self._count_seconds()
            self.state.journal = self.setup.metrics_log.size()
            self.state.steps, self.state.data = self.steps, str(self.setup.data.path.absolute())
            self._write(name_of(self.state.step), self.train_step.state(), asdict(self.state))
            keep_last(self.run.checkpoints, self.config.keep)
            self._saved_at = time.monotonic()

    def save_best(self) -> None:
        """Save the policy that acts as the run's model: the best by validation, or the last if there is none."""
        policy = self.method.policy
        if self.averaged is not None:
            self.averaged.sync_rows()
            policy = self.averaged.copy if self.state.best_source == "ema" else policy
        if self.state.best is None:
            self._adapt(policy, self.method.calibrate)
        self._write(BEST, policy.state_dict(), {"step": self.state.best_step})

    def finalize(self) -> None:
        """After the last step: let the method finish the model. Repeated after a kill, it computes the same."""
        best = load_checkpoint(self.run.checkpoints, BEST)
        load_weights(self.method.policy, best.tensors, where=str(self.run.checkpoints / BEST))
        self._adapt(self.method.policy, self.method.finalize)
        self._write(BEST, self.method.policy.state_dict(), best.state)

    def _write(self, name: str, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        try:
            save_checkpoint(self.run.checkpoints, name, tensors, state)
        except NotFiniteError as error:
            raise self._diverged(f"'{error.name}'", self.state.step) from None

    def _diverged(self, quantity: str, step: int) -> TrainingError:
        last = latest_name(self.run.checkpoints)
        where = f"the last finite checkpoint is {self.run.checkpoints / last}" if last else "no checkpoint was made yet"
        return TrainingError(
            f"{self.run.path}: step {step}: {quantity} is not finite; {where};"
            " lower train.lr or set a smaller train.clip"
        )


def step_seed(seed: int, step: int) -> int:
    """Seed of the generator of a step; -1 is the step in which weights are drawn."""
    return int.from_bytes(blake2b(f"{seed}/{step}".encode(), digest_size=8).digest(), "little") >> 1
