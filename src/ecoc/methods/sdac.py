"""SDAC: stochastic discrete actor-critic for offline data (Xiao & Wang, 2021); docs/equations.md §3.3.

A reconstruction: the paper's introduction names the objectives, their derivation by control as inference is standard,
details are ours. With the actor pi, twin critics Q_j, their lagged copies Q-_j, and sg for "no gradient":

    V(s') = sum_a pi(a|s') [min_j Q-_j(s', a) - penalty(a|s')]
    L_Q   = sum_j mean 1/2 (Q_j(s, i) - r - gamma (1 - done) sg V(s'))^2
    L_pi  = mean sum_a pi(a|s) [penalty(a|s) - sg min_j Q_j(s, a)]

SR, supervised regularisation: penalty = eta log pi, and L = L_Q + L_pi + lambda CE.
DC, dual constraints: penalty = lambda (log pi - sg log pi_b) in both steps, and L = L_Q + L_pi + CE of pi_b, which is
the logging policy as a network of its own estimates it.
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
from ecoc.losses.returns import Transitions
from ecoc.methods.base import BuildContext, Loss, Method, MethodConfig, Phase
from ecoc.methods.behaviour_loss import dense_loss
from ecoc.methods.ecoc.exploration import effective_support
from ecoc.methods.targets import Targets
from ecoc.policies.base import DensePolicy

_LEAST_SCALE = 1e-6  # values smaller than this are left as they are rather than blown up


class SDACConfig(MethodConfig):
    """Settings of both kinds of SDAC."""

    gamma: float = Field(0.5, ge=0, lt=1, description="discount of the reward that follows")
    tau: float = Field(0.005, gt=0, le=1, description="share of the way that lagged critics go to theirs each step")
    estimator: Literal["exact", "gumbel"] = Field(
        "exact", description="L_pi: the sum over all items, or one item drawn by Gumbel noise with straight-through"
    )
    q_scale: bool = Field(
        True, description="divide Q in L_pi by its mean absolute value, so that the size of rewards does not matter"
    )


class TwinCritics(nn.Module):
    """Q_1 and Q_2, each with an encoder, an item table and a head of its own."""

    def __init__(self, first: DensePolicy, second: DensePolicy) -> None:
        super().__init__()
        self.first, self.second = first, second

    def states(self, history: History) -> tuple[Tensor, Tensor]:
        """Each critic's states after every position, [B, L, d]."""
        return self.first.states(history), self.second.states(history)

    def of(self, states: tuple[Tensor, Tensor], items: Tensor) -> Tensor:
        """Q_j(s, i) of one item a state: [N, d] each, [N] -> [2, N]."""
        critics = zip(states, (self.first, self.second), strict=True)
        return torch.stack([critic.head.of(z, items[:, None]).squeeze(1) for z, critic in critics])

    def least(self, states: tuple[Tensor, Tensor]) -> Tensor:
        """min_j Q_j(s, a) of every item but PAD: [N, d] each -> [N, V - 1]."""
        return torch.minimum(self.first.head(states[0]), self.second.head(states[1]))


@dataclass(frozen=True)
class _Reading:
    """What the networks make of a batch: states after every position, [B, L, d]."""

    history: History
    moves: Transitions
    actor: Tensor
    critics: tuple[Tensor, Tensor]
    behaviour: Tensor | None  # of pi_b, without gradient; none in SR


