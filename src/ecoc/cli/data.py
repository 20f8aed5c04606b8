"""`ecoc prepare`, `ecoc info`, `ecoc demo`."""

from pathlib import Path
from typing import Annotated

import typer

from ecoc.cli.app import Debug, Json, Quiet, Seed, Threads, answer, app
from ecoc.cli.console import progress

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
    answer(facts, page(facts), json_)


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
    answer(facts, page(facts) + ("\n  every file matches its checksum" if verify else ""), json_)


def _run_info(path: Path, verify: bool, json_: bool) -> None:
    from ecoc.runs.folder import Run
    from ecoc.runs.status import run_status

    status = run_status(Run(path))
    if not status.is_finished:
        answer({"kind": "run", **status.model_dump(mode="json")}, str(status), json_)
        return
    from ecoc.reporting.text import run_json, run_text

    facts = run_json(path, verify=verify)
    answer(facts, run_text(facts), json_)


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
        answer(result, "", json_)
