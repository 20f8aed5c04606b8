"""Method: what learns. It owns its networks and states its losses; files, devices and the loop are not its business."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from ecoc.batch import Batch, Dims, Sessions
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
    seen: dict[str, Tensor] = field(default_factory=dict)  # diagnostics; filled only while `Method.is_watched`


@dataclass(frozen=True)
class Parts:
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

    finishes: ClassVar[bool] = False
    """Whether `finish` does anything."""
    freshens: ClassVar[bool] = False
    """Whether it calls `Targets.fresh` for the rows its lagged copies are about to read."""

    class Config(MethodConfig):
        """Settings of the method."""

    policy: Policy

    def __init__(self, config: MethodConfig, parts: Parts) -> None:
        super().__init__()
        self.clock = Stopwatch()
        self.lagged: dict[str, Targets[Any]] = {}  # copies that follow their networks, step by step
        self.averaged: Targets[Policy] | None = None  # the one of them, if any, that is a policy to act with
        self.phases: tuple[Phase, ...] = (Phase(0.0),)
        self.phase = 0  # the one this step is in
        self.is_watched = False  # whether this step's diagnostics will be read

    def few_rows(self) -> set[str]:
        """Names of the item tables of which a step reads and moves only some rows."""
        return set()

    def tower(self, name: str) -> str:
        """Which gradients are clipped together: parameters of one tower."""
        return ""

    def decays(self, name: str) -> bool:
        """Whether weight decay applies to a parameter."""
        return True

    def learn(self, sessions: Sessions) -> None:
        """Take fixed statistics of the training sequences, before the first step: every encoder's, lagged ones too."""
        for network in (self, *(targets.copy for targets in self.lagged.values())):
            for module in network.modules():
                if isinstance(module, Encoder):
                    module.learn(sessions)

    @abstractmethod
    def loss(self, batch: Batch) -> Loss:
        """What this step should lower."""

    def settle(self, policy: Policy, batches: Iterable[Batch]) -> None:
        """Take statistics that depend on the weights into a policy about to be judged; training data only."""

    def finish(self, policy: Policy, batches: Iterable[Batch]) -> None:
        """Like `settle`, once, for the policy a run ends with: what judging does not need."""

    def worries(self, seen: dict[str, float]) -> dict[str, str]:
        """What is wrong by the diagnostics, in words, by name."""
        return {}

    def choices(self) -> dict[str, str]:
        """What was decided automatically, in words, to be printed."""
        return {}