class SDAC(Method, ABC):
    """What SR and DC share. A reconstruction of the paper's method, see above."""

    needs_next: ClassVar[bool] = True
    policy: DensePolicy

    def __init__(self, config: SDACConfig, parts: BuildContext) -> None:
        super().__init__(config, parts)
        self.gamma, self.estimator, self.q_scale = config.gamma, config.estimator, config.q_scale
        self.policy = _network(parts)
        self.critics = TwinCritics(_network(parts), _network(parts))
        self.targets = Targets(self.critics, config.tau)
        self.lagged = {"critics": self.targets}
        self.highest = math.inf  # no true value is above it

    @abstractmethod
    def _penalty(self, log_pi: Tensor, behaviour: Tensor | None) -> Tensor:
        """What an item's value is charged, [N, V - 1], by log pi [N, V - 1] and pi_b's states [N, d]."""

    @abstractmethod
    def _weights(self) -> dict[str, float]:
        """Which losses of the actor count in this step, and how much."""

    def _behaviour_states(self, history: History) -> Tensor | None:
        return None

    def _more(self, batch: Batch) -> dict[str, Tensor]:
        """Further losses."""
        return {}

    def _bonus(self) -> float:
        """The most that a penalty adds to the reward of a step."""
        return 0.0

    def sparse_parameters(self) -> set[str]:
        """Tables: they are only read by histories, because heads have weights of their own."""
        networks = {name: module for name, module in self.named_modules() if isinstance(module, DensePolicy)}
        return {f"{name}.table" for name, network in networks.items() if not network.encoder.transforms_items}

    def clip_group(self, name: str) -> str:
        return name.partition(".")[0]

    def fit_statistics(self, sessions: TrainSequences) -> None:
        super().fit_statistics(sessions)
        if sessions.rewards is not None and len(sessions.rewards):
            top = max(0.0, float(sessions.rewards.max()))
            self.highest = (top + self.gamma * self._bonus()) / (1 - self.gamma)

    def loss(self, batch: Batch) -> Loss:
        with self.clock("encode"):
            task = self.policy.prediction_task(batch, self.policy.item_vectors())
            read = self._read(batch, task)
        with self.clock("loss"):
            weights = self._weights()
            td, diagnostics = self._td(read)
            parts = {"td": td, **self._more(batch), **task.extra}
            if "bc" in weights:
                parts["bc"] = dense_loss(self.policy.head, task.states, task.target)
            if "pi" in weights:
                parts["pi"], also = self._pi(read)
                diagnostics |= also
            total = torch.stack([weights.get(name, 1.0) * part for name, part in parts.items()]).sum()
        return Loss(total, parts, diagnostics)

    def _read(self, batch: Batch, task: PredictionTask) -> _Reading:
        history = batch.history
        actor = self.policy.states_of(task, history)
        return _Reading(
            history, Transitions.of(batch), actor, self.critics.states(history), self._behaviour_states(history)
        )

    def _td(self, read: _Reading) -> tuple[Tensor, dict[str, Tensor]]:
        """L_Q over the transitions whose outcome is known; a step may have none."""
        moves = read.moves.whole()
        goal = moves.reward + self.gamma * (1 - moves.done) * self._next_values(read, moves)  # [N]
        states = moves.current(read.critics[0]), moves.current(read.critics[1])
        error = self.critics.of(states, moves.item) - goal  # [2, N]
        count = max(1, len(goal))
        loss = 0.5 * error.square().sum() / count
        return loss, {"td_error": error.detach().abs().sum() / (2 * count)} if self.collect_diagnostics else {}

    @torch.no_grad()
    def _next_values(self, read: _Reading, moves: Transitions) -> Tensor:
        """V(s') by the actor of this step and the lagged critics, [N]."""
        log_pi = log_softmax(self.policy.head(moves.next(self.policy.eval_states(read.history))), 1)
        first, second = self.targets.copy.states(read.history)
        q = self.targets.copy.least((moves.next(first), moves.next(second)))
        behaviour = None if read.behaviour is None else moves.next(read.behaviour)
        return soft_values(log_pi, q, self._penalty(log_pi, behaviour))

    def _pi(self, read: _Reading) -> tuple[Tensor, dict[str, Tensor]]:
        """L_pi over all transitions."""
        moves = read.moves
        log_pi = log_softmax(self.policy.head(moves.current(read.actor)), 1)  # [N, V - 1]
        with torch.no_grad():
            q = self.critics.least((moves.current(read.critics[0]), moves.current(read.critics[1])))
            scaled = q / q.abs().mean().clamp(min=_LEAST_SCALE) if self.q_scale else q
        penalty = self._penalty(log_pi, None if read.behaviour is None else moves.current(read.behaviour))
        if self.estimator == "exact":
            loss = -soft_values(log_pi, scaled, penalty).mean()
        else:
            loss = (gumbel_softmax(log_pi, hard=True) * (penalty - scaled)).sum(1).mean()
        return loss, self._seen(log_pi.detach(), q, moves.item) if self.collect_diagnostics else {}

    def _seen(self, log_pi: Tensor, q: Tensor, item: Tensor) -> dict[str, Tensor]:
        pi = log_pi.exp()
        return {
            "q/logged": q.gather(1, item[:, None] - 1).mean(),
            "q/policy": (pi * q).sum(1).mean(),
            "support": effective_support(pi).mean(),
        }

    def warnings(self, diagnostics: dict[str, float]) -> dict[str, str]:
        found = diagnostics.get("q/policy", -math.inf)
        if found <= self.highest:
            return {}
        return {
            "overestimate": f"the critics promise {found:.3g} for what the actor chooses, and no return is above"
            f" {self.highest:.3g}; raise method.lam or lower method.gamma"
        }


