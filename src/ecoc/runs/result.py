"""What training a run resulted in, as result.json holds it."""

import warnings
from collections.abc import Iterator
from typing import Any

from pydantic import ConfigDict, Field

from ecoc.batch import Dims
from ecoc.config import Config
from ecoc.data.schema import GREATEST_UNIT
from ecoc.policies.counts import LARGEST_COUNTS_WEIGHT
from ecoc.result import Result


class DataReference(Config):
    """The prepared dataset a run was trained on."""

    path: str
    checksum: str


class CountsChoice(Config):
    """The weight of the counts term, and how it was chosen; `monitor` is none if it was not chosen on validation."""

    weight: float = Field(ge=0, le=LARGEST_COUNTS_WEIGHT, allow_inf_nan=False, description="0: no counts term")
    monitor: str | None = Field(None, description="validation metric that chose the weight")
    without_counts: float | None = Field(None, description="its mean without counts")
    best_weight: float | None = Field(None, description="the best weight, significant or not")
    with_best_weight: float | None = Field(None, description="the metric's mean with it")
    cases: int = Field(0, description="validation cases ranked")
    sha256: str | None = Field(None, description="of the saved counts")

    def __str__(self) -> str:
        if self.monitor is None:
            return f"weight {self.weight:g}, as set" if self.weight else "off: no sequences are held out to choose on"
        without, best = f"{self.monitor} {self.without_counts:.4f}", f"{self.with_best_weight:.4f}"
        if self.weight:
            return f"weight {self.weight:g} chosen on validation, {without} → {best}"
        if not self.best_weight:
            return f"off: no weight improves validation ({without} without counts)"
        return f"off: no weight improves validation significantly ({without}, {best} with weight {self.best_weight:g})"


class TrainResult(Result):
    """What training resulted in. Counts of a method that only counts events, such as `popular`, are 0."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)  # a newer version may have written more keys

    run: str = Field(description="folder of the run when it was trained")
    method: str
    encoder: str | None = Field(description="none if the method has no encoder")
    items: int = Field(ge=1, description="items that can be recommended")
    epochs: int | float = Field(description="passes over the training windows")
    best_epoch: int | float = Field(description="when the weights of the model were taken")
    best_weights: str | None = Field(None, description="online, or ema for averaged weights")
    steps: int
    transitions: int = Field(description="targets learned from")
    seconds: float
    transitions_per_second: float
    validation: dict[str, float] | None = Field(None, description="ranking metrics of the best weights")
    counts: CountsChoice | None = Field(None, description="the counts term; none if it is switched off")
    parts: dict[str, float] = Field(default_factory=dict, description="seconds by part of a step")
    weights_sha256: str
    items_sha256: str | None = None
    parameters: int = 0
    peak_rss_bytes: int = 0
    data: DataReference | None = None
    dims: Dims
    feedback: list[str] = Field(default_factory=list, description="names of the kinds of feedback")
    reward_unit: float = Field(
        1.0, gt=0, le=GREATEST_UNIT, description="what a reward of 1 in training is worth in the data"
    )

    def values(self) -> dict[str, Any]:
        """What result.json holds, and `ecoc train --json` prints."""
        return self.model_dump(mode="json", exclude_unset=True)

    def __call__(self) -> dict[str, Any]:
        """The same, as `Run.result()` returned it before `Run.result` was a property."""
        warnings.warn(
            "Run.result is a property now: use run.result.steps, or run.result.values() for a dictionary",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.values()

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name in ("run", "method", "encoder", "items", "steps"):
            yield name, getattr(self, name)
        yield "best_epoch", round(self.best_epoch, 2)
        yield "seconds", round(self.seconds, 1)
        for name, value in (self.validation or {}).items():
            yield name, round(value, 4)

    def __str__(self) -> str:
        return repr(self)
