"""`ecoc recommend`."""

from typing import Annotated, Any

import typer

from ecoc.cli.app import answer, command
from ecoc.cli.options import ExcludeSeen, FinishedRun, Output, Ranking, Threads, comma_separated, use_threads


@command
def recommend(  # noqa: PLR0913 - one parameter per option
    model: FinishedRun,
    *,
    history: Annotated[
        list[str] | None,
        typer.Option(
            help="Items of the user so far, oldest first: a17,b3, or with feedback a17:buy. May be repeated, once per "
            "user."
        ),
    ] = None,
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

    use_threads(threads)
    mode: Any = ranking.rank_by  # checked by the model
    opened = load(model).ranked_by(mode, w=ranking.w, m=ranking.m)
    if similar:
        lists = opened.similar(similar, k)
    else:
        lists = opened.recommend(
            [opened.parse_history(text) for text in history or [""]],
            k,
            exclude_seen=exclude_seen,
            exclude=comma_separated(exclude) or (),
            only=comma_separated(only),
        )
    values = recommendations_json(opened, lists)
    answer(values, recommendations_text(values, similar or history or [""]), output.json_)
