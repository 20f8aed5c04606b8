"""Encoder: item vectors of a history -> the preference vector after every position."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.config import Config
from ecoc.encoders.dropout import Dropout


class EncoderConfig(Config):
    """Settings that every encoder has."""

    dim: int = Field(64, gt=0, le=4096, description="width d of item embeddings and preference vectors")
    length: int = Field(50, gt=0, le=4096, description="number of most recent items of a history that are read")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of embedding cells set to zero in training")
    scale: bool = Field(True, description="multiply the item embeddings of a history by the square root of dim")
    init: float = Field(0.05, gt=0, description="standard deviation of the initial item embeddings")
    feedback: bool = Field(False, description="add an embedding of the feedback to each item of a history")


@dataclass(frozen=True)
class PredictionTask:
    """What an encoder learns to predict in training: states, their target items, and losses of its own."""

    states: Tensor  # [N, d]
    target: Tensor  # [N]
    extra: dict[str, Tensor] = field(default_factory=dict)  # loss by name, already weighted
    all_states: Tensor | None = None  # [B, L, d] states after every position, if the task encodes the batch as it is


class Encoder(nn.Module, ABC):
    """Base of every encoder. The policy owns the item table and passes `items(table)`, [V, d], to each call.

    `forward` returns the state after every position; position t depends on items 0..t only. Rows are padded on the
    right, so a causal encoder never reads padding. What it returns at padded positions is never used.
    """

    class Config(EncoderConfig):
        """Settings of the encoder."""

    transforms_items: ClassVar[bool] = False
    """Whether `items` changes the table. A step then reads every row of it."""

    def __init__(self, config: EncoderConfig, dims: Dims) -> None:
        super().__init__()
        self.dims = dims
        self.dim, self.length = config.dim, config.length
        self.scale = config.dim**0.5 if config.scale else 1.0
        self.dropout = Dropout(config.dropout)
        self.feedback = nn.Embedding(dims.feedback + 1, config.dim, padding_idx=0) if config.feedback else None
        if self.feedback is not None:
            nn.init.zeros_(self.feedback.weight)
        self.sparse = False  # whether look-ups give the item table row-sparse gradients

    @abstractmethod
    def forward(self, embedded: Tensor, history: History) -> Tensor:
        """Embedded history [B, L, d] -> state after each position [B, L, d]."""

    def last(self, embedded: Tensor, history: History) -> Tensor:
        """State after the whole history, [B, d]; no row is empty. Override it where that is cheaper."""
        return at(self(embedded, history), history.lengths - 1)

    def embed(self, items: Tensor, history: History) -> Tensor:
        """Embedded history with dropout: item vectors [V, d] -> [B, L, d]."""
        return self.dropout(self.look_up(items, history))

    def look_up(self, items: Tensor, history: History) -> Tensor:
        """Scaled item vectors of a history, plus feedback if it is read: [B, L, d]; zero at padding."""
        vectors = nn.functional.embedding(history.items, items, padding_idx=PAD, sparse=self.sparse)
        vectors = vectors * self.scale if self.scale != 1.0 else vectors
        if self.feedback is not None and history.feedback is not None:
            vectors = vectors + self.feedback(history.feedback)
        return vectors

    def items(self, table: Tensor) -> Tensor:
        """The item vectors that histories and scores use: the table itself unless an encoder transforms it."""
        return table

    def prediction_task(self, items: Tensor, batch: Batch) -> PredictionTask:
        """The training task of a batch. By default each position predicts the items that follow it."""
        states = self(self.embed(items, batch.history), batch.history)
        return PredictionTask(batch.states_before(states), batch.target.flatten()[batch.positions()], all_states=states)

    def fit_statistics(self, sessions: TrainSequences) -> None:
        """Store fixed statistics of the training sequences in buffers, before the first step.

        A buffer whose size depends on the sequences is made empty by the constructor.
        """

    def has_sound_statistics(self) -> bool:
        """Whether buffers that were read from a file, and that index other tensors, stay within them."""
        return True

    def forget_users(self) -> None:
        """Drop the vectors of known users, before an export: requests name no user of the training sequences."""


def at(states: Tensor, index: Tensor) -> Tensor:
    """Row `index[b]` of each sequence: [B, L, d], [B] -> [B, d]."""
    return states.gather(1, index.view(-1, 1, 1).expand(-1, 1, states.shape[-1])).squeeze(1)


def prefixes(history: History) -> History:
    """Every prefix as a row of its own: [B, L] -> [B * L, L]; row b * L + t holds items 0..t of row b."""
    count, length = history.items.shape
    steps = torch.arange(length, device=history.items.device)
    kept = (steps[None, :] <= steps[:, None]).expand(count, length, length).reshape(-1, length)

    def per_prefix(values: Tensor) -> Tensor:
        return values.repeat_interleave(length, 0) * kept

    return History(
        per_prefix(history.items),
        None if history.feedback is None else per_prefix(history.feedback),
        None if history.users is None else history.users.repeat_interleave(length, 0),
        None if history.times is None else per_prefix(history.times),
        None if history.request_times is None else per_prefix(history.request_times),
    )


def mlp(width: int, hidden: int, out: int) -> nn.Sequential:
    """Two linear layers with a ReLU between; a single layer if `hidden` is 0."""
    if hidden == 0:
        return nn.Sequential(nn.Linear(width, out))
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, out))
