"""`ecoc train`."""

from pathlib import Path
from typing import Annotated

import typer

from ecoc.cli.app import answer, command
from ecoc.cli.console import progress
from ecoc.cli.options import Compute, EncoderName, MethodName, Output, Preset


@command
def train(  # noqa: PLR0913 - one parameter per option
    data: Annotated[Path, typer.Argument(help="Folder of a prepared dataset.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")],
    *,
    method: MethodName = None,
    encoder: EncoderName = None,
    preset: Preset = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of settings, such as the config.toml of another run.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting, may be repeated: train.max_epochs=5, encoder.dim=32, method.n2=1000."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Processor time per thread, e.g. 10m: steps and validations are planned to end within it."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is in the folder.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Show how long each part of a step took.")] = False,
    compute: Compute,
    output: Output,
) -> None:
    """Train a policy on a prepared dataset; the weights that are best on validation are kept in the run folder."""
    from ecoc.config import parse_overrides
    from ecoc.reporting.text import train_text
    from ecoc.runs.config import merged
    from ecoc.storage.trusted import load_toml
    from ecoc.training.train import train as run_training

    settings = parse_overrides(set_ or [])
    for name, value in (("seed", compute.seed), ("threads", compute.threads)):
        if value is not None:
            settings.setdefault("train", {})[name] = value
    with progress(output.quiet) as watch:
        run = run_training(
            data,
            out,
            method=method,
            encoder=encoder,
            preset=preset,
            config=merged(load_toml(config) if config is not None else {}, settings),
            budget=budget,
            resume=resume,
            overwrite=overwrite,
            progress=watch,
        )
    result = run.result.values()
    answer(result, train_text(result, profile=profile), output.json_)
