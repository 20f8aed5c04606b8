"""Dropout with one random byte per cell: one 64-bit random number decides eight cells."""

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zero each cell with probability `p` (rounded to 1/256) in training, and scale the rest."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.threshold = round(256 * p)

    def extra_repr(self) -> str:
        return f"p={self.threshold / 256:g}"

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.threshold == 0:
            return x
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()] >= self.threshold
        return x * kept.view(x.shape).to(x.dtype).mul_(256 / (256 - self.threshold))
