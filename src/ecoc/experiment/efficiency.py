"""RQ3: what training costs. Every method on the dataset, and steps as the catalogue grows to a million items."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ecoc.experiment import paper
from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.jobs import Arrays, JobResult
from ecoc.experiment.jobs import Cell as Work
from ecoc.experiment.measure import MOST_BYTES, MOST_SECONDS, run_in_subprocess
from ecoc.experiment.tables import NO_ENCODER, caveats, said
from ecoc.experiment.variants import VARIANTS, Variant, preset_of, variant_of
from ecoc.progress import ProgressCallback
from ecoc.reporting.document import Axis, Cell, Column, Figure, Number, Point, Section, Series, Table

ENCODERS = ("nextitnet", "sasrec", "srgnn")
GROWING = ("supervised", "ecoc", "sqn", "sa2c")
CATALOGUES = (1_000, 10_000, 100_000, 1_000_000)
_WINDOWS = 14  # a step, of 50 events
_START = 5.0  # seconds until a process is ready
_STRETCHES = 3.0  # seconds of steps that are timed
_DENSE = ("sqn", "sa2c")  # a head of their own for every item
_DENSE_STEP, _SPARSE_STEP = 1.5e-5, 1e-6  # seconds an item and step, for the estimate alone
_NEEDED_ITEMS = 100_000  # larger catalogues may be left out


def cells(context: Context) -> list[Work]:
    """One measurement a method and encoder, one a method and catalogue."""
    return [*(cell for _, cell in _measured(context)), *_growing(context)]


def _measured(context: Context) -> list[tuple[Variant, Work]]:
    encoders = context.encoders(ENCODERS)
    found = []
    for variant in (variant_of(name) for name in context.asked.methods or VARIANTS):
        for encoder in encoders if variant.has_encoder else encoders[:1]:
            found.append((variant, _cell(context, variant, encoder)))
    return found


def _cell(context: Context, variant: Variant, encoder: str) -> Work:
    values = context.config(variant, encoder, context.asked.seed).values()
    train = values["train"]
    values["train"] = {key: train[key] for key in train if key not in ("max_steps", "validate_every")}

    def work(watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
        return run_in_subprocess({"data": str(context.data.path), "config": values}, watch), {}

    pace = context.paces.get((variant.name, encoder))
    return Work(
        f"efficiency/{encoder}/{variant.name}",
        work,
        lambda: values,
        seconds=_START + _STRETCHES + (10 * pace.wall + 2 * pace.start if pace else 0.0),
        method=variant.name,
        encoder=encoder if variant.has_encoder else "",
        paced=(variant.name, encoder),
    )


def _growing(context: Context) -> list[Work]:
    """By catalogue; each looks at the one before, so that none begins that cannot end."""
    found: list[Work] = []
    for name in GROWING:
        before = None
        for stage, items in enumerate(CATALOGUES):
            before = _grown(context, name, items, before, stage)
            found.append(before)
    return found


def _grown(context: Context, name: str, items: int, before: Work | None, stage: int) -> Work:
    config = {"encoder": {"name": "sasrec"}, "method": {"name": VARIANTS[name].method}}
    order = {"items": items, "windows": _WINDOWS, "config": config}

    def work(watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
        smaller = context.store.load(before) if before is not None else None
        why = _too_much(smaller.facts, CATALOGUES[stage] / CATALOGUES[stage - 1]) if smaller is not None else ""
        return ({"stopped": why} if why else run_in_subprocess(order, watch)), {}

    growing = _DENSE_STEP if name in _DENSE else _SPARSE_STEP
    return Work(
        f"growth/{name}/{items}-items",
        work,
        lambda: order,
        seconds=_START + _STRETCHES + 10 * growing * items,
        stage=stage,
        rank=1 if items > _NEEDED_ITEMS else 0,
        method=name,
        encoder="sasrec",
    )


def _too_much(smaller: Mapping[str, Any], times: float) -> str:
    """Why so many times the catalogue cannot be measured, by what the smaller one took; nothing if it can."""
    if "stopped" in smaller:
        return str(smaller["stopped"])
    if "cpu" not in smaller:
        return ""
    memory = smaller["before_rss_bytes"] + times * (smaller["peak_rss_bytes"] - smaller["before_rss_bytes"])
    if memory > MOST_BYTES:
        return f"would need about {memory / 2**30:.0f} GB"
    return f"a step would take about {times * smaller['cpu']:.0f} s" if times * smaller["cpu"] > MOST_SECONDS else ""


def section(context: Context, results: Mapping[str, JobResult]) -> Section:
    """Costs on the dataset and by catalogue, with the paper's own beside."""
    figures = [
        _figure(results, context, "efficiency-growth", "Time of a training step", "ms a step", _milliseconds),
        _figure(results, context, "efficiency-memory", "Memory of training", "peak memory, MB", _megabytes),
    ]
    return Section(
        id="efficiency",
        title="Efficiency: what training costs",
        findings=_findings(results),
        text=[
            "Processor seconds of training steps alone, one thread, the median of three stretches after a warm-up, each"
            " measurement in a process of its own. All methods of an encoder learn from the same windows, all positions"
            " at once; compare within an encoder. A method with phases is weighed by their shares of a run.",
            _published(context),
        ],
        tables=[_costs(context, results), _growth(context, results)],
        figures=[figure for figure in figures if figure is not None],
        caveats=caveats(
            context,
            cells(context),
            results,
            "Seconds are of this machine; ratios within one table are what can be compared with the paper, which timed"
            " one sample per prefix on a GPU.",
        ),
    )


