"""NextItNet: a stack of dilated causal convolutions (Yuan et al., 2019); docs/equations.md §4.5."""

from typing import Annotated, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from ecoc.batch import Dims, History
from ecoc.encoders.base import Encoder, EncoderConfig, at
from ecoc.encoders.dilated import causal_conv


class Residual(nn.Module):
    """Residual block (b): x + ReLU(LN(conv_2l(ReLU(LN(conv_l(x)))))), time-major."""

    def __init__(self, width: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.narrow = Convolution(width, kernel, dilation)
        self.wide = Convolution(width, kernel, 2 * dilation)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.wide(self.narrow(x))


class Convolution(nn.Module):
    """Dilated causal convolution, layer norm, ReLU: [L, B, d] -> [L, B, d]."""

    def __init__(self, width: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.weight = nn.Parameter(torch.empty(kernel, width, width))  # oldest tap first
        self.bias = nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.norm(causal_conv(x, self.weight, self.bias, self.dilation)))


class NextItNet(Encoder):
    """Residual blocks of dilated causal convolutions; the receptive field grows with the sum of the dilations.

    Differs from the paper: no final linear layer by default, tied weights, and the gains of each block's last layer
    norm start at 1 / sqrt(blocks).
    """

    class Config(EncoderConfig):
        """Settings of NextItNet."""

        dilations: tuple[Annotated[int, Field(gt=0, le=4096)], ...] = Field(
            (1, 2, 4, 8, 1, 2, 4, 8), min_length=1, max_length=256, description="dilation of each residual block"
        )
        kernel: int = Field(3, gt=0, le=64, description="kernel size of a convolution")
        final_fc: bool = Field(False, description="add a final linear layer")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.blocks = nn.Sequential(*(Residual(config.dim, config.kernel, dilation) for dilation in config.dilations))
        self.final = nn.Linear(config.dim, config.dim) if config.final_fc else nn.Identity()
        for block in self.blocks:  # blocks add positive values only: their sum should not start too large
            nn.init.constant_(cast(Residual, block).wide.norm.weight, len(config.dilations) ** -0.5)

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        return self.final(self._convolve(embedded))

    def last(self, embedded: Tensor, history: History) -> Tensor:
        return self.final(at(self._convolve(embedded), history.lengths - 1))

    def _convolve(self, embedded: Tensor) -> Tensor:
        return self.blocks(embedded.transpose(0, 1).contiguous()).transpose(0, 1)
