"""The only training loop: steps, validation, early stop, NaN guard, checkpoints. Killed and resumed = not killed.

Everything random in a step is drawn from a generator seeded by (seed, step), so a state is only weights, moments and a
few counters, and a step does the same wherever the run was interrupted before it.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any, NoReturn

import torch
from pydantic import TypeAdapter
from torch import Tensor

from ecoc.batch import Batch
from ecoc.data.loader import Cases, Windows
from ecoc.data.sequences import Dataset
from ecoc.errors import ArtifactError, InputError, TrainingError
from ecoc.evaluation.metrics import means
from ecoc.evaluation.ranks import rank_cases
from ecoc.methods import Loss, Method, Phase
from ecoc.methods.targets import Targets
from ecoc.policies.base import Policy, load_weights
from ecoc.profiling import Stopwatch
from ecoc.progress import ProgressCallback
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
from ecoc.training.optimiser import Optimiser
from ecoc.training.signals import Signals

CHOSEN_BY = "ndcg@20"
_SHOWN = ("hr@10", "ndcg@10", "ndcg@20")
_SETTLED = 20_000  # most windows a policy takes statistics of before it is judged


@dataclass
class State:
    """Where a run is, besides its tensors."""

    step: int = 0  # steps taken
    validated: int = -1  # steps taken at the last validation
    best: dict[str, float] | None = None  # validation metrics of the best weights
    best_step: int = 0
    best_source: str = "online"
    stale: int = 0  # validations since the best
    transitions: int = 0
    seconds: float = 0.0  # spent training, validations included
    is_over: bool = False
    sums: dict[str, float] = field(default_factory=dict)  # of the line of metrics being made
    counts: dict[str, int] = field(default_factory=dict)  # steps that each of them sums
    journal: int = 0  # bytes of metrics.jsonl
    warned: list[str] = field(default_factory=list)  # what was warned of


class Loop:
    """Trains a method on windows, into a run folder."""

    def __init__(  # noqa: PLR0913, PLR0917 - it ties everything together
        self,
        run: Run,
        config: TrainConfig,
        method: Method,
        windows: Windows,
        data: Dataset,
        cases: Cases,
        journal: MetricsLog,
        watch: ProgressCallback,
        say: Callable[[str], None],
        *,
        sparse: bool,
    ) -> None:
        self.run, self.config, self.method = run, config, method
        self.windows, self.data, self.cases = windows, data, cases
        self.journal, self.watch, self.say = journal, watch, say
        self.optimiser = Optimiser(
            method,
            betas=(config.beta1, config.beta2),
            decay=config.weight_decay,
            sparse=method.sparse_parameters() if sparse else set(),
            decays=method.decays,
            clip_group=method.clip_group,
            before=self._freshen,
        )
        self.lagged = dict(method.lagged)
        self.averaged = method.target_policy
        if self.averaged is not None and config.ema:
            raise InputError("train.ema: this method averages its weights itself, at method.tau; leave train.ema 0")
        if self.averaged is None and config.ema:
            self.averaged = self.lagged["ema"] = Targets(method.policy, config.ema)
        if sparse:
            tables = [table for name, table in method.named_parameters() if name in method.sparse_parameters()]
            for name, copy in self.lagged.items():
                if name == "ema" or method.syncs_rows:
                    copy.follow_rows(tables)
        self.state = State()
        if self.averaged is not None and config.act_with != "online":
            self.state.best_source = "ema"  # unless validation finds otherwise
        self.steps = config.max_steps or config.max_epochs * windows.steps
        self.every = config.validate_every or windows.steps
        self.clock: Stopwatch = method.clock
        self._timed: dict[str, float] = {}
        self._saved_at = self._started = time.monotonic()

    def resume(self, found: Checkpoint) -> None:
        """Go on from a checkpoint."""
        try:
            self._restore(found)
        except (TypeError, KeyError, ValueError, RuntimeError) as error:
            text = " ".join(str(error).split())[:150]
            raise ArtifactError(f"{self.run.checkpoints}: the checkpoint does not fit this run ({text})") from None
        self.journal.rewind(self.state.journal)

    def _restore(self, found: Checkpoint) -> None:
        self.state = TypeAdapter(State).validate_python(found.state, extra="forbid")
        parts: dict[str, dict[str, Tensor]] = {"method": {}, "optimiser": {}, "targets": {}}
        for name, tensor in found.tensors.items():
            kind, _, rest = name.partition("/")
            parts[kind][rest] = tensor
        self.method.load_state_dict(parts["method"])
        self.optimiser.load(parts["optimiser"])
        for name, copy in self.lagged.items():
            prefix = f"{name}/"
            mine = {key[len(prefix) :]: t for key, t in parts["targets"].items() if key.startswith(prefix)}
            copy.load(mine, self.state.step)

    def fit(self) -> None:
        """Train to the end, or until a signal: then save and leave as the signal would."""
        self._saved_at = self._started = time.monotonic()
        with Signals() as signals, torch.random.fork_rng(devices=[]):
            self.method.train()
            while not self._is_done(signals):
                with self.clock("batch"):
                    batch = self.windows[self.state.step]
                self._step(batch)
                if time.monotonic() - self._saved_at > self.config.checkpoint_seconds:
                    self.save()
            self.save()
            signals.reraise()

    def _is_done(self, signals: Signals) -> bool:
        """Whether to leave the loop; validates first if it is time to."""
        state = self.state
        if not signals.number and self._is_due():
            with self.clock("validate"):
                self._validate(signals)
            if state.validated == state.step:
                self.save()
        state.is_over = state.is_over or (state.step >= self.steps and not self._is_due())
        return state.is_over or bool(signals.number)

    def _is_due(self) -> bool:
        at_interval = self.state.step % self.every == 0 or self.state.step >= self.steps
        return len(self.cases) > 0 and self.state.step > 0 and at_interval and self.state.validated < self.state.step

    def _step(self, batch: Batch) -> None:
        state = self.state
        torch.manual_seed(step_seed(self.config.seed, state.step))
        phase = self._enter_phase()
        self.method.collect_diagnostics = self._ends_line(state.step + 1)
        loss = self.method.loss(batch)
        values = self._checked(loss)
        with self.clock("backward"):
            loss.total.backward()  # type: ignore[no-untyped-call]
        with self.clock("optimise"):
            rate = learning_rate(state.step, self.steps, self.config) * phase.lr
            norm = self.optimiser.step(rate, self.config.clip)
            if not math.isfinite(norm):
                self._diverged("the gradient")
            self.optimiser.zero()
            for copy in self.lagged.values():
                copy.update(state.step)
        with self.clock("log"):
            state.step += 1
            state.transitions += batch.transitions
            self._note({**values, "norm": norm}, rate, {name: float(value) for name, value in loss.diagnostics.items()})

    def _freshen(self, table: torch.nn.Parameter, rows: Tensor) -> None:
        """Rows of a table are about to move: what follows them lazily must have caught up with where they are."""
        for copy in self.lagged.values():
            copy.sync_rows(rows, table)

    def _enter_phase(self) -> Phase:
        """The phase of this step; its first step begins with fresh moments."""
        starts = [round(phase.start * self.steps) for phase in self.method.phases]
        number = max(index for index, start in enumerate(starts) if start <= self.state.step)
        if number and self.state.step == starts[number]:
            self.optimiser.reset()
        self.method.phase = number
        return self.method.phases[number]

    def _ends_line(self, step: int) -> bool:
        return step % self.config.log_every == 0 or step == self.steps

    def _checked(self, loss: Loss) -> dict[str, float]:
        """The loss and its parts as numbers; the first that is not finite ends the run, by its name."""
        values = {name: float(part.detach()) for name, part in loss.parts.items()}
        total = float(loss.total.detach())
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if bad or not math.isfinite(total):
            self._diverged(f"loss part '{bad[0]}'" if bad else "the loss")
        return {"loss": total, **{f"loss/{name}": value for name, value in values.items()}}

    def _diverged(self, what: str, step: int | None = None) -> NoReturn:
        last = latest_name(self.run.checkpoints)
        where = f"the last finite checkpoint is {self.run.checkpoints / last}" if last else "no checkpoint was made yet"
        step = self.state.step + 1 if step is None else step
        raise TrainingError(
            f"{self.run.path}: step {step}: {what} is not finite; {where}; lower train.lr or set a smaller train.clip"
        )

    def _note(self, values: dict[str, float], rate: float, diagnostics: dict[str, float]) -> None:
        """Add a step to the line being made; write it when it is full, with what is seen in its last step."""
        state, sums = self.state, self.state.sums
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value
            state.counts[name] = state.counts.get(name, 0) + 1
        if self._ends_line(state.step):
            line = {name: value / state.counts[name] for name, value in sums.items()}
            spent = self._seconds()
            self.journal.write(
                {
                    "step": state.step,
                    "epoch": state.step / self.windows.steps,
                    "lr": rate,
                    **line,
                    **diagnostics,
                    "transitions": state.transitions,
                    "seconds": spent,
                    "time": self._shares(),
                }
            )
            sums.clear()
            state.counts.clear()
            self._warn(diagnostics)
            self.watch("train", state.step, self.steps, note=self._progress(spent))

    def _shares(self) -> dict[str, float]:
        """Share of the time since the last line that each part took."""
        spent = {part: total - self._timed.get(part, 0.0) for part, total in self.clock.seconds.items()}
        self._timed = dict(self.clock.seconds)
        whole = sum(spent.values())
        return {part: round(seconds / whole, 4) for part, seconds in spent.items()} if whole else {}

    def _warn(self, diagnostics: dict[str, float]) -> None:
        """Say once what the diagnostics worry about."""
        for name, text in self.method.warnings(diagnostics).items():
            if name not in self.state.warned:
                self.state.warned.append(name)
                self.say(f"warning: step {self.state.step}: {text}")

    def _progress(self, spent: float) -> str:
        rate = f"{self.state.transitions / max(spent, 1e-9):,.0f} targets/s"
        return rate if self.state.best is None else f"{rate}, {CHOSEN_BY} {self.state.best[CHOSEN_BY]:.4f}"

    def _validate(self, signals: Signals) -> None:
        """Rank held-out events; keep the weights if none were better. A signal puts it off to the resumed run."""
        state = self.state
        results = {"online": self._measure(self.method.policy, signals)}
        if self.averaged is not None:
            self.averaged.sync_rows()
            results["ema"] = self._measure(self.averaged.copy, signals)
        if signals.number:
            return
        allowed = [name for name in results if self.config.act_with in ("best", name)] or list(results)
        source = max(allowed, key=lambda name: results[name][CHOSEN_BY])
        found = results[source]
        is_best = state.best is None or found[CHOSEN_BY] > state.best[CHOSEN_BY]
        state.validated = state.step
        state.stale = 0 if is_best else state.stale + 1
        if is_best:
            state.best, state.best_step, state.best_source = found, state.step, source
            self.save_best()
        state.is_over = bool(self.config.patience) and state.stale >= self.config.patience
        line = {"step": state.step, "epoch": state.step / self.windows.steps, "validation": results["online"]}
        line |= {"validation_ema": results["ema"]} if "ema" in results else {}
        self.journal.write({**line, "is_best": is_best, "seconds": self._seconds()})
        shown = ", ".join(f"{name} {found[name]:.4f}" for name in _SHOWN)
        self.journal.say(f"step {state.step}: validation {shown} ({source}){', best so far' if is_best else ''}")

    def _measure(self, policy: Policy, signals: Signals) -> dict[str, float]:
        self._let(self.method.calibrate, policy)
        return means(rank_cases(policy.ranked_by("policy"), self.data, self.cases, stop=lambda: bool(signals.number)))

    def _let(self, take: Callable[[Policy, Iterator[Batch]], None], policy: Policy) -> None:
        """Let the method take what it needs of training data into a policy, without a trace in training."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            was_training = policy.training
            take(policy.train(False), self.windows.sample(_SETTLED))
            policy.train(was_training)

    def _seconds(self) -> float:
        now = time.monotonic()
        self.state.seconds += now - self._started
        self._started = now
        return self.state.seconds

    def save(self) -> None:
        """A checkpoint of this moment."""
        with self.clock("checkpoint"):
            self._seconds()
            self.state.journal = self.journal.size()
            tensors = {f"method/{name}": tensor for name, tensor in self.method.state_dict().items()}
            tensors |= {f"optimiser/{name}": tensor for name, tensor in self.optimiser.state().items()}
            for key, copy in self.lagged.items():
                tensors |= {f"targets/{key}/{name}": tensor for name, tensor in copy.state().items()}
            self._write(name_of(self.state.step), tensors, asdict(self.state))
            keep_last(self.run.checkpoints, self.config.keep)
            self._saved_at = time.monotonic()

    def save_best(self) -> str:
        """The acting policy, chosen by validation (or the last one where there is none), as the run's model."""
        is_ema = self.averaged is not None and self.state.best_source == "ema"
        policy = self.averaged.copy if is_ema and self.averaged is not None else self.method.policy
        if self.averaged is not None:
            self.averaged.sync_rows()
        if self.state.best is None:
            self._let(self.method.calibrate, policy)
        return self._write(BEST, policy.state_dict(), {"step": self.state.best_step})

    def complete(self) -> None:
        """After the last step: let the method finish the model. Done again after a kill, it comes to the same."""
        best = load_checkpoint(self.run.checkpoints, BEST)
        load_weights(self.method.policy, best.tensors, where=str(self.run.checkpoints / BEST))
        self._let(self.method.finalize, self.method.policy)
        self._write(BEST, self.method.policy.state_dict(), best.state)

    def _write(self, name: str, tensors: dict[str, Tensor], state: dict[str, Any]) -> str:
        try:
            return save_checkpoint(self.run.checkpoints, name, tensors, state)
        except NotFiniteError as error:
            self._diverged(f"'{error.name}'", self.state.step)


def learning_rate(step: int, steps: int, config: TrainConfig) -> float:
    """Rises over the warm-up, then falls along a half cosine to `final_lr` of its height, or stays."""
    warmup = min(config.warmup, steps // 10)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    if config.schedule == "constant":
        return config.lr
    share = (step - warmup) / max(1, steps - warmup)
    return config.lr * (config.final_lr + (1 - config.final_lr) * 0.5 * (1 + math.cos(math.pi * share)))


def step_seed(seed: int, step: int) -> int:
    """What the generator of a step is seeded with; -1 is the step in which weights are drawn."""
    return int.from_bytes(blake2b(f"{seed}/{step}".encode(), digest_size=8).digest(), "little") >> 1