def _findings(results: Mapping[str, JobResult]) -> list[str]:
    """How a step grows with the catalogue."""
    told = []
    first = CATALOGUES[0]
    for name in GROWING:
        found = {items: results.get(f"growth/{name}/{items}-items") for items in CATALOGUES}
        taken = {items: one.facts["cpu"] for items, one in found.items() if one is not None and "cpu" in one.facts}
        if first in taken and len(taken) > 1:
            most = max(taken)
            told.append(f"{name} {taken[most] / taken[first]:.1f} times at {most:,}")
    return [f"Efficiency: a training step against one with {first:,} items: {', '.join(told)}."] if told else []


def _published(context: Context) -> str:
    preset = preset_of(context.data)
    if preset is None:
        savings = ", ".join(f"{value:g} % on {name}" for name, value in paper.SAVINGS.items())
        return f"The paper reports that ECoC saves {savings} of the time of SQN, its fastest rival, on average."
    least, most = paper.COSTS[preset]
    return (
        f"The paper reports that ECoC saves {paper.SAVINGS[preset]:g} % of SQN's time on these data and costs {least:g}"
        f" to {most:g} times the supervised encoder."
    )


def _costs(context: Context, results: Mapping[str, JobResult]) -> Table:
    columns = [
        Column(name="method"),
        Column(name="s/epoch", better="low", digits=2),
        Column(name="× supervised", digits=2),
        Column(name="× SQN", digits=2),
        Column(name="µs/transition", better="low", digits=1),
        Column(name="states/s", better="high", digits=0),
        Column(name="parameters", digits=0),
        Column(name="peak memory", digits=0, unit="MB"),
    ]
    published = {(one.encoder, one.method): one for one in paper.RESULTS.get(preset_of(context.data) or "", [])}
    if published:
        columns.append(Column(name="s/epoch, paper (GPU)", digits=1))
    measured = _measured(context)
    seconds = {cell.name: _epoch(results[cell.name]) for _, cell in measured}
    base = {(cell.encoder, variant.name): seconds[cell.name] for variant, cell in measured}
    body: list[list[Cell]] = []
    groups = []
    order = [*context.encoders(ENCODERS), ""]
    for variant, cell in sorted(measured, key=lambda pair: order.index(pair[1].encoder)):
        one = published.get((cell.encoder or NO_ENCODER, "ECoC" if variant.name == "ecoc-paper" else variant.name))
        row = _cost_row(results[cell.name], [base.get((cell.encoder, name)) for name in ("supervised", "sqn")])
        body.append([variant.name, *row, *([Number(value=one.seconds) if one else None] if published else [])])
        groups.append(cell.encoder or NO_ENCODER)
    return Table(
        id="efficiency",
        title=f"Cost of training on {context.title}",
        columns=columns,
        rows=body,
        groups=groups,
        note="Peak memory is of the whole process, of which an idle interpreter with torch is about"
        f" {_idle(results, measured):,.0f} MB.",
    )


