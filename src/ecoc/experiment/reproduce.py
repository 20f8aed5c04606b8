"""`ecoc.reproduce`: an experiment from data to report, resumable job by job, optionally within a time budget."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import ecoc
from ecoc.arguments import StrPath, as_choice, as_count, as_path, as_text
from ecoc.data.prepare import prepare
from ecoc.data.sequences import Dataset, open_data
from ecoc.durations import parse_budget
from ecoc.encoders import ENCODERS
from ecoc.errors import ArtifactError, InputError, did_you_mean
from ecoc.experiment import EXPERIMENTS
from ecoc.experiment.context import Context, Experiment, Request, validation_steps
from ecoc.experiment.jobs import Clock, JobStore, Results
from ecoc.experiment.plan import PLANS, Plan, Plans
from ecoc.experiment.results import ReproductionResult, cell_rows
from ecoc.experiment.runner import Runner, jobs_of
from ecoc.experiment.variants import VARIANTS, Length, preset_of, settings, variant_of
from ecoc.methods import METHODS
from ecoc.progress import ProgressCallback, no_progress
from ecoc.reporting.document import Document, Section, load_document, save_document
from ecoc.reporting.provenance import made_with
from ecoc.reporting.write import report
from ecoc.storage.atomic import lock
from ecoc.training.opening import open_windows
from ecoc.training.train import torch_threads
from ecoc.world import parse_world

ALL = "all"
_LOG = logging.getLogger("ecoc.experiment")
_EPOCHS, _PAPER_EPOCHS, _LEAST_STEPS = 8, 20, 1000
_MOST_VALIDATIONS = 25  # of runs that end when they have converged; the released code's largest number of epochs
_PAPER_LENGTH = 10  # events of the shortest sequence in the paper
_HTML = "report.html"


def reproduce(  # noqa: PLR0913 - one parameter per setting
    experiment: str,
    data: Dataset | StrPath,
    out: StrPath,
    *,
    methods: Sequence[str] | None = None,
    encoders: Sequence[str] | None = None,
    seeds: int = 3,
    steps: int | None = None,
    budget: str | float | None = None,
    max_cases: int = 10_000,
    exclude_seen: bool = False,
    until: str | None = None,
    protocol: str | None = None,
    seed: int = 0,
    threads: int | None = None,
    command: str = "",
    progress: ProgressCallback | None = None,
) -> ReproductionResult:
    """Compute one experiment of the paper, or `all`, on a dataset or a built-in world, into folder `out`.

    Finished jobs of an earlier call are not computed again, so an interrupted call can be repeated. `steps` is the
    number of training steps per run (default: 8 epochs, at least 1,000 steps; 20 epochs on the paper's datasets).
    `seeds` is the number of runs per method and encoder. With a `budget`, such as 30m, both are cut as needed, and
    `trimmed` lists the cuts. At most `max_cases` test cases are ranked; 0: all. `exclude_seen` takes the items of a
    user's past out of every ranking.

    With `until="converged"` every run trains until validation stops improving, for at most `steps` (default: 25
    validations), and each method stands beside its controls. With `protocol="paper"` the data must be split 80/20 and
    have sequences of at least 10 events, and all test positions are ranked.

    The logger `ecoc.experiment` gets the plan and each job as it ends.
    """
    experiments, folder = _experiments(as_text(experiment, "experiment")), as_path(out, "out")
    if not isinstance(data, Dataset):
        as_path(data, "data")
    seeds, max_cases, seed = as_count(seeds, "seeds"), as_count(max_cases, "max_cases"), as_count(seed, "seed")
    steps = None if steps is None else as_count(steps, "steps")
    request = Request(
        experiment,
        _names(methods, lambda name: variant_of(name).name),
        _names(encoders, lambda name: ENCODERS[name] and name),
        seeds,
        steps,
        parse_budget(budget) if isinstance(budget, str) else budget,
        max_cases,
        seed,
        exclude_seen,
        until is not None and as_choice(until, "until", ("converged",)) == "converged",
        protocol is not None and as_choice(protocol, "protocol", ("paper",)) == "paper",
    )
    if request.paper_protocol:
        request = replace(request, max_cases=0)
    _check(request)
    runner = Runner(Clock(request.budget), progress or no_progress)
    _begin(folder)
    with lock(folder.absolute()), torch_threads(threads or 1):
        Plans(folder).begin()
        dataset = _open(data, folder, seed, runner.progress)
        common = {"data": dataset.checksum, "ecoc": ecoc.__version__}
        if request.paper_protocol:
            _check_protocol(dataset)
        requested = Plan(steps or _default_steps(dataset, request), seeds, 0)
        store = JobStore(folder, common)
        context = Context(dataset, folder, store, request, requested, threads or 1, _title(dataset, data))
        experiments = _possible(context, experiments)
        context = runner.planned(context, experiments, common)
        provenance, results, sections = _provenance(context, command), Results({}), list[Section]()
        for each in experiments:
            own = runner.run(context, each)
            results |= own
            sections.append(each.section(context, own).model_copy(update={"commands": [command] * bool(command)}))
            page = _write(context, sections[-1], provenance)
        return ReproductionResult(
            experiment=experiment,
            cells=[row for job in jobs_of(context, experiments) for row in cell_rows(job, results.of(job))],
            tables=[table for section in sections for table in section.tables],
            figures=[figure for section in sections for figure in section.figures],
            caveats=list(dict.fromkeys(text for section in sections for text in section.caveats)),
            report=str(page),
            trimmed=list(context.plan.trimmed),
            steps=context.plan.steps,
            seeds=context.plan.seeds,
            seconds=runner.clock.spent,
        )


def _experiments(name: str) -> list[Experiment]:
    if name != ALL and name not in EXPERIMENTS:
        raise InputError(f"unknown experiment '{name}'; {did_you_mean(name, [*EXPERIMENTS, ALL])}")
    return list(EXPERIMENTS.values()) if name == ALL else [EXPERIMENTS[name]]


def _possible(context: Context, experiments: list[Experiment]) -> list[Experiment]:
    """Without a built-in world, `all` leaves out the experiments that need its truth."""
    possible = [each for each in experiments if context.market is not None or not each.needs_world]
    if not possible:
        raise InputError(f"{context.data.path}: {experiments[0].name} needs a built-in world, such as world:default")
    return possible


def _names(given: Sequence[str] | None, known: Callable[[str], object]) -> tuple[str, ...] | None:
    """The given names, each once; an unknown one is an error; None if no name is given."""
    if given is None or not list(given):
        return None
    for name in given:
        known(name)
    return tuple(dict.fromkeys(given))


def _check(request: Request) -> None:
    least = {"seeds": 1, "steps": 1, "max_cases": 0}
    for name, lowest in least.items():
        value = getattr(request, name)
        if value is not None and value < lowest:
            raise InputError(f"{name} {value}: at least {lowest} is needed")
    if request.seed < 0 or (request.budget is not None and not request.budget > 0):
        raise InputError(f"seed {request.seed} and budget {request.budget}: neither may be below 0")


def _begin(folder: Path) -> None:
    """Make the folder; one with files of another origin is refused."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        entries = {entry.name for entry in folder.iterdir() if not entry.match(f"{PLANS}*.partial")}
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}; choose another folder") from None
    if entries and PLANS not in entries:
        raise InputError(f"{folder}: holds files that ecoc reproduce did not write; choose another folder")


