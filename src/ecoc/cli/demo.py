"""`ecoc demo`."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ecoc.cli.app import answer, command
from ecoc.cli.console import printed_log, progress
from ecoc.cli.options import Compute, Output
from ecoc.errors import InputError


@command
def demo(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A smaller world with fewer users.")] = False,
    world: Annotated[str, typer.Option(help="Name of the built-in world.")] = "world:default",
    serve: Annotated[bool, typer.Option("--serve", help="Serve ECoC at the end, with a page to play with.")] = False,
    compute: Compute,
    output: Output,
) -> None:
    """Generate a world with a known truth, train on its log, and show what each policy really earns in it."""
    from ecoc.demo import demo as run_demo

    if serve and output.json_:
        raise InputError("--serve prints for people; leave out --json, or serve afterwards with ecoc serve")
    text = nullcontext() if output.json_ else printed_log("ecoc.demo", lambda: sys.stdout)
    with text, progress(output.quiet, log=None) as watch:
        result = run_demo(
            out,
            quick=quick,
            world=world,
            seed=compute.seed or 0,
            threads=compute.threads,
            progress=watch,
        )
    if output.json_:
        answer(result.model_dump(), "", as_json=True)
    if serve:
        from ecoc.cli.serve import serve_until_stopped
        from ecoc.serving.settings import ServerSettings

        serve_until_stopped(ServerSettings(model=Path(result.model), access_log=False), output)
