"""RQ5: how much depends on alpha, beta and N1. One factor at a time around the paper's values."""

from collections.abc import Mapping
from dataclasses import dataclass

from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.jobs import Cell as Work
from ecoc.experiment.jobs import JobResult
from ecoc.experiment.tables import caveats, described, number, point, said
from ecoc.experiment.variants import BASE, PAPER, VARIANTS, Variant
from ecoc.reporting.document import Axis, Cell, Column, Figure, Number, Section, Series, Table

ENCODERS = ("sasrec",)
_METRICS = ("hr@20", "ndcg@20")
_NEEDED = 3  # values of a factor that no budget takes away


@dataclass(frozen=True)
class Factor:
    """A setting and its values, in the order in which a budget keeps them."""

    name: str
    label: str
    values: tuple[float, ...]


FACTORS = (
    Factor("alpha", "α, weight of L_REG", (1, 20, 0.1, 5, 10, 2, 0.5, 8)),
    Factor("beta", "β, weight of L_BC", (0.1, 10, 1, 0.5, 2, 5)),
    Factor("n1", "N1, actions explored", (10, 100, 500, 1000, 50, 200)),
)


@dataclass(frozen=True)
class _Spot:
    """A value of a factor."""

    factor: Factor
    value: float
    variant: Variant
    rank: int


def _spots(context: Context) -> list[_Spot]:
    """The grid; a value that is the paper's own is the run everyone else shares."""
    centre = context.config(PAPER, "sasrec", 0).method.model_dump()
    spots = []
    for factor in FACTORS:
        for place, value in enumerate(factor.values):
            is_centre = value == centre[factor.name]
            if factor.name == "n1" and value > context.data.counts.items and not is_centre:
                continue  # all items are explored already
            exact = int(value) if factor.name == "n1" else float(value)
            variant = (
                PAPER if is_centre else PAPER.but(f"ecoc-paper-{factor.name}-{value:g}", changes={factor.name: exact})
            )
            spots.append(_Spot(factor, value, variant, 0 if is_centre else max(0, place - _NEEDED + 1)))
    return spots


def cells(context: Context) -> list[Work]:
    """Every value of every factor, the paper's own setting, and the backbone to compare with."""
    encoders = context.encoders(ENCODERS)
    found = context.run_cells([VARIANTS[BASE], PAPER], encoders)
    return found + [
        context.run_cell(spot.variant, encoder, seed, rank=spot.rank)
        for spot in _spots(context)
        for encoder in encoders
        for seed in context.seeds
    ]


def section(context: Context, results: Mapping[str, JobResult]) -> Section:
    """One table, and a line figure a factor."""
    spots = [spot for spot in _spots(context) if spot.rank <= context.plan.rank]
    centre = context.config(PAPER, "sasrec", 0).method.model_dump()
    fixed = ", ".join(f"{factor.name} = {centre[factor.name]:g}" for factor in FACTORS)
    return Section(
        id="sensitivity",
        title="Sensitivity: how much depends on α, β and N1",
        text=[described(context), f"One factor at a time around the paper's values ({fixed}), everything else fixed."],
        tables=[_table(context, results, spots)],
        figures=[figure for factor in FACTORS if (figure := _figure(context, results, spots, factor)) is not None],
        caveats=caveats(context, cells(context), results),
    )


def _values(
    context: Context, results: Mapping[str, JobResult], variant: Variant, encoder: str, metric: str
) -> list[float]:
    """A metric of each finished seed."""
    found = (results[context.run_cell(variant, encoder, seed).name] for seed in context.seeds)
    (title,) = variant.views
    return [one.facts["views"][title]["metrics"][metric] for one in found if one.is_done]


def _table(context: Context, results: Mapping[str, JobResult], spots: list[_Spot]) -> Table:
    columns = [Column(name="value"), Column(name="encoder")]
    columns += [Column(name=name.upper(), better="high") for name in _METRICS]
    body: list[list[Cell]] = []
    groups = []
    for encoder in context.encoders(ENCODERS):
        for spot in sorted(spots, key=lambda one: (FACTORS.index(one.factor), one.value)):
            each = [_values(context, results, spot.variant, encoder, name) for name in _METRICS]
            values: list[Cell] = [number(one) for one in each]
            if not each[0]:
                values = said(results[context.run_cell(spot.variant, encoder, context.seeds[0]).name].message, 2)
            is_centre = spot.variant is PAPER
            body.append([f"{spot.value:g}{' (the paper)' * is_centre}", encoder, *values])
            groups.append(spot.factor.label)
    return Table(
        id="sensitivity",
        title=f"Sensitivity on {context.title}",
        columns=columns,
        rows=body,
        groups=groups,
        note=f"N1 beyond the {context.data.counts.items:,} items of the catalogue explores all of them.",
    )


def _figure(context: Context, results: Mapping[str, JobResult], spots: list[_Spot], factor: Factor) -> Figure | None:
    """HR@20 and NDCG@20 over a factor, the backbone dashed."""
    own = sorted((spot for spot in spots if spot.factor is factor), key=lambda one: one.value)
    series = []
    for encoder in context.encoders(ENCODERS):
        for metric in _METRICS:
            found = [(spot.value, number(_values(context, results, spot.variant, encoder, metric))) for spot in own]
            points = [point(value, one) for value, one in found if one is not None]
            base = number(_values(context, results, VARIANTS[BASE], encoder, metric))
            if points:
                series.append(Series(name=f"{metric.upper()}, {encoder}", points=points))
            if points and base is not None:
                level = [point(spot.value, Number(value=base.value)) for spot in (own[0], own[-1])]
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
        note="Means over seeds, whiskers one standard deviation.",
    )


SENSITIVITY = Experiment("sensitivity", "Sensitivity", cells, section)
