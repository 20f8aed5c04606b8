"""`ecoc reproduce`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ecoc.cli.app import answer, command
from ecoc.cli.console import progress
from ecoc.cli.options import Compute, ExcludeSeen, Output, comma_separated


@command
def reproduce(  # noqa: PLR0913 - one parameter per option
    experiment: Annotated[
        str,
        typer.Argument(
            help="Experiment: imitation, readings, reward, efficiency, ablation, sensitivity, normtest, ope-truth, all."
        ),
    ],
    data: Annotated[str, typer.Argument(help="A prepared dataset, or a built-in world such as world:small.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the experiment; give it again to continue.")],
    *,
    methods: Annotated[
        str | None, typer.Option(help="Methods, separated by commas: supervised+ema,ecoc,sqn.", show_default="all")
    ] = None,
    encoders: Annotated[
        str | None, typer.Option(help="Encoders, separated by commas: sasrec,srgnn.", show_default="by experiment")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds per run.")] = 3,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Training steps per run.",
            show_default="8 epochs, 1000 at least",
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time limit, e.g. 30m; steps, then seeds, then rows are reduced to meet it.")
    ] = None,
    max_cases: Annotated[
        int, typer.Option(min=0, help="Rank only a random sample of this many test cases; 0: all.")
    ] = 10_000,
    exclude_seen: ExcludeSeen = False,
    until: Annotated[
        str | None,
        typer.Option(
            help="converged: train until validation stops improving; each method stands beside its controls.",
            show_default="a fixed number of steps",
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="paper: data split 80/20, sequences of at least 10 events, all test positions ranked.",
            show_default="the split of the data",
        ),
    ] = None,
    compute: Compute,
    output: Output,
) -> None:
    """Compute the tables and figures of the paper on any dataset; the same command again continues after a stop."""
    from ecoc.experiment.reproduce import reproduce as run_experiment
    from ecoc.reporting.tables import text

    with progress(output.quiet, log="ecoc.experiment") as watch:
        result = run_experiment(
            experiment,
            data,
            out,
            methods=comma_separated(methods),
            encoders=comma_separated(encoders),
            seeds=seeds,
            steps=steps,
            budget=budget,
            max_cases=max_cases,
            exclude_seen=exclude_seen,
            until=until,
            protocol=protocol,
            seed=compute.seed or 0,
            threads=compute.threads,
            command=shlex.join(["ecoc", *sys.argv[1:]]),
            progress=watch,
        )
    tables = "\n\n".join(text(table) for table in result.tables)
    caveats = "\n".join(f"- {caveat}" for caveat in result.caveats)
    answer(result.model_dump(), f"{tables}\n\n{caveats}\n\nreport: {result.report}", output.json_)
