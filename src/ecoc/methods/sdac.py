"""SDAC: stochastic discrete actor-critic for offline data (Xiao & Wang, 2021); docs/equations.md §3.3.

A reconstruction: the paper's introduction names the objectives; their derivation by control as inference is standard,
the details are ours. With the actor pi, two critics Q_j, their lagged copies Q-_j, and sg for stop-gradient:

    V(s') = sum_a pi(a|s') [min_j Q-_j(s', a) - penalty(a|s')]
    L_Q   = sum_j mean 1/2 (Q_j(s, i) - r - gamma (1 - done) sg V(s'))^2
    L_pi  = mean sum_a pi(a|s) [penalty(a|s) - sg min_j Q_j(s, a)]

SR, supervised regularisation: penalty = eta log pi, and L = L_Q + L_pi + lambda CE.
DC, dual constraints: penalty = lambda (log pi - sg log pi_b) in both losses, and L = L_Q + L_pi + CE of pi_b, the
logging policy as a network of its own estimates it.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import gumbel_softmax, log_softmax

from ecoc.batch import Batch, History, TrainSequences
from ecoc.encoders import PredictionTask
from ecoc.losses.returns import Transitions, half_squared_error, td_targets
from ecoc.losses.sampling import effective_support
from ecoc.methods.base import BuildContext, Loss, Method, MethodConfig, Phase
from ecoc.methods.targets import Targets
from ecoc.policies.base import DensePolicy

_LEAST_SCALE = 1e-6  # the smallest divisor of Q


class SDACConfig(MethodConfig):
    """Settings of both variants of SDAC."""

    gamma: float = Field(0.5, ge=0, lt=1, description="discount of later rewards")
    tau: float = Field(0.005, gt=0, le=1, description="rate at which the lagged critics follow")
    estimator: Literal["exact", "gumbel"] = Field(
        "exact",
        description="L_pi: exact, the sum over all items; gumbel, one item drawn, with a straight-through gradient",
    )
    q_scale: bool = Field(
        True,
        description="divide Q in L_pi by its mean absolute value, so that the scale of the rewards does not matter",
    )


class TwinCritics(nn.Module):
    """Q_1 and Q_2, each with its own encoder, item table and head."""

    def __init__(self, first: DensePolicy, second: DensePolicy) -> None:
        super().__init__()
        self.first, self.second = first, second

    def states(self, history: History) -> tuple[Tensor, Tensor]:
        """Each critic's states after every position, [B, L, d]."""
        return self.first.states(history), self.second.states(history)

    def of(self, states: tuple[Tensor, Tensor], items: Tensor) -> Tensor:
        """Q_j(s, i) of one item per state: [N, d] each, [N] -> [2, N]."""
        critics = zip(states, (self.first, self.second), strict=True)
        return torch.stack([critic.head.of(z, items[:, None]).squeeze(1) for z, critic in critics])

    def least(self, states: tuple[Tensor, Tensor]) -> Tensor:
        """min_j Q_j(s, a) of every item but PAD: [N, d] each -> [N, V - 1]."""
        return torch.minimum(self.first.head(states[0]), self.second.head(states[1]))


@dataclass(frozen=True)
class SDACTensors:
    """What the losses of a step read: transitions, and each network's states after every position, [B, L, d]."""

    history: History
    transitions: Transitions
    actor: Tensor
    critics: tuple[Tensor, Tensor]
    behaviour: Tensor | None  # of pi_b, without gradient; none for SR


