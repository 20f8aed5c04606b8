"""An encoder: the mean of the items so far, through a linear layer."""

import torch
from torch import Tensor, nn

from ecoc.encoders import Dims, Encoder, EncoderConfig, History


class RunningMean(Encoder):
    """State after position t: W · mean of e_0 … e_t."""

    class Config(EncoderConfig):
        """Settings of the running mean."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.out = nn.Linear(config.dim, config.dim)

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        count = torch.arange(1, embedded.shape[1] + 1, device=embedded.device)
        return self.out(embedded.cumsum(1) / count[:, None])
