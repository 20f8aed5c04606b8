"""`ecoc report`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ecoc.cli.app import answer, command
from ecoc.cli.options import Output
from ecoc.storage.trusted import printable


@command
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", help="Folders of runs or experiments; the page shows them in this order."),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File or folder of the HTML page.", show_default="report.html in the first folder"
        ),
    ] = None,
    figures: Annotated[
        str | None, typer.Option(help="Also write each figure into the folder figures/: svg, pdf or png.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    output: Output,
) -> None:
    """Write what is known about runs as one self-contained HTML page, with its tables as Markdown and LaTeX."""
    from ecoc.reporting.write import report as write_report

    written = write_report(folders, out, title=title, figures=figures)  # type: ignore[arg-type] # checked by report
    if written.empty and not output.quiet:
        print(printable(f"nothing to show in: {', '.join(written.empty)}"), file=sys.stderr)
    answer(written.model_dump(), printable(written.report), output.json_)
