"""Options that commands share, each declared once: single ones as types, those that go together as dataclasses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ecoc.registry import Registry
from ecoc.runs.presets import presets


def listed(names: list[str]) -> str:
    """Names in a help text: `a, b or c`."""
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)


def registered(kind: str) -> str:
    """What there is of a kind, installed packages included; nothing is imported for it."""
    return listed(list(Registry[object](kind)))


def comma_separated(text: str | None) -> list[str] | None:
    """The names in `a,b,c`."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


FinishedRun = Annotated[Path, typer.Argument(help="Folder of a finished run.")]
FinishedRuns = Annotated[list[Path], typer.Argument(help="Folders of finished runs on the same dataset.")]
DataFolder = Annotated[Path | None, typer.Option("--data", help="The prepared dataset, if it was moved.")]
Threads = Annotated[int | None, typer.Option(help="Number of processor threads (train: 1, otherwise all).")]
ExcludeSeen = Annotated[bool, typer.Option("--exclude-seen", help="Leave out the items of the user's past.")]
MaxCases = Annotated[int, typer.Option(min=0, help="Rank only a random sample of this many test cases; 0: all.")]
Format = Annotated[
    str | None, typer.Option(help=f"Raw format: {registered('source')}.", show_default="log, or world for world:…")
]
MethodName = Annotated[
    str | None, typer.Option("--method", help=f"Method: {registered('method')}.", show_default="supervised")
]
EncoderName = Annotated[
    str | None, typer.Option("--encoder", help=f"Encoder: {registered('encoder')}.", show_default="sasrec")
]
Preset = Annotated[str | None, typer.Option(help=f"Settings of a published experiment: {listed(presets())}.")]
_METRICS = f"Metric, may be repeated: {registered('metric')}; hr, mrr and ndcg with @k, as in ndcg@10."
EvaluatedMetrics = Annotated[
    list[str] | None, typer.Option("--metric", help=_METRICS, show_default="hr, mrr and ndcg at 5, 10 and 20")
]
ComparedMetrics = Annotated[
    list[str] | None, typer.Option("--metric", help=_METRICS, show_default="hr@10, mrr@10, ndcg@10")
]


@dataclass(frozen=True)
class Output:
    """How a command answers."""

    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress output.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with an error.")] = False


@dataclass(frozen=True)
class Compute:
    """What a computation runs with."""

    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.", show_default="0")] = None
    threads: Threads = None

    def use(self) -> int:
        """Let torch use the threads; the seed."""
        use_threads(self.threads)
        return self.seed or 0


@dataclass(frozen=True)
class Ranking:
    """How a policy with a critic ranks items; the Python functions check it."""

    rank_by: Annotated[
        str | None,
        typer.Option(
            help="Ranking mode of a policy with a critic: policy, blend, rerank, control or cosine.",
            show_default="as the run was trained or --choose-w chose",
        ),
    ] = None
    w: Annotated[
        float | None, typer.Option("-w", "--w", help="blend: weight w of the long-term value; 0 ranks by the policy.")
    ] = None
    m: Annotated[
        int | None, typer.Option("-m", "--m", help="rerank: number of best items of the policy to order by value.")
    ] = None


@dataclass(frozen=True)
class Cases:
    """Which test cases are ranked, and what is ranked beside; the Python functions check it."""

    data: DataFolder = None
    split: Annotated[str, typer.Option(help="Split to rank: test or validation.")] = "test"
    max_cases: MaxCases = 0
    exclude_seen: Annotated[
        bool | None,
        typer.Option(
            "--exclude-seen/--keep-seen",
            help="Leave out the items of the user's past, or keep them.",
            show_default="as in training: left out if the log never repeats an item",
        ),
    ] = None
    untrained: Annotated[
        bool, typer.Option("--untrained/--no-untrained", help="Add rows for popular, recent and markov.")
    ] = True


def use_threads(threads: int | None) -> None:
    """Let torch use this many threads; none: as many as it likes."""
    if threads is not None:
        import torch

        torch.set_num_threads(max(1, threads))
