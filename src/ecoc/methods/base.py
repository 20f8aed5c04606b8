"""Method: what learns. It owns its networks and states its loss; files, devices and the training loop do the rest."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import model_validator
from torch import Tensor, nn

from ecoc.batch import Batch, Dims, TrainSequences
from ecoc.config import Config
from ecoc.encoders import Encoder, EncoderConfig
from ecoc.methods.targets import Targets
from ecoc.policies.base import Policy
from ecoc.profiling import Stopwatch


class MethodConfig(Config):
    """Settings of a method."""

    removed: ClassVar[Mapping[str, object]] = {}
    """Options that existed before, with their default: a run that was trained with the default still opens."""

    @model_validator(mode="before")
    @classmethod
    def _drop_removed(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        for name in cls.removed.keys() & values.keys():
            if values[name] != cls.removed[name]:
                raise ValueError(f"option '{name}' was removed, so {name} = {values[name]!r:.40} cannot be used")
        return {name: value for name, value in values.items() if name not in cls.removed}


@dataclass(frozen=True)
class Loss:
    """What a step minimises, its named parts, which are logged, and figures for diagnosis."""

    total: Tensor
    parts: dict[str, Tensor]
    diagnostics: dict[str, Tensor] = field(default_factory=dict)  # filled only if `Method.collect_diagnostics`


@dataclass(frozen=True)
class BuildContext:
    """What a method builds its networks from."""

    dims: Dims
    encoder: EncoderConfig
    make_encoder: Callable[..., Encoder]  # keyword arguments override settings of the encoder


@dataclass(frozen=True)
class Phase:
    """A stretch of training: the share of the planned steps at which it starts, and a factor on the learning rate."""

    start: float
    lr: float = 1.0


class Method(nn.Module, ABC):
    """Base of every method. `policy` is what recommends after training."""

    is_trained: ClassVar[bool] = True
    has_encoder: ClassVar[bool] = True
    """Whether the method uses the encoder it is given."""
    needs_next: ClassVar[bool] = False
    """Whether the method learns from the state after a transition: windows must then contain it."""
    needs_returns: ClassVar[bool] = False
    """Whether batches must hold the step and the reward-to-go of each target."""
    finalizes: ClassVar[bool] = False
    """Whether `finalize` does anything."""
    syncs_rows: ClassVar[bool] = False
    """Whether the method calls `Targets.sync_rows` for the rows that its lagged copies are about to read."""

    class Config(MethodConfig):
        """Settings of the method."""

    policy: Policy
    target_policy: Targets[Any] | None

    def __init__(self, config: MethodConfig, context: BuildContext) -> None:
        super().__init__()
        self.clock = Stopwatch()
        self.lagged: dict[str, Targets[Any]] = {}  # copies that follow their networks, by name
        self.target_policy = None  # the lagged copy of `policy`, if the method has one; it can recommend too
        self.phases: tuple[Phase, ...] = (Phase(0.0),)
        self.phase = 0  # number of the current phase
        self.collect_diagnostics = False  # whether the diagnostics of this step will be read

    def turns(self) -> tuple[Callable[[str], bool], ...]:
        """Which parameters each optimiser trains, by name. Within a step the optimisers act one after another."""
        return (lambda name: True,)

    def turn_losses(self, batch: Batch) -> Iterator[Loss]:
        """The loss of each turn. When the next one is computed, the parameters of the turn before have moved."""
        yield self.loss(batch)

    def sparse_parameters(self) -> set[str]:
        """Names of the item tables of which a step reads and updates only some rows."""
        return set()

    def clip_group(self, name: str) -> str:
        """The group of a parameter: gradients are clipped by the norm of their group."""
        return ""

    def decays(self, name: str) -> bool:
        """Whether weight decay applies to a parameter."""
        return True

    def fit_statistics(self, sessions: TrainSequences) -> None:
        """Take fixed statistics of the training sequences before the first step, for all encoders, also lagged ones."""
        for network in (self, *(targets.copy for targets in self.lagged.values())):
            for module in network.modules():
                if isinstance(module, Encoder):
                    module.fit_statistics(sessions)

    @abstractmethod
    def loss(self, batch: Batch) -> Loss:
        """What this step minimises."""

    def calibrate(self, policy: Policy, batches: Iterable[Batch]) -> None:
        """Take statistics that depend on the weights into a policy before it is validated; training data only."""

    def finalize(self, policy: Policy, batches: Iterable[Batch]) -> None:
        """Like `calibrate`, but once, for the final policy: statistics that validation does not need."""

    def warnings(self, diagnostics: dict[str, float]) -> dict[str, str]:
        """What the diagnostics show to be wrong, in words, by name."""
        return {}

    def describe(self) -> dict[str, str]:
        """What the method chose by itself, in words, to be printed."""
        return {}