def _epoch(found: JobResult) -> float | None:
    return found.facts["cpu"] * found.facts["epoch_steps"] if "cpu" in found.facts else None


def _cost_row(found: JobResult, bases: Sequence[float | None]) -> list[Cell]:
    facts, epoch = found.facts, _epoch(found)
    if epoch is None:
        return said(str(facts.get("stopped", "")) or found.message, 7)
    ratios: list[Cell] = [Number(value=epoch / base) if base else None for base in bases]
    return [
        Number(value=epoch),
        *ratios,
        Number(value=1e6 * facts["cpu"] / facts["targets"]),
        Number(value=facts["targets"] / facts["cpu"]),
        Number(value=facts["parameters"]),
        Number(value=facts["peak_rss_bytes"] / 2**20),
    ]


def _idle(results: Mapping[str, JobResult], measured: Sequence[tuple[Variant, Work]]) -> float:
    found = [results[cell.name].facts.get("before_rss_bytes", 0) for _, cell in measured]
    return max(found, default=0) / 2**20


def _growth(context: Context, results: Mapping[str, JobResult]) -> Table:
    shown = [items for items in CATALOGUES if context.plan.rank > 0 or items <= _NEEDED_ITEMS]
    columns = [Column(name="method")]
    columns += [Column(name=f"{items:,} items", digits=1, unit="ms") for items in shown]
    columns += [Column(name=f"memory, {items:,} items", digits=0, unit="MB") for items in shown]
    body: list[list[Cell]] = []
    for name in GROWING:
        found = [results[f"growth/{name}/{items}-items"] for items in shown]
        body.append(
            [name, *(_or_why(one, _milliseconds) for one in found), *(_or_why(one, _megabytes) for one in found)]
        )
    return Table(
        id="efficiency-growth",
        title="A training step as the catalogue grows",
        columns=columns,
        rows=body,
        note=f"sasrec, {_WINDOWS} windows of 50 random events a step, default settings. Stopped where it would take"
        f" more than {MOST_BYTES >> 30} GB or {MOST_SECONDS:.0f} s a step.",
    )


def _or_why(found: JobResult, value: Callable[[Mapping[str, Any]], float]) -> Cell:
    if "cpu" in found.facts:
        return Number(value=value(found.facts))
    return str(found.facts.get("stopped", "") or found.message)[:200]


def _milliseconds(facts: Mapping[str, Any]) -> float:
    return float(1000 * facts["cpu"])


def _megabytes(facts: Mapping[str, Any]) -> float:
    return float(facts["peak_rss_bytes"] / 2**20)


def _figure(
    results: Mapping[str, JobResult], context: Context, name: str, title: str, label: str, value: Callable[..., float]
) -> Figure | None:
    series = []
    for method in GROWING:
        found = {items: results.get(f"growth/{method}/{items}-items") for items in CATALOGUES}
        points = [Point(x=items, y=value(one.facts)) for items, one in found.items() if one and "cpu" in one.facts]
        if points:
            series.append(Series(name=method, points=points))
    if not series:
        return None
    x = Axis(label="items in the catalogue", log=True, ticks=list(CATALOGUES))
    return Figure(id=name, title=title, kind="lines", x=x, y=Axis(label=label, log=True), series=series)


EFFICIENCY = Experiment("efficiency", "Efficiency", cells, section)