class SDAC(Method, ABC):
    """What SR and DC share. A reconstruction of the paper's method, see the module."""

    needs_next: ClassVar[bool] = True
    policy: DensePolicy

    def __init__(self, config: SDACConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.gamma, self.estimator, self.q_scale = config.gamma, config.estimator, config.q_scale
        self.policy = _network(context)
        self.critics = TwinCritics(_network(context), _network(context))
        self.target_critics = Targets(self.critics, config.tau)
        self.lagged = {"critics": self.target_critics}
        self.largest_return = math.inf

    @abstractmethod
    def penalty(self, log_pi: Tensor, behaviour: Tensor | None) -> Tensor:
        """What is subtracted from each item's value, [N, V - 1]; log pi [N, V - 1], states of pi_b [N, d]."""

    @abstractmethod
    def _loss_weights(self) -> dict[str, float]:
        """Weights of the actor's losses in this step; a loss that is not named is left out."""

    def _behaviour_states(self, history: History) -> Tensor | None:
        return None

    def _extra_losses(self, batch: Batch) -> dict[str, Tensor]:
        return {}

    def _largest_bonus(self) -> float:
        """The most that a penalty adds to the reward of a step."""
        return 0.0

    def sparse_parameters(self) -> set[str]:
        """The item tables: only histories read them, because heads have their own weights."""
        networks = {name: module for name, module in self.named_modules() if isinstance(module, DensePolicy)}
        return {f"{name}.table" for name, network in networks.items() if not network.encoder.transforms_items}

    def clip_group(self, name: str) -> str:
        return name.partition(".")[0]

    def fit_statistics(self, sessions: TrainSequences) -> None:
        super().fit_statistics(sessions)
        if sessions.rewards is not None and len(sessions.rewards):
            top = max(0.0, float(sessions.rewards.max()))
            self.largest_return = (top + self.gamma * self._largest_bonus()) / (1 - self.gamma)

    def loss(self, batch: Batch) -> Loss:
        with self.clock("encode"):
            task = self.policy.encoder.prediction_task(self.policy.item_vectors(), batch)
            step = self.step_tensors(batch, task)
        with self.clock("loss"):
            weights = self._loss_weights()
            td, diagnostics = self.critic_loss(step)
            parts = {"td": td, **self._extra_losses(batch), **task.extra}
            if "bc" in weights:
                parts["bc"] = self.policy.head.cross_entropy(task.states, task.target)
            if "pi" in weights:
                parts["pi"], actor_diagnostics = self.actor_loss(step)
                diagnostics |= actor_diagnostics
            total = torch.stack([weights.get(name, 1.0) * part for name, part in parts.items()]).sum()
        return Loss(total, parts, diagnostics)

    def step_tensors(self, batch: Batch, task: PredictionTask) -> SDACTensors:
        """Encode the batch with every network."""
        history, actor = batch.history, self.policy.states_of(task, batch.history)
        return SDACTensors(
            history, Transitions.of(batch), actor, self.critics.states(history), self._behaviour_states(history)
        )

    def critic_loss(self, step: SDACTensors) -> tuple[Tensor, dict[str, Tensor]]:
        """L_Q over the whole transitions, 0 if there are none, and diagnostics."""
        transitions = step.transitions.whole()
        target = self.td_target(step, transitions)  # [N]
        states = transitions.current(step.critics[0]), transitions.current(step.critics[1])
        error = self.critics.of(states, transitions.item) - target  # [2, N]
        loss = half_squared_error(error, len(target))
        if not self.collect_diagnostics:
            return loss, {}
        return loss, {"td_error": error.detach().abs().sum() / (2 * max(1, len(target)))}

    @torch.no_grad()
    def td_target(self, step: SDACTensors, transitions: Transitions) -> Tensor:
        """Targets r + gamma (1 - done) V(s'), [N], by the actor of this step and the lagged critics."""
        log_pi = log_softmax(self.policy.head(transitions.next(self.policy.eval_states(step.history))), 1)
        lagged = self.target_critics.copy
        first, second = lagged.states(step.history)
        q = lagged.least((transitions.next(first), transitions.next(second)))
        behaviour = None if step.behaviour is None else transitions.next(step.behaviour)
        next_value = soft_values(log_pi, q, self.penalty(log_pi, behaviour))
        return td_targets(transitions.reward, transitions.done, next_value, self.gamma)

    def actor_loss(self, step: SDACTensors) -> tuple[Tensor, dict[str, Tensor]]:
        """L_pi over all transitions, and diagnostics."""
        transitions = step.transitions
        log_pi = log_softmax(self.policy.head(transitions.current(step.actor)), 1)  # [N, V - 1]
        with torch.no_grad():
            q = self.critics.least((transitions.current(step.critics[0]), transitions.current(step.critics[1])))
            scaled = q / q.abs().mean().clamp(min=_LEAST_SCALE) if self.q_scale else q
        penalty = self.penalty(log_pi, None if step.behaviour is None else transitions.current(step.behaviour))
        if self.estimator == "exact":
            loss = -soft_values(log_pi, scaled, penalty).mean()
        else:
            loss = (gumbel_softmax(log_pi, hard=True) * (penalty - scaled)).sum(1).mean()
        return loss, self.diagnostics(log_pi.detach(), q, transitions.item) if self.collect_diagnostics else {}

    def diagnostics(self, log_pi: Tensor, q: Tensor, item: Tensor) -> dict[str, Tensor]:
        """Figures for diagnosis, by log pi and Q [N, V - 1] and the logged items [N]."""
        pi = log_pi.exp()
        return {
            "q/logged": q.gather(1, item[:, None] - 1).mean(),
            "q/policy": (pi * q).sum(1).mean(),
            "support": effective_support(pi).mean(),
        }

    def warnings(self, diagnostics: dict[str, float]) -> dict[str, str]:
        value = diagnostics.get("q/policy", -math.inf)
        if value <= self.largest_return:
            return {}
        return {
            "overestimate": f"the critics value the actor's choices at {value:.3g}, and no return is above"
            f" {self.largest_return:.3g}; raise method.lam or lower method.gamma"
        }


class SDACSR(SDAC):
    """SDAC with supervised regularisation: the actor also predicts the logged item. A reconstruction."""

    class Config(SDACConfig):
        """Settings of SDAC with supervised regularisation."""

        eta: float = Field(0.1, ge=0, description="temperature: weight of the actor's entropy")
        lam: float = Field(1.0, gt=0, description="lambda, weight of the cross-entropy of the logged item")

    def __init__(self, config: Config, context: BuildContext) -> None:
        super().__init__(config, context)
        self.eta, self.lam, self.items = config.eta, config.lam, context.dims.items

    def penalty(self, log_pi: Tensor, behaviour: Tensor | None) -> Tensor:
        return self.eta * log_pi

    def _loss_weights(self) -> dict[str, float]:
        return {"bc": self.lam, "pi": 1.0}

    def _largest_bonus(self) -> float:
        return self.eta * math.log(self.items)


class SDACDC(SDAC):
    """SDAC with dual constraints: actor and critics are penalised for leaving pi_b. A reconstruction, see the module.

    Only pi_b ties the actor to the log, so it is learnt first. In the warm-up pi_b and the critics learn, and the actor
    learns by cross-entropy; afterwards the actor starts from the cloned policy.
    """

    class Config(SDACConfig):
        """Settings of SDAC with dual constraints."""

        lam: float = Field(1.0, gt=0, description="lambda, weight of the divergence from the logging policy")
        warmup: float = Field(
            0.2, ge=0, lt=1, description="share of the planned steps in which the actor learns by cross-entropy alone"
        )

    def __init__(self, config: Config, context: BuildContext) -> None:
        super().__init__(config, context)
        self.lam = config.lam
        self.behaviour = _network(context)
        self.phases = (Phase(0.0), Phase(config.warmup))

    def penalty(self, log_pi: Tensor, behaviour: Tensor | None) -> Tensor:
        with torch.no_grad():
            log_behaviour = log_softmax(self.behaviour.head(behaviour), 1)
        return self.lam * (log_pi - log_behaviour)

    def _loss_weights(self) -> dict[str, float]:
        return {"bc": 1.0} if self.phase == 0 else {"pi": 1.0}

    def _behaviour_states(self, history: History) -> Tensor:
        return self.behaviour.eval_states(history)

    def _extra_losses(self, batch: Batch) -> dict[str, Tensor]:
        task = self.behaviour.encoder.prediction_task(self.behaviour.item_vectors(), batch)
        return {"behaviour": sum(task.extra.values(), self.behaviour.head.cross_entropy(task.states, task.target))}


def soft_values(log_pi: Tensor, q: Tensor, penalty: Tensor) -> Tensor:
    """sum_a pi(a) (Q(a) - penalty(a)): [N, V - 1] each -> [N]."""
    return (log_pi.exp() * (q - penalty)).sum(1)


def _network(context: BuildContext) -> DensePolicy:
    return DensePolicy(context.make_encoder(), context.encoder.init)
