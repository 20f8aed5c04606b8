"""The `ecoc` command: thin shells over the Python functions, and errors as exit codes."""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from ecoc.console import listen_for_sigterm, note, progress
from ecoc.errors import EcocError, Terminated, is_out_of_memory

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
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback with an error.")]


_NOT_SETTINGS = {
    "source",
    "out",
    "format",
    "config",
    "set_",
    "memory",
    "overwrite",
    "threads",
    "json_",
    "quiet",
    "debug",
}
_OUT_OF_MEMORY = (
    "out of memory; pass a smaller --memory (prepare), encoder.dim or train.batch (train), or use a larger machine"
)


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


@app.command()
def prepare(  # noqa: PLR0913, PLR0917 - one parameter a flag
    source: Annotated[list[str], typer.Argument(help="Log file(s) or folder, or a world such as world:default.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write the prepared dataset to.")],
    format: Annotated[
        str | None,
        typer.Option(help="log, yelp, tmall, rl4rs, movielens, retailrocket, taobao or world.", show_default="log"),
    ] = None,
    user: Annotated[str | None, typer.Option(help="log: column of the user id.")] = None,
    item: Annotated[str | None, typer.Option(help="log: column of the item id.")] = None,
    time: Annotated[str | None, typer.Option(help="log: column of the time.")] = None,
    time_format: Annotated[
        str | None,
        typer.Option(
            help="log: epoch[-s|-ms|-us|-ns], iso, a strptime pattern, or order (rows are in time order).",
            show_default="auto",
        ),
    ] = None,
    feedback: Annotated[str | None, typer.Option(help="log: column of the feedback, names or numbers.")] = None,
    reward: Annotated[str | None, typer.Option(help="log: worth of each feedback: 'click=1,buy=3'; name=drop.")] = None,
    reward_column: Annotated[
        str | None, typer.Option(help="log: numeric column or arithmetic: 'quantity*price'.")
    ] = None,
    items: Annotated[str | None, typer.Option(help="log: file with titles, prices, categories of items.")] = None,
    category: Annotated[str | None, typer.Option(help="log: column of the item's category.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="log: field separator.", show_default="found")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="log: first line names columns, or columns are 1, 2, …")
    ] = None,
    quoting: Annotated[bool | None, typer.Option("--quoting/--no-quoting", help="log: fields may be quoted.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Text encoding.", show_default="utf-8")] = None,
    bad_rows: Annotated[
        str | None, typer.Option(help="fail at a bad row, or skip, count and list.", show_default="fail")
    ] = None,
    dedup: Annotated[str | None, typer.Option(help="none, exact, or feedback (first of user, item, feedback).")] = None,
    min_item_support: Annotated[int | None, typer.Option(help="Drop items with fewer events.")] = None,
    min_length: Annotated[int | None, typer.Option(help="Drop sequences with fewer events.")] = None,
    filter: Annotated[str | None, typer.Option(help="k-core or single-pass.", show_default="k-core")] = None,
    session_gap: Annotated[str | None, typer.Option(help="Split a user's log at pauses, e.g. 30min, 7d.")] = None,
    ties: Annotated[str | None, typer.Option(help="Order of equal times: file or item.", show_default="file")] = None,
    split: Annotated[
        str | None, typer.Option(help="time:0.8, per-user:0.8, leave-one-out or source.", show_default="time:0.8")
    ] = None,
    validation: Annotated[
        float | None, typer.Option(help="Share of training sequences held out.", show_default="0.1")
    ] = None,
    events: Annotated[int | None, typer.Option(help="world: events to generate.")] = None,
    catalogue: Annotated[int | None, typer.Option(help="world: number of items.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings; flags go before it.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any other setting of the format: key=value.")] = None,
    memory: Annotated[str, typer.Option(help="Memory to stay within; larger logs work on disk.")] = "4GB",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a dataset that is there.")] = False,
    seed: Seed = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Turn a raw log into a prepared dataset: checked, filtered, ordered, split, numbered."""
    given = {name: value for name, value in locals().items() if name not in _NOT_SETTINGS}
    from ecoc.config import load_toml, parse_overrides
    from ecoc.data.describe import page, summary
    from ecoc.data.prepare import prepare as run

    options = load_toml(config) if config else {}
    options |= {name: value for name, value in given.items() if value is not None}
    options |= parse_overrides(set_ or [])
    with progress(quiet) as watch:
        data = run(
            source, out, format=format, memory=memory, threads=threads, overwrite=overwrite, progress=watch, **options
        )
    facts = summary(data)
    _answer(facts, page(facts), json_)


@app.command()
def train(  # noqa: PLR0913, PLR0917 - one parameter a flag
    data: Annotated[Path, typer.Argument(help="A prepared dataset.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")],
    method: Annotated[
        str | None, typer.Option(help="supervised, popular, recent or markov.", show_default="supervised")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="gru4rec, narm, stamp, caser, nextitnet, srgnn, gcsan, dhcn, sasrec, ssept or bert4rec.",
            show_default="sasrec",
        ),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="The paper's settings for a dataset: yelp, tmall, rl4rs.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings, such as a run's config.toml.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="One setting: train.max_epochs=5, encoder.dim=32, method.n2=1000.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Say where the time of a step went.")] = False,
    seed: Seed = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Learn a policy from a prepared dataset; the best weights by validation are kept in the run folder."""
    from ecoc.config import parse_overrides
    from ecoc.pages import train_page
    from ecoc.training.start import train as work

    settings = parse_overrides(set_ or [])
    for name, value in (("seed", seed), ("threads", threads)):
        if value is not None:
            settings.setdefault("train", {})[name] = value
    with progress(quiet) as watch:
        run = work(
            data,
            out,
            method=method,
            encoder=encoder,
            preset=preset,
            config=config,
            settings=settings,
            resume=resume,
            progress=watch,
            say=note(quiet),
        )
    facts = run.result()
    _answer(facts, train_page(facts, profile=profile), json_)


@app.command()
def evaluate(  # noqa: PLR0913, PLR0917 - one parameter a flag
    run: Annotated[Path, typer.Argument(help="A finished run.")],
    data: DataFolder = None,
    split: Split = "test",
    max_cases: MaxCases = 0,
    exclude_seen: ExcludeSeen = False,
    untrained: Untrained = True,
    seed: Seed = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Rank what really came next among all items: HR, MRR, NDCG at 5, 10, 20 with intervals over users."""
    from ecoc.evaluation.evaluate import evaluate as work
    from ecoc.pages import evaluate_page

    _use_threads(threads)
    with progress(quiet) as watch:
        facts = work(
            run,
            data,
            split=split,
            max_cases=max_cases,
            exclude_seen=exclude_seen,
            untrained=untrained,
            seed=seed or 0,
            progress=watch,
        )
    _answer(facts, evaluate_page(facts), json_)


@app.command()
def compare(  # noqa: PLR0913, PLR0917 - one parameter a flag
    runs: Annotated[list[Path], typer.Argument(help="Finished runs on the same dataset.")],
    data: DataFolder = None,
    split: Split = "test",
    metric: Annotated[
        list[str] | None, typer.Option(help="Metrics to test differences of.", show_default="hr@10, mrr@10, ndcg@10")
    ] = None,
    max_cases: MaxCases = 0,
    exclude_seen: ExcludeSeen = False,
    untrained: Untrained = True,
    seed: Seed = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Put runs side by side: paired differences over the same test cases, with intervals and p-values."""
    from ecoc.evaluation.evaluate import COMPARED
    from ecoc.evaluation.evaluate import compare as work
    from ecoc.pages import compare_page

    _use_threads(threads)
    with progress(quiet) as watch:
        facts = work(
            runs,
            data,
            split=split,
            names=metric or COMPARED,
            max_cases=max_cases,
            exclude_seen=exclude_seen,
            untrained=untrained,
            seed=seed or 0,
            progress=watch,
        )
    _answer(facts, compare_page(facts), json_)


@app.command()
def recommend(  # noqa: PLR0913, PLR0917 - one parameter a flag
    model: Annotated[Path, typer.Argument(help="A finished run.")],
    history: Annotated[
        list[str] | None,
        typer.Option(help="Items so far, oldest first: a17,b3 or with feedback a17:buy. May be given several times."),
    ] = None,
    similar: Annotated[list[str] | None, typer.Option(help="Items to find the nearest ones of, instead.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Items to list.")] = 10,
    exclude_seen: ExcludeSeen = False,
    exclude: Annotated[str, typer.Option(help="Items to leave out: a,b,c.")] = "",
    only: Annotated[str | None, typer.Option(help="Sole candidates: a,b,c.")] = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Recommend items to follow a history; without one, what is popular."""
    from ecoc.model import load
    from ecoc.pages import recommend_page, recommended

    _use_threads(threads)
    opened = load(model)
    if similar:
        found = opened.similar(similar, k)
    else:
        asked = [opened.parse_history(text) for text in history or [""]]
        found = opened.recommend(
            asked, k, exclude_seen=exclude_seen, exclude=_names(exclude), only=None if only is None else _names(only)
        )
    facts = recommended(opened, found)
    _answer(facts, recommend_page(facts, similar or history or [""]), json_)


@app.command()
def info(
    path: Annotated[Path, typer.Argument(help="A prepared dataset or a run.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read every file and compare its checksum.")] = False,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Say what a folder is: statistics, versions, checksums."""
    if (path / "config.toml").is_file():
        _run_info(path, verify, json_)
        return
    from ecoc.data.describe import page, summary
    from ecoc.data.sequences import open_data

    data = open_data(path, verify=verify)
    facts = summary(data)
    _answer(facts, page(facts) + ("\n  every file matches its checksum" if verify else ""), json_)


def _run_info(path: Path, verify: bool, json_: bool) -> None:
    from ecoc.pages import run_facts, run_page

    facts = run_facts(path, verify=verify)
    _answer(facts, run_page(facts), json_)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A smaller world, fewer users.")] = False,
    world: Annotated[str, typer.Option(help="Which built-in world.")] = "world:default",
    seed: Seed = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Generate a world with a known truth, prepare its log, and show what policies really earn in it."""
    from ecoc.demo import demo as run

    say = (lambda text: None) if json_ else (lambda text: print(text, flush=True))
    with progress(quiet) as watch:
        result = run(out, quick=quick, world=world, seed=seed or 0, threads=threads, say=say, progress=watch)
    if json_:
        _answer(result, "", json_)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _use_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(max(1, threads))


def _answer(facts: dict[str, Any], text: str, as_json: bool) -> None:
    print(json.dumps(facts, ensure_ascii=False) if as_json else text)


def main() -> None:
    """Run the command line; every failure becomes one line and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin make a busy machine several times slower
    listen_for_sigterm()
    try:
        app()
    except EcocError as error:
        _fail(error, str(error), error.exit_code)
    except KeyboardInterrupt as error:
        _fail(error, "interrupted", 130)
    except Terminated as error:
        _fail(error, "terminated", 143)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at exit
        sys.exit(0)
    except OSError as error:
        if is_out_of_memory(error):
            _fail(error, _OUT_OF_MEMORY, 5)
        _fail(error, f"{error.filename or 'a file'}: {error.strerror or error}; check the disk, then try again", 5)
    except Exception as error:
        if is_out_of_memory(error):
            _fail(error, _OUT_OF_MEMORY, 5)
        _fail(
            error, f"internal error: {type(error).__name__}: {error}; please report it, with the output of --debug", 1
        )


def _fail(error: BaseException, message: str, code: int) -> None:
    if "--debug" in sys.argv:
        traceback.print_exception(error)
    print(" ".join(message.split()), file=sys.stderr)
    sys.exit(code)
