"""`ecoc.simulate`: off-policy evaluation of runs, in a simulator fitted on the log and by weighing what was logged."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np
import torch
from numpy.typing import NDArray

from ecoc.data.loader import open_cases, open_train_sequences
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.opening import check_same_data, data_of, open_models
from ecoc.evaluation.ranks import REPEATS, is_seen
from ecoc.model import Model
from ecoc.ope.estimators import one_step, ratio_estimate
from ecoc.ope.logged import DecisionScorer, LoggedDecisions, best_items, open_logged
from ecoc.ope.results import (
    LOGGED,
    EstimatorValue,
    OneStepRatio,
    PolicyValue,
    RolloutConfig,
    SimulationResult,
    renamed_settings,
)
from ecoc.ope.rollout import (
    Actor,
    InitialStates,
    Rollouts,
    SessionView,
    acting_as_logged,
    acting_at_random,
    acting_by,
    acting_by_score,
    open_starts,
    play,
)
from ecoc.ope.simulator import LENGTH, TRUST, Simulator, SimulatorConfig, fit_simulator
from ecoc.ope.trust import (
    IMITATION,
    REFUSED,
    ImitationLoss,
    UsualBehaviour,
    imitation_losses,
    simulator_warnings,
    support_warnings,
    usual_behaviour,
)
from ecoc.policies.base import Policy, RankBy
from ecoc.progress import ProgressCallback, no_progress
from ecoc.runs.saved import SIMULATION, save_result, saving

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_RESAMPLES = 1000
_ROWS = 1024
_DECISIONS = 20_000
_NEGATIVES = 4


@dataclass(frozen=True)
class Candidate:
    """Something to judge."""

    name: str
    actor: Actor
    policy: Policy | None = None  # of a run
    score: torch.Tensor | None = None  # [V] of a control that shows everyone the same
    is_control: bool = False
    may_repeat: bool = False


@dataclass
class RolloutEvaluator:
    """Everything that candidates are judged with, fitted once."""

    play: RolloutConfig
    simulator: Simulator
    starts: InitialStates
    exclude_seen: bool
    reference: Rollouts  # the log, played
    usual: UsualBehaviour  # how likely the log's own decisions are

    @classmethod
    def open(
        cls, data: Dataset, settings: RolloutConfig, split: str, watch: ProgressCallback = no_progress
    ) -> "RolloutEvaluator":
        """Fit the simulator and play the log in it."""
        exclude_seen, negatives = session_protocol(data, settings, split)
        config = SimulatorConfig(
            settings.fit_on, settings.members, negatives, most_events=settings.most_events, seed=settings.seed
        )
        simulator = fit_simulator(data, config, watch)
        starts = open_starts(
            data,
            simulator,
            split,
            users=settings.users,
            warm=settings.warm,
            horizon=settings.horizon,
            seed=settings.seed,
        )
        reference = play(simulator, acting_as_logged(), starts, exclude_seen=False, seed=settings.seed)
        return cls(settings, simulator, starts, exclude_seen, reference, usual_behaviour(reference))

    @property
    def reasons(self) -> list[str]:
        """What speaks against every figure."""
        return simulator_warnings(self.simulator.quality)

    def played(self, candidate: Candidate) -> Rollouts:
        """A candidate's roll-outs."""
        if candidate.name == LOGGED:
            return self.reference
        kept_out = self.exclude_seen and not candidate.may_repeat
        return play(self.simulator, candidate.actor, self.starts, exclude_seen=kept_out, seed=self.play.seed)

    def value_of(self, candidate: Candidate, played: Rollouts) -> PolicyValue:
        """The headline: what a step counts, its ratio to the log's in the same simulator, and how far to trust it."""
        is_log = candidate.name == LOGGED
        uncertainty_penalty = self.play.penalty * max(
            0.0, played.mean_doubt - self.reference.mean_doubt
        )  # leaving the log costs
        value, base = played.value(uncertainty_penalty), self.reference.value()
        low, high = _ratio_interval(played.totals(uncertainty_penalty), self.reference.totals(), seed=self.play.seed)
        reasons = [] if is_log else self.reasons + support_warnings(played, self.usual)
        return PolicyValue(
            name=candidate.name,
            kind="control" if candidate.is_control else "run",
            ranking_mode=candidate.policy.ranking_mode if candidate.policy is not None else "policy",
            reward=value,
            ratio=value / base if base else 0.0,
            low=low,
            high=high,
            unpenalised=played.value(),
            ensemble_std=played.mean_doubt,
            uncertainty_penalty=uncertainty_penalty,
            rare_actions=float((played.log_behaviour[:, played.counted] < self.usual.action).mean()),
            items_shown=played.distinct,
            reasons=reasons,
            trusted=not reasons,
        )


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
    """Estimate what runs would earn, beside the log and controls.

    The headline is the roll-out: every policy and the log's own, played step after step in the same simulator of
    users, charged for going where its members disagree. `one_step` is the paper's ratio at logged states. Estimators
    weigh what was logged: one decision of the policy, and sessions in which a share `mix` of the decisions is its own.
    With `cloned`, a run that acts on a value stands beside its cloned policy, which is supervised with averaging.
    """
    began = time.perf_counter()
    watch, config = progress or no_progress, renamed_settings(config, settings) or RolloutConfig()
    opened = open_models(models, rank_by, w=w, m=m)
    dataset = data_of(opened[0], data)
    for model in opened:
        check_same_data(model, dataset)
    candidates = _told_apart(controls(dataset) + views(opened, cloned=cloned))
    stage = RolloutEvaluator.open(dataset, config, "test", watch)
    logged = open_logged(
        dataset,
        warm=config.warm,
        horizon=config.horizon,
        most=_DECISIONS,
        seed=config.seed,
        length=max(LENGTH, *(model.policy.length for model in opened)),
        exclude_seen=stage.exclude_seen,
    )
    witness = DecisionScorer(stage.simulator, logged)
    paper = _paper_witness(dataset, config, stage.simulator.quality.negatives, logged, watch)
    losses = imitation_losses(dataset, {one.name: one.policy for one in candidates if one.policy is not None})
    policies: list[PolicyValue] = []
    estimators: list[EstimatorValue] = []
    for number, one in enumerate(candidates):
        watch("play policies", number, len(candidates))
        value = _guarded(stage.value_of(one, stage.played(one)), losses.get(one.name))
        if one.name != LOGGED:
            chosen = _chosen(one, logged, stage.exclude_seen and not one.may_repeat)
            estimators += _estimators(one.name, witness, chosen, config)
        ratios = {
            name: _one_step_ratio(view, logged.items if one.name == LOGGED else chosen, config.seed)
            for name, view in paper.items()
        }
        policies.append(value.model_copy(update={"one_step": ratios}))
    watch("play policies", len(candidates), len(candidates))
    result = SimulationResult(
        data=str(dataset.path),
        settings=config,
        exclude_seen=stage.exclude_seen,
        simulator=stage.simulator.quality,
        reasons=stage.reasons,
        one_step_simulator={name: view.simulator.quality for name, view in paper.items()},
        logged_reward=float(logged.reward.mean()),
        decisions=len(logged.items),
        starts=len(stage.starts.left),
        steps=float(stage.starts.left.double().mean()),
        policies=policies,
        estimators=estimators,
        seconds=time.perf_counter() - began,
    )
    notes: list[str] = []
    key = ", ".join(f"{model.name} {model.policy.ranking_mode}" for model in opened)
    for model in opened if save else []:
        with saving(model.run, notes):
            save_result(model.run, SIMULATION, key, result)
    return result.model_copy(update={"notes": [*dict.fromkeys(notes)]})


