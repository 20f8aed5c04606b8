"""`ecoc.reproduce`: an experiment from data to report, resumable cell by cell, within a budget of time if asked."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import torch

import ecoc
from ecoc.arguments import as_count, as_path, as_text
from ecoc.data.prepare import prepare
from ecoc.data.sequences import Dataset, open_data
from ecoc.encoders import ENCODERS
from ecoc.errors import ArtifactError, InputError, did_you_mean
from ecoc.experiment import EXPERIMENTS
from ecoc.experiment.context import Context, Experiment, Request
from ecoc.experiment.jobs import Cell, Clock, JobResult, Store
from ecoc.experiment.plan import PLANS, Plan, Plans, parse_budget
from ecoc.experiment.runner import Runner, Say, cells_of
from ecoc.experiment.variants import VARIANTS, preset_of, settings, variant_of
from ecoc.progress import ProgressCallback, no_progress
from ecoc.reporting.document import Document, Section, load_document, save_document
from ecoc.reporting.provenance import made_with
from ecoc.reporting.write import report
from ecoc.storage.atomic import lock
from ecoc.training.train import open_windows
from ecoc.world import parse_world

ALL = "all"
_EPOCHS, _PAPER_EPOCHS, _LEAST_STEPS = 8, 20, 1000
_HTML = "report.html"


def reproduce(  # noqa: PLR0913 - one parameter a choice
    experiment: str,
    data: Dataset | str | PathLike[str],
    out: str | PathLike[str],
    *,
    methods: Sequence[str] | None = None,
    encoders: Sequence[str] | None = None,
    seeds: int = 3,
    steps: int | None = None,
    budget: str | float | None = None,
    max_cases: int = 10_000,
    exclude_seen: bool = False,
    seed: int = 0,
    threads: int | None = None,
    command: str = "",
    say: Say = lambda text: None,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Compute one of the paper's experiments, or `all`, on a dataset or a built-in world, into folder `out`.

    What an earlier call finished is not computed again, so an interrupted call is simply repeated. `steps` are training
    steps of every run (none: 8 epochs, at least 1,000 steps; on the paper's datasets its 20 epochs), `seeds` how often
    each run is repeated. With a `budget`, such as 30m, both are trimmed, and it is said where. `max_cases` test cases
    are judged; 0: all. `exclude_seen` takes the items of a user's past out of every ranking. `say` is told what is
    planned and each cell as it ends.
    """
    chosen, folder = _chosen(as_text(experiment, "experiment")), as_path(out, "out")
    if not isinstance(data, Dataset):
        as_path(data, "data")
    seeds, max_cases, seed = as_count(seeds, "seeds"), as_count(max_cases, "max_cases"), as_count(seed, "seed")
    steps = None if steps is None else as_count(steps, "steps")
    asked = Request(
        experiment,
        _names(methods, lambda name: variant_of(name).name),
        _names(encoders, lambda name: ENCODERS[name] and name),
        seeds,
        steps,
        parse_budget(budget) if isinstance(budget, str) else budget,
        max_cases,
        seed,
        exclude_seen,
    )
    _check(asked)
    desk = Runner(Clock(asked.budget), progress or no_progress, say)
    _begin(folder)
    with lock(folder.absolute()), _threads(threads or 1):
        Plans(folder).begin()
        dataset = _opened(data, folder, seed, desk.watch)
        common = {"data": dataset.checksum, "ecoc": ecoc.__version__}
        wanted = Plan(steps or _usual_steps(dataset), seeds, 0)
        context = Context(dataset, folder, Store(folder, common), asked, wanted, threads or 1, _title(dataset, data))
        chosen = _possible(context, chosen)
        context = desk.planned(context, chosen, common)
        facts, results, sections = _facts(context, command), dict[str, JobResult](), list[Section]()
        for one in chosen:
            found = desk.work(context, one)
            results |= found
            sections.append(one.section(context, found).model_copy(update={"commands": [command] * bool(command)}))
            page = _write(context, sections[-1], facts, say)
        return {
            "experiment": experiment,
            "cells": [row for cell in cells_of(context, chosen) for row in _rows(cell, results[cell.name])],
            "tables": [table.model_dump(mode="json") for section in sections for table in section.tables],
            "figures": [figure.model_dump(mode="json") for section in sections for figure in section.figures],
            "caveats": list(dict.fromkeys(text for section in sections for text in section.caveats)),
            "report": str(page),
            "trimmed": list(context.plan.trimmed),
            "steps": context.plan.steps,
            "seeds": context.plan.seeds,
            "seconds": desk.clock.spent,
        }


def _chosen(name: str) -> list[Experiment]:
    if name != ALL and name not in EXPERIMENTS:
        raise InputError(f"unknown experiment '{name}'; {did_you_mean(name, [*EXPERIMENTS, ALL])}")
    return list(EXPERIMENTS.values()) if name == ALL else [EXPERIMENTS[name]]


def _possible(context: Context, chosen: list[Experiment]) -> list[Experiment]:
    """Without a built-in world, `all` leaves out what needs its truth."""
    found = [one for one in chosen if context.market is not None or not one.needs_world]
    if not found:
        raise InputError(f"{context.data.path}: {chosen[0].name} needs a built-in world, such as world:default")
    return found


