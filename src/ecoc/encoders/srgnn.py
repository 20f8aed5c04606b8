"""SR-GNN: session-based recommendation with graph neural networks (Wu et al., 2019); docs/equations.md §4.6."""

import torch
from pydantic import Field
from torch import Tensor, nn

from ecoc.batch import Dims
from ecoc.encoders.additive import additive_attention, attend
from ecoc.encoders.base import at, mlp
from ecoc.encoders.session_graph import GraphConfig, PositionGraphs, SessionGraphEncoder


class SRGNN(SessionGraphEncoder):
    """Additive attention of the last node to the nodes of all positions: W3 [s_g; s_l].

    s_l is the state of the last item, s_g = sum_j (q . sigmoid(W1 s_l + W2 s_j + c)) s_j over positions j.

    Differs from the paper: an edge counts once however often it occurs, as in the authors' code, and the biases of the
    gates take the place of the constant that the paper adds to the messages.
    """

    class Config(GraphConfig):
        """Settings of SR-GNN."""

        head: int = Field(0, ge=0, le=65536, description="hidden width of the head; 0 for the single linear layer W3")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.last_key = nn.Linear(config.dim, config.dim)
        self.key = nn.Linear(config.dim, config.dim, bias=False)
        self.score = nn.Parameter(torch.empty(config.dim).uniform_(-(config.dim**-0.5), config.dim**-0.5))
        self.head = mlp(2 * config.dim, config.head, config.dim)

    def read_positions(self, here: Tensor, left: Tensor, graphs: PositionGraphs) -> Tensor:
        query = self.last_key(here)  # [B, L, d]
        whole = additive_attention(query, self.key(left), self.score, left, graphs.others)
        own = torch.sigmoid(query + self.key(here)) @ self.score  # [B, L]
        whole = whole + (graphs.count * own)[:, :, None] * here
        return self.head(torch.cat([whole, here], -1))

    def read_rows(self, states: Tensor, lengths: Tensor) -> Tensor:
        here = at(states, (lengths - 1).clamp(min=0))  # [N, d]
        real = torch.arange(states.shape[1], device=states.device) < lengths[:, None]  # [N, L]
        query = self.last_key(here)[:, None]
        whole = attend(query, self.key(states), self.score, states, real[:, None].to(states.dtype)).squeeze(1)
        return self.head(torch.cat([whole, here], -1))
