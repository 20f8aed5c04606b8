"""One training step: loss, finite check, backward, clip, optimise, follow. Nothing else wires optimisers and copies."""

import math
from typing import Any

import torch
from torch import Tensor

from ecoc.batch import Batch
from ecoc.encoders import Encoder
from ecoc.errors import InputError, TrainingError
from ecoc.methods import Method, Phase
from ecoc.methods.targets import Targets
from ecoc.policies.base import Policy
from ecoc.progress import StepResult
from ecoc.runs.config import TrainConfig
from ecoc.training.optimiser import Optimiser


class DivergedError(TrainingError):
    """The loss or the gradient of a step is not finite; `quantity` names which."""

    def __init__(self, step: int, quantity: str) -> None:
        super().__init__(f"step {step}: {quantity} is not finite; lower train.lr or set a smaller train.clip")
        self.quantity = quantity


class TrainStep:
    """Takes training steps with a method: owns its optimisers and the lagged copies that follow its networks.

    `steps` is the number of planned steps, which places phases and the learning-rate schedule. With `sparse` only the
    touched rows of item tables move. `averaged` is the lagged copy of the policy that can act, if there is one.
    """

    def __init__(self, method: Method, config: TrainConfig, *, steps: int, sparse: bool) -> None:
        self.method, self.config, self.steps = method.train(), config, steps
        tables = method.sparse_parameters() if sparse else set()
        if sparse:
            for module in method.modules():
                if isinstance(module, Encoder):
                    module.sparse = True
        self.lagged: dict[str, Targets[Any]] = dict(method.lagged)
        self.averaged: Targets[Policy] | None = method.target_policy
        if config.ema:
            if self.averaged is not None:
                raise InputError("train.ema: this method averages its weights itself, at method.tau; leave train.ema 0")
            self.averaged = self.lagged["ema"] = Targets(method.policy, config.ema)
        if sparse:
            followed = [table for name, table in method.named_parameters() if name in tables]
            for name, copy in self.lagged.items():
                if name == "ema" or method.syncs_rows:
                    copy.follow_rows(followed)
        self.optimisers = [
            Optimiser(
                method,
                betas=(config.beta1, config.beta2),
                decay=config.weight_decay,
                sparse=tables,
                trains=trains,
                decays=method.decays,
                clip_group=method.clip_group,
                before_rows_move=self._sync_rows,
            )
            for trains in method.turns()
        ]

    def __call__(self, batch: Batch, step: int, *, diagnostics: bool = False) -> StepResult:
        """Take step number `step` (0 is the first). `diagnostics` asks the method for its diagnostics too."""
        method, clock = self.method, self.method.clock
        phase = self._enter_phase(step)
        method.collect_diagnostics = diagnostics
        lr = learning_rate(step, self.steps, self.config) * phase.lr
        total, norms = 0.0, list[float]()
        parts, seen = dict[str, float](), dict[str, float]()
        for optimiser, loss in zip(self.optimisers, method.turn_losses(batch), strict=True):
            own = {name: float(part.detach()) for name, part in loss.parts.items()}
            value = float(loss.total.detach())
            require_finite(step + 1, {**{f"loss part '{name}'": part for name, part in own.items()}, "the loss": value})
            with clock("backward"):
                loss.total.backward()  # type: ignore[no-untyped-call]
            with clock("optimise"):
                norms.append(optimiser.step(lr, self.config.clip))
                require_finite(step + 1, {"the gradient": norms[-1]})
                optimiser.zero()
            total, parts = total + value, parts | own
            seen |= {name: float(figure) for name, figure in loss.diagnostics.items()}
        with clock("optimise"):
            for copy in self.lagged.values():
                copy.update(step)
        return StepResult(step + 1, total, parts, math.hypot(*norms), lr, batch.transitions, seen)

    def _enter_phase(self, step: int) -> Phase:
        """Switch the method to the phase of this step; the first step of a later phase starts with fresh moments."""
        starts = [round(phase.start * self.steps) for phase in self.method.phases]
        number = max(index for index, start in enumerate(starts) if start <= step)
        if number and step == starts[number]:
            for optimiser in self.optimisers:
                optimiser.reset()
        self.method.phase = number
        return self.method.phases[number]

    def _sync_rows(self, table: torch.nn.Parameter, rows: Tensor) -> None:
        """Rows of a table are about to move: copies that follow them lazily must catch up first."""
        for copy in self.lagged.values():
            copy.sync_rows(rows, table)

    def state(self) -> dict[str, Tensor]:
        """Every tensor a checkpoint needs: of the method, the optimiser and the lagged copies."""
        tensors = {f"method/{name}": tensor for name, tensor in self.method.state_dict().items()}
        for turn, optimiser in enumerate(self.optimisers):
            tensors |= {f"{_turn_key(turn)}/{name}": tensor for name, tensor in optimiser.state().items()}
        for key, copy in self.lagged.items():
            tensors |= {f"targets/{key}/{name}": tensor for name, tensor in copy.state().items()}
        return tensors

    def load(self, tensors: dict[str, Tensor], step: int) -> None:
        """Restore what `state` returned after `step` steps."""
        kinds = ["method", "targets", *(_turn_key(turn) for turn in range(len(self.optimisers)))]
        parts: dict[str, dict[str, Tensor]] = {kind: {} for kind in kinds}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition("/")
            parts[kind][rest] = tensor
        self.method.load_state_dict(parts["method"])
        for turn, optimiser in enumerate(self.optimisers):
            optimiser.load(parts[_turn_key(turn)])
        for name, copy in self.lagged.items():
            prefix = f"{name}/"
            own = {key[len(prefix) :]: t for key, t in parts["targets"].items() if key.startswith(prefix)}
            copy.load(own, step)


def _turn_key(turn: int) -> str:
    """Prefix of the optimiser's tensors in a checkpoint; the first turn has the name of a single optimiser."""
    return f"optimiser{turn or ''}"


def require_finite(step: int, values: dict[str, float]) -> None:
    """Raise DivergedError for the first value that is not finite."""
    for quantity, value in values.items():
        if not math.isfinite(value):
            raise DivergedError(step, quantity)


def learning_rate(step: int, steps: int, config: TrainConfig) -> float:
    """Rises over the warm-up, then falls along a half cosine to `final_lr` of its height, or stays constant."""
    warmup = min(config.warmup, steps // 10)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    if config.schedule == "constant":
        return config.lr
    share = (step - warmup) / max(1, steps - warmup)
    return config.lr * (config.final_lr + (1 - config.final_lr) * 0.5 * (1 + math.cos(math.pi * share)))
