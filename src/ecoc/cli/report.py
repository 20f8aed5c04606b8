"""`ecoc report`."""

from pathlib import Path
from typing import Annotated

import typer

from ecoc.cli.app import Debug, Json, Quiet, answer, app
from ecoc.cli.console import note


@app.command()
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Folders with a report.json, or runs; joined in this order.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page.", show_default="report.html in the first folder")
    ] = None,
    figures: Annotated[
        str | None, typer.Option(help="Also write each figure into figures/, as svg, pdf or png.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Results as one HTML page that needs nothing else, and its tables as Markdown and LaTeX."""
    from ecoc.reporting.write import report as work

    written = work(folders, out, title=title, figures=figures)  # type: ignore[arg-type] # checked by report
    if written.empty:
        note(quiet)(f"nothing to show in: {', '.join(written.empty)}")
    answer(written.model_dump(), written.report, json_)