def _open(data: Dataset | StrPath, folder: Path, seed: int, progress: ProgressCallback) -> Dataset:
    """The dataset; a built-in world is prepared in the folder, once."""
    if isinstance(data, Dataset):
        return data
    name = os.fspath(data)
    if not name.startswith("world:"):
        return open_data(name)
    place = folder / "data"
    world = parse_world(name, seed=seed).model_dump(mode="json")
    if not place.exists():
        return prepare(name, place, seed=seed, progress=progress)
    dataset = open_data(place)
    if dataset.manifest.settings.get("world") != world:
        raise InputError(f"{place}: holds another world than {name} with seed {seed}; choose another folder with -o")
    return dataset


def _title(dataset: Dataset, data: Dataset | StrPath) -> str:
    """Name of the data in tables: that of a world, else that of the folder."""
    name = "" if isinstance(data, Dataset) else os.fspath(data)
    return name if name.startswith("world:") else dataset.path.absolute().name


def _default_steps(data: Dataset, request: Request) -> int:
    """Steps per run if the call gives no number."""
    if request.until_converged:
        return _MOST_VALIDATIONS * validation_steps(data)
    variant = VARIANTS["supervised"]
    windows = open_windows(data, settings(variant, "sasrec", data, length=Length(1)), METHODS[variant.method])
    return max(_LEAST_STEPS, windows.steps * (_PAPER_EPOCHS if preset_of(data) else _EPOCHS))


def _check_protocol(data: Dataset) -> None:
    """Refuse data that were not prepared by the paper's protocol; an order without times can only be split per user."""
    split, least = data.manifest.settings.get("split"), data.manifest.settings.get("min_length")
    wanted = "per-user:0.8" if data.manifest.time_unit == "order" else "time:0.8"
    if split != wanted or not isinstance(least, int) or least < _PAPER_LENGTH:
        raise InputError(
            f"{data.path}: protocol paper needs data prepared with --split {wanted} --min-length {_PAPER_LENGTH};"
            f" these have split {split} and minimum length {least}"
        )


def _provenance(context: Context, command: str) -> dict[str, str]:
    counts, data = context.data.counts, context.data
    seeds = f"{context.seeds[0]} to {context.seeds[-1]}" if len(context.seeds) > 1 else str(context.seeds[0])
    provenance = {
        "data": context.title,
        "data checksum": data.checksum,
        "data counts": f"{counts.interactions:,} events, {counts.sequences:,} sequences, {counts.items:,} items,"
        f" {counts.test_targets:,} test targets",
        "seeds": seeds,
        "training": str(context.length),
        **made_with(context.threads),
    }
    return {name: text[:300] for name, text in {**provenance, "command": command}.items() if text}


def _write(context: Context, section: Section, provenance: Mapping[str, str]) -> Path:
    """Put a section into the report, beside the sections of other calls on the same data."""
    try:
        document = load_document(context.out)
        is_same = document.facts.get("data checksum") == context.data.checksum
    except ArtifactError:
        is_same = False
    others = {other.id: other for other in document.sections} if is_same else {}
    sections = {**others, section.id: section}
    order = [*EXPERIMENTS, *sections]
    ordered = sorted(sections.values(), key=lambda each: order.index(each.id))
    page = save_document(
        context.out,
        Document(
            title=f"ecoc: the paper's experiments on {context.title}"[:300],
            summary=[text for each in ordered for text in each.findings],
            facts=dict(provenance),
            sections=ordered,
        ),
    )
    return _rendered(context.out) or page


def _rendered(folder: Path) -> Path | None:
    """The report as an HTML page; None if it cannot be written."""
    try:
        return Path(report([folder], folder / _HTML).report)
    except ecoc.EcocError as error:
        _LOG.warning("%s: not written: %s", folder / _HTML, error)
        return None
