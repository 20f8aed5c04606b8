"""Dropout with a byte a cell: one 64-bit random number decides eight of them."""

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
        return x * self.mask(x.shape, x)

    def mask(self, shape: torch.Size | tuple[int, ...], like: Tensor) -> Tensor:
        """Zeros and 256/(256 - threshold)s, to multiply with."""
        cells = torch.Size(shape).numel()
        words = torch.empty((cells + 7) // 8, dtype=torch.int64, device=like.device).random_(-(2**63), None)
        kept = words.view(torch.uint8)[:cells] >= self.threshold
        return kept.view(shape).to(like.dtype).mul_(256 / (256 - self.threshold))
