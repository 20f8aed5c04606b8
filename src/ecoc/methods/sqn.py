"""SQN: self-supervised Q-learning (Xin et al., SIGIR 2020); docs/equations.md §3.1."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from ecoc.batch import PAD, Batch
from ecoc.encoders import PredictionTask
from ecoc.losses.returns import Transitions, half_squared_error, td_targets
from ecoc.methods.base import BuildContext, Loss, Method, MethodConfig
from ecoc.policies.base import DensePolicy, Head

_ROWS = 256  # states per chunk: no matrix of all states by all items is held


@dataclass(frozen=True)
class QNetwork:
    """One of the two copies: a policy with its cross-entropy head, and a Q head on the same states."""

    policy: DensePolicy
    q: Head

    @torch.no_grad()
    def best(self, states: Tensor) -> Tensor:
        """The item of highest Q in each state, [N, 1]; never PAD."""
        return torch.cat([self.q(part).argmax(1, keepdim=True) for part in torch.split(states, _ROWS)]) + (PAD + 1)


@dataclass(frozen=True)
class SQNTensors:
    """What the losses of a step read: the copy that learns, the copy that values, and their states."""

    main: QNetwork
    other: QNetwork
    task: PredictionTask
    states: Tensor  # [B, L, m]; of main
    other_states: Tensor  # [B, L, m]; of the other, without gradient and dropout
    transitions: Transitions


class SQN(Method):
    """L = mean CE(logits_main(s), i) + mean 1/2 (r + gamma Q_other(s', argmax_a Q_main(s', a)) - Q_main(s, i))^2.

    There are two complete copies. In each step a fair coin makes one of them main, and only main learns. The first copy
    recommends, by its cross-entropy head.
    """

    needs_next: ClassVar[bool] = True
    policy: DensePolicy

    class Config(MethodConfig):
        """Settings of SQN."""

        gamma: float = Field(0.5, ge=0, le=1, description="discount of later rewards")

    def __init__(self, config: Config, context: BuildContext) -> None:
        super().__init__(config, context)
        self.gamma = config.gamma
        self.policy, self.twin = (DensePolicy(context.make_encoder(), context.encoder.init) for _ in range(2))
        self.q, self.twin_q = (Head(context.encoder.dim, context.dims.items) for _ in range(2))

    def loss(self, batch: Batch) -> Loss:
        step = self.step_tensors(batch)
        with self.clock("loss"):
            bc = step.main.policy.head.cross_entropy(step.task.states, step.task.target)
            transitions = step.transitions.whole()
            q = step.main.q.of(transitions.current(step.states), transitions.item[:, None])  # [N, 1]
            error = self.td_target(step, transitions)[:, None] - q
            td = half_squared_error(error, len(error))
            total = sum(step.task.extra.values(), bc + td)
        return Loss(total, {"bc": bc, "td": td, **step.task.extra}, self.diagnostics(step, transitions, q, error))

    def step_tensors(self, batch: Batch) -> SQNTensors:
        """Flip the coin, then encode the batch with both copies."""
        copies = [QNetwork(self.policy, self.q), QNetwork(self.twin, self.twin_q)]
        is_second = int(torch.randint(2, ()))
        main, other = copies[is_second], copies[1 - is_second]
        with self.clock("encode"):
            task = main.policy.encoder.prediction_task(main.policy.item_vectors(), batch)
            states = main.policy.states_of(task, batch.history)
        with self.clock("target"):
            other_states = other.policy.eval_states(batch.history)
        return SQNTensors(main, other, task, states, other_states, Transitions.of(batch))

    @torch.no_grad()
    def td_target(self, step: SQNTensors, transitions: Transitions) -> Tensor:
        """Double Q: y = r + gamma (1 - done) Q_other(s', argmax_a Q_main(s', a)), [N].

        Main's s' comes from the pass that also gave s, so the argmax sees its dropout; the value of the other does not.
        """
        best = step.main.best(transitions.next(step.states))
        next_value = step.other.q.of(transitions.next(step.other_states), best).squeeze(1)
        return td_targets(transitions.reward, transitions.done, next_value, self.gamma)

    def diagnostics(self, step: SQNTensors, transitions: Transitions, q: Tensor, error: Tensor) -> dict[str, Tensor]:
        """Figures for diagnosis; the logged item is the first column of q and error, [N, K] both."""
        if not self.collect_diagnostics or not len(q):
            return {}
        with torch.no_grad():
            states = transitions.current(step.states)
            highest = step.main.q.of(states, step.main.best(states))
            return {"q/logged": q[:, 0].mean(), "q/policy": highest.mean(), "td_error": error[:, 0].abs().mean()}
