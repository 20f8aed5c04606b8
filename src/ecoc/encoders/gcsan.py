"""GC-SAN: graph contextualized self-attention for sessions (Xu et al., 2019); docs/equations.md §4.7."""

from typing import cast

import torch
from pydantic import Field
from torch import Tensor, nn

from ecoc.batch import Dims
from ecoc.encoders.base import at
from ecoc.encoders.session_graph import GraphConfig, PositionGraphs, SessionGraphEncoder
from ecoc.encoders.transformer import AttentionConfig, Block


class NodeBlock(Block):
    """A self-attention block that can read the nodes of all prefixes in the positions form."""

    def positions(self, here: Tensor, left: Tensor, graphs: PositionGraphs) -> Tensor:
        """The last position of every prefix, [B, L, d].

        A softmax over positions equals a softmax over distinct nodes with the logarithm of their counts as bias. The
        last node is in state `here`, all other nodes are in states `left`.
        """
        normed = self.before_attention(torch.cat([here, left], 1))  # [B, 2L, d]
        log_count = graphs.count.log()
        others = log_count[:, None].masked_fill(graphs.others == 0, -torch.inf)  # [B, L, L]
        own = log_count[:, None].masked_fill(
            ~torch.eye(here.shape[1], dtype=torch.bool, device=here.device), -torch.inf
        )
        asking, _ = normed.chunk(2, 1)
        attended = self._attend(self.query(asking), normed, torch.cat([own, others], 2)[:, None])
        return self._feed_forward(here + self.dropout(attended))


class GCSAN(SessionGraphEncoder):
    """Self-attention among the node states of a prefix's positions: omega E_last + (1 - omega) h_last.

    h are the states after propagation, E the output of the blocks for them. There are no positional embeddings.

    Differs from the paper: pre-norm blocks, by default one with two heads; the session graph is that of `SRGNN`.
    """

    class Config(AttentionConfig, GraphConfig):
        """Settings of GC-SAN."""

        omega: float = Field(
            0.6, ge=0, le=1, description="weight of self-attention in the state; the graph has the rest"
        )

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.omega = config.omega
        self.in_positions = self.in_positions and config.blocks == 1
        self.blocks = nn.ModuleList(
            NodeBlock(config.dim, config.heads, config.inner, config.dropout, "relu") for _ in range(config.blocks)
        )

    def read_positions(self, here: Tensor, left: Tensor, graphs: PositionGraphs) -> Tensor:
        attended = cast(NodeBlock, self.blocks[0]).positions(here, left, graphs)
        return torch.lerp(here, attended, self.omega)

    def read_rows(self, states: Tensor, lengths: Tensor) -> Tensor:
        index = (lengths - 1).clamp(min=0)
        here = at(states, index)
        mask = (torch.arange(states.shape[1], device=states.device) <= index[:, None])[:, None, None]  # [N, 1, 1, L]
        for block in self.blocks[:-1]:
            states = block(states, mask)
        attended = cast(NodeBlock, self.blocks[-1]).last(states, index, mask)
        return torch.lerp(here, attended, self.omega)
