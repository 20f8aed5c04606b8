"""`ecoc.choose_weight`: chooses the weight w of the long-term value by roll-outs, without the test split."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike

from ecoc.arguments import as_list, as_number
from ecoc.data.loader import open_cases
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.metrics import means
from ecoc.evaluation.opening import data_of
from ecoc.evaluation.ranks import rank_cases
from ecoc.model import Model, load
from ecoc.ope.candidates import Candidate
from ecoc.ope.evaluator import RolloutEvaluator
from ecoc.ope.results import Rollout, RolloutConfig, WeightChoice, WeightPoint, renamed_settings
from ecoc.ope.rollout import policy_actor
from ecoc.progress import ProgressCallback, no_progress
from ecoc.runs.folder import Run, save_acting
from ecoc.runs.saved import NOT_CHOSEN, check_writable, save_result

WEIGHTS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
_TOLERANCE = 0.02  # share of the best estimate by which a smaller weight may fall short
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
    """Roll out a run at each weight, from validation histories, in simulators fitted on the training part of the log.

    Among the weights whose figure can be trusted, the smallest within 2 % of the best is chosen. It is written into the
    run with the evidence, and the run ranks by it from then on. If no figure can be trusted, no weight is chosen and
    the run ranks as before.
    """
    watch = progress or no_progress
    opened = model if isinstance(model, Model) else load(model)
    weights = [as_number(weight, "weights", least=0) for weight in as_list(weights, "weights", "a list of numbers")]
    config = renamed_settings(config, settings) or RolloutConfig()
    if not opened.policy.has_critic:
        raise InputError(
            f"{opened.name}: method {opened.config.method_name} has no critic, so there is no weight to choose"
        )
    if save:
        check_writable(opened.run)
    dataset = data_of(opened, data)
    evaluator = RolloutEvaluator.open(dataset, replace(config, fit_on="train"), "validation", watch)
    history = opened.config.train.min_history
    cases = open_cases(dataset, "validation", min_history=history, most=_CASES, seed=evaluator.config.seed)
    points = []
    tried = sorted({0.0, *weights})
    for number, weight in enumerate(tried):
        watch("play weights", number, len(tried))
        view = opened.ranked_by("blend", w=weight)
        candidate = Candidate(f"w = {weight:g}", policy_actor(view.policy), view.policy)
        value = evaluator.value_of(candidate, evaluator.roll_out(candidate))
        ranked = means(rank_cases(view.policy, dataset, cases))
        rollout = value.model_dump(include=set(Rollout.model_fields))
        points.append(WeightPoint(w=weight, ndcg=ranked["ndcg@10"], **rollout))
    result = WeightChoice(
        run=str(opened.run.path),
        data=str(dataset.path),
        w=None if evaluator.reasons else chosen_point(points).w,
        reasons=evaluator.reasons,
        points=points,
        simulator=evaluator.simulator.quality,
        settings=evaluator.config,
    )
    if save:
        save_choice(opened.run, result)
    return result


def save_choice(run: Run, choice: WeightChoice) -> None:
    """Let a run rank by the weight that was chosen for it, if any, and keep the evidence in either case."""
    if choice.w is None:
        save_result(run, NOT_CHOSEN, "validation", choice)
    else:
        save_acting(run, "blend", choice.w, choice.model_dump(exclude={"picture"}))
        (run.path / NOT_CHOSEN).unlink(missing_ok=True)


def chosen_point(points: Sequence[WeightPoint]) -> WeightPoint:
    """The smallest trusted weight within 2 % of the best trusted one; the cloned policy, w = 0, is always trusted."""
    trusted = [point for point in points if point.trusted or point.w == 0]
    best = max(point.reward for point in trusted)
    return next(point for point in trusted if point.reward >= best - _TOLERANCE * abs(best))
