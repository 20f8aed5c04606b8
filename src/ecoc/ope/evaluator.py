"""Candidates evaluated by roll-outs in one simulator, relative to the logging policy in the same simulator."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ecoc.data.loader import open_cases, open_train_sequences
from ecoc.data.sequences import Dataset
from ecoc.evaluation.ranks import REPEATS, is_seen
from ecoc.ope.candidates import Candidate
from ecoc.ope.results import PolicyValue, RolloutConfig
from ecoc.ope.rollout import InitialStates, Rollouts, logging_actor, open_initial_states, roll_out
from ecoc.ope.simulator import Simulator, SimulatorConfig, fit_simulator
from ecoc.ope.trust import REFUSED, UsualBehaviour, simulator_warnings, support_warnings, usual_behaviour
from ecoc.progress import ProgressCallback, no_progress

Floats = NDArray[np.float64]
_RESAMPLES = 1000
_MOST_CASES = 20_000  # looked at to learn whether a log repeats items
_NEGATIVES = 4


@dataclass
class RolloutEvaluator:
    """A fitted simulator, the states roll-outs start from, and the logging policy as the reference."""

    config: RolloutConfig
    simulator: Simulator
    initial: InitialStates
    exclude_seen: bool
    reference: Rollouts  # of the logging policy
    usual: UsualBehaviour

    @classmethod
    def open(
        cls, data: Dataset, config: RolloutConfig, split: str, watch: ProgressCallback = no_progress
    ) -> "RolloutEvaluator":
        """Fit the simulator and roll out the logging policy in it."""
        exclude_seen, negatives = session_protocol(data, config, split)
        fitting = SimulatorConfig(
            config.fit_on, config.members, negatives, most_events=config.most_events, seed=config.seed
        )
        simulator = fit_simulator(data, fitting, watch)
        initial = open_initial_states(
            data, simulator, split, users=config.users, warm=config.warm, horizon=config.horizon, seed=config.seed
        )
        reference = roll_out(simulator, logging_actor(), initial, exclude_seen=False, seed=config.seed)
        return cls(config, simulator, initial, exclude_seen, reference, usual_behaviour(reference))

    @property
    def reasons(self) -> list[str]:
        """Why no figure can be trusted; empty if the simulators are good enough."""
        return simulator_warnings(self.simulator.quality)

    def roll_out(self, candidate: Candidate) -> Rollouts:
        """A candidate's roll-outs."""
        if candidate.is_logging_policy:
            return self.reference
        return roll_out(
            self.simulator,
            candidate.actor,
            self.initial,
            exclude_seen=self.exclude_seen and not candidate.may_repeat,
            seed=self.config.seed,
        )

    def value_of(self, candidate: Candidate, rollouts: Rollouts) -> PolicyValue:
        """Reward per step minus the uncertainty penalty, its ratio to the logging policy's, and reasons for distrust.

        The penalty is config.penalty × (ensemble disagreement on the policy's steps − disagreement on the logging
        policy's steps), and at least 0.
        """
        disagreement = rollouts.mean_ensemble_std - self.reference.mean_ensemble_std
        penalty = self.config.penalty * max(0.0, disagreement)
        value, base = rollouts.value(penalty), self.reference.value()
        low, high = ratio_interval(rollouts.totals(penalty), self.reference.totals(), seed=self.config.seed)
        own_reasons = [] if candidate.is_logging_policy else support_warnings(rollouts, self.usual)
        reasons = self.reasons + own_reasons
        return PolicyValue(
            name=candidate.name,
            kind="control" if candidate.is_control else "run",
            ranking_mode=candidate.policy.ranking_mode if candidate.policy is not None else "policy",
            reward=value,
            ratio=value / base if base else 0.0,
            low=low,
            high=high,
            unpenalised=rollouts.value(),
            ensemble_std=rollouts.mean_ensemble_std,
            uncertainty_penalty=penalty,
            rare_actions=float((rollouts.log_behaviour[:, rollouts.counted] < self.usual.action).mean()),
            items_shown=rollouts.distinct,
            reasons=reasons,
            trusted=not reasons,
        )


def session_protocol(data: Dataset, config: RolloutConfig, split: str = "test") -> tuple[bool, int]:
    """Whether policies leave out items that were seen, and how many negatives per event simulators need.

    Policies may repeat items only if the log does. Of the validation protocol nothing depends on the test split.
    """
    exclude = config.exclude_seen
    if exclude is None:
        cases = open_cases(data, split, min_history=1, most=_MOST_CASES, seed=0)
        exclude = bool(is_seen(data, cases).mean() < REPEATS) if len(cases) else True
    return exclude, synthetic_negatives(data) if config.negatives is None else config.negatives


def synthetic_negatives(data: Dataset) -> int:
    """Random items per event that stand for refusals; none if the log contains refusals of its own."""
    rewards = open_train_sequences(data).rewards
    refused = 0.0 if rewards is None else float((rewards <= 0).mean())
    return 0 if refused >= REFUSED else _NEGATIVES


def ratio_interval(policy: tuple[Floats, Floats], log: tuple[Floats, Floats], *, seed: int) -> tuple[float, float]:
    """95 % interval of the ratio of two rewards per step, from totals [K, U] and steps [U].

    Users and members of the ensemble are resampled; both policies share the resamples.
    """
    random = np.random.default_rng([seed, 6])
    (total, steps), (base, base_steps) = policy, log
    members, users = total.shape
    ratios = np.empty(_RESAMPLES)
    for place in range(_RESAMPLES):
        chosen = random.integers(members, size=members), random.integers(users, size=users)
        rows = np.ix_(*chosen)
        below = base[rows].sum() * steps[chosen[1]].sum()
        ratios[place] = total[rows].sum() * base_steps[chosen[1]].sum() / below if below else 0.0
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)
