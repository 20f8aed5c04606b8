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
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Results as one HTML page that needs nothing else, and its tables as Markdown and LaTeX."""
    from ecoc.report.write import report as work

    facts = work(folders, out, title=title)
    if facts["empty"]:
        note(quiet)(f"nothing to show in: {', '.join(facts['empty'])}")
    answer(facts, facts["report"], json_)
