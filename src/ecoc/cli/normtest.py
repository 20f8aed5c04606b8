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
    from ecoc.reporting.text import norm_test_text

    use_threads(threads)
    with progress(quiet) as watch:
        result = work(runs, data, samples=samples, repeats=repeats, max_items=max_items, seed=seed or 0, progress=watch)
    answer(_finite(result.model_dump()), norm_test_text(result), json_)


def _finite(value: Any) -> Any:
    """JSON knows no infinity: null in its place; the row's flag says why."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
