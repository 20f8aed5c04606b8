"""STAMP: short-term attention/memory priority model (Liu et al., 2018); docs/equations.md §4.3."""

import torch
from torch import Tensor, nn

from ecoc.batch import Dims, History
from ecoc.encoders.additive import additive_attention, attend
from ecoc.encoders.base import Encoder, EncoderConfig, at


class STAMP(Encoder):
    """Additive attention over item vectors, with the last item and the mean as query, times the last item.

    As in the paper, trained by L_BC and with dropout on the embeddings.
    """

    class Config(EncoderConfig):
        """Settings of STAMP."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.key_o = nn.Linear(config.dim, config.dim, bias=False)  # W1
        self.key_t = nn.Linear(config.dim, config.dim)  # W2 and b
        self.key_mean = nn.Linear(config.dim, config.dim, bias=False)  # W3
        self.v = nn.Parameter(torch.empty(config.dim))  # w0
        self.general = nn.Linear(config.dim, config.dim)
        self.current = nn.Linear(config.dim, config.dim)
        nn.init.normal_(self.v, std=0.05)

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        counts = torch.arange(1, embedded.shape[1] + 1, device=embedded.device)
        mean = embedded.cumsum(1) / counts[:, None]  # m_s of each prefix, [B, L, d]
        attended = additive_attention(self._query(embedded, mean), self.key_o(embedded), self.v, embedded)
        return self._read(attended, embedded)

    def last(self, embedded: Tensor, history: History) -> Tensor:
        lengths = history.lengths
        final = at(embedded, lengths - 1)
        seen = (torch.arange(embedded.shape[1], device=embedded.device) < lengths[:, None]).to(embedded)[:, None]
        mean = (seen @ embedded).squeeze(1) / lengths[:, None]
        attended = attend(self._query(final, mean)[:, None], self.key_o(embedded), self.v, embedded, seen)
        return self._read(attended.squeeze(1), final)

    def _query(self, current: Tensor, mean: Tensor) -> Tensor:
        return self.key_t(current) + self.key_mean(mean)

    def _read(self, attended: Tensor, current: Tensor) -> Tensor:
        return torch.tanh(self.general(attended)) * torch.tanh(self.current(current))
