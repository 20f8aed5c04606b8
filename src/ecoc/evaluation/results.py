"""What `evaluate`, `compare` and `normtest` return. Field aliases are the JSON keys."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ecoc.evaluation.ranks import REPEATS
from ecoc.result import Result, Row, TableResult, aligned, attributes

SIGNIFICANT = 0.05
"""Largest Holm-corrected p of a difference that counts as significant."""
STARRED = 0.001
"""Largest p of a normalisation test that gets the paper's star."""
Norms = Literal["trained", "untrained"]
_PRINTED = ("hr@10", "mrr@10", "ndcg@10")


class ListQuality(Result):
    """What the ten best items of each case look like, beyond accuracy."""

    coverage: float = Field(alias="coverage@10", description="share of the catalogue that is in any list")
    popularity_lift: float = Field(
        alias="popularity_lift@10", description="popularity of listed items over that of the users' own, minus 1"
    )
    diversity: float = Field(alias="diversity@10", description="mean 1 - Jaccard overlap of the items of a list")


class Subset(Result):
    """Metrics of some of the cases."""

    cases: int
    metrics: dict[str, float] | None = Field(description="none if there are no such cases")


class RankedPolicy(ListQuality):
    """One policy on the common cases."""

    name: str
    ranking_mode: str = Field(alias="acting", description="policy, blend-w10, rerank-m20, …")
    metrics: dict[str, float]


class Baseline(RankedPolicy):
    """An untrained method on the same cases as a run."""

    seen: Subset = Field(description="cases whose item is in the user's past")
    new: Subset = Field(description="all other cases")


class EvaluationResult(ListQuality, TableResult):
    """Ranking quality of a run, with 95 % intervals over users."""

    run: str
    data: str
    split: str
    cases: int
    users: int
    items: int
    exclude_seen: bool
    ranking_mode: str = Field(alias="acting")
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    seen: Subset
    new: Subset
    untrained: list[Baseline]
    notes: list[str] = Field(default_factory=list, description="what to know when reading the figures")
    seconds: float

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.run.rstrip("/").rpartition("/")[2]

    @property
    def has_few_repeats(self) -> bool:
        """Whether the log counts as one in which users do not return to items."""
        return self.seen.cases < REPEATS * self.cases

    def policies(self) -> list[RankedPolicy]:
        """The run, then the untrained methods."""
        return [RankedPolicy(**attributes(self, *RankedPolicy.model_fields)), *self.untrained]

    def records(self) -> Sequence[Row]:
        """One row per policy and metric; untrained methods have no interval."""
        rows = []
        for place, policy in enumerate(self.policies()):
            for metric, value in policy.metrics.items():
                low, high = self.intervals.get(metric, (None, None)) if place == 0 else (None, None)
                label = {"policy": policy.name, "ranking_mode": policy.ranking_mode, "metric": metric}
                rows.append({**label, "value": value, "low": low, "high": high})
        return rows

    def heading(self) -> str:
        return f"EvaluationResult: {self.run}, {self.split} split, {self.cases:,} cases of {self.users:,} users"

    def __str__(self) -> str:
        policies: list[Row] = [{"policy": policy.name, **policy.metrics} for policy in self.policies()]
        return "\n".join([self.heading(), *aligned(policies), *(f"  {note}" for note in self.notes)])


class PairedDifference(Result):
    """Metric of run a minus that of run b, over the same cases; 95 % interval and p-values over users."""

    a: str
    b: str
    metric: str
    difference: float
    low: float
    high: float
    p: float
    p_holm: float = Field(description="p, corrected for all comparisons of the result")

    @property
    def is_significant(self) -> bool:
        """Whether the corrected p is below .05."""
        return self.p_holm < SIGNIFICANT


class Comparison(TableResult):
    """Runs on the same cases, and their paired differences."""

    data: str
    split: str
    cases: int
    users: int
    exclude_seen: bool = False
    runs: list[RankedPolicy]
    pairs: list[PairedDifference]
    notes: list[str] = Field(default_factory=list, description="what to know when reading the figures")

    def records(self) -> Sequence[Row]:
        """One row per pair of runs and metric."""
        return [pair.model_dump() for pair in self.pairs]

    def heading(self) -> str:
        names = ", ".join(run.name for run in self.runs)
        return f"Comparison: {names}; {self.split} split, {self.cases:,} cases of {self.users:,} users"

    def __str__(self) -> str:
        runs = [{"policy": run.name} | {name: run.metrics.get(name) for name in _PRINTED} for run in self.runs]
        return "\n".join([self.heading(), *aligned(runs), *aligned(self.records())])


class CosineAtRank(Result):
    """Mean cosine of user and next item, over the samples in which that item ranks at k or better."""

    k: int
    cosine: float | None = Field(description="none without samples")
    count: int


class NormTestStatistics(Result):
    """The paired t-test of D over samples, averaged over repeats."""

    mean: float
    std: float
    t: float
    p: float = Field(description="one-sided")
    p_two_sided: float
    effect: float = Field(description="mean / std")
    n: int = Field(description="samples per repeat")
    repeats: int
    flag: str = Field(description="what makes the figures doubtful, or empty")

    @property
    def is_starred(self) -> bool:
        """Whether p is below .001, the paper's star."""
        return self.p < STARRED


class NormTestEntry(NormTestStatistics):
    """The test on one table of item vectors."""

    run: str
    method: str
    encoder: str
    data: str
    source: str
    distinct: int = Field(description="distinct samples")
    clipped: int = Field(description="distinct samples with a correlation beyond 1 - 1e-7")
    dropped: int = Field(description="distinct samples with an undefined correlation")
    items: int
    norm_log_sd: float = Field(description="standard deviation of the logarithm of the item norms")


class NormTestRow(NormTestEntry):
    """The test on a run's item vectors."""

    cosine_by_rank: list[CosineAtRank]


class NormTestControl(NormTestEntry):
    """The test on random item vectors."""

    norms: Norms = Field(description="norms of the run's items, or of random vectors")


class NormTestResult(TableResult):
    """The paper's test of normalised representations: runs, each with two controls."""

    rows: list[NormTestRow]
    control: NormTestControl
    controls: list[NormTestControl] = Field(description="two per run, in the order of the runs")
    cosine_by_rank: list[CosineAtRank]
    samples: int
    repeats: int
    max_items: int
    seed: int
    notes: list[str] = Field(default_factory=list, description="what to know when reading the figures")

    def records(self) -> Sequence[Row]:
        """One row per run and control."""
        entries: list[tuple[str, NormTestEntry]] = []
        for row, controls in self.with_controls():
            entries += [("run", row), *((f"control, {control.norms} norms", control) for control in controls)]
        columns = ("run", "method", "encoder", "mean", "std", "t", "p", "effect", "n", "repeats", "clipped", "dropped")
        return [{"kind": kind, **attributes(entry, *columns)} for kind, entry in entries]

    def with_controls(self) -> list[tuple[NormTestRow, list[NormTestControl]]]:
        """Each run with its own controls."""
        each = len(self.controls) // max(len(self.rows), 1)
        return [(row, self.controls[place * each : (place + 1) * each]) for place, row in enumerate(self.rows)]

    def heading(self) -> str:
        return f"NormTestResult: {len(self.rows)} runs, {self.samples:,} samples, {self.repeats} repeats"
