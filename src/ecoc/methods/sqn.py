"""SQN: self-supervised Q-learning (Xin et al., SIGIR 2020); docs/equations.md §3.1."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from ecoc.batch import PAD, Batch
from ecoc.encoders import PredictionTask
from ecoc.losses.returns import Transitions
from ecoc.methods.base import BuildContext, Loss, Method, MethodConfig
from ecoc.methods.behaviour_loss import dense_loss
from ecoc.policies.base import DensePolicy, Head

_ROWS = 256  # states a chunk: no matrix of all states by all items is held


@dataclass(frozen=True)
class Copy:
    """One of the two networks: a policy with its CE head, and a head for Q on the same states."""

    policy: DensePolicy
    q: Head

    @torch.no_grad()
    def best(self, states: Tensor) -> Tensor:
        """The item of highest Q in each state, [N, 1]; PAD is none."""
        return torch.cat([self.q(part).argmax(1, keepdim=True) for part in torch.split(states, _ROWS)]) + (PAD + 1)


@dataclass(frozen=True)
class Step:
    """Who learns in a step, who is the target, and what both see."""

    main: Copy
    other: Copy
    task: PredictionTask
    states: Tensor  # [B, L, m]; main's
    fixed: Tensor  # [B, L, m]; the other's, without gradient
    moves: Transitions


class SQN(Method):
    """L = mean CE(logits_main(s), i) + mean 1/2 (r + gamma Q_other(s', argmax_a Q_main(s', a)) - Q_main(s, i))^2.

    Of two complete copies a coin makes one main each step; only that one learns. The first acts, by its CE head.
    """

    needs_next: ClassVar[bool] = True
    policy: DensePolicy

    class Config(MethodConfig):
        """Settings of SQN."""

        gamma: float = Field(0.5, ge=0, le=1, description="discount of what follows a transition")

    def __init__(self, config: Config, parts: BuildContext) -> None:
        super().__init__(config, parts)
        self.gamma = config.gamma
        self.policy, self.twin = (DensePolicy(parts.make_encoder(), parts.encoder.init) for _ in range(2))
        self.q, self.twin_q = (Head(parts.encoder.dim, parts.dims.items) for _ in range(2))

    def loss(self, batch: Batch) -> Loss:
        step = self._sample_step(batch)
        with self.clock("loss"):
            bc = dense_loss(step.main.policy.head, step.task.states, step.task.target)
            moves = step.moves.whole()
            q = step.main.q.of(moves.current(step.states), moves.item[:, None])  # [N, 1]
            error = self._target(step, moves)[:, None] - q
            td = half_square(error)
            total = sum(step.task.extra.values(), bc + td)
        return Loss(total, {"bc": bc, "td": td, **step.task.extra}, self._seen(step, moves, q, error))

    def _sample_step(self, batch: Batch) -> Step:
        """Flip the coin, then encode the batch with both copies."""
        copies = [Copy(self.policy, self.q), Copy(self.twin, self.twin_q)]
        is_second = int(torch.randint(2, ()))
        main, other = copies[is_second], copies[1 - is_second]
        with self.clock("encode"):
            task = main.policy.prediction_task(batch, main.policy.item_vectors())
            states = main.policy.states_of(task, batch.history)
        with self.clock("target"):
            fixed = other.policy.eval_states(batch.history)
        return Step(main, other, task, states, fixed, Transitions.of(batch))

    @torch.no_grad()
    def _target(self, step: Step, moves: Transitions) -> Tensor:
        """Double Q: y = r + gamma (1 - done) Q_other(s', argmax_a Q_main(s', a)), [N].

        Main's s' comes from the pass that also gave s, so the argmax sees its dropout; the value it picks does not.
        """
        chosen = step.main.best(moves.next(step.states))
        ahead = step.other.q.of(moves.next(step.fixed), chosen).squeeze(1)
        return moves.reward + self.gamma * ahead.masked_fill(moves.done > 0, 0.0)

    def _seen(self, step: Step, moves: Transitions, q: Tensor, error: Tensor) -> dict[str, Tensor]:
        """Diagnostics; the logged item is the first column of q and error, [N, K] both."""
        if not self.collect_diagnostics or not len(q):
            return {}
        with torch.no_grad():
            states = moves.current(step.states)
            highest = step.main.q.of(states, step.main.best(states))
            return {"q/logged": q[:, 0].mean(), "q/policy": highest.mean(), "td_error": error[:, 0].abs().mean()}


def half_square(error: Tensor) -> Tensor:
    """Mean over transitions of the sum of half squares, [N, K] -> []; 0 if there are none."""
    return 0.5 * error.square().sum() / max(len(error), 1)
