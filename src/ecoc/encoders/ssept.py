"""SSE-PT: a personalised transformer with stochastic shared embeddings (Wu et al., 2020); docs/equations.md §4.10."""

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor, nn

from ecoc.batch import PAD, Batch, Dims, History
from ecoc.encoders.base import Encoder, PredictionTask
from ecoc.encoders.transformer import AttentionConfig, Transformer

UNKNOWN = 0
"""The user without training sequences."""


class SSEPT(Encoder):
    """Causal self-attention over [item; user]; the state is the half of the output that multiplies the item vector.

    The other half multiplies the user vector and adds the same constant to all scores, so it is left out.

    Differs from the paper: L_BC instead of binary cross-entropy, by default one block with two heads, and half of the
    user replacements are a vector for unknown users.
    """

    class Config(AttentionConfig):
        """Settings of SSE-PT."""

        dropout: float = Field(0.2, ge=0, lt=1, description="share of embedding cells set to zero in training")
        p_user: float = Field(
            0.9, ge=0, le=1, description="probability that the user of a window is replaced by another"
        )
        p_item: float = Field(0.1, ge=0, le=1, description="probability that an event is replaced by another item")
        unknown: float = Field(0.5, ge=0, le=1, description="share of user replacements that are the unknown user")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.p_user, self.p_item, self.unknown = config.p_user, config.p_item, config.unknown
        self.users = nn.Embedding(dims.users + 1, config.dim)
        nn.init.normal_(self.users.weight, std=config.init)
        self.positions = nn.Parameter(torch.empty(config.length, 2 * config.dim))
        nn.init.normal_(self.positions, std=0.02)
        self.transformer = Transformer(2 * config.dim, config)

    def embed(self, items: Tensor, history: History) -> Tensor:
        """Item vectors without dropout: `forward` adds user and position and then applies dropout to all."""
        return self.look_up(items, history)

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        return self.transformer(self._join(embedded, history))[..., : self.dim]

    def last(self, embedded: Tensor, history: History) -> Tensor:
        return self.transformer.last(self._join(embedded, history), history.lengths - 1)[..., : self.dim]

    def forget_users(self) -> None:
        unknown = self.users.weight.detach()[: UNKNOWN + 1]
        self.users = nn.Embedding(*unknown.shape)
        self.users.weight.data = unknown

    def prediction_task(self, items: Tensor, batch: Batch) -> PredictionTask:
        if not self.training:
            return super().prediction_task(items, batch)
        # the task replaces users and items, so its states are not those of the batch
        return replace(super().prediction_task(items, self._sample_shared(batch)), all_states=None)

    def _join(self, embedded: Tensor, history: History) -> Tensor:
        users = history.users
        if users is None:
            users = torch.full_like(history.items[:, 0], UNKNOWN)
        user = (self.users(users) * self.scale)[:, None].expand_as(embedded)
        joined = torch.cat([embedded, user], -1)  # [B, L, 2d]
        return self.dropout(joined + self.positions[: joined.shape[1]])

    def _sample_shared(self, batch: Batch) -> Batch:
        """Stochastic shared embeddings: another user for the window, other items for a few of its events."""
        history = batch.history
        count, length = history.items.shape
        # Event t is the item at position t and the target at position t - 1: one draw for both.
        swapped = torch.rand(count, length + 1, device=history.items.device) < self.p_item  # [B, L + 1]
        drawn = torch.randint(1, self.dims.items + 1, swapped.shape, device=history.items.device)
        items = torch.where(swapped[:, :-1] & (history.items != PAD), drawn[:, :-1], history.items)
        target = torch.where(swapped[:, 1:] & (batch.target != PAD), drawn[:, 1:], batch.target)
        users = None if history.users is None else self._sample_users(history.users)
        return replace(batch, history=replace(history, items=items, users=users), target=target)

    def _sample_users(self, users: Tensor) -> Tensor:
        """Another user for most rows; unknown users stay unknown."""
        drawn = torch.randint(1, max(self.dims.users, 1) + 1, users.shape, device=users.device)
        drawn = torch.where(torch.rand(users.shape, device=users.device) < self.unknown, UNKNOWN, drawn)
        swapped = torch.rand(users.shape, device=users.device) < self.p_user
        return torch.where(swapped & (users != UNKNOWN), drawn, users)
