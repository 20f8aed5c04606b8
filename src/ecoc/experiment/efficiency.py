"""RQ3: the cost of training. Every method on the dataset, and steps with catalogues of up to a million items."""

from collections.abc import Callable, Sequence
from typing import Any

from ecoc.experiment import paper
from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.jobs import Arrays, Job, JobResult, Results
from ecoc.experiment.measure import MOST_BYTES, MOST_SECONDS, run_in_subprocess
from ecoc.experiment.recorded import step_settings
from ecoc.experiment.results import Measurement
from ecoc.experiment.tables import NO_ENCODER, caveats, no_numbers
from ecoc.experiment.variants import VARIANTS, Variant, preset_of, variant_of
from ecoc.progress import ProgressCallback
from ecoc.reporting.document import Axis, Cell, Column, Figure, Head, Point, Section, Series, Table

ENCODERS = ("nextitnet", "sasrec", "srgnn")
GROWING = ("supervised", "ecoc", "sqn", "sa2c")
CATALOGUES = (1_000, 10_000, 100_000, 1_000_000)
_WINDOWS = 14  # per step, of 50 events each
_START = 5.0  # seconds until a process is ready
_MEASURED = 3.0  # seconds of measured steps
_DENSE = ("sqn", "sa2c")  # methods with one output per item
_DENSE_STEP, _SPARSE_STEP = 1.5e-5, 1e-6  # seconds per item and step, for the estimate alone
_NEEDED_ITEMS = 100_000  # a plan may leave out larger catalogues


def jobs(context: Context) -> list[Job[Any]]:
    """One measurement per method and encoder, and one per method and catalogue size."""
    return [*(job for _, job in _measured(context)), *_growing(context).values()]


def _measured(context: Context) -> list[tuple[Variant, Job[Measurement]]]:
    encoders = context.encoders(ENCODERS)
    variants = [variant_of(name) for name in context.request.methods or VARIANTS]
    return [
        (variant, _job(context, variant, encoder))
        for variant in variants
        for encoder in (encoders if variant.has_encoder else encoders[:1])
    ]


def _job(context: Context, variant: Variant, encoder: str) -> Job[Measurement]:
    config = context.config(variant, encoder, context.request.seed)

    def work(progress: ProgressCallback) -> tuple[Measurement, Arrays]:
        return run_in_subprocess({"data": str(context.data.path), "config": config.values()}, progress), {}

    cost = context.step_costs.get((variant.name, encoder))
    return Job(
        f"efficiency/{encoder}/{variant.name}",
        Measurement,
        work,
        lambda: step_settings(config),
        seconds=_START + _MEASURED + (10 * cost.wall + 2 * cost.start if cost else 0.0),
        method=variant.name,
        encoder=encoder if variant.has_encoder else "",
        timed_as=(variant.name, encoder),
    )


def _growing(context: Context) -> dict[tuple[str, int], Job[Measurement]]:
    """Jobs by method and catalogue size. Each reads the result of the next smaller size to see whether it can run."""
    growing: dict[tuple[str, int], Job[Measurement]] = {}
    for name in GROWING:
        before = None
        for wave, items in enumerate(CATALOGUES):
            before = growing[name, items] = _grown(context, name, items, before, wave)
    return growing


def _grown(context: Context, name: str, items: int, before: Job[Measurement] | None, wave: int) -> Job[Measurement]:
    config = {"encoder": {"name": "sasrec"}, "method": {"name": VARIANTS[name].method}}
    order = {"items": items, "windows": _WINDOWS, "config": config}

    def work(progress: ProgressCallback) -> tuple[Measurement, Arrays]:
        stored = context.store.load(before) if before is not None else None
        smaller = None if stored is None else stored.value
        reason = "" if smaller is None else _too_large(smaller, CATALOGUES[wave] / CATALOGUES[wave - 1])
        return (Measurement(stopped=reason) if reason else run_in_subprocess(order, progress)), {}

    per_item = _DENSE_STEP if name in _DENSE else _SPARSE_STEP
    return Job(
        f"growth/{name}/{items}-items",
        Measurement,
        work,
        lambda: order,
        seconds=_START + _MEASURED + 10 * per_item * items,
        wave=wave,
        priority=1 if items > _NEEDED_ITEMS else 0,
        method=name,
        encoder="sasrec",
    )


