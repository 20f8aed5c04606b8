"""`ecoc.simulate`: estimates from the log what policies would earn, and states whether an estimate can be trusted."""

import time
from collections.abc import Sequence
from os import PathLike

import numpy as np
import torch
from numpy.typing import NDArray

from ecoc.data.sequences import Dataset
from ecoc.evaluation.opening import common_data, open_models
from ecoc.model import Model
from ecoc.ope.candidates import Candidate, check_names, controls, views
from ecoc.ope.estimators import one_step, ratio_estimate
from ecoc.ope.evaluator import RolloutEvaluator
from ecoc.ope.logged import DecisionScorer, LoggedDecisions, best_items, open_logged
from ecoc.ope.results import (
    EstimatorValue,
    OneStepRatio,
    PolicyValue,
    RolloutConfig,
    SimulationResult,
    renamed_settings,
)
from ecoc.ope.rollout import SessionView
from ecoc.ope.simulator import LENGTH, SimulatorConfig, fit_simulator
from ecoc.ope.trust import IMITATION, ImitationLoss, imitation_losses
from ecoc.policies.base import RankBy
from ecoc.progress import ProgressCallback, no_progress
from ecoc.runs.saved import SIMULATION, save_in_runs

Ints = NDArray[np.int64]
_ROWS = 1024
_MOST_DECISIONS = 20_000


def simulate(  # noqa: PLR0913 - one parameter per option
    models: Sequence[Model | str | PathLike[str]],
    data: Dataset | str | PathLike[str] | None = None,
    *,
    rank_by: RankBy | None = None,
    w: float | None = None,
    m: int | None = None,
    config: RolloutConfig | None = None,
    cloned: bool = True,
    save: bool = True,
    progress: ProgressCallback | None = None,
    settings: RolloutConfig | None = None,
) -> SimulationResult:
    """Estimate what runs would earn, compared with the logging policy and with controls.

    The main figure is the roll-out: each policy, and the logging policy, acts step by step in the same ensemble of
    simulated users. It is reduced by a penalty where the members of the ensemble disagree. `one_step` is the paper's
    ratio at logged states. The estimators weight logged decisions: of one decision by the policy, and of sessions in
    which a share `config.mix` of the decisions is the policy's. With `cloned`, a run that ranks by a value is also
    evaluated as its cloned policy. The result is saved in each run, unless its folder is read-only.
    """
    started = time.perf_counter()
    watch, config = progress or no_progress, renamed_settings(config, settings) or RolloutConfig()
    opened = open_models(models, rank_by, w=w, m=m)
    dataset = common_data(opened, data)
    candidates = controls(dataset) + views(opened, cloned=cloned)
    check_names(candidates)
    evaluator = RolloutEvaluator.open(dataset, config, "test", watch)
    logged = open_logged(
        dataset,
        warm=config.warm,
        horizon=config.horizon,
        most=_MOST_DECISIONS,
        seed=config.seed,
        length=max(LENGTH, *(model.policy.length for model in opened)),
        exclude_seen=evaluator.exclude_seen,
    )
    scorer = DecisionScorer(evaluator.simulator, logged)
    paper = _paper_scorers(dataset, config, evaluator.simulator.quality.negatives, logged, watch)
    runs = {candidate.name: candidate.policy for candidate in candidates if candidate.policy is not None}
    losses = imitation_losses(dataset, runs)
    policies: list[PolicyValue] = []
    estimators: list[EstimatorValue] = []
    for number, candidate in enumerate(candidates):
        watch("play policies", number, len(candidates))
        value = _guarded(evaluator.value_of(candidate, evaluator.roll_out(candidate)), losses.get(candidate.name))
        if candidate.is_logging_policy:
            actions = logged.items
        else:
            actions = _actions(candidate, logged, evaluator.exclude_seen and not candidate.may_repeat)
            estimators += _estimators(candidate.name, scorer, actions, config)
        ratios = {name: _one_step_ratio(view, actions, config.seed) for name, view in paper.items()}
        policies.append(value.model_copy(update={"one_step": ratios}))
    watch("play policies", len(candidates), len(candidates))
    result = SimulationResult(
        data=str(dataset.path),
        settings=config,
        exclude_seen=evaluator.exclude_seen,
        simulator=evaluator.simulator.quality,
        reasons=evaluator.reasons,
        one_step_simulator={name: view.simulator.quality for name, view in paper.items()},
        logged_reward=float(logged.reward.mean()),
        decisions=len(logged.items),
        starts=len(evaluator.initial.steps),
        steps=float(evaluator.initial.steps.double().mean()),
        policies=policies,
        estimators=estimators,
        seconds=time.perf_counter() - started,
    )
    key = ", ".join(f"{model.name} {model.policy.ranking_mode}" for model in opened)
    notes = save_in_runs([model.run for model in opened], SIMULATION, key, result) if save else []
    return result.model_copy(update={"notes": [*result.notes, *notes]})


