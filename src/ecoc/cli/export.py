"""`ecoc export`."""

from pathlib import Path
from typing import Annotated

import typer

from ecoc.cli.app import answer, command
from ecoc.cli.options import FinishedRun, Output


@command
def export(
    run: FinishedRun,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the bundle.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a bundle that is already there.")] = False,
    onnx: Annotated[bool, typer.Option("--onnx", help="Add the encoder as an ONNX graph, for serving by it.")] = False,
    index: Annotated[
        bool, typer.Option("--index", help="Add compressed items: a server with a large catalogue answers faster.")
    ] = False,
    output: Output,
) -> None:
    """Write a run as a bundle: the files that a server needs, with checksums, and nothing that can run code."""
    from ecoc.serving.export import export as write

    result = write(run, out, overwrite=overwrite, onnx=onnx, index=index)
    answer(result.model_dump(mode="json"), str(result), output.json_)