def _too_large(smaller: Measurement, times: float) -> str:
    """Why a catalogue `times` as large cannot be measured, judging by the smaller one; empty if it can."""
    if smaller.stopped is not None:
        return smaller.stopped
    if smaller.cpu is None:
        return ""
    memory = smaller.before_rss_bytes + times * (smaller.peak_rss_bytes - smaller.before_rss_bytes)
    if memory > MOST_BYTES:
        return f"would need about {memory / 2**30:.0f} GB"
    return f"a step would take about {times * smaller.cpu:.0f} s" if times * smaller.cpu > MOST_SECONDS else ""


def section(context: Context, results: Results) -> Section:
    """Costs on the dataset and by catalogue size, beside those of the paper."""
    figures = [
        _figure(results, context, "efficiency-growth", "Time of a training step", "ms per step", _milliseconds),
        _figure(results, context, "efficiency-memory", "Memory of training", "peak memory, MB", _megabytes),
    ]
    return Section(
        id="efficiency",
        title="Efficiency: the cost of training",
        findings=_findings(context, results),
        text=[
            "Processor seconds of training steps alone: one thread, median of three repeats after a warm-up, one"
            " process per measurement. All methods of an encoder learn from the same windows, all positions at"
            " once; compare within an encoder. The phases of a method are weighted by their shares of a run.",
            _published(context),
        ],
        tables=[_costs(context, results), _growth(context, results)],
        figures=[figure for figure in figures if figure is not None],
        caveats=caveats(
            context,
            jobs(context),
            results,
            "Seconds depend on this machine. Only ratios within a table can be compared with the paper, which measured"
            " one sample per prefix on a GPU.",
        ),
    )


def _findings(context: Context, results: Results) -> list[str]:
    """How the cost of a step grows with the catalogue."""
    ratios = []
    first = CATALOGUES[0]
    for name in GROWING:
        seconds = {items: measured.cpu or 0.0 for items, measured in _by_size(context, results, name).items()}
        if first in seconds and len(seconds) > 1:
            most = max(seconds)
            ratios.append(f"{name} {seconds[most] / seconds[first]:.1f} times at {most:,} items")
    return [f"Efficiency: time of a training step relative to {first:,} items: {', '.join(ratios)}."] if ratios else []


def _by_size(context: Context, results: Results, name: str) -> dict[int, Measurement]:
    """Measurements of a method by catalogue size, without those that were stopped."""
    jobs_of_method = {items: job for (method, items), job in _growing(context).items() if method == name}
    values = {items: results.value(job) for items, job in jobs_of_method.items()}
    return {items: value for items, value in values.items() if value is not None and value.cpu is not None}


def _published(context: Context) -> str:
    preset = preset_of(context.data)
    if preset is None:
        savings = ", ".join(f"{value:g} % on {name}" for name, value in paper.SAVINGS.items())
        return (
            f"The paper reports that ECoC saves on average {savings} of the training time of SQN, the fastest baseline."
        )
    least, most = paper.COSTS[preset]
    return (
        f"The paper reports that ECoC saves {paper.SAVINGS[preset]:g} % of the training time of SQN on this dataset and"
        f" takes {least:g} to {most:g} times as long as the supervised method."
    )


