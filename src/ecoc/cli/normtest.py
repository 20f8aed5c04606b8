"""`ecoc normtest`."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from ecoc.cli.app import DataFolder, Debug, Json, Quiet, Seed, Threads, answer, app, use_threads
from ecoc.cli.console import progress


@app.command()
def normtest(  # noqa: PLR0913, PLR0917 - one parameter a flag
    runs: Annotated[list[Path], typer.Argument(help="Finished runs; each is tested on its own dataset.")],
    samples: Annotated[int, typer.Option(min=2, help="Test interactions of a repeat.")] = 10_000,
    repeats: Annotated[int, typer.Option(min=1, help="How often they are drawn.")] = 20,
    max_items: Annotated[int, typer.Option(min=0, help="Test on a random sample of so many items; 0: all.")] = 0,
    data: DataFolder = None,
    seed: Seed = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Test whether angles matter more for the ranking than norms, as the paper does, beside random item vectors."""
    from ecoc.evaluation.norm_test import normtest as work

    use_threads(threads)
    with progress(quiet) as watch:
        facts = work(runs, data, samples=samples, repeats=repeats, max_items=max_items, seed=seed or 0, progress=watch)
    answer(_finite(facts), normtest_page(facts), json_)


def normtest_page(facts: dict[str, Any]) -> str:
    """The test of each run above its controls, then the cosines by rank."""
    from ecoc.report.normtest import CONTROLS, PAPER_DATA, paper_values, run_names, with_controls

    names = run_names(facts["rows"])
    width = max(len(label) for label in [*names, *(f"  {label}" for label in CONTROLS.values())]) + 2
    head = f"{'mean':>9}{'std':>8}{'t':>10}{'p':>11}{'effect':>9}{'norm sd':>9}{'clipped':>9}{'dropped':>9}"
    paper = f"{'the paper: mean, std, t':>26}" if any(row["source"] in PAPER_DATA for row in facts["rows"]) else ""
    lines = [
        f"normalisation test: {facts['samples']:,} test interactions, {facts['repeats']} repeats",
        "",
        f"  {'':<{width}}{head}{paper}",
    ]
    for name, row, controls in with_controls(facts, names):
        found = paper_values(row["encoder"], row["source"]) if row["method"] == "supervised" else None
        lines.append(f"  {name:<{width}}{_cells(row)}{_paper(found)}")
        lines += [f"  {'  ' + CONTROLS[control['norms']]:<{width}}{_cells(control)}" for control in controls]
    lines += ["", "  * p < .001, one-sided; norm sd: standard deviation of the logarithm of the item vectors' norms"]
    lines += [f"  {name}: {row['flag']}" for name, row in zip(names, facts["rows"], strict=True) if row["flag"]]
    lines += ["  random item vectors pass the test too: the effect beside theirs says more than t and p", ""]
    return "\n".join([*lines, *_cosines(facts, names, width)])


def _cells(row: dict[str, Any]) -> str:
    from ecoc.report.normtest import is_starred

    t = f"{row['t']:.0f}{'*' if is_starred(row) else ' '}"
    p = f"{row['p']:.2g}" if row["p"] else "< 1e-300"
    return (
        f"{row['mean']:>9.3f}{row['std']:>8.3f}{t:>10}{p:>11}{row['effect']:>9.2f}"
        f"{row['norm_log_sd']:>9.3f}{row['clipped']:>9,}{row['dropped']:>9,}"
    )


def _paper(found: tuple[float, float, float] | None) -> str:
    return f"{f'{found[0]:.2f}, {found[1]:.2f}, {found[2]:.0f}':>26}" if found else ""


def _cosines(facts: dict[str, Any], names: list[str], width: int) -> list[str]:
    """Mean cosine of what came next by its rank, a line a run; K differ only in the last, the number of items."""
    lines = ["  mean cosine of user and next item where it is among the K best (samples)"]
    for name, row in zip(names, facts["rows"], strict=True):
        entries = row["cosine_by_rank"]
        lines.append(f"  {name:<{width}}{'K':>8}{'cosine':>10}{'samples':>10}")
        lines += [
            f"  {'':<{width}}{entry['k']:>8,}"
            f"{'-' if entry['cosine'] is None else format(entry['cosine'], '.3f'):>10}{entry['count']:>10,}"
            for entry in entries
        ]
    return lines


def _finite(value: Any) -> Any:
    """JSON knows no infinity: null in its place; the row's flag says why."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
