"""The command line itself, the flags that commands share, and how they answer."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Learn next-item recommenders that optimise long-term reward, from logs alone.",
)

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random.")]
Threads = Annotated[int | None, typer.Option(help="Processor threads (train: 1, else all there are).")]
DataFolder = Annotated[Path | None, typer.Option("--data", help="The dataset, if it was moved.")]
Split = Annotated[str, typer.Option(help="test or validation.")]
MaxCases = Annotated[int, typer.Option(min=0, help="Judge a random sample of so many cases; 0: all.")]
ExcludeSeen = Annotated[bool, typer.Option("--exclude-seen", help="Leave out the items of the user's past.")]
Untrained = Annotated[bool, typer.Option("--untrained/--no-untrained", help="Rows for popular, recent and markov.")]
RankedBy = Annotated[
    str | None,
    typer.Option("--rank-by", help="How a policy with a critic acts: policy, blend, rerank, control, cosine."),
]
Weight = Annotated[float | None, typer.Option("-w", "--w", help="blend: weight of the long-term value; 0: policy.")]
Reranked = Annotated[int | None, typer.Option("-m", "--m", help="rerank: items of the policy ordered by value.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback with an error.")]


def _version(value: bool) -> None:
    if value:
        import ecoc

        print(f"ecoc {ecoc.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Learn next-item recommenders that optimise long-term reward, from logs alone."""


def use_threads(threads: int | None) -> None:
    """Let torch use so many threads; none: as many as it likes."""
    if threads is not None:
        import torch

        torch.set_num_threads(max(1, threads))


def answer(facts: dict[str, Any], text: str, as_json: bool) -> None:
    """Print for a machine or for a person."""
    print(json.dumps(facts, ensure_ascii=False) if as_json else text)
