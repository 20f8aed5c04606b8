"""What the text of the paper leaves open, tried out: the critic's gradient into mu, one optimiser or two in turn.

Validation chooses the reading that preset `paper` takes; the test figures stand beside it.
"""

from typing import Any

from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.jobs import Job, Results
from ecoc.experiment.results import RunOutcome
from ecoc.experiment.tables import Row, caveats, described, differences, no_numbers, number, rows_of
from ecoc.experiment.variants import PAPER, READINGS, Variant, variant_of
from ecoc.reporting.document import Cell, Column, Number, Section, Table

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
    columns = [
        Column(name="reading"),
        Column(name="validation NDCG@20", better="high"),
        Column(name="weights"),
        Column(name="NDCG@10", better="high"),
        Column(name=f"Δ from {PAPER.control}"),
        Column(name="p (Holm)", digits=3),
        Column(name="epochs", digits=2),
    ]
    body: list[list[Cell]] = []
    for row in rows:
        runs = _outcomes(row)
        if not runs:
            body.append([row.title, *no_numbers(row.missing, 6)])
            continue
        test = tests.get((row.group, row.title))
        body.append(
            [
                row.title,
                number(_validation(row)),
                ", ".join(sorted({_WEIGHTS.get(run.best_weights or "", "") for run in runs})),
                number(row.means("ndcg@10")),
                test.value.model_copy(update={"mark": test.mark}) if test else None,
                Number(value=test.p) if test else None,
                number([float(run.best_epoch) for run in runs]),
            ]
        )
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
        tables=[
            Table(
                id="readings",
                title=f"Readings on {context.title}",
                columns=columns,
                rows=body,
                groups=[row.group for row in rows],
            )
        ],
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