class SDACSR(SDAC):
    """SDAC with supervised regularisation: the actor also predicts the logged item. A reconstruction, see above."""

    class Config(SDACConfig):
        """Settings of SDAC with supervised regularisation."""

        eta: float = Field(0.1, ge=0, description="temperature: weight of the actor's entropy")
        lam: float = Field(1.0, gt=0, description="lambda, weight of the cross-entropy of the logged item")

    def __init__(self, config: Config, parts: BuildContext) -> None:
        super().__init__(config, parts)
        self.eta, self.lam, self.items = config.eta, config.lam, parts.dims.items

    def _penalty(self, log_pi: Tensor, behaviour: Tensor | None) -> Tensor:
        return self.eta * log_pi

    def _weights(self) -> dict[str, float]:
        return {"bc": self.lam, "pi": 1.0}

    def _bonus(self) -> float:
        return self.eta * math.log(self.items)


class SDACDC(SDAC):
    """SDAC with dual constraints: actor and critics are charged for leaving pi_b. A reconstruction, see above.

    Only pi_b ties the actor to the log, so it is learnt first: in the warm-up it, the critics and, by cross-entropy,
    the actor learn; the actor then sets out from the cloned policy.
    """

    class Config(SDACConfig):
        """Settings of SDAC with dual constraints."""

        lam: float = Field(1.0, gt=0, description="lambda, weight of the divergence from the logging policy")
        warmup: float = Field(0.2, ge=0, lt=1, description="share of the steps in which the actor only imitates")

    def __init__(self, config: Config, parts: BuildContext) -> None:
        super().__init__(config, parts)
        self.lam = config.lam
        self.behaviour = _network(parts)
        self.phases = (Phase(0.0), Phase(config.warmup))

    def _penalty(self, log_pi: Tensor, behaviour: Tensor | None) -> Tensor:
        with torch.no_grad():
            log_behaviour = log_softmax(self.behaviour.head(behaviour), 1)
        return self.lam * (log_pi - log_behaviour)

    def _weights(self) -> dict[str, float]:
        return {"bc": 1.0} if self.phase == 0 else {"pi": 1.0}

    def _behaviour_states(self, history: History) -> Tensor:
        return self.behaviour.eval_states(history)

    def _more(self, batch: Batch) -> dict[str, Tensor]:
        task = self.behaviour.prediction_task(batch, self.behaviour.item_vectors())
        return {"behaviour": sum(task.extra.values(), dense_loss(self.behaviour.head, task.states, task.target))}


def soft_values(log_pi: Tensor, q: Tensor, penalty: Tensor) -> Tensor:
    """sum_a pi(a) (Q(a) - penalty(a)): [N, V - 1] each -> [N]."""
    return (log_pi.exp() * (q - penalty)).sum(1)


def _network(parts: BuildContext) -> DensePolicy:
    return DensePolicy(parts.make_encoder(), parts.encoder.init)