def _costs(context: Context, results: Results) -> Table:
    heads: list[Head | Column] = ["method", ("s/epoch", 2, "low"), ("× supervised", 2), ("× SQN", 2)]
    heads += [("µs/transition", 1, "low"), ("states/s", 0, "high"), ("parameters", 0)]
    heads.append(Column(name="peak memory", digits=0, unit="MB"))
    published = {(entry.encoder, entry.method): entry for entry in paper.RESULTS.get(preset_of(context.data) or "", [])}
    heads += [("s/epoch, paper (GPU)", 1)] * bool(published)
    measured = _measured(context)
    base = {(job.encoder, variant.name): _epoch_seconds(results, job) for variant, job in measured}
    body: list[list[Cell | float]] = []
    groups = []
    order = [*context.encoders(ENCODERS), ""]
    for variant, job in sorted(measured, key=lambda pair: order.index(pair[1].encoder)):
        entry = published.get((job.encoder or NO_ENCODER, "ECoC" if variant.name == "ecoc-paper" else variant.name))
        row = _cost_row(results.of(job), [base.get((job.encoder, name)) for name in ("supervised", "sqn")])
        body.append([variant.name, *row, *[entry.seconds if entry else None] * bool(published)])
        groups.append(job.encoder or NO_ENCODER)
    values = [results.value(job) for _, job in measured]
    idle = max((value.before_rss_bytes for value in values if value is not None), default=0) / 2**20
    return Table.of(
        "efficiency",
        f"Cost of training on {context.title}",
        heads,
        body,
        groups=groups,
        note=f"Peak memory is that of the whole process; the interpreter with torch alone takes about {idle:,.0f} MB.",
    )


def _epoch_seconds(results: Results, job: Job[Measurement]) -> float | None:
    measured = results.value(job)
    return None if measured is None else measured.epoch_seconds


def _cost_row(result: JobResult[Measurement], bases: Sequence[float | None]) -> Sequence[Cell | float]:
    measured = result.value
    if measured is None or measured.cpu is None or measured.targets is None or measured.epoch_seconds is None:
        return no_numbers(_reason(result), 7)
    return [
        measured.epoch_seconds,
        *(measured.epoch_seconds / base if base else None for base in bases),
        1e6 * measured.cpu / measured.targets,
        measured.targets / measured.cpu,
        measured.parameters or 0,
        _megabytes(measured),
    ]


def _reason(result: JobResult[Measurement]) -> str:
    """Why there is no measurement."""
    return (result.value.stopped if result.value is not None else "") or result.message


def _growth(context: Context, results: Results) -> Table:
    shown = [items for items in CATALOGUES if context.plan.priority > 0 or items <= _NEEDED_ITEMS]
    heads: list[Head | Column] = ["method"]
    heads += [Column(name=f"{items:,} items", digits=1, unit="ms") for items in shown]
    heads += [Column(name=f"memory, {items:,} items", digits=0, unit="MB") for items in shown]
    body: list[list[Cell | float]] = []
    growing = _growing(context)
    for name in GROWING:
        of_method = [results.of(growing[name, items]) for items in shown]
        times, memory = ([_or_reason(result, value) for result in of_method] for value in (_milliseconds, _megabytes))
        body.append([name, *times, *memory])
    return Table.of(
        "efficiency-growth",
        "A training step as the catalogue grows",
        heads,
        body,
        note=f"sasrec, {_WINDOWS} windows of 50 random events per step, default settings. A measurement stops if it"
        f" would take more than {MOST_BYTES >> 30} GB or {MOST_SECONDS:.0f} s per step.",
    )


def _or_reason(result: JobResult[Measurement], value: Callable[[Measurement], float]) -> str | float:
    measured = result.value
    return _reason(result)[:200] if measured is None or measured.cpu is None else value(measured)


def _milliseconds(measured: Measurement) -> float:
    return 1000 * (measured.cpu or 0.0)


def _megabytes(measured: Measurement) -> float:
    return measured.peak_rss_bytes / 2**20


def _figure(
    results: Results, context: Context, name: str, title: str, label: str, value: Callable[[Measurement], float]
) -> Figure | None:
    series = []
    for method in GROWING:
        points = [Point(x=items, y=value(each)) for items, each in _by_size(context, results, method).items()]
        if points:
            series.append(Series(name=method, points=points))
    if not series:
        return None
    x = Axis(label="items in the catalogue", log=True, ticks=list(CATALOGUES))
    return Figure(id=name, title=title, kind="lines", x=x, y=Axis(label=label, log=True), series=series)


EFFICIENCY = Experiment("efficiency", "Efficiency", jobs, section)
