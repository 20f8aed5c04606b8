"""SASRec: self-attentive sequential recommendation (Kang and McAuley, 2018)."""

import torch
from torch import Tensor, nn

from ecoc.batch import Dims, History
from ecoc.encoders.base import Encoder
from ecoc.encoders.transformer import AttentionConfig, Transformer


class SASRec(Encoder):
    """Causal self-attention over items plus learned positions; position t is the t-th item read."""

    class Config(AttentionConfig):
        """Settings of SASRec."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.positions = nn.Parameter(torch.empty(config.length, config.dim))
        nn.init.normal_(self.positions, std=0.02)
        self.transformer = Transformer(config.dim, config)

    def embed(self, items: Tensor, history: History) -> Tensor:
        found = self.look_up(items, history)
        return self.dropout(found + self.positions[: found.shape[1]])

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        return self.transformer(embedded)

    def last(self, embedded: Tensor, history: History) -> Tensor:
        return self.transformer.last(embedded, history.lengths - 1)
