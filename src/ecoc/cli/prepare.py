"""`ecoc prepare`."""

import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ecoc.cli.app import answer, command
from ecoc.cli.console import progress
from ecoc.cli.options import Compute, Format, Output


@dataclass(frozen=True)
class LogColumns:
    """Settings of the format log: which column is what, and how the file is written."""

    user: Annotated[str | None, typer.Option(help="log: column of the user id.")] = None
    item: Annotated[str | None, typer.Option(help="log: column of the item id.")] = None
    time: Annotated[str | None, typer.Option(help="log: column of the time.")] = None
    time_format: Annotated[
        str | None,
        typer.Option(
            help="log: epoch[-s|-ms|-us|-ns], iso, a strptime pattern, or order (rows are in time order).",
            show_default="auto",
        ),
    ] = None
    feedback: Annotated[
        str | None, typer.Option(help="log: column or expression of the feedback, names or numbers.")
    ] = None
    reward: Annotated[
        str | None, typer.Option(help="log: reward of each feedback: 'click=1,buy=3'; name=drop leaves rows out.")
    ] = None
    reward_column: Annotated[
        str | None, typer.Option(help="log: column of the reward, or an expression: 'quantity*price'.")
    ] = None
    items: Annotated[
        str | None, typer.Option(help="log, rl4rs: file with the titles, prices and categories of items.")
    ] = None
    title: Annotated[str | None, typer.Option(help="log: column of the item's title.")] = None
    price: Annotated[str | None, typer.Option(help="log: column of the item's price.")] = None
    category: Annotated[str | None, typer.Option(help="log: column of the item's category.")] = None
    delimiter: Annotated[str | None, typer.Option(help="log: field separator.", show_default="detected")] = None
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="log: the first line names the columns, or they are 1, 2, …"),
    ] = None
    quoting: Annotated[
        bool | None, typer.Option("--quoting/--no-quoting", help="log: whether fields may be quoted.")
    ] = None


@dataclass(frozen=True)
class Cleaning:
    """Settings of every format: which rows are kept, and how they are split."""

    where: Annotated[
        str | None, typer.Option(help="Keep only rows for which this is true: 'quantity > 0 and price > 0'.")
    ] = None
    encoding: Annotated[str | None, typer.Option(help="Text encoding of the files.", show_default="utf-8")] = None
    bad_rows: Annotated[
        str | None,
        typer.Option(help="What to do at a bad row: fail, or skip it, count it and list it.", show_default="fail"),
    ] = None
    dedup: Annotated[
        str | None,
        typer.Option(
            help="Which repeated rows to drop: none, exact (equal in all columns used), or feedback (all but the first "
            "of a user, item and feedback).",
            show_default="none",
        ),
    ] = None
    min_item_support: Annotated[int | None, typer.Option(help="Drop items with fewer events.")] = None
    min_length: Annotated[int | None, typer.Option(help="Drop sequences with fewer events.")] = None
    filter: Annotated[
        str | None,
        typer.Option(help="How often to apply both filters: k-core (until nothing changes) or single-pass (once)."),
    ] = None
    session_gap: Annotated[str | None, typer.Option(help="Split a user's log at longer pauses, e.g. 30min or 7d.")] = (
        None
    )
    baskets: Annotated[
        bool | None,
        typer.Option("--baskets", help="Events of a user at one time are a set: the events before it predict them."),
    ] = None
    ties: Annotated[str | None, typer.Option(help="Order of equal times: file or item.", show_default="file")] = None
    split: Annotated[
        str | None,
        typer.Option(help="Test split: time:0.8, per-user:0.8, leave-one-out or source.", show_default="time:0.8"),
    ] = None
    validation: Annotated[
        float | None, typer.Option(help="Share of training sequences held out for validation.", show_default="0.1")
    ] = None


@dataclass(frozen=True)
class WorldSize:
    """Settings of the format world."""

    events: Annotated[int | None, typer.Option(help="world: number of events to generate.")] = None
    catalogue: Annotated[int | None, typer.Option(help="world: number of items.")] = None


@command
def prepare(  # noqa: PLR0913 - one parameter per option
    source: Annotated[list[str], typer.Argument(help="Log files or a folder, or a built-in world: world:default.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write the prepared dataset to.")],
    *,
    format: Format = None,
    columns: LogColumns,
    cleaning: Cleaning,
    world: WorldSize,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings; options override it.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting of the format: key=value; may be repeated.")
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory limit; larger logs are processed on disk.")] = "4GB",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a dataset that is in the folder.")] = False,
    compute: Compute,
    output: Output,
) -> None:
    """Turn a raw log into a prepared dataset: checked, filtered, ordered, split and numbered."""
    from ecoc.config import parse_overrides
    from ecoc.data.describe import page, summary
    from ecoc.data.prepare import prepare as run_preparation
    from ecoc.storage.trusted import load_toml

    settings: dict[str, Any] = load_toml(config) if config else {}
    given = {**asdict(columns), **asdict(cleaning), **asdict(world), "seed": compute.seed}
    settings |= {name: value for name, value in given.items() if value is not None}
    settings |= parse_overrides(set_ or [])
    logging.getLogger("ecoc.data").addHandler(logging.NullHandler())  # the answer holds the warnings
    with progress(output.quiet) as watch:
        data = run_preparation(
            source,
            out,
            format=format,
            memory=memory,
            threads=compute.threads,
            overwrite=overwrite,
            progress=watch,
            **settings,
        )
    values = summary(data)
    answer(values, page(values), output.json_)
