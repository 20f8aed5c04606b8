"""Method: what learns. It owns its networks and states its losses; files, devices and the loop are not its business."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from ecoc.batch import Batch, Dims, Sessions
from ecoc.config import Config
from ecoc.encoders import Encoder, EncoderConfig
from ecoc.policy import Policy
from ecoc.stopwatch import Stopwatch


class MethodConfig(Config):
    """What every method can be told."""


@dataclass(frozen=True)
class Loss:
    """What a step minimises, and the named parts that are logged."""

    total: Tensor
    parts: dict[str, Tensor]


@dataclass(frozen=True)
class Parts:
    """What a method builds its networks from."""

    dims: Dims
    encoder: EncoderConfig
    make_encoder: Callable[[], Encoder]


class Method(nn.Module, ABC):
    """Base of every method. `policy` is what acts."""

    is_trained: ClassVar[bool] = True

    class Config(MethodConfig):
        """Settings of the method."""

    policy: Policy

    def __init__(self, config: MethodConfig, parts: Parts) -> None:
        super().__init__()
        self.clock = Stopwatch()

    @property
    def touches_few_rows(self) -> bool:
        """Whether a step reads and moves only some rows of the item table."""
        return False

    @abstractmethod
    def learn(self, sessions: Sessions) -> None:
        """Take fixed statistics of the training sequences, before the first step."""

    @abstractmethod
    def loss(self, batch: Batch) -> Loss:
        """What this step should lower."""

    def choices(self) -> dict[str, str]:
        """What was decided automatically, in words, to be printed."""
        return {}
