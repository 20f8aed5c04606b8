"""`ecoc evaluate`."""

from dataclasses import asdict

from ecoc.cli.app import answer, command
from ecoc.cli.console import progress
from ecoc.cli.options import Cases, Compute, EvaluatedMetrics, FinishedRun, Output, Ranking


@command
def evaluate(
    run: FinishedRun,
    *,
    metric: EvaluatedMetrics = None,
    cases: Cases,
    ranking: Ranking,
    compute: Compute,
    output: Output,
) -> None:
    """Rank the true next item among all items: HR, MRR and NDCG with 95 % intervals over users."""
    from ecoc.evaluation.evaluate import evaluate as run_evaluation
    from ecoc.evaluation.metrics import NAMES
    from ecoc.reporting.text import evaluation_text

    seed = compute.use()
    with progress(output.quiet) as watch:
        result = run_evaluation(
            run, metrics=metric or NAMES, **asdict(cases), **asdict(ranking), seed=seed, progress=watch
        )
    answer(result.model_dump(), evaluation_text(result), output.json_)
