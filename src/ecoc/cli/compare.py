"""`ecoc compare`."""

from dataclasses import asdict

from ecoc.cli.app import answer, command
from ecoc.cli.console import progress
from ecoc.cli.options import Cases, ComparedMetrics, Compute, FinishedRuns, Output, Ranking


@command
def compare(
    runs: FinishedRuns,
    *,
    metric: ComparedMetrics = None,
    cases: Cases,
    ranking: Ranking,
    compute: Compute,
    output: Output,
) -> None:
    """Compare runs on the same test cases: paired differences with 95 % intervals and p-values, over users."""
    from ecoc.evaluation.compare import COMPARED
    from ecoc.evaluation.compare import compare as run_comparison
    from ecoc.reporting.text import comparison_text

    seed = compute.use()
    with progress(output.quiet) as watch:
        result = run_comparison(
            runs, metrics=metric or COMPARED, **asdict(cases), **asdict(ranking), seed=seed, progress=watch
        )
    answer(result.model_dump(), comparison_text(result), output.json_)
