"""Small catalogues, histories and batches to check encoders on."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders import Encoder

DIM, LENGTH, ITEMS, USERS, KINDS = 16, 12, 30, 5, 3


@dataclass(frozen=True)
class EncoderCase:
    """An encoder class to check, with settings of its own."""

    kind: type[Encoder]
    settings: dict[str, Any] = field(default_factory=dict)

    def build(self, *, items: int = ITEMS, fitted: bool = True, **options: Any) -> Encoder:
        """A fresh encoder for a small catalogue."""
        torch.manual_seed(1)
        config = self.kind.Config.build({"dim": DIM, "length": LENGTH, **self.settings, **options})
        encoder = self.kind(config, Dims(items, USERS, KINDS))
        if fitted:
            encoder.fit_statistics(sequences_of(random_histories(*[LENGTH] * 8, seed=2)))
        return encoder

    def ready(self, **options: Any) -> Encoder:
        """Ready to serve, reads feedback; no parameter is left at a value that hides what it does."""
        encoder = self.build(**{"feedback": True, **options})
        torch.manual_seed(3)
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
            for module in encoder.modules():
                if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                    module.weight[module.padding_idx] = 0
        return encoder.train(False)


def item_table(items: int = ITEMS) -> Tensor:
    """Item vectors of a small catalogue, [V, d]."""
    table = 0.05 * torch.randn(items + 1, DIM, generator=torch.Generator().manual_seed(7))
    table[PAD] = 0
    return table


def random_histories(*lengths: int, seed: int = 0) -> History:
    """Rows of these lengths, with feedback, users and times; every other row repeats a few items over and over."""
    draw = torch.Generator().manual_seed(seed)
    kept = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    items = torch.randint(1, ITEMS + 1, kept.shape, generator=draw)
    items[1::2] = items[1::2] % 4 + 1
    feedback = torch.randint(1, KINDS + 1, kept.shape, generator=draw)
    users = torch.randint(1, USERS + 1, (len(lengths),), generator=draw)
    gaps = torch.rand(len(lengths), max(lengths) + 1, generator=draw).mul(15).exp().long()  # a second to a month
    times = 1_000_000_000 + gaps.cumsum(1)
    return History(items * kept, feedback * kept, users, times[:, :-1] * kept, times[:, 1:] * kept)


def sequences_of(history: History) -> TrainSequences:
    """The rows of a history as training sequences."""
    items = history.items[history.items != PAD].numpy()
    return TrainSequences(items, np.concatenate([[0], history.lengths.numpy().cumsum()]))


def windows_of(history: History, *, wanted: int = LENGTH) -> Batch:
    """Each position predicts its successor, the last `wanted` of a row at most."""
    target = pad(history.items[:, 1:], (0, 1))
    steps = torch.arange(target.shape[1])
    target = target * (steps >= history.lengths[:, None] - 1 - wanted)
    return Batch(history, target, torch.ones(target.shape), torch.zeros(target.shape))


def full_windows(rows: int, seed: int) -> Batch:
    """Rows that fill the encoder's length, each position with a target."""
    history = random_histories(*[LENGTH + 1] * rows, seed=seed)
    read = per_position(history, lambda values: values[:, :-1])
    return Batch(read, history.items[:, 1:], torch.ones(read.items.shape), torch.zeros(read.items.shape))


def per_position(history: History, change: Callable[[Tensor], Tensor]) -> History:
    """The history with every field that has an entry per position, [B, L], changed."""
    fields = {name: getattr(history, name) for name in ("items", "feedback", "times", "request_times")}
    return replace(history, **{name: change(values) for name, values in fields.items() if values is not None})


def feedback_of(history: History) -> Tensor:
    """Feedback of a history; zeros if it has none."""
    return torch.zeros_like(history.items) if history.feedback is None else history.feedback


def states_of(encoder: Encoder, table: Tensor, history: History) -> Tensor:
    """State after each position, [B, L, d]."""
    with torch.no_grad():
        states: Tensor = encoder(encoder.embed(encoder.items(table), history), history)
    return states


def last_of(encoder: Encoder, table: Tensor, history: History) -> Tensor:
    """State after the whole history, [B, d]."""
    with torch.no_grad():
        return encoder.last(encoder.embed(encoder.items(table), history), history)


def prefix_of(history: History, row: int, length: int) -> History:
    """The first items of one row, alone and without padding."""
    return per_position(history.rows(torch.tensor([row])), lambda values: values[:, :length])


def prediction_loss(encoder: Encoder, table: Tensor, batch: Batch) -> Tensor:
    """Softmax over all items and what the encoder adds of its own."""
    items = encoder.items(table)
    task = encoder.prediction_task(items, batch)
    return sum(task.extra.values(), cross_entropy(task.states @ items[1:].T, task.target - 1))
