"""PRL: prompt-based reinforcement learning (Xin et al., SIGIR 2022); docs/equations.md §3.4."""

from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ecoc.batch import PAD, Batch, History, TrainSequences
from ecoc.encoders import Encoder, EncoderConfig
from ecoc.encoders.dropout import Dropout
from ecoc.methods.base import BuildContext, Loss, Method, MethodConfig
from ecoc.policies.base import Head, TiedPolicy, with_one
from ecoc.policies.ranking import Query

_TOKENS = 3  # state, step, return
_START = 0.02  # standard deviation of step and return vectors at the start


class PromptedPolicy(TiedPolicy):
    """A dense head on the state mixed with a prompt: the step and the reward that is still to come.

    To recommend, the prompt is `kappa` times the mean reward-to-go at the same step in training.
    """

    rho: Tensor  # [length + 1]; mean reward-to-go at each step; the last entry is for all later steps
    size: Tensor  # []; mean absolute reward-to-go, the unit of the prompt

    def __init__(self, encoder: Encoder, config: EncoderConfig, kappa: float) -> None:
        super().__init__(encoder, config.init)
        self.kappa = kappa
        self.steps = nn.Parameter(torch.randn(self.length + 1, encoder.dim) * _START)
        self.reward = nn.Parameter(torch.randn(encoder.dim) * _START)
        self.attention = TokenAttention(encoder.dim, config.dropout)
        self.mix = nn.Linear(_TOKENS, 1)
        nn.init.ones_(self.mix.weight)  # no seed starts with the state ignored
        nn.init.zeros_(self.mix.bias)
        self.dropout = Dropout(config.dropout)
        self.head = Head(encoder.dim, self.items)
        self.register_buffer("rho", torch.zeros(self.length + 1))
        self.register_buffer("size", torch.ones(()))

    def fit_statistics(self, sessions: TrainSequences) -> None:
        """Take the mean reward-to-go at each step, and their mean absolute value, from the training sequences."""
        to_go = sessions.rewards_to_go()
        step = np.arange(len(to_go)) - np.repeat(sessions.offsets[:-1], np.diff(sessions.offsets))
        place = np.minimum(step, self.length)
        counts = np.bincount(place, minlength=self.length + 1)
        means = np.bincount(place, to_go, self.length + 1) / np.maximum(counts, 1)
        # a step that no sequence reached takes the value of the last step before it
        known = np.maximum.accumulate(np.where(counts > 0, np.arange(self.length + 1), 0))
        self.rho = torch.from_numpy(means[known].astype(np.float32))
        size = float(np.abs(to_go[step > 0]).mean()) if (step > 0).any() else 0.0  # first events are no targets
        self.size = torch.tensor(size or 1.0)

    def prompted(self, states: Tensor, step: Tensor, to_go: Tensor) -> Tensor:
        """X = ReLU(sum_c u_c token_c + b) of states [N, m] at steps [N] with rewards-to-go [N]: [N, m]."""
        at_step = nn.functional.embedding(step.clamp(max=self.length), self.steps)
        tokens = torch.stack([states, at_step, (to_go / self.size)[:, None] * self.reward], 1)  # [N, 3, m]
        return self.mix(self.attention(self.dropout(tokens)).transpose(1, 2)).squeeze(2).relu()

    def query(self, history: History) -> Query:
        step = history.lengths.clamp(max=self.length)
        return Query(with_one(self.prompted(self.state(history), step, self.kappa * self.rho[step])))

    def item_matrix(self) -> Tensor:
        return self.head.weight


class TokenAttention(nn.Module):
    """Self-attention with one head, in which every token attends to all, and a residual."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.read = nn.Linear(width, 3 * width)  # query, key and value
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """[N, T, m] -> [N, T, m]."""
        query, key, value = self.read(tokens).chunk(3, -1)
        weights = (query @ key.transpose(1, 2) / query.shape[-1] ** 0.5).softmax(-1)
        return tokens + self.dropout(weights) @ value


class PRL(Method):
    """Predict the logged item from the state, the step and the reward that followed: L = CE."""

    needs_returns: ClassVar[bool] = True
    policy: PromptedPolicy

    class Config(MethodConfig):
        """Settings of PRL."""

        kappa: float = Field(
            2.0,
            ge=0,
            le=1000,
            description="reward-to-go of the prompt when recommending, relative to the training mean at the same step",
        )

    def __init__(self, config: Config, context: BuildContext) -> None:
        super().__init__(config, context)
        self.policy = PromptedPolicy(context.make_encoder(), context.encoder, config.kappa)

    def fit_statistics(self, sessions: TrainSequences) -> None:
        super().fit_statistics(sessions)
        self.policy.fit_statistics(sessions)

    def loss(self, batch: Batch) -> Loss:
        if batch.before is None or batch.returns is None:
            raise TypeError("batches for this method must have steps and returns")
        wanted = batch.target != PAD
        with self.clock("encode"):
            task = self.policy.encoder.prediction_task(self.policy.item_vectors(), batch)
            states = self.policy.states_of(task, batch.history)
        with self.clock("loss"):
            x = self.policy.prompted(batch.states_before(states), batch.before[wanted], batch.returns[wanted])
            bc = self.policy.head.cross_entropy(x, batch.target[wanted])
            total = sum(task.extra.values(), bc)
        return Loss(total, {"bc": bc, **task.extra})

    def describe(self) -> dict[str, str]:
        return {"prompt": f"rewards-to-go are in units of {float(self.policy.size):.4g}, their mean absolute value"}