def session_protocol(data: Dataset, settings: RolloutConfig, split: str = "test") -> tuple[bool, int]:
    """Whether policies leave out what was seen, and how many negatives the log needs; of validation, without the test.

    A log that hardly repeats gets policies that do not.
    """
    exclude = settings.exclude_seen
    if exclude is None:
        cases = open_cases(data, split, min_history=1, most=_DECISIONS, seed=0)
        exclude = bool(is_seen(data, cases).mean() < REPEATS) if len(cases) else True
    return exclude, synthetic_negatives(data) if settings.negatives is None else settings.negatives


def synthetic_negatives(data: Dataset) -> int:
    """How many items at random stand, beside each event, for what users would not have taken.

    None where the log holds refusals; with hardly any event of no worth it holds only what users took up.
    """
    rewards = open_train_sequences(data).rewards
    refused = 0.0 if rewards is None else float((rewards <= 0).mean())
    return 0 if refused >= REFUSED else _NEGATIVES


def controls(data: Dataset) -> list[Candidate]:
    """What any policy has to be seen beside: the log itself, chance, what is popular, what pays best."""
    sessions = open_train_sequences(data)
    count = np.bincount(sessions.items, minlength=data.counts.items + 1).astype(np.float64)
    rewards = np.zeros(0) if sessions.rewards is None else sessions.rewards.astype(np.float64)
    total = np.bincount(sessions.items, rewards, minlength=data.counts.items + 1)
    best = (total + TRUST * rewards.mean()) / (count + TRUST)
    named = {"popular": count, "best item": best}
    return [
        Candidate(LOGGED, acting_as_logged(), is_control=True, may_repeat=True),
        Candidate("random", acting_at_random(data.counts.items), is_control=True),
        *(_fixed(name, torch.from_numpy(score).float()) for name, score in named.items()),
    ]


