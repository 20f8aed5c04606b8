"""`ecoc simulate`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecoc.cli.app import answer, command
from ecoc.cli.console import progress
from ecoc.cli.options import Compute, DataFolder, FinishedRuns, Output, Ranking
from ecoc.errors import InputError

if TYPE_CHECKING:
    from ecoc.ope.results import RolloutConfig
    from ecoc.progress import ProgressCallback


@dataclass(frozen=True)
class Rollouts:
    """How policies are rolled out in simulators; the meaning of each is that of `RolloutConfig`."""

    users: Annotated[int, typer.Option(min=1, help="Number of histories that roll-outs start from.")] = 500
    horizon: Annotated[int, typer.Option(min=1, help="Longest roll-out, in steps.")] = 20
    warm: Annotated[int, typer.Option(min=1, help="Least number of logged events before a roll-out starts.")] = 3
    members: Annotated[int, typer.Option(min=1, help="Number of simulators in the ensemble.")] = 3
    penalty: Annotated[
        float, typer.Option(min=0, help="Penalty per unit of ensemble disagreement beyond that on logged steps.")
    ] = 8.0
    mix: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the policy's decisions in importance-weighted sessions.")
    ] = 0.05
    exclude_seen: Annotated[
        bool | None,
        typer.Option(
            "--exclude-seen/--repeat", help="Whether policies may repeat items.", show_default="as in the log"
        ),
    ] = None
    negatives: Annotated[
        int | None,
        typer.Option(min=0, help="Random items per step that stand for ignored ones.", show_default="as the log needs"),
    ] = None
    fit_on: Annotated[
        str | None, typer.Option(help="Data that simulators are fitted on: log, test or train.", show_default="log")
    ] = None


@command
def simulate(
    runs: FinishedRuns,
    *,
    choose_w: Annotated[
        bool,
        typer.Option("--choose-w", help="Instead: choose the weight w of each run by roll-outs on validation users."),
    ] = False,
    data: DataFolder = None,
    ranking: Ranking,
    rollouts: Rollouts,
    compute: Compute,
    output: Output,
) -> None:
    """Estimate from the log what each policy would earn, and state whether the estimate can be trusted."""
    from ecoc.ope.results import RolloutConfig
    from ecoc.ope.simulate import simulate as run_simulation
    from ecoc.reporting.text import simulation_text

    chosen: dict[str, Any] = {**asdict(rollouts), "fit_on": rollouts.fit_on or "log"}  # checked by RolloutConfig
    config = RolloutConfig(**chosen, seed=compute.use())
    if choose_w and ranking != Ranking():
        raise InputError("--choose-w chooses how runs rank; leave out --rank-by, -w and -m")
    if choose_w and rollouts.fit_on not in (None, "train"):
        raise InputError("--choose-w must not see the test split, so it fits simulators on train; leave out --fit-on")
    with progress(output.quiet) as watch:
        if choose_w:
            _choose(runs, data, config, watch, output.json_)
            return
        result = run_simulation(runs, data, **asdict(ranking), config=config, progress=watch)
    answer(result.model_dump(), simulation_text(result), output.json_)


def _choose(
    runs: list[Path], data: Path | None, config: "RolloutConfig", watch: "ProgressCallback", json_: bool
) -> None:
    """Choose for every run before writing any; the drawing lies beside the file of each run."""
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