def _paper_scorers(
    data: Dataset, config: RolloutConfig, negatives: int, logged: LoggedDecisions, watch: ProgressCallback
) -> dict[str, DecisionScorer]:
    """One simulator of the test split, as in the paper; a second one with negatives if the log needs them."""
    kinds = {"conditional": 0} | ({"with negatives": negatives} if negatives else {})
    scorers = {}
    for name, count in kinds.items():
        fitting = SimulatorConfig("test", 1, count, most_events=config.most_events, seed=config.seed)
        scorers[name] = DecisionScorer(fit_simulator(data, fitting, watch), logged)
    return scorers


def _actions(candidate: Candidate, logged: LoggedDecisions, exclude_seen: bool) -> Ints:
    """The item a candidate chooses at each logged state, [N]."""
    if candidate.policy is not None:
        return best_items(candidate.policy, logged, exclude_seen=exclude_seen)
    random, nothing = torch.Generator().manual_seed(0), torch.zeros(0)
    parts = []
    for first in range(0, len(logged.items), _ROWS):
        rows = slice(first, first + _ROWS)
        past = logged.before[rows] if exclude_seen else logged.before[rows, :0]
        parts.append(candidate.actor(SessionView(past, past, past, nothing, random)))
    actions: Ints = torch.cat(parts).numpy()
    return actions


def _estimators(name: str, scorer: DecisionScorer, actions: Ints, config: RolloutConfig) -> list[EstimatorValue]:
    decisions = scorer.decisions(actions)
    estimates = [("one decision", estimate) for estimate in one_step(decisions, seed=config.seed)]
    estimates += [
        (f"{config.mix:.0%} of decisions", estimate)
        for estimate in scorer.mixed_sessions(decisions, config.mix, config.seed)
    ]
    base = float(scorer.logged.reward.mean())
    return [
        EstimatorValue(
            policy=name,
            of=of,
            estimator=estimate.estimator,
            value=_finite(estimate.value),
            low=_finite(estimate.low),
            high=_finite(estimate.high),
            ess=_finite(estimate.ess),
            ratio=_finite(estimate.value / base) if base else None,
        )
        for of, estimate in estimates
    ]


def _finite(value: float) -> float | None:
    """A number, or none where no logged decision agrees with the policy."""
    return value if np.isfinite(value) else None


def _one_step_ratio(scorer: DecisionScorer, actions: Ints, seed: int) -> OneStepRatio:
    """The paper's figure: simulated reward of the chosen items over simulated reward of the logged items."""
    estimate = ratio_estimate("one step", scorer.value(actions), scorer.model, scorer.logged.user, seed=seed)
    return OneStepRatio(ratio=estimate.value, low=estimate.low, high=estimate.high)


def _guarded(value: PolicyValue, imitation: ImitationLoss | None) -> PolicyValue:
    """With the imitation loss, and one more reason for distrust where it is too large."""
    if imitation is None:
        return value
    reasons = list(value.reasons)
    if imitation.excess > IMITATION:
        reasons.append(f"imitates the log {imitation.excess:.1%} worse than the best run")
    return value.model_copy(update={"imitation_loss": imitation.loss, "reasons": reasons, "trusted": not reasons})