def _names(given: Sequence[str] | None, known: Callable[[str], object]) -> tuple[str, ...] | None:
    """Names asked for, each once; an unknown one is an error, none at all is the usual choice."""
    if given is None or not list(given):
        return None
    for name in given:
        known(name)
    return tuple(dict.fromkeys(given))


def _check(asked: Request) -> None:
    for name, value, least in (("seeds", asked.seeds, 1), ("steps", asked.steps, 1), ("max_cases", asked.max_cases, 0)):
        if value is not None and value < least:
            raise InputError(f"{name} {value}: at least {least} is needed")
    if asked.seed < 0 or (asked.budget is not None and not asked.budget > 0):
        raise InputError(f"seed {asked.seed} and budget {asked.budget}: neither may be below 0")


def _begin(folder: Path) -> None:
    """Make the folder; one that holds other files is left alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        entries = {entry.name for entry in folder.iterdir()}
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}; choose another folder") from None
    if entries - {f"{PLANS}.partial"} and PLANS not in entries:
        raise InputError(f"{folder}: holds files that ecoc reproduce did not write; choose another folder")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _opened(data: Dataset | str | PathLike[str], folder: Path, seed: int, watch: ProgressCallback) -> Dataset:
    """The dataset; a world is prepared in the folder, once."""
    if isinstance(data, Dataset):
        return data
    name = os.fspath(data)
    if not name.startswith("world:"):
        return open_data(name)
    place = folder / "data"
    world = parse_world(name, seed=seed).model_dump(mode="json")
    if not place.exists():
        return prepare(name, place, seed=seed, progress=watch)
    found = open_data(place)
    if found.manifest.settings.get("world") != world:
        raise InputError(f"{place}: holds another world than {name} with seed {seed}; choose another folder with -o")
    return found


def _title(dataset: Dataset, data: Dataset | str | PathLike[str]) -> str:
    """What tables call the data: a world by its name, others by their folder."""
    name = "" if isinstance(data, Dataset) else os.fspath(data)
    return name if name.startswith("world:") else dataset.path.absolute().name


def _usual_steps(data: Dataset) -> int:
    """Steps of a run nobody asked a number for."""
    preset = preset_of(data)
    windows = open_windows(data, settings(VARIANTS["supervised"], "sasrec", data, steps=1))
    return max(_LEAST_STEPS, windows.steps * (_PAPER_EPOCHS if preset else _EPOCHS))


def _facts(context: Context, command: str) -> dict[str, str]:
    counts, data = context.data.counts, context.data
    seeds = f"{context.seeds[0]} to {context.seeds[-1]}" if len(context.seeds) > 1 else str(context.seeds[0])
    facts = {
        "data": context.title,
        "data checksum": data.checksum,
        "data counts": f"{counts.interactions:,} events, {counts.sequences:,} sequences, {counts.items:,} items,"
        f" {counts.test_targets:,} test targets",
        "seeds": seeds,
        "training steps": f"{context.plan.steps:,}",
        **made_with(context.threads),
    }
    return {name: text[:300] for name, text in {**facts, "command": command}.items() if text}


def _write(context: Context, section: Section, facts: Mapping[str, str], say: Say) -> Path:
    """Put a section into the report, beside those that other calls on the same data wrote."""
    try:
        document = load_document(context.out)
        is_same = document.facts.get("data checksum") == context.data.checksum
    except ArtifactError:
        is_same = False
    others = {one.id: one for one in document.sections} if is_same else {}
    sections = {**others, section.id: section}
    order = [*EXPERIMENTS, *sections]
    ordered = sorted(sections.values(), key=lambda one: order.index(one.id))
    page = save_document(
        context.out,
        Document(
            title=f"ecoc: the paper's experiments on {context.title}"[:300],
            summary=[text for one in ordered for text in one.findings],
            facts=dict(facts),
            sections=ordered,
        ),
    )
    return _rendered(context.out, say) or page


def _rendered(folder: Path, say: Say) -> Path | None:
    """The report as a page to look at."""
    try:
        return Path(report([folder], folder / _HTML).report)
    except ecoc.EcocError as error:
        say(f"{folder / _HTML}: not written: {error}")
        return None


def _rows(cell: Cell, found: JobResult) -> list[dict[str, Any]]:
    """A cell as the contract has it, one row a way it was judged."""
    row: dict[str, Any] = {
        "name": cell.name,
        "method": cell.method,
        "encoder": cell.encoder or None,
        "seed": cell.seed,
        "status": found.status,
        "seconds": found.seconds,
        "message": found.message,
    }
    views = found.facts.get("views")
    if not isinstance(views, dict) or not views:
        return [
            {**row, "metrics": {key: value for key, value in found.facts.items() if isinstance(value, int | float)}}
        ]
    return [
        {**row, "method": title, "metrics": view.get("metrics", {k: v for k, v in view.items() if k != "metrics"})}
        for title, view in views.items()
    ]
