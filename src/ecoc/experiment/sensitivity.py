"""RQ5: sensitivity to alpha, beta and N1. One factor at a time around the values of the paper."""

from dataclasses import dataclass
from typing import Any

from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.jobs import Job, Results
from ecoc.experiment.tables import SEEDS_NOTE, caveats, described, no_numbers, number, with_whiskers
from ecoc.experiment.variants import BASE, PAPER, VARIANTS, Variant
from ecoc.reporting.document import Axis, Cell, Figure, Head, Number, Point, Section, Series, Table

ENCODERS = ("sasrec",)
_METRICS = ("hr@20", "ndcg@20")
_NEEDED = 3  # values of a factor that every plan keeps


@dataclass(frozen=True)
class Factor:
    """A setting and its values; a time budget drops the last ones first."""

    name: str
    label: str
    values: tuple[float, ...]


FACTORS = (
    Factor("alpha", "α, weight of L_REG", (1, 20, 0.1, 5, 10, 2, 0.5, 8)),
    Factor("beta", "β, weight of L_BC", (0.1, 10, 1, 0.5, 2, 5)),
    Factor("n1", "N1, actions explored", (10, 100, 500, 1000, 50, 200)),
)


@dataclass(frozen=True)
class _GridPoint:
    """One value of a factor."""

    factor: Factor
    value: float
    variant: Variant
    priority: int


def _grid(context: Context) -> list[_GridPoint]:
    """All values of all factors; a value of the paper is the run of the paper's setting."""
    centre = context.config(PAPER, "sasrec", 0).method.model_dump()
    spots = []
    for factor in FACTORS:
        for place, value in enumerate(factor.values):
            is_centre = value == centre[factor.name]
            if factor.name == "n1" and value > context.data.counts.items and not is_centre:
                continue  # more actions than items
            exact = int(value) if factor.name == "n1" else float(value)
            changed = PAPER.but(f"ecoc-paper-{factor.name}-{value:g}", changes={factor.name: exact})
            variant = PAPER if is_centre else changed
            spots.append(_GridPoint(factor, value, variant, 0 if is_centre else max(0, place - _NEEDED + 1)))
    return spots


def jobs(context: Context) -> list[Job[Any]]:
    """Runs of every value of every factor, of the paper's setting, and of the supervised method to compare with."""
    encoders = context.encoders(ENCODERS)
    return context.run_jobs([VARIANTS[BASE], PAPER], encoders) + [
        context.run_job(spot.variant, encoder, seed, priority=spot.priority)
        for spot in _grid(context)
        for encoder in encoders
        for seed in context.seeds
    ]


def section(context: Context, results: Results) -> Section:
    """One table, and one line figure per factor."""
    spots = [spot for spot in _grid(context) if spot.priority <= context.plan.priority]
    centre = context.config(PAPER, "sasrec", 0).method.model_dump()
    fixed = ", ".join(f"{factor.name} = {centre[factor.name]:g}" for factor in FACTORS)
    return Section(
        id="sensitivity",
        title="Sensitivity to α, β and N1",
        text=[described(context), f"One factor at a time around the values of the paper ({fixed}); all else is fixed."],
        tables=[_table(context, results, spots)],
        figures=[figure for factor in FACTORS if (figure := _figure(context, results, spots, factor)) is not None],
        caveats=caveats(context, jobs(context), results),
    )


def _values(context: Context, results: Results, variant: Variant, encoder: str, metric: str) -> list[float]:
    """A metric of each finished seed."""
    runs = (results.value(context.run_job(variant, encoder, seed)) for seed in context.seeds)
    (title,) = variant.views
    return [run.views[title].metrics[metric] for run in runs if run is not None]


def _table(context: Context, results: Results, spots: list[_GridPoint]) -> Table:
    body: list[list[Cell]] = []
    groups = []
    for encoder in context.encoders(ENCODERS):
        for spot in sorted(spots, key=lambda spot: (FACTORS.index(spot.factor), spot.value)):
            each = [_values(context, results, spot.variant, encoder, name) for name in _METRICS]
            values: list[Cell] = [number(of_seeds) for of_seeds in each]
            if not each[0]:
                values = no_numbers(results.of(context.run_job(spot.variant, encoder, context.seeds[0])).message, 2)
            is_centre = spot.variant is PAPER
            body.append([f"{spot.value:g}{' (the paper)' * is_centre}", encoder, *values])
            groups.append(spot.factor.label)
    heads: list[Head] = ["value", "encoder", *((name.upper(), 4, "high") for name in _METRICS)]
    note = f"The catalogue has {context.data.counts.items:,} items; a larger N1 explores all of them."
    return Table.of("sensitivity", f"Sensitivity on {context.title}", heads, body, groups=groups, note=note)


def _figure(context: Context, results: Results, spots: list[_GridPoint], factor: Factor) -> Figure | None:
    """HR@20 and NDCG@20 over a factor; the supervised method is dashed."""
    own = sorted((spot for spot in spots if spot.factor is factor), key=lambda spot: spot.value)
    series = []
    for encoder in context.encoders(ENCODERS):
        for metric in _METRICS:
            means = [(spot.value, number(_values(context, results, spot.variant, encoder, metric))) for spot in own]
            points = [Point.of(value, with_whiskers(mean)) for value, mean in means if mean is not None]
            base = number(_values(context, results, VARIANTS[BASE], encoder, metric))
            if points:
                series.append(Series(name=f"{metric.upper()}, {encoder}", points=points))
            if points and base is not None:
                level = [Point.of(spot.value, with_whiskers(Number(value=base.value))) for spot in (own[0], own[-1])]
                series.append(Series(name=f"{metric.upper()}, {encoder}, {BASE}", points=level, dashed=True))
    if not series:
        return None
    return Figure(
        id=f"sensitivity-{factor.name}",
        title=f"Over {factor.label}",
        kind="lines",
        x=Axis(label=factor.label, log=True, ticks=[spot.value for spot in own]),
        y=Axis(label="HR@20 and NDCG@20"),
        series=series,
        note=SEEDS_NOTE,
    )


SENSITIVITY = Experiment("sensitivity", "Sensitivity", jobs, section)
