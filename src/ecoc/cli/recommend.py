"""`ecoc recommend`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ecoc.cli.app import answer, command
from ecoc.cli.console import progress
from ecoc.cli.options import DataFolder, ExcludeSeen, Output, Ranking, Threads, comma_separated, use_threads
from ecoc.errors import InputError


@command
def recommend(  # noqa: PLR0913 - one parameter per option
    model: Annotated[Path, typer.Argument(help="Folder of a finished run, or a bundle.")],
    *,
    history: Annotated[
        list[str] | None,
        typer.Option(
            help="Items of the user so far, oldest first: a17,b3, or with feedback a17:buy. May be repeated, once per "
            "user."
        ),
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option(help="Instead: a user of the dataset, with all that the dataset holds of them. May be repeated."),
    ] = None,
    data: DataFolder = None,
    histories: Annotated[
        Path | None,
        typer.Option(help='Instead: a file of histories, one {"history": [...]} per line (.jsonl), or .parquet.'),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for their lists: .jsonl or .parquet.")] = None,
    similar: Annotated[
        list[str] | None, typer.Option(help="Instead: list the items most similar to this item. May be repeated.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of items to list.")] = 10,
    exclude_seen: ExcludeSeen = False,
    exclude: Annotated[str, typer.Option(help="Items to leave out: a,b,c.")] = "",
    only: Annotated[str | None, typer.Option(help="Recommend only these items: a,b,c.")] = None,
    ranking: Ranking,
    threads: Threads = None,
    output: Output,
) -> None:
    """Recommend items to follow a history; without a history, popular items."""
    from ecoc.model import load
    from ecoc.reporting.text import recommendations_json, recommendations_text

    given = [name for name, value in _asked(history, user, histories, similar) if value]
    if len(given) > 1:
        raise InputError(f"{given[0]} and {given[1]} ask for different things; give one of them")
    if (histories is None) != (out is None):
        raise InputError("--histories and --out belong together: a file to read and a file to write")
    use_threads(threads)
    mode: Any = ranking.rank_by  # checked by the model
    opened = load(model).ranked_by(mode, w=ranking.w, m=ranking.m)
    options: dict[str, Any] = {
        "exclude_seen": exclude_seen,
        "exclude": comma_separated(exclude) or (),
        "only": comma_separated(only),
    }
    if histories is not None and out is not None:
        from ecoc.serving.files import recommend_file

        with progress(output.quiet) as watch:
            count = recommend_file(opened, histories, out, k, progress=watch, **options)
        answer({"histories": count, "out": str(out)}, f"{out}: lists for {count:,} histories", output.json_)
        return
    if similar:
        lists = opened.similar(similar, k)
    elif user:
        lists = opened.recommend_users(data or opened.data_path, user, k, **options)
    else:
        lists = opened.recommend([opened.parse_history(text) for text in history or [""]], k, **options)
    values = recommendations_json(opened, lists)
    answer(values, recommendations_text(values, similar or user or history or [""]), output.json_)


def _asked(*values: object) -> list[tuple[str, object]]:
    return list(zip(("--history", "--user", "--histories", "--similar"), values, strict=True))
