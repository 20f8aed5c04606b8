"""What long work reports while it runs: the progress of a stage, and callbacks for the steps of a training."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pydantic import Field

from ecoc.config import Config

if TYPE_CHECKING:
    from ecoc.runs.folder import Run


class ProgressCallback(Protocol):
    """Called with the name of a stage, how much is done, the total (0 if unknown), and a note to show beside them."""

    def __call__(self, stage: str, done: float, total: float, /, note: str = "") -> None:
        """Show or record the progress."""


def no_progress(stage: str, done: float, total: float, /, note: str = "") -> None:
    """Ignore all progress."""


@dataclass(frozen=True)
class StepResult:
    """What one training step measured."""

    step: int
    """Steps taken, this one included."""
    loss: float
    parts: dict[str, float]
    """Named parts of the loss."""
    norm: float
    """Norm of the gradient before clipping."""
    lr: float
    transitions: int
    """Targets in the batch."""
    diagnostics: dict[str, float]
    """What else the method measured; filled only in steps that end a line of metrics.jsonl."""


class ValidationResult(Config):
    """What one validation during training measured."""

    step: int = Field(description="steps taken")
    epoch: float = Field(description="passes over the training windows")
    metrics: dict[str, float] = Field(description="mean of each ranking metric over the held-out events")
    source: str = Field(description="weights that were better: online, or ema for averaged ones")
    monitor: str = Field(description="metric that chooses the best weights")
    is_best: bool = Field(description="whether no earlier validation was as good by the monitor")
    without_improvement: int = Field(description="validations since the best one")

    @property
    def value(self) -> float:
        """The monitored metric."""
        return self.metrics[self.monitor]


class Callback:
    """Base of callbacks of `ecoc.train`: override the hooks you need.

    A hook that returns True stops training after the current step: the weights are validated and the run ends with the
    best ones, as after its last planned step. An exception in a hook ends `train` with that exception; the run is saved
    first and can be resumed. Hooks cannot change the result of training: they run apart from its random generator.
    """

    def on_step(self, run: "Run", result: StepResult) -> bool | None:
        """Called after every training step."""

    def on_validation(self, run: "Run", result: ValidationResult) -> bool | None:
        """Called after every validation, once its weights are saved if they are the best so far."""

    def on_end(self, run: "Run") -> None:
        """Called once when the run is finished and `run.result` can be read."""
