"""BERT4Rec: sequential recommendation as a cloze test (Sun et al., 2019); docs/equations.md §4.11."""

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad

from ecoc.batch import PAD, Batch, Dims, History
from ecoc.encoders.base import Encoder, PredictionTask
from ecoc.encoders.transformer import AttentionConfig, Transformer

_ROWS = 1024
"""Prefixes that are encoded together."""


class BERT4Rec(Encoder):
    """Bidirectional self-attention over items and a mask; the state after a prefix is the output at its mask.

    A row has at most `length` positions: in training the last events of the window, at inference the last items of the
    prefix and the mask right after them. The oldest event kept is at position 0 in both cases.

    Differs from the paper: pre-norm blocks, no bias per item in the output, and in half of the training windows the
    last event alone is masked.
    """

    class Config(AttentionConfig):
        """Settings of BERT4Rec."""

        length: int = Field(
            50, gt=1, le=4096, description="number of most recent items of a history that are read, mask included"
        )
        dropout: float = Field(0.2, ge=0, lt=1, description="share of embedding cells set to zero in training")
        blocks: int = Field(2, gt=0, le=64, description="number of self-attention blocks")
        inner: int = Field(256, gt=0, le=65536, description="width of the feed-forward layer")
        mask_ratio: float = Field(
            0.2, ge=0, le=1, description="share of a window's events that are masked, at least one event"
        )
        last_share: float = Field(
            0.5, ge=0, le=1, description="share of windows in which the last event alone is masked"
        )

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.mask_ratio, self.last_share = config.mask_ratio, config.last_share
        self.mask = nn.Parameter(torch.empty(config.dim))
        self.positions = nn.Parameter(torch.empty(config.length, config.dim))
        for vectors in (self.mask, self.positions):
            # As large as item vectors: the mask finds its neighbours by position alone; smaller vectors learn late.
            nn.init.normal_(vectors, std=config.init * self.scale)
        self.transformer = Transformer(config.dim, config, "gelu")
        self.head = nn.Sequential(nn.Linear(config.dim, config.dim), nn.GELU(), nn.LayerNorm(config.dim))

    def embed(self, items: Tensor, history: History) -> Tensor:
        """Item vectors without dropout: mask and positions differ between prefixes and are added later."""
        return self.look_up(items, history)

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        ends, rows = (history.items != PAD).T.nonzero(as_tuple=True)  # [N]: every prefix, shortest first
        states = []
        for start in range(0, len(rows), _ROWS):
            row, lengths = rows[start : start + _ROWS], ends[start : start + _ROWS] + 1
            states.append(self._read(embedded[row, : int(lengths[-1])], lengths))
        return torch.zeros_like(embedded).index_put((rows, ends), torch.cat(states))

    def last(self, embedded: Tensor, history: History) -> Tensor:
        return self._read(embedded, history.lengths)

    def prediction_task(self, items: Tensor, batch: Batch) -> PredictionTask:
        """Cloze task: mask events of the window that are targets and predict them from all others."""
        window, wanted = self._window(batch)
        masked = self._sample_masked(window, wanted)  # [B, W]
        x = torch.where(masked[..., None], self.mask, self.look_up(items, window)) + self.positions[: masked.shape[1]]
        hidden = self.transformer(self.dropout(x), (window.items != PAD)[:, None, None])
        return PredictionTask(self.head(hidden[masked]), window.items[masked])

    def _read(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """State after the first `lengths[n]` items of each row: [N, L, d], [N] -> [N, d]."""
        width = min(embedded.shape[1] + 1, self.length)
        steps = torch.arange(width, device=embedded.device)
        kept = lengths.clamp(max=width - 1)[:, None]  # [N, 1]
        index = (lengths[:, None] - kept + steps).clamp(max=embedded.shape[1] - 1)  # [N, W]
        vectors = embedded.gather(1, index[..., None].expand(-1, -1, self.dim))
        x = torch.where((steps == kept)[..., None], self.mask, vectors) + self.positions[:width]
        return self.head(self.transformer.last(self.dropout(x), kept.squeeze(1), (steps <= kept)[:, None, None]))

    def _window(self, batch: Batch) -> tuple[History, Tensor]:
        """Events up to the last target, at most `length` of them, [B, W], and which of them are targets."""
        taught = (batch.target != PAD).any(1)
        history = batch.history.rows(taught)
        # Event t is the item at position t and the target at position t - 1.
        after = pad(batch.target[taught], (1, 0))  # [B, L + 1]
        events = torch.where(after != PAD, after, pad(history.items, (0, 1)))
        steps = torch.arange(events.shape[1], device=events.device)
        counts = ((after != PAD) * (steps + 1)).amax(1, keepdim=True)  # [B, 1]
        start = (counts - self.length).clamp(min=0)
        steps = steps[: self.length]
        index = (start + steps).clamp(max=events.shape[1] - 1)  # [B, W]
        inside = start + steps < counts

        def cut(values: Tensor) -> Tensor:
            return values.gather(1, index) * inside

        feedback = None if history.feedback is None else cut(pad(history.feedback, (0, 1)))
        return History(cut(events), feedback), cut(after) != PAD

    def _sample_masked(self, window: History, wanted: Tensor) -> Tensor:
        """Which events are masked, [B, W]: some targets, at least one per row; in some rows the last event alone."""
        noise = torch.rand(wanted.shape, device=wanted.device).masked_fill(~wanted, torch.inf)
        cloze = (noise < self.mask_ratio) | (noise == noise.amin(1, keepdim=True))
        steps = torch.arange(wanted.shape[1], device=wanted.device)
        last = steps == window.lengths[:, None] - 1
        alone = torch.rand(len(wanted), 1, device=wanted.device) < self.last_share
        return torch.where(alone, last, cloze)
