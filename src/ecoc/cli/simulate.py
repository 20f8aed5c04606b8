"""`ecoc simulate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ecoc.cli.app import (
    DataFolder,
    Debug,
    Json,
    Quiet,
    RankedBy,
    Reranked,
    Seed,
    Threads,
    Weight,
    answer,
    app,
    use_threads,
)
from ecoc.cli.console import progress
from ecoc.errors import InputError


@app.command()
def simulate(  # noqa: PLR0913, PLR0917 - one parameter a flag
    runs: Annotated[list[Path], typer.Argument(help="Finished runs on the same dataset.")],
    choose_w: Annotated[
        bool, typer.Option("--choose-w", help="Instead: choose the blend's weight of each run on validation roll-outs.")
    ] = False,
    data: DataFolder = None,
    rank_by: RankedBy = None,
    w: Weight = None,
    m: Reranked = None,
    users: Annotated[int, typer.Option(min=1, help="Histories that roll-outs start from.")] = 500,
    horizon: Annotated[int, typer.Option(min=1, help="Longest roll-out, in steps.")] = 20,
    warm: Annotated[int, typer.Option(min=1, help="Fewest logged events a roll-out starts after.")] = 3,
    members: Annotated[int, typer.Option(min=1, help="Simulators that have to agree.")] = 3,
    penalty: Annotated[float, typer.Option(min=0, help="Charge for disagreement beyond that about the log.")] = 8.0,
    mix: Annotated[float, typer.Option(min=0, max=1, help="Share of decisions in the weighed sessions.")] = 0.05,
    exclude_seen: Annotated[
        bool | None,
        typer.Option("--exclude-seen/--repeat", help="May policies repeat items?", show_default="as the log"),
    ] = None,
    negatives: Annotated[
        int | None,
        typer.Option(min=0, help="Items at random that stand for what users ignored.", show_default="as the log needs"),
    ] = None,
    fit_on: Annotated[
        str | None,
        typer.Option(help="What the simulators are fitted on: log, test or train.", show_default="log"),
    ] = None,
    seed: Seed = None,
    threads: Threads = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Estimate what runs would earn, off policy: roll-outs in simulators fitted on the log, beside controls."""
    from ecoc.ope.results import RolloutConfig
    from ecoc.ope.simulate import simulate as work
    from ecoc.reporting.text import simulation_text

    use_threads(threads)
    chosen: Any = fit_on or "log"  # checked by RolloutConfig
    config = RolloutConfig(users, horizon, warm, members, penalty, mix, exclude_seen, negatives, chosen, seed or 0)
    if choose_w and (rank_by, w, m) != (None, None, None):
        raise InputError("--choose-w chooses how runs act; leave out --rank-by, -w and -m")
    if choose_w and fit_on not in (None, "train"):
        raise InputError("--choose-w must not see the test split, so it fits simulators on train; leave out --fit-on")
    with progress(quiet) as watch:
        if choose_w:
            _choose(runs, data, config, watch, json_)
            return
        acting: dict[str, Any] = {"rank_by": rank_by, "w": w, "m": m}
        result = work(runs, data, **acting, config=config, progress=watch)
    answer(result.model_dump(), simulation_text(result), json_)


def _choose(runs: list[Path], data: Path | None, config: Any, watch: Any, json_: bool) -> None:
    """Choose for every run, and only then write any; beside each run's file lies the drawing."""
    from ecoc.model import load
    from ecoc.ope.choose_weight import choose_weight, save_choice
    from ecoc.reporting.figures import picture
    from ecoc.reporting.sections.weight_choice import choice_figure
    from ecoc.reporting.text import weight_text
    from ecoc.runs.saved import check_writable
    from ecoc.storage.atomic import write_whole

    models = [load(run) for run in runs]
    for model in models:
        check_writable(model.run)
    choices = [choose_weight(model, data, config=config, save=False, progress=watch) for model in models]
    answers = []
    for model, choice in zip(models, choices, strict=True):
        save_choice(model.run, choice)
        values = choice.model_dump()
        if choice.w is not None:
            drawing = model.run.path / "acting.svg"
            write_whole(drawing, [picture(choice_figure(choice), "svg")])
            values["picture"] = str(drawing)
        answers.append(values)
    answer({"runs": answers}, "\n\n".join(map(weight_text, choices)), json_)
