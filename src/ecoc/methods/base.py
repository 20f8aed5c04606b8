"""Method: what learns. It owns its networks and states its losses; files, devices and the loop are not its business."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from ecoc.batch import Batch, Dims, TrainSequences
from ecoc.config import Config
from ecoc.encoders import Encoder, EncoderConfig
from ecoc.methods.targets import Targets
from ecoc.policies.base import Policy
from ecoc.profiling import Stopwatch


class MethodConfig(Config):
    """What every method can be told."""


@dataclass(frozen=True)
class Loss:
    """What a step minimises, the named parts that are logged, and what else is worth a look."""

    total: Tensor
    parts: dict[str, Tensor]
    diagnostics: dict[str, Tensor] = field(default_factory=dict)  # filled only if `Method.collect_diagnostics`


@dataclass(frozen=True)
class BuildContext:
    """What a method builds its networks from."""

    dims: Dims
    encoder: EncoderConfig
    make_encoder: Callable[..., Encoder]  # keyword arguments change settings of the encoder


@dataclass(frozen=True)
class Phase:
    """A stretch of training: from which share of the planned steps on, and what it multiplies the learning rate by."""

    start: float
    lr: float = 1.0


class Method(nn.Module, ABC):
    """Base of every method. `policy` is what acts."""

    is_trained: ClassVar[bool] = True
    has_encoder: ClassVar[bool] = True
    """Whether it uses the encoder it is given."""
    needs_next: ClassVar[bool] = False
    """Whether it learns from the state after a transition: windows must hold it."""
    needs_returns: ClassVar[bool] = False
    """Whether batches must say what followed a target in all."""

    finalizes: ClassVar[bool] = False
    """Whether `finish` does anything."""
    syncs_rows: ClassVar[bool] = False
    """Whether it calls `Targets.sync_rows` for the rows its lagged copies are about to read."""

    class Config(MethodConfig):
        """Settings of the method."""

    policy: Policy

    def __init__(self, config: MethodConfig, parts: BuildContext) -> None:
        super().__init__()
        self.clock = Stopwatch()
        self.lagged: dict[str, Targets[Any]] = {}  # copies that follow their networks, step by step
        self.averaged: Targets[Policy] | None = None  # the one of them, if any, that is a policy to act with
        self.phases: tuple[Phase, ...] = (Phase(0.0),)
        self.phase = 0  # the one this step is in
        self.collect_diagnostics = False  # whether this step's diagnostics will be read

    def sparse_parameters(self) -> set[str]:
        """Names of the item tables of which a step reads and moves only some rows."""
        return set()

    def clip_group(self, name: str) -> str:
        """Which gradients are clipped together: parameters of one tower."""
        return ""

    def decays(self, name: str) -> bool:
        """Whether weight decay applies to a parameter."""
        return True

    def fit_statistics(self, sessions: TrainSequences) -> None:
        """Take fixed statistics of the training sequences, before the first step: every encoder's, lagged ones too."""
        for network in (self, *(targets.copy for targets in self.lagged.values())):
            for module in network.modules():
                if isinstance(module, Encoder):
                    module.fit_statistics(sessions)

    @abstractmethod
    def loss(self, batch: Batch) -> Loss:
        """What this step should lower."""

    def calibrate(self, policy: Policy, batches: Iterable[Batch]) -> None:
        """Take statistics that depend on the weights into a policy about to be judged; training data only."""

    def finalize(self, policy: Policy, batches: Iterable[Batch]) -> None:
        """Like `calibrate`, once, for the policy a run ends with: what judging does not need."""

    def warnings(self, diagnostics: dict[str, float]) -> dict[str, str]:
        """What is wrong by the diagnostics, in words, by name."""
        return {}

    def describe(self) -> dict[str, str]:
        """What was decided automatically, in words, to be printed."""
        return {}
