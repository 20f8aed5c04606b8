"""`ecoc normtest`."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from ecoc.cli.app import answer, command
from ecoc.cli.console import progress
from ecoc.cli.options import Compute, DataFolder, Output


@command
def normtest(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs; each is tested on its own dataset.")],
    *,
    samples: Annotated[int, typer.Option(min=2, help="Number of test interactions per repeat.")] = 10_000,
    repeats: Annotated[int, typer.Option(min=1, help="Number of repeats, each with other test interactions.")] = 20,
    max_items: Annotated[int, typer.Option(min=0, help="Test on a random sample of this many items; 0: all.")] = 0,
    data: DataFolder = None,
    compute: Compute,
    output: Output,
) -> None:
    """Test whether angles of item vectors matter more for the ranking than their norms, beside random item vectors."""
    from ecoc.evaluation.norm_test import normtest as run_test
    from ecoc.reporting.text import norm_test_text

    seed = compute.use()
    with progress(output.quiet) as watch:
        result = run_test(runs, data, samples=samples, repeats=repeats, max_items=max_items, seed=seed, progress=watch)
    answer(_finite(result.model_dump()), norm_test_text(result), output.json_)


def _finite(value: Any) -> Any:
    """JSON knows no infinity: null in its place; the row's flag says why."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