def _fixed(name: str, score: torch.Tensor) -> Candidate:
    return Candidate(name, acting_by_score(score), score=score, is_control=True)


def views(models: Sequence[Model], *, cloned: bool) -> list[Candidate]:
    """Each run as it acts; one that acts on a value also as its cloned policy, which is supervised with averaging."""
    found: list[Candidate] = []
    for model in models:
        found.append(Candidate(model.name, acting_by(model.policy), model.policy))
        if cloned and model.policy.ranking_mode != "policy":
            plain = model.ranked_by("policy")
            name = f"{model.name}, cloned policy"
            found.append(Candidate(name, acting_by(plain.policy), plain.policy, is_control=True))
    return found


def _told_apart(found: list[Candidate]) -> list[Candidate]:
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two runs are called '{name}'; rename a folder so that they can be told apart")
    return found


def _paper_witness(
    data: Dataset, settings: RolloutConfig, negatives: int, logged: LoggedDecisions, watch: ProgressCallback
) -> dict[str, DecisionScorer]:
    """Simulators of the test split alone, as the paper has it; and, if the log needs them, with negatives."""
    kinds = {"conditional": 0} | ({"with negatives": negatives} if negatives else {})
    found = {}
    for name, count in kinds.items():
        config = SimulatorConfig("test", 1, count, most_events=settings.most_events, seed=settings.seed)
        found[name] = DecisionScorer(fit_simulator(data, config, watch), logged)
    return found


def _chosen(one: Candidate, logged: LoggedDecisions, exclude_seen: bool) -> Ints:
    """What a candidate would have shown at the logged states, [N]."""
    if one.policy is not None:
        return best_items(one.policy, logged, exclude_seen=exclude_seen)
    random, nothing = torch.Generator().manual_seed(0), torch.zeros(0)
    found = []
    for first in range(0, len(logged.items), _ROWS):
        rows = slice(first, first + _ROWS)
        shown = logged.before[rows] if exclude_seen else logged.before[rows, :0]
        found.append(one.actor(SessionView(shown, shown, shown, nothing, random)))
    chosen: Ints = torch.cat(found).numpy()
    return chosen


def _estimators(name: str, witness: DecisionScorer, chosen: Ints, settings: RolloutConfig) -> list[EstimatorValue]:
    share = f"{settings.mix:.0%} of decisions"
    decisions = witness.decisions(chosen)
    found = [("one decision", one) for one in one_step(decisions, seed=settings.seed)]
    found += [(share, one) for one in witness.mixed_sessions(decisions, settings.mix, settings.seed)]
    base = float(witness.logged.reward.mean())
    return [
        EstimatorValue(
            policy=name,
            of=what,
            estimator=one.estimator,
            value=_finite(one.value),
            low=_finite(one.low),
            high=_finite(one.high),
            ess=_finite(one.ess),
            ratio=_finite(one.value / base) if base else None,
        )
        for what, one in found
    ]


def _finite(value: float) -> float | None:
    """A number, or none where no logged decision agrees with the policy."""
    return value if np.isfinite(value) else None


def _one_step_ratio(witness: DecisionScorer, chosen: Ints, seed: int) -> OneStepRatio:
    """The paper's number: simulated reward of what is chosen over simulated reward of what was logged."""
    mine, theirs = witness.value(chosen), witness.model
    found = ratio_estimate("one step", mine, theirs, witness.logged.user, seed=seed)
    return OneStepRatio(ratio=found.value, low=found.low, high=found.high)


def _ratio_interval(mine: tuple[Floats, Floats], log: tuple[Floats, Floats], *, seed: int) -> tuple[float, float]:
    """95 % interval of one mean a step over another, of totals [K, U] and steps [U]; users and members resampled."""
    random = np.random.default_rng([seed, 6])
    (total, steps), (base, base_steps) = mine, log
    members, users = total.shape
    ratios = np.empty(_RESAMPLES)
    for place in range(_RESAMPLES):
        chosen = random.integers(members, size=members), random.integers(users, size=users)
        rows = np.ix_(*chosen)
        below = base[rows].sum() * steps[chosen[1]].sum()
        ratios[place] = total[rows].sum() * base_steps[chosen[1]].sum() / below if below else 0.0
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def _guarded(value: PolicyValue, imitation: ImitationLoss | None) -> PolicyValue:
    """With the imitation loss, and one more reason for distrust where it is too large."""
    if imitation is None:
        return value
    reasons = list(value.reasons)
    if imitation.excess > IMITATION:
        reasons.append(f"imitates the log {imitation.excess:.1%} worse than the best run")
    return value.model_copy(update={"imitation_loss": imitation.loss, "reasons": reasons, "trusted": not reasons})
