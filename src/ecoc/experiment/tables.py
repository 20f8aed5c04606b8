"""From job results to tables: means over seeds, paired tests, and the reasons for missing numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecoc.evaluation.metrics import metrics
from ecoc.evaluation.statistics import holm, paired
from ecoc.experiment.context import Context
from ecoc.experiment.jobs import Job, JobResult, Results
from ecoc.experiment.results import EarnedViews, RankedViews, ViewQuality
from ecoc.experiment.variants import BASE, Variant
from ecoc.reporting.document import Axis, Cell, Figure, Number

SIGNIFICANT = 0.05
ALIKE = "all methods are validated on the same cases; validation alone chose the weights"
NOT_REINFORCEMENT = (
    "Gains on these metrics are no evidence for reinforcement learning: averaged weights alone give most of the gain"
    f" (row {BASE}), and so do auxiliary losses without any reward (Silva et al., ICML 2024). Compare such methods by"
    " reward."
)


@dataclass(frozen=True)
class Row:
    """One view of a variant, over seeds."""

    variant: str
    title: str
    group: str  # the encoder, or a title for rows without one
    runs: tuple[JobResult[RankedViews], ...]  # one per seed, finished ones only
    missing: str = ""  # why there is none
    control: str = BASE  # the variant it is compared with

    def means(self, metric: str, part: str = "metrics") -> list[float]:
        """A metric of each seed, over all cases (`metrics`) or a part of them (`seen`, `new`)."""
        subsets = (getattr(view, part) for view in self.views)
        return [subset[metric] for subset in subsets if subset is not None]

    @property
    def views(self) -> list[ViewQuality]:
        """Ranking quality of each seed."""
        return [run.value.views[self.title] for run in self.runs if run.value is not None]

    def cases(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Metrics of each case, mean over seeds, [metrics, cases]."""
        each = [np.stack([metrics(run.arrays[self.title])[name] for name in names]) for run in self.runs]
        return np.asarray(np.mean(each, axis=0))


NO_ENCODER = "no encoder"


def rows_of(context: Context, results: Results, variants: Iterable[Variant], encoders: Sequence[str]) -> list[Row]:
    """The rows of a table, by encoder; a row without a finished seed states why."""
    rows = []
    for group in (*encoders, NO_ENCODER):
        for variant in variants:
            if variant.has_encoder == (group == NO_ENCODER):
                continue
            encoder = group if variant.has_encoder else encoders[0]
            runs = [results.of(context.run_job(variant, encoder, seed)) for seed in context.seeds]
            done = tuple(run for run in runs if run.is_done)
            missing = "" if done else runs[0].message
            rows += [Row(variant.name, title, group, done, missing, variant.control) for title in variant.views]
    return rows


def number(values: Sequence[float]) -> Number | None:
    """Mean of the finite values, with their standard deviation if there are several."""
    finite = [value for value in values if np.isfinite(value)]
    if not finite:
        return None
    sd = float(np.std(finite, ddof=1)) if len(finite) > 1 else None
    return Number(value=float(np.mean(finite)), sd=sd)


@dataclass(frozen=True)
class Difference:
    """Difference from the control of the same encoder, over the cases of all seeds."""

    control: str
    value: Number
    p: float  # corrected for all differences of the table

    @property
    def mark(self) -> str:
        """A star for a significant difference."""
        return "*" if self.p < SIGNIFICANT else ""

    def cells(self) -> tuple[Number, float]:
        """The difference with its mark, and p."""
        return self.value.model_copy(update={"mark": self.mark}), self.p


def differences(context: Context, rows: Sequence[Row], metric: str) -> dict[tuple[str, str], Difference]:
    """Each row minus its control: paired over cases, bootstrapped over users, Holm over all.

    A row whose control is not in the table is compared with `supervised+ema`.
    """
    finished = {(row.group, row.variant): row for row in rows if row.runs}
    pairs = []
    for row in (each for each in rows if each.runs):
        control = finished.get((row.group, row.control)) or finished.get((row.group, BASE))
        if control is not None and control.variant != row.variant:
            pairs.append((row, control))
    if not pairs:
        return {}
    ours = np.concatenate([row.cases([metric]) for row, _ in pairs])
    theirs = np.concatenate([control.cases([metric]) for _, control in pairs])
    tests = paired(ours, theirs, context.evaluator.users)
    columns = zip(pairs, tests.difference, tests.low, tests.high, holm(tests.p), strict=True)
    return {
        (row.group, row.title): Difference(
            control.title, Number(value=float(value), low=float(low), high=float(high)), float(p)
        )
        for (row, control), value, low, high, p in columns
    }


def truth_jobs(context: Context, variants: Iterable[Variant], encoders: Sequence[str]) -> list[Job[EarnedViews]]:
    """The true reward of every run; none if the truth is unknown."""
    if context.market is None:
        return []
    return [context.truth_job(*each) for each in product(variants, encoders, context.seeds)]


def earned_by(
    context: Context, results: Results, variants: Iterable[Variant], encoders: Sequence[str]
) -> dict[tuple[str, str], list[float]]:
    """True reward of each seed, by encoder and title; empty if the truth is unknown."""
    rewards: dict[tuple[str, str], list[float]] = {}
    for job in truth_jobs(context, variants, encoders):
        earned = results.value(job)
        for title, view in earned.views.items() if earned is not None else ():
            rewards.setdefault((job.encoder, title), []).append(view.reward)
    return rewards


def caveats(context: Context, jobs: Iterable[Job[Any]], results: Results, *more: str) -> list[str]:
    """What limits the results: cuts of the plan, jobs that failed or did not run, a single seed, and `more`."""
    sentences = list(context.plan.trimmed)
    by_name = {job.name: results.of(job) for job in jobs if job in results}
    failed = {name: result for name, result in sorted(by_name.items()) if result.status == "failed"}
    sentences += [f"{name}: failed: {result.message}" for name, result in failed.items()]
    late = sorted(name for name, result in by_name.items() if result.status == "not run")
    if late:
        sentences.append(f"not run, out of time: {', '.join(late)}"[:10_000])
    if context.plan.seeds == 1:
        sentences.append("one seed: the variation between seeds is unknown")
    return [*sentences, *more]


def described(context: Context) -> str:
    """The setting of a table, in one sentence."""
    counts, seeds, cases = context.data.counts, context.plan.seeds, len(context.evaluator.cases)
    among = f"all {counts.items:,} items" + ", without the items of the user's past" * context.request.exclude_seen
    setting = f"{context.length}, {seeds} seed{'s' * (seeds > 1)}, {cases:,} test cases ranked among {among}; {ALIKE}."
    return setting[0].upper() + setting[1:]


def no_numbers(reason: str, width: int) -> list[Cell]:
    """Cells of a row without numbers: the reason in the first, the rest empty."""
    first: list[Cell] = [reason[:200] or "not run"]
    return first + [None] * (width - 1)


SEEDS_NOTE = "Means over seeds, whiskers one standard deviation."


def bars(name: str, title: str, label: str, values: Sequence[tuple[str, str, Number | None]]) -> Figure | None:
    """Bars from (group, category, number): one series per group, whiskers of one standard deviation."""
    shown = [(group, category, with_whiskers(value)) for group, category, value in values if value is not None]
    return Figure.bars(name, title, "method", Axis(label=label), shown, SEEDS_NOTE) if shown else None


def with_whiskers(number: Number) -> Number:
    """A mean over seeds whose interval is one standard deviation to each side."""
    half = number.sd or 0.0
    return number.model_copy(update={"low": number.value - half, "high": number.value + half})
