"""Choose how much a critic has a say, without touching the test split: roll-outs over the blend's weight."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike

from ecoc.data.loader import open_cases
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.metrics import means
from ecoc.evaluation.opening import data_of
from ecoc.evaluation.ranks import rank_cases
from ecoc.model import Model, load
from ecoc.ope.results import Rollout, RolloutConfig, WeightChoice, WeightPoint, renamed_settings
from ecoc.ope.rollout import acting_by
from ecoc.ope.simulate import Candidate, RolloutEvaluator
from ecoc.progress import ProgressCallback, no_progress
from ecoc.runs.folder import Run, save_acting
from ecoc.runs.saved import check_writable

WEIGHTS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
_NEAR = 0.02  # share of the best estimate by which a smaller weight may fall short
_CASES = 2000


def choose_weight(
    model: Model | str | PathLike[str],
    data: Dataset | str | PathLike[str] | None = None,
    *,
    weights: Sequence[float] = WEIGHTS,
    config: RolloutConfig | None = None,
    save: bool = True,
    progress: ProgressCallback | None = None,
    settings: RolloutConfig | None = None,
) -> WeightChoice:
    """Play a run at each weight from validation histories, in a simulator of the training part of the log.

    Of the weights whose figure can be trusted, the smallest is chosen that is within 2 % of the best; it is written
    into the run with the evidence, and the run acts by it from then on. If the simulators know too little to say
    anything, nothing is chosen and the run acts as before.
    """
    watch = progress or no_progress
    opened = model if isinstance(model, Model) else load(model)
    config = renamed_settings(config, settings) or RolloutConfig()
    if not opened.policy.has_critic:
        raise InputError(
            f"{opened.name}: method {opened.config.method_name} has no critic, so there is no weight to choose"
        )
    if save:
        check_writable(opened.run)
    dataset = data_of(opened, data)
    stage = RolloutEvaluator.open(dataset, replace(config, fit_on="train"), "validation", watch)
    history = opened.config.train.min_history
    cases = open_cases(dataset, "validation", min_history=history, most=_CASES, seed=stage.play.seed)
    points = []
    tried = sorted({0.0, *weights})
    for number, weight in enumerate(tried):
        watch("play weights", number, len(tried))
        view = opened.ranked_by("blend", w=weight)
        candidate = Candidate(f"w = {weight:g}", acting_by(view.policy), view.policy)
        value = stage.value_of(candidate, stage.played(candidate))
        ranked = means(rank_cases(view.policy, dataset, cases))
        rollout = value.model_dump(include=set(Rollout.model_fields))
        points.append(WeightPoint(w=weight, ndcg=ranked["ndcg@10"], **rollout))
    result = WeightChoice(
        run=str(opened.run.path),
        data=str(dataset.path),
        w=None if stage.reasons else chosen_point(points).w,
        reasons=stage.reasons,
        points=points,
        simulator=stage.simulator.quality,
        settings=stage.play,
    )
    if save:
        save_choice(opened.run, result)
    return result


def save_choice(run: Run, choice: WeightChoice) -> None:
    """Let a run act by the weight that was chosen for it, if any, and keep the evidence."""
    if choice.w is not None:
        save_acting(run, "blend", choice.w, choice.model_dump(exclude={"picture"}))


def chosen_point(points: Sequence[WeightPoint]) -> WeightPoint:
    """The smallest trusted weight within 2 % of the best trusted one; the cloned policy, w = 0, is always trusted."""
    trusted = [point for point in points if point.trusted or point.w == 0]
    best = max(point.reward for point in trusted)
    return next(point for point in trusted if point.reward >= best - _NEAR * abs(best))
