"""What the text of the paper leaves open, tried out: the critic's gradient into mu, one optimiser or two in turn.

Validation chooses the reading that preset `paper` takes; the test figures stand beside it.
"""

from typing import Any

from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.jobs import Job, Results
from ecoc.experiment.results import RunOutcome
from ecoc.experiment.tables import Row, caveats, described, differences, no_numbers, number, rows_of
from ecoc.experiment.variants import PAPER, READINGS, Variant, variant_of
from ecoc.reporting.document import Cell, Head, Section, Table

ENCODERS = ("sasrec",)
_CHOOSES = "ndcg@20"


def _variants() -> list[Variant]:
    return [*(variant_of(name) for name in PAPER.controls), *READINGS]


def jobs(context: Context) -> list[Job[Any]]:
    """Runs of every reading and of the supervised encoder with the paper's settings."""
    return [*context.run_jobs(_variants(), context.encoders(ENCODERS))]


def section(context: Context, results: Results) -> Section:
    """One table: what validation says of each reading, and the test figures."""
    rows = rows_of(context, results, _variants(), context.encoders(ENCODERS))
    tests = differences(context, rows, "ndcg@10")
    heads: list[Head] = ["reading", ("validation NDCG@20", 4, "high"), "weights", ("NDCG@10", 4, "high")]
    heads += [f"Δ from {PAPER.control}", ("p (Holm)", 3), ("best epoch", 1)]
    body: list[list[Cell | float]] = []
    for row in rows:
        runs, test = _outcomes(row), tests.get((row.group, row.title))
        weights = ", ".join(sorted({_WEIGHTS[run.best_weights] for run in runs if run.best_weights}))
        if runs:
            change = test.cells() if test else (None, None)
            quality, epoch = number(row.means("ndcg@10")), number([float(run.best_epoch) for run in runs])
            body.append([row.title, number(_validation(row)), weights, quality, *change, epoch])
        else:
            body.append([row.title, *no_numbers(row.missing, len(heads) - 1)])
    groups = [row.group for row in rows]
    return Section(
        id="readings",
        title="Readings of the paper: what its text leaves open",
        findings=[text for encoder in context.encoders(ENCODERS) if (text := _finding(encoder, rows))],
        text=[
            described(context),
            "gradient: the share of the critic's gradient that reaches mu. together: one optimiser minimises the sum of"
            " all losses. in-turn: the critic takes its step first, then the actor. weights: those that validation"
            " preferred, the current ones (online) or their running average (averaged).",
        ],
        tables=[Table.of("readings", f"Readings on {context.title}", heads, body, groups=groups)],
        caveats=caveats(context, jobs(context), results),
    )


_WEIGHTS = {"ema": "averaged", "online": "online"}


def _finding(encoder: str, rows: list[Row]) -> str:
    names = {reading.name for reading in READINGS}
    means = {
        row.title: mean.value
        for row in rows
        if row.group == encoder and row.variant in names and (mean := number(_validation(row))) is not None
    }
    if not means:
        return ""
    best = max(means, key=lambda title: means[title])
    return f"Readings, {encoder}: validation prefers {best}, NDCG@20 {means[best]:.4f}."


def _outcomes(row: Row) -> list[RunOutcome]:
    return [run.value for run in row.runs if isinstance(run.value, RunOutcome)]


def _validation(row: Row) -> list[float]:
    return [run.validation[_CHOOSES] for run in _outcomes(row) if run.validation]


READING = Experiment("readings", "Readings of the paper", jobs, section)
