"""What `simulate` and `choose_weight` return. Field aliases are the JSON keys."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from pydantic import Field

from ecoc.arguments import as_choice, as_count, as_flag, as_number, refusal
from ecoc.result import Result, Row, TableResult, attributes

FitOn = Literal["log", "test", "train"]
LOGGED = "logged"
"""Name of the control that acts as the logging policy."""


@dataclass(frozen=True)
class RolloutConfig:
    """How simulators are fitted and policies are played in them."""

    users: int = 500
    horizon: int = 20
    warm: int = 3
    members: int = 3
    penalty: float = 8.0
    mix: float = 0.05
    exclude_seen: bool | None = None  # none: as the log
    negatives: int | None = None  # none: as many as the log needs
    fit_on: FitOn = "log"
    seed: int = 0
    most_events: int = 200_000  # that simulators are fitted on

    def __post_init__(self) -> None:
        for name in ("users", "horizon", "warm", "members", "most_events"):
            object.__setattr__(self, name, as_count(getattr(self, name), name, least=1))
        object.__setattr__(self, "seed", as_count(self.seed, "seed"))
        if self.negatives is not None:
            object.__setattr__(self, "negatives", as_count(self.negatives, "negatives"))
        if self.exclude_seen is not None:
            as_flag(self.exclude_seen, "exclude_seen")
        as_choice(self.fit_on, "fit_on", get_args(FitOn))
        as_number(self.mix, "mix", least=0, most=1)
        as_number(self.penalty, "penalty", least=0)


def renamed_settings(config: RolloutConfig | None, settings: RolloutConfig | None) -> RolloutConfig | None:
    """The config, which was called settings in version 0.1."""
    if settings is not None:
        warnings.warn("settings= is called config= now", DeprecationWarning, stacklevel=3)
        config = config or settings
    if config is not None and not isinstance(config, RolloutConfig):
        raise refusal("config", "a RolloutConfig", config)
    return config


class SimulatorQuality(Result):
    """How well simulators predict feedback in sequences that none of them was fitted on."""

    fit_on: FitOn
    members: int
    negatives: int = Field(description="random items per event that stand for refusals")
    events: int
    log_loss: float
    log_loss_of_shares: float = Field(description="log-loss of the feedback's shares alone")
    calibration_error: float
    reward_error: float = Field(description="predicted over logged reward, minus 1")
    temperature: float
    events_per_item: float
    refused: float = Field(description="share of logged events without reward")


class OneStepRatio(Result):
    """The paper's ratio: simulated reward of the chosen items over that of the logged items, at logged states."""

    ratio: float
    low: float
    high: float


class Rollout(Result):
    """Roll-out of a policy in the simulators."""

    reward: float = Field(description="per step, minus the uncertainty penalty")
    ratio: float = Field(description="reward over that of the logging policy in the same simulators")
    low: float
    high: float
    unpenalised: float = Field(description="reward per step before the penalty")
    ensemble_std: float = Field(alias="doubt", description="mean disagreement of the simulators per step")
    items_shown: int
    reasons: list[str] = Field(description="why the figure cannot be trusted")
    trusted: bool


class PolicyValue(Rollout):
    """What a policy would earn."""

    name: str
    kind: Literal["control", "run"]
    ranking_mode: str = Field(alias="acting")
    uncertainty_penalty: float = Field(alias="charge", description="subtracted per step")
    rare_actions: float = Field(description="share of actions that are rarer than the log's rarest per cent")
    imitation_loss: float | None = None
    one_step: dict[str, OneStepRatio] = Field(default_factory=dict)


class EstimatorValue(Result):
    """Reward per step by weighting logged decisions; none where no logged decision agrees with the policy."""

    policy: str
    of: str = Field(description="one decision, or sessions with a share of the policy's decisions")
    estimator: str
    value: float | None
    low: float | None
    high: float | None
    ess: float | None = Field(description="effective sample size")
    ratio: float | None = Field(description="value over the mean logged reward")


class SimulationResult(TableResult):
    """Off-policy evaluation of runs beside controls."""

    data: str
    settings: RolloutConfig
    exclude_seen: bool
    simulator: SimulatorQuality
    reasons: list[str] = Field(description="why no figure can be trusted")
    one_step_simulator: dict[str, SimulatorQuality]
    logged_reward: float
    decisions: int
    starts: int
    steps: float
    policies: list[PolicyValue]
    estimators: list[EstimatorValue]
    notes: list[str] = Field(default_factory=list, description="what to know when reading the figures")
    seconds: float

    @property
    def logged(self) -> PolicyValue:
        """The logging policy, to which ratios refer."""
        return next(policy for policy in self.policies if policy.name == LOGGED)

    def own_reasons(self, policy: Rollout) -> list[str]:
        """Reasons against one policy's figure that do not apply to all figures."""
        return [reason for reason in policy.reasons if reason not in self.reasons]

    def records(self) -> Sequence[Row]:
        """One row per policy."""
        columns = ("kind", "ranking_mode", "reward", "ratio", "low", "high", "unpenalised", "uncertainty_penalty")
        return [
            {
                "policy": policy.name,
                **attributes(policy, *columns),
                **{f"one_step, {name}": value.ratio for name, value in policy.one_step.items()},
                **attributes(policy, "items_shown", "trusted"),
            }
            for policy in self.policies
        ]

    def heading(self) -> str:
        trust = f"; no figure can be trusted: {'; '.join(self.reasons)}" if self.reasons else ""
        return f"SimulationResult: {self.data}, {self.starts:,} users, {self.steps:.1f} steps each{trust}"


class WeightPoint(Rollout):
    """The blend at one weight w of the long-term value."""

    w: float
    ndcg: float = Field(alias="ndcg@10", description="NDCG@10 on validation cases")


class WeightChoice(TableResult):
    """Reward and ranking quality over the weight w, and the weight that was chosen."""

    run: str
    data: str
    w: float | None = Field(description="none if no figure can be trusted; the run then acts as before")
    reasons: list[str]
    points: list[WeightPoint]
    simulator: SimulatorQuality
    settings: RolloutConfig
    picture: str | None = None

    def records(self) -> Sequence[Row]:
        """One row per weight."""
        columns = ("w", "reward", "ratio", "low", "high", "unpenalised", "ndcg", "items_shown", "trusted")
        return [attributes(point, *columns) for point in self.points]

    def heading(self) -> str:
        chosen = "no weight" if self.w is None else f"w = {self.w:g}"
        return f"WeightChoice: {self.run}, {chosen} chosen"
