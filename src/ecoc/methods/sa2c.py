"""SA2C: supervised advantage actor-critic on SNQN, which is SQN with sampled negatives (Xin et al., WSDM 2022).

See docs/equations.md §3.2.
"""

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from ecoc.batch import PAD, Batch, TrainSequences
from ecoc.methods.base import BuildContext, Loss, Phase
from ecoc.methods.behaviour_loss import dense_loss
from ecoc.methods.sqn import SQN, Copy, Step, half_square

_ROWS = 256  # states a chunk
_RATIO = (0.1, 10.0)  # limits of pi / pop, before the exponent


class SA2C(SQN):
    """L_Q + CE until the warm-up ends, then w L_Q + A CE, where A is the advantage over sampled negatives.

    L_Q = 1/2 (y - Q(s, i))^2 + sum_n 1/2 (y' - Q(s, a_n))^2, y as in SQN, y' = gamma Q_other(s, argmax_a Q_main(s, a)):
    a negative a_n is worth nothing and leaves the state as it is.
    A = clip(Q(s, i) - mean of Q(s, .) over i and its negatives), a constant.
    """

    class Config(SQN.Config):
        """Settings of SA2C."""

        negatives: int = Field(10, gt=0, le=10_000, description="uniform negatives n of each transition")
        warmup: float = Field(0.4, ge=0, le=1, description="share of the planned steps before the advantage weighs CE")
        weight: float = Field(1.0, ge=0, description="weight w of L_Q after the warm-up")
        clip_low: float = Field(0.0, description="least advantage")
        clip_high: float = Field(10.0, description="greatest advantage")
        smooth: float = Field(
            0.0, ge=0, le=1, description="exponent of the propensity correction pi(i|s) / popularity(i); 0: off"
        )
        lr_drop: float = Field(0.2, gt=0, le=1, description="factor on the learning rate after the warm-up")

        @model_validator(mode="after")
        def _check(self) -> Self:
            if self.clip_low > self.clip_high:
                raise ValueError(f"clip_low {self.clip_low:g} is greater than clip_high {self.clip_high:g}")
            return self

    def __init__(self, config: Config, parts: BuildContext) -> None:
        super().__init__(config, parts)
        self.items = parts.dims.items
        self.negatives, self.weight, self.smooth = config.negatives, config.weight, config.smooth
        self.limits = config.clip_low, config.clip_high
        self.phases = Phase(0.0), Phase(config.warmup, config.lr_drop)
        self.popularity: Tensor
        self.register_buffer("popularity", torch.ones(self.items + 1), persistent=False)

    def fit_statistics(self, sessions: TrainSequences) -> None:
        super().fit_statistics(sessions)
        self.popularity = sessions.frequency(self.items)

    def loss(self, batch: Batch) -> Loss:
        step = self._sample_step(batch)
        moves, task = step.moves, step.task
        with self.clock("loss"):
            drawn = sample_negatives(moves.item, self.negatives, self.items)
            states = moves.current(step.states)
            q = step.main.q.of(states, torch.cat([moves.item[:, None], drawn], 1))  # [N, 1 + n]
            whole = q[moves.is_whole]
            error = self._targets(step) - whole
            td = half_square(error)
            diagnostics = self._seen(step, moves.whole(), whole, error)
            if self.phase == 0:
                bc = dense_loss(step.main.policy.head, task.states, task.target)
                total = bc + td
            else:
                factor = self._advantage(q.detach(), diagnostics)
                if self.smooth:
                    factor = factor * self._correction(step.main, states, moves.item)
                bc = dense_loss(step.main.policy.head, states, moves.item, factor)
                total = bc + self.weight * td
            total = sum(task.extra.values(), total)
        return Loss(total, {"bc": bc, "td": td, **task.extra}, diagnostics)

    @torch.no_grad()
    def _targets(self, step: Step) -> Tensor:
        """What Q of the logged item and of its negatives aims at, [N, 1 + n], for whole transitions."""
        moves = step.moves.whole()
        chosen = step.main.best(moves.current(step.states))
        stay = self.gamma * step.other.q.of(moves.current(step.fixed), chosen)  # [N, 1]
        return torch.cat([self._target(step, moves)[:, None], stay.expand(-1, self.negatives)], 1)

    def _advantage(self, q: Tensor, diagnostics: dict[str, Tensor]) -> Tensor:
        """A of each transition, from Q of the logged item and its negatives: [N, 1 + n] -> [N]."""
        raw = q[:, 0] - q.mean(1)
        clipped = raw.clamp(*self.limits)
        if self.collect_diagnostics:
            diagnostics |= {"advantage": clipped.mean(), "advantage_clipped": (raw != clipped).float().mean()}
        return clipped

    @torch.no_grad()
    def _correction(self, main: Copy, states: Tensor, item: Tensor) -> Tensor:
        """clip(pi(i|s) / pop(i))^smooth, [N]."""
        own = (item - (PAD + 1))[:, None]
        chance = torch.cat(
            [
                main.policy.head(part).softmax(1).gather(1, mine)
                for part, mine in zip(torch.split(states, _ROWS), torch.split(own, _ROWS), strict=True)
            ]
        )
        return (chance.squeeze(1) / self.popularity[item]).clamp(*_RATIO) ** self.smooth

    def warnings(self, diagnostics: dict[str, float]) -> dict[str, str]:
        share = diagnostics.get("advantage_clipped", 0.0)
        if share <= 0.9:
            return {}
        low, high = self.limits
        return {
            "advantage": f"{share:.0%} of the advantages lie outside {low:g}..{high:g}, so they say little of what to"
            " imitate; change method.clip_low, method.clip_high or train.reward_scale"
        }


def sample_negatives(item: Tensor, count: int, items: int) -> Tensor:
    """Uniform draws of the `items` items without each transition's own: [N] -> [N, count]; PAD is none."""
    drawn = torch.randint(PAD + 1, items, (len(item), count))  # one item fewer than there are: the logged one
    return drawn + (drawn >= item[:, None])
