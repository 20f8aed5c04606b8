"""From cells to tables: means over seeds, paired tests, and what is missing, said in words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ecoc.evaluation.metrics import metrics
from ecoc.evaluation.statistics import holm, paired
from ecoc.experiment.context import Context
from ecoc.experiment.jobs import Cell, JobResult
from ecoc.experiment.variants import BASE, Variant
from ecoc.reporting.document import Axis, Figure, Number, Point, Series
from ecoc.reporting.document import Cell as Value

SIGNIFICANT = 0.05
ALIKE = "every method has the same steps, windows, validations and encoder; validation alone chose the weights"
NOT_REINFORCEMENT = (
    "Gains on these metrics are no evidence for reinforcement learning: averaged weights alone bring most of what is"
    f" reported, hence the row {BASE}; auxiliary losses without any reward do the same (Silva et al., ICML 2024)."
    " Judge such methods by reward."
)


@dataclass(frozen=True)
class Row:
    """One way a variant is judged, over seeds."""

    variant: str
    title: str
    group: str  # the encoder, or what stands in its place
    cells: tuple[JobResult, ...]  # one a seed, finished ones only
    missing: str = ""  # why there is none

    def means(self, metric: str, part: str = "metrics") -> list[float]:
        """A metric of each seed."""
        found = (cell.facts["views"][self.title][part] for cell in self.cells)
        return [one[metric] for one in found if one is not None]

    def facts(self, name: str) -> list[float]:
        """Another fact of the view, of each seed."""
        return [float(cell.facts["views"][self.title][name]) for cell in self.cells]

    def cases(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Metrics of each case, mean over seeds, [metrics, cases]."""
        each = [np.stack([metrics(cell.arrays[self.title])[name] for name in names]) for cell in self.cells]
        return np.asarray(np.mean(each, axis=0))


NO_ENCODER = "no encoder"


def rows_of(
    context: Context, results: Mapping[str, JobResult], variants: Iterable[Variant], encoders: Sequence[str]
) -> list[Row]:
    """The rows of a table, by encoder; a row none of whose seeds is done says why."""
    rows = []
    for group in (*encoders, NO_ENCODER):
        for variant in variants:
            if variant.has_encoder == (group == NO_ENCODER):
                continue
            encoder = group if variant.has_encoder else encoders[0]
            found = [results[context.run_cell(variant, encoder, seed).name] for seed in context.seeds]
            done = tuple(one for one in found if one.is_done)
            missing = "" if done else found[0].message
            rows += [Row(variant.name, title, group, done, missing) for title in variant.views]
    return rows


def number(values: Sequence[float], mark: str = "") -> Number | None:
    """Mean, and standard deviation where there are several."""
    finite = [value for value in values if np.isfinite(value)]
    if not finite:
        return None
    sd = float(np.std(finite, ddof=1)) if len(finite) > 1 else None
    return Number(value=float(np.mean(finite)), sd=sd, mark=mark)


@dataclass(frozen=True)
class Difference:
    """From the base of the same encoder, over the cases of all seeds."""

    value: Number
    p: float  # corrected for all the differences of a table

    @property
    def mark(self) -> str:
        """A star where chance is no likely cause."""
        return "*" if self.p < SIGNIFICANT else ""


def differences(context: Context, rows: Sequence[Row], metric: str) -> dict[tuple[str, str], Difference]:
    """Each row minus `supervised+ema` of its group: paired over cases, bootstrapped over users, Holm over all."""
    bases = {row.group: row for row in rows if row.variant == BASE and row.cells}
    others = [row for row in rows if row.variant != BASE and row.cells and row.group in bases]
    if not others:
        return {}
    ours = np.concatenate([row.cases([metric]) for row in others])
    theirs = np.concatenate([bases[row.group].cases([metric]) for row in others])
    found = paired(ours, theirs, context.bench.users)
    columns = zip(others, found.difference, found.low, found.high, holm(found.p), strict=True)
    return {
        (row.group, row.title): Difference(Number(value=float(value), low=float(low), high=float(high)), float(p))
        for row, value, low, high, p in columns
    }


def earned_by(
    context: Context, results: Mapping[str, JobResult], variants: Iterable[Variant], encoders: Sequence[str]
) -> dict[tuple[str, str], list[float]]:
    """True reward of each seed, by encoder and title; nothing where no truth is known."""
    found: dict[tuple[str, str], list[float]] = {}
    if context.market is None:
        return found
    for variant, encoder, seed in product(variants, encoders, context.seeds):
        one = results.get(context.truth_cell(variant, encoder, seed).name)
        for title, view in one.facts.get("views", {}).items() if one is not None else ():
            found.setdefault((encoder, title), []).append(view["reward"])
    return found


def caveats(context: Context, cells: Iterable[Cell], results: Mapping[str, JobResult], *more: str) -> list[str]:
    """What a reader must know: what was trimmed, failed or not run, and what holds of the numbers anyway."""
    said = list(context.plan.trimmed)
    found = {cell.name: results[cell.name] for cell in cells if cell.name in results}
    said += [f"{name}: failed: {one.message}" for name, one in sorted(found.items()) if one.status == "failed"]
    late = sorted(name for name, one in found.items() if one.status == "not run")
    if late:
        said.append(f"not run, out of time: {', '.join(late)}"[:10_000])
    if context.plan.seeds == 1:
        said.append("one seed: how much luck is in these numbers is not known")
    return [*said, *more]


def described(context: Context) -> str:
    """The setting of a table in one sentence."""
    counts, seeds = context.data.counts, context.plan.seeds
    among = f"all {counts.items:,} items" + ", the user's own past left out" * context.asked.exclude_seen
    return (
        f"{context.plan.steps:,} training steps a run, {seeds} seed{'s' * (seeds > 1)}, {len(context.bench.cases):,}"
        f" test cases ranked among {among}; {ALIKE}."
    )


def said(why: str, width: int) -> list[Value]:
    """Why a row has no numbers, in place of the first of them."""
    first: list[Value] = [why[:200] or "not run"]
    return first + [None] * (width - 1)


def bars(name: str, title: str, label: str, values: Sequence[tuple[str, str, Number | None]]) -> Figure | None:
    """Group, category and number each: a series a group, whiskers of one standard deviation."""
    shown = [(group, category, found) for group, category, found in values if found is not None]
    if not shown:
        return None
    categories = list(dict.fromkeys(category for _, category, _ in shown))
    series = [
        Series(
            name=group,
            points=[point(categories.index(category), found) for own, category, found in shown if own == group],
        )
        for group in dict.fromkeys(group for group, _, _ in shown)
    ]
    return Figure(
        id=name,
        title=title,
        kind="bars",
        x=Axis(label="method", names=categories),
        y=Axis(label=label),
        series=series,
        note="Means over seeds, whiskers one standard deviation.",
    )


def point(x: float, found: Number) -> Point:
    """A number in a plot, with its interval or else its standard deviation."""
    if found.low is not None and found.high is not None:
        return Point(x=x, y=found.value, low=found.low, high=found.high)
    half = found.sd or 0.0
    return Point(x=x, y=found.value, low=found.value - half, high=found.value + half)
