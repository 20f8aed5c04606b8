"""The pre-norm self-attention block of SASRec, SSE-PT, GC-SAN and BERT4Rec."""

from typing import Literal, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ecoc.encoders.base import EncoderConfig, at
from ecoc.encoders.dropout import Dropout


class AttentionConfig(EncoderConfig):
    """Settings of an encoder made of self-attention blocks."""

    blocks: int = Field(1, gt=0, le=64, description="number of self-attention blocks")
    heads: int = Field(2, gt=0, description="number of attention heads per block")
    inner: int = Field(128, gt=0, le=65536, description="width of the feed-forward layer")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} is not a multiple of heads {self.heads}")
        return self


class Block(nn.Module):
    """x + attention(LN x), then x + feed-forward(LN x)."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float, activation: Literal["relu", "gelu"]) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.before_feed_forward = nn.LayerNorm(width)
        self.widen = nn.Linear(width, inner)
        self.activation = nn.ReLU() if activation == "relu" else nn.GELU()
        self.narrow = nn.Linear(inner, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """All positions, [B, L, d]. `mask` [B, 1, L or 1, L] is true where attention is allowed; none: causal."""
        normed = self.before_attention(x)
        attended = self._attend(self.query(normed), normed, mask)
        return self._feed_forward(x + self.dropout(attended))

    def last(self, x: Tensor, index: Tensor, mask: Tensor | None = None) -> Tensor:
        """Only position `index[b]` of each row, [B, d]; `mask` [B, 1, 1, L] as in `forward`, none: its past."""
        normed = self.before_attention(x)
        if mask is None:
            mask = (torch.arange(x.shape[1], device=x.device) <= index[:, None])[:, None, None, :]
        attended = self._attend(self.query(at(normed, index)[:, None]), normed, mask)
        return self._feed_forward(at(x, index)[:, None] + self.dropout(attended)).squeeze(1)

    def _attend(self, query: Tensor, normed: Tensor, mask: Tensor | None) -> Tensor:
        key, value = self.key_value(normed).chunk(2, -1)
        width = query.shape[2] // self.heads
        query, key, value = (
            x.view(*x.shape[:2], self.heads, width).transpose(1, 2) for x in (query, key, value)
        )  # [B, heads, L, d / heads]
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _feed_forward(self, x: Tensor) -> Tensor:
        inner = self.dropout(self.activation(self.widen(self.before_feed_forward(x))))
        return x + self.dropout(self.narrow(inner))


class Transformer(nn.Module):
    """A stack of blocks and a final layer norm."""

    def __init__(self, width: int, config: AttentionConfig, activation: Literal["relu", "gelu"] = "relu") -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            Block(width, config.heads, config.inner, config.dropout, activation) for _ in range(config.blocks)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """All positions; see `Block.forward`."""
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x)

    def last(self, x: Tensor, index: Tensor, mask: Tensor | None = None) -> Tensor:
        """Only position `index[b]` of each row, [B, d]; the last block computes no other."""
        for block in self.blocks[:-1]:
            x = block(x, mask)
        return self.norm(cast(Block, self.blocks[-1]).last(x, index, mask))
