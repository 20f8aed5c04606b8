"""`ecoc reproduce`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ecoc.cli.app import Debug, ExcludeSeen, Json, Quiet, Seed, Threads, answer, app
from ecoc.cli.console import note, progress


@app.command()
def reproduce(  # noqa: PLR0913, PLR0917 - one parameter a flag
    experiment: Annotated[
        str,
        typer.Argument(help="imitation, reward, efficiency, ablation, sensitivity, normtest, ope-truth or all."),
    ],
    data: Annotated[str, typer.Argument(help="A prepared dataset, or a built-in world such as world:small.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the experiment; give it again to go on.")],
    methods: Annotated[
        str | None, typer.Option(help="Methods, with commas: supervised+ema,ecoc,sqn.", show_default="all")
    ] = None,
    encoders: Annotated[
        str | None, typer.Option(help="Encoders, with commas: sasrec,srgnn.", show_default="by experiment")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How often each run is repeated.")] = 3,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps of every run.", show_default="8 epochs, 1000 at least")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time to stay within, e.g. 30m: steps, then seeds, then rows are trimmed.")
    ] = None,
    max_cases: Annotated[int, typer.Option(min=0, help="Test cases to judge, a random sample; 0: all.")] = 10_000,
    exclude_seen: ExcludeSeen = False,
    seed: Seed = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compute the paper's tables and figures on any dataset, cell by cell; interrupted, give the same command again."""
    from ecoc.experiment.reproduce import reproduce as work
    from ecoc.reporting.document import Table
    from ecoc.reporting.tables import text

    with progress(quiet) as watch:
        facts = work(
            experiment,
            data,
            out,
            methods=_names(methods),
            encoders=_names(encoders),
            seeds=seeds,
            steps=steps,
            budget=budget,
            max_cases=max_cases,
            exclude_seen=exclude_seen,
            seed=seed or 0,
            threads=threads,
            command=shlex.join(["ecoc", *sys.argv[1:]]),
            say=note(quiet),
            progress=watch,
        )
    tables = "\n\n".join(text(Table.build(table)) for table in facts["tables"])
    said = "\n".join(f"- {caveat}" for caveat in facts["caveats"])
    answer(facts, f"{tables}\n\n{said}\n\nreport: {facts['report']}", json_)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
