"""SASRec: self-attentive sequential recommendation (Kang and McAuley, 2018); docs/equations.md §4.9."""

import torch
from torch import Tensor, nn

from ecoc.batch import Dims, History
from ecoc.encoders.base import Encoder
from ecoc.encoders.transformer import AttentionConfig, Transformer


class SASRec(Encoder):
    """Causal self-attention over item vectors plus learned positions.

    Differs from the paper: L_BC instead of binary cross-entropy with one sampled negative per position; by default one
    block with two heads and a feed-forward layer of width 128 (the paper: two blocks, one head, width d); positions
    count from the oldest item read, because padding is on the right.
    """

    class Config(AttentionConfig):
        """Settings of SASRec."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.positions = nn.Parameter(torch.empty(config.length, config.dim))
        nn.init.normal_(self.positions, std=0.02)
        self.transformer = Transformer(config.dim, config)

    def embed(self, items: Tensor, history: History) -> Tensor:
        vectors = self.look_up(items, history)
        return self.dropout(vectors + self.positions[: vectors.shape[1]])

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        return self.transformer(embedded)

    def last(self, embedded: Tensor, history: History) -> Tensor:
        return self.transformer.last(embedded, history.lengths - 1)
