"""SA2C: supervised advantage actor-critic on SNQN, which is SQN with sampled negatives (Xin et al., WSDM 2022).

See docs/equations.md §3.2.
"""

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from ecoc.batch import PAD, Batch, TrainSequences
from ecoc.losses.returns import half_squared_error, td_targets
from ecoc.losses.sampling import sample_negatives
from ecoc.methods.base import BuildContext, Loss, Phase
from ecoc.methods.sqn import SQN, QNetwork, SQNTensors

_ROWS = 256  # states per chunk
_RATIO = (0.1, 10.0)  # limits of pi / popularity, before the exponent


class SA2C(SQN):
    """L_Q + CE until the warm-up ends, then w L_Q + A CE, where A is the advantage over sampled negatives.

    L_Q = 1/2 (y - Q(s, i))^2 + sum_n 1/2 (y' - Q(s, a_n))^2, y as in SQN, y' = gamma Q_other(s, argmax_a Q_main(s, a)):
    a negative a_n earns nothing and leaves the state unchanged.
    A = clip(Q(s, i) - mean of Q(s, .) over i and its negatives), a constant.
    """

    class Config(SQN.Config):
        """Settings of SA2C."""

        negatives: int = Field(10, gt=0, le=10_000, description="number n of uniform negatives per transition")
        warmup: float = Field(
            0.4,
            ge=0,
            le=1,
            description="share of the planned steps after which the advantage weights the cross-entropy",
        )
        weight: float = Field(1.0, ge=0, description="weight w of L_Q after the warm-up")
        clip_low: float = Field(0.0, description="lower limit of the advantage")
        clip_high: float = Field(10.0, description="upper limit of the advantage")
        smooth: float = Field(
            0.0,
            ge=0,
            le=1,
            description="exponent of the propensity correction pi(i|s) / popularity(i); 0 switches it off",
        )
        lr_drop: float = Field(0.2, gt=0, le=1, description="factor on the learning rate after the warm-up")

        @model_validator(mode="after")
        def _check_limits(self) -> Self:
            if self.clip_low > self.clip_high:
                raise ValueError(f"clip_low {self.clip_low:g} is greater than clip_high {self.clip_high:g}")
            return self

    def __init__(self, config: Config, context: BuildContext) -> None:
        super().__init__(config, context)
        self.items = context.dims.items
        self.negatives, self.weight, self.smooth = config.negatives, config.weight, config.smooth
        self.limits = config.clip_low, config.clip_high
        self.phases = Phase(0.0), Phase(config.warmup, config.lr_drop)
        self.popularity: Tensor
        self.register_buffer("popularity", torch.ones(self.items + 1), persistent=False)

    def fit_statistics(self, sessions: TrainSequences) -> None:
        super().fit_statistics(sessions)
        self.popularity = sessions.frequency(self.items)

    def loss(self, batch: Batch) -> Loss:
        step = self.step_tensors(batch)
        transitions, task = step.transitions, step.task
        with self.clock("loss"):
            negatives = sample_negatives(transitions.item, self.negatives, self.items)
            states = transitions.current(step.states)
            q = step.main.q.of(states, torch.cat([transitions.item[:, None], negatives], 1))  # [N, 1 + n]
            whole_q = q[transitions.is_whole]
            error = self.td_targets(step) - whole_q
            td = half_squared_error(error, len(error))
            diagnostics = self.diagnostics(step, transitions.whole(), whole_q, error)
            if self.phase == 0:
                bc = step.main.policy.head.cross_entropy(task.states, task.target)
                total = bc + td
            else:
                weights = self.advantage_weights(q.detach(), diagnostics)
                if self.smooth:
                    weights = weights * self._propensity_correction(step.main, states, transitions.item)
                bc = step.main.policy.head.cross_entropy(states, transitions.item, weights)
                total = bc + self.weight * td
            total = sum(task.extra.values(), total)
        return Loss(total, {"bc": bc, "td": td, **task.extra}, diagnostics)

    @torch.no_grad()
    def td_targets(self, step: SQNTensors) -> Tensor:
        """Targets y of the logged item and y' of its negatives, [N, 1 + n], for whole transitions."""
        transitions = step.transitions.whole()
        best = step.main.best(transitions.current(step.states))
        same_state = step.other.q.of(transitions.current(step.other_states), best)  # [N, 1]
        unrewarded = td_targets(torch.zeros_like(same_state), 0.0, same_state, self.gamma)
        return torch.cat([self.td_target(step, transitions)[:, None], unrewarded.expand(-1, self.negatives)], 1)

    def advantage_weights(self, q: Tensor, diagnostics: dict[str, Tensor]) -> Tensor:
        """A of each transition, from Q of the logged item and its negatives: [N, 1 + n] -> [N]."""
        advantage = q[:, 0] - q.mean(1)
        clipped = advantage.clamp(*self.limits)
        if self.collect_diagnostics:
            diagnostics |= {"advantage": clipped.mean(), "advantage_clipped": (advantage != clipped).float().mean()}
        return clipped

    @torch.no_grad()
    def _propensity_correction(self, main: QNetwork, states: Tensor, item: Tensor) -> Tensor:
        """clip(pi(i|s) / popularity(i))^smooth, [N]."""
        column = (item - (PAD + 1))[:, None]
        probability = torch.cat(
            [
                main.policy.head(part).softmax(1).gather(1, own)
                for part, own in zip(torch.split(states, _ROWS), torch.split(column, _ROWS), strict=True)
            ]
        )
        return (probability.squeeze(1) / self.popularity[item]).clamp(*_RATIO) ** self.smooth

    def warnings(self, diagnostics: dict[str, float]) -> dict[str, str]:
        share = diagnostics.get("advantage_clipped", 0.0)
        if share <= 0.9:
            return {}
        low, high = self.limits
        return {
            "advantage": f"{share:.0%} of the advantages lie outside {low:g}..{high:g} and are clipped, so they hardly"
            " distinguish items; change method.clip_low, method.clip_high or train.reward_scale"
        }
