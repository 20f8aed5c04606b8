"""NARM: neural attentive session-based recommendation (Li et al., 2017); docs/equations.md §4.2."""

import torch
from pydantic import Field
from torch import Tensor, nn

from ecoc.batch import Dims, History
from ecoc.encoders.additive import additive_attention, attend
from ecoc.encoders.base import Encoder, EncoderConfig, at, mlp
from ecoc.encoders.dropout import Dropout
from ecoc.encoders.gru4rec import start


class NARM(Encoder):
    """A GRU; the state joins its last hidden state and the sum of all, weighted by additive attention.

    Differs from the paper: a head with a ReLU instead of the bilinear decoder, as in the code released with ECoC, and
    L_BC. Attention weights have no softmax, as in the paper.
    """

    class Config(EncoderConfig):
        """Settings of NARM."""

        hidden: int = Field(128, gt=0, le=65536, description="width of the GRU state")
        head: int = Field(256, ge=0, le=65536, description="hidden width of the head; 0 for a single linear layer")
        readout_dropout: float = Field(
            0.25, ge=0, lt=1, description="share of the head's inputs set to zero in training"
        )

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.gru = nn.GRU(config.dim, config.hidden, batch_first=True)
        self.key_t = nn.Linear(config.hidden, config.hidden, bias=False)  # A2
        self.key_o = nn.Linear(config.hidden, config.hidden, bias=False)  # A1
        self.v = nn.Parameter(torch.empty(config.hidden))
        nn.init.normal_(self.v, std=0.05)
        self.readout_dropout = Dropout(config.readout_dropout)
        self.head = mlp(2 * config.hidden, config.head, config.dim)
        start(self.gru, self.head)

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        hidden, _ = self.gru(embedded)  # [B, L, hidden]
        local = additive_attention(self.key_t(hidden), self.key_o(hidden), self.v, hidden)
        return self._read(local, hidden)

    def last(self, embedded: Tensor, history: History) -> Tensor:
        lengths = history.lengths
        hidden, _ = self.gru(embedded)
        final = at(hidden, lengths - 1)
        seen = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]  # [B, L]
        local = attend(self.key_t(final)[:, None], self.key_o(hidden), self.v, hidden, seen[:, None])
        return self._read(local.squeeze(1), final)

    def _read(self, local: Tensor, final: Tensor) -> Tensor:
        return self.head(self.readout_dropout(torch.cat((local, final), -1)))
