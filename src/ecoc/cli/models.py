"""`ecoc train`, `ecoc evaluate`, `ecoc compare`, `ecoc recommend`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ecoc.cli.app import (
    DataFolder,
    Debug,
    ExcludeSeen,
    Json,
    MaxCases,
    Quiet,
    RankedBy,
    Reranked,
    Seed,
    Split,
    Threads,
    Untrained,
    Weight,
    answer,
    app,
    use_threads,
)
from ecoc.cli.console import progress


@app.command()
def train(  # noqa: PLR0913, PLR0917 - one parameter a flag
    data: Annotated[Path, typer.Argument(help="A prepared dataset.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")],
    method: Annotated[
        str | None,
        typer.Option(
            help="supervised, ecoc, sqn, sa2c, sdac_sr, sdac_dc, prl, neural_lcb, popular, recent or markov.",
            show_default="supervised",
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="gru4rec, narm, stamp, caser, nextitnet, srgnn, gcsan, dhcn, sasrec, ssept or bert4rec.",
            show_default="sasrec",
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="The paper's settings: yelp, tmall, rl4rs, or paper for others.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings, such as a run's config.toml.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="One setting: train.max_epochs=5, encoder.dim=32, method.n2=1000.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is in the folder.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Say where the time of a step went.")] = False,
    seed: Seed = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Learn a policy from a prepared dataset; the best weights by validation are kept in the run folder."""
    from ecoc.config import load_toml, parse_overrides
    from ecoc.reporting.text import train_text
    from ecoc.runs.config import merged
    from ecoc.training.train import train as work

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
            config=merged(load_toml(config) if config is not None else {}, settings),
            resume=resume,
            overwrite=overwrite,
            progress=watch,
        )
    result = run.result.values()
    answer(result, train_text(result, profile=profile), json_)


@app.command()
def evaluate(  # noqa: PLR0913, PLR0917 - one parameter a flag
    run: Annotated[Path, typer.Argument(help="A finished run.")],
    data: DataFolder = None,
    split: Split = "test",
    max_cases: MaxCases = 0,
    exclude_seen: ExcludeSeen = False,
    untrained: Untrained = True,
    rank_by: RankedBy = None,
    w: Weight = None,
    m: Reranked = None,
    seed: Seed = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Rank what really came next among all items: HR, MRR, NDCG at 5, 10, 20 with intervals over users."""
    from ecoc.evaluation.evaluate import evaluate as work
    from ecoc.reporting.text import evaluation_text

    use_threads(threads)
    with progress(quiet) as watch:
        result = work(
            run,
            data,
            split=split,
            max_cases=max_cases,
            exclude_seen=exclude_seen,
            untrained=untrained,
            **_acting(rank_by, w, m),
            seed=seed or 0,
            progress=watch,
        )
    answer(result.model_dump(), evaluation_text(result), json_)


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
    rank_by: RankedBy = None,
    w: Weight = None,
    m: Reranked = None,
    seed: Seed = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Put runs side by side: paired differences over the same test cases, with intervals and p-values."""
    from ecoc.evaluation.compare import COMPARED
    from ecoc.evaluation.compare import compare as work
    from ecoc.reporting.text import comparison_text

    use_threads(threads)
    with progress(quiet) as watch:
        result = work(
            runs,
            data,
            split=split,
            metrics=metric or COMPARED,
            max_cases=max_cases,
            exclude_seen=exclude_seen,
            untrained=untrained,
            **_acting(rank_by, w, m),
            seed=seed or 0,
            progress=watch,
        )
    answer(result.model_dump(), comparison_text(result), json_)


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
    rank_by: RankedBy = None,
    w: Weight = None,
    m: Reranked = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Recommend items to follow a history; without one, what is popular."""
    from ecoc.model import load
    from ecoc.reporting.text import recommendations_json, recommendations_text

    use_threads(threads)
    mode: Any = rank_by  # checked by the model
    opened = load(model).ranked_by(mode, w=w, m=m)
    if similar:
        found = opened.similar(similar, k)
    else:
        asked = [opened.parse_history(text) for text in history or [""]]
        found = opened.recommend(
            asked, k, exclude_seen=exclude_seen, exclude=_names(exclude), only=None if only is None else _names(only)
        )
    facts = recommendations_json(opened, found)
    answer(facts, recommendations_text(facts, similar or history or [""]), json_)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _acting(rank_by: str | None, w: float | None, m: int | None) -> dict[str, Any]:
    """How a policy is to act."""
    return {"rank_by": rank_by, "w": w, "m": m}
