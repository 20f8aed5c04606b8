"""Values of jobs and the result of `reproduce`. Field names and aliases are the JSON keys of stored jobs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field, RootModel, model_serializer

from ecoc.evaluation.results import ListQuality
from ecoc.experiment.jobs import Job, JobResult
from ecoc.ope.estimators import Estimate
from ecoc.reporting.document import Figure, Table
from ecoc.result import Result, Row, TableResult, attributes
from ecoc.world import Evaluation

SHOWN_METRIC = "ndcg@10"


class ViewQuality(ListQuality):
    """Ranking quality of one way to rank with a model."""

    metrics: dict[str, float]
    seen: dict[str, float] | None = Field(description="metrics of the cases whose item is in the user's past")
    new: dict[str, float] | None = Field(description="metrics of all other cases")


class RankedViews(Result):
    """Ranking quality by title of the view."""

    views: dict[str, ViewQuality]


class RunOutcome(RankedViews):
    """A trained run and its ranking quality."""

    epochs: int | float
    steps: int
    best_epoch: int | float
    best_weights: str | None
    validation: dict[str, float] | None
    parameters: int
    weights_sha256: str


class TrueReward(Result):
    """What a policy earns per step in the world that the log is from."""

    reward: float
    low: float
    high: float
    coverage: int
    tempting: float

    @classmethod
    def of(cls, evaluation: Evaluation) -> "TrueReward":
        """From an evaluation in the world."""
        return cls(**attributes(evaluation, *cls.model_fields))


class EarnedViews(Result):
    """True reward by title of the view."""

    views: dict[str, TrueReward]


class KnownRewards(Result):
    """True reward per step of each policy, with its 95 % interval."""

    rewards: dict[str, tuple[float, float, float]]


class MixedRewards(RootModel[dict[str, float]]):
    """True reward per step of `POLICY SHARE`: the policy makes a share of the decisions, the log's the others."""


class CoverageRow(Result):
    """One interval from a log that was generated for it."""

    policy: str
    share: float
    propensity: Literal["estimated", "true"]
    estimator: str
    value: float
    low: float
    high: float
    ess: float

    @classmethod
    def of(cls, estimate: Estimate, *, policy: str, share: float, propensity: str) -> "CoverageRow":
        """From an estimate."""
        return cls.build({"policy": policy, "share": share, "propensity": propensity, **asdict(estimate)})


class CoverageRows(Result):
    """Intervals from one log."""

    rows: list[CoverageRow]


class Measurement(Result):
    """Cost of training steps, measured in a process of its own; `stopped` states why there is no measurement."""

    stopped: str | None = None
    cpu: float | None = Field(None, description="processor seconds per step")
    wall: float | None = Field(None, description="seconds per step by the clock")
    targets: float | None = Field(None, description="transitions per step")
    epoch_steps: int | None = None
    epoch_targets: int | None = None
    parameters: int | None = None
    start: float | None = Field(None, description="seconds until the first step")
    case: float | None = Field(None, description="seconds to rank one case")
    peak_rss_bytes: int = 0
    before_rss_bytes: int = Field(0, description="memory of the process before the measurement")

    @model_serializer(mode="wrap")
    def _without_missing(self, handler: Any) -> dict[str, Any]:
        """Only what was measured, as the files hold it."""
        return {
            key: value for key, value in handler(self).items() if value is not None and key in self.model_fields_set
        }

    @property
    def epoch_seconds(self) -> float | None:
        """Processor seconds of the training steps of an epoch."""
        return None if self.cpu is None or self.epoch_steps is None else self.cpu * self.epoch_steps


class CellRow(Result):
    """One job, or one view of it, as `reproduce` lists it."""

    name: str
    method: str
    encoder: str | None
    seed: int | None
    status: Literal["done", "failed", "not run"]
    seconds: float
    message: str
    metrics: dict[str, Any] = Field(description="numbers of the job by name")


def cell_rows(job: Job[Any], result: JobResult[Any]) -> list[CellRow]:
    """A job as rows: one per view, or one if it has no views."""
    metrics: dict[str, dict[str, Any]] = {}  # by view
    if isinstance(result.value, RankedViews):
        metrics = {title: dict(view.metrics) for title, view in result.value.views.items()}
    elif isinstance(result.value, EarnedViews):
        metrics = {title: view.model_dump() for title, view in result.value.views.items()}
    if not metrics:
        values = {} if result.value is None else result.value.model_dump()
        metrics = {job.method: {name: value for name, value in values.items() if isinstance(value, int | float)}}
    outcome = attributes(result, "status", "seconds", "message")
    return [
        CellRow(name=job.name, method=title, encoder=job.encoder or None, seed=job.seed, **outcome, metrics=values)
        for title, values in metrics.items()
    ]


class ReproductionResult(TableResult):
    """Tables and figures of an experiment, with the jobs they are made from."""

    experiment: str
    cells: list[CellRow]
    tables: list[Table]
    figures: list[Figure]
    caveats: list[str]
    report: str = Field(description="path of the report")
    trimmed: list[str] = Field(description="what the time budget took away")
    steps: int = Field(description="training steps per run")
    seeds: int
    seconds: float

    def records(self) -> Sequence[Row]:
        """One row per job and view."""
        return [
            {
                **attributes(cell, "method", "encoder", "seed", "status"),
                **{name: cell.metrics.get(name) for name in (SHOWN_METRIC, "reward")},
                "seconds": cell.seconds,
            }
            for cell in self.cells
        ]

    def heading(self) -> str:
        """One line above the printed table."""
        done = sum(cell.status == "done" for cell in self.cells)
        return f"ReproductionResult of {self.experiment}: {done} of {len(self.cells)} rows done, report {self.report}"
