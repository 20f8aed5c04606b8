"""Session graphs: the items of a history, joined by its transitions, and gated propagation over them.

The nodes of a graph are the distinct items of a prefix of the history. An edge joins two items that followed each
other; it counts once. A node receives the mean over its in-edges and the mean over its out-edges. The graph grows with
the prefix, so a node has different states in different prefixes. Two forms give the same result:

rows        one graph per row. Slots are positions; a node uses the slot of its first position. Any number of steps.
positions   all prefixes at once, for one propagation step. From prefix t-1 to t only the edge i_{t-1} -> i_t may be new
            and only its two ends change, so a sequence has 2L states: `here[t]` of i_t in prefix t, and `left[o]` of
            i_o in prefix o+1. In prefix t the node of position j is in state `here[t]` if i_j = i_t, else `left[o]`,
            where o is the last position of i_j.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ecoc.batch import PAD, Dims, History
from ecoc.encoders.base import Encoder, EncoderConfig, prefixes

_BLOCK = 16  # prefixes of a sequence that are processed together


@dataclass(frozen=True)
class PositionGraphs:
    """The graphs of all prefixes, in the positions form. Constants: no gradient flows to them."""

    into: Tensor  # [B, 2L, L]; shares of the sources in the in-means of here[0..L-1], then of left[0..L-1]
    out: Tensor  # [B, 2L, L]; shares of the targets in the out-means, likewise
    count: Tensor  # [B, L]; how often item t occurs up to t
    others: Tensor  # [B, L, L]; [t, o] is count[o] where o < t is the last position of an item other than i_t, else 0


def position_graphs(nodes: Tensor, dtype: torch.dtype) -> PositionGraphs:
    """Node ids [B, L], padded on the right -> the graphs of all prefixes; values at padding are finite and unused."""
    length = nodes.shape[1]
    steps = torch.arange(length, device=nodes.device)
    past, present = steps < steps[:, None], steps <= steps[:, None]  # [L, L]
    same = nodes[:, :, None] == nodes[:, None, :]  # [B, L, L]
    repeated = same[:, 1:, 1:] & same[:, :-1, :-1] & past[1:, 1:]  # [e, f]: the edge e -> e+1 was there as f -> f+1
    new = ~repeated.any(2)[:, None]  # [B, 1, L-1]
    known = torch.stack([past, present])[:, :, :-1]  # [2, L, L-1]; edges in the graph of here[t], of left[t]
    arriving = ((same[:, :, 1:] & new)[:, None] & known).flatten(1, 2)  # [B, 2L, L-1]
    leaving = ((same[:, :, :-1] & new)[:, None] & known).flatten(1, 2)
    count = (same & present).sum(2)  # [B, L]
    following = torch.where(same & past.T, steps, length).amin(2)  # [B, L]; next position of the item
    others = count[:, None, :] * (past & (steps[:, None] < following[:, None, :]))
    return PositionGraphs(
        into=nn.functional.pad(_shares(arriving.to(dtype)), (0, 1)),
        out=nn.functional.pad(_shares(leaving.to(dtype)), (1, 0)),
        count=count.to(dtype),
        others=others.to(dtype),
    )


def first_positions(nodes: Tensor) -> Tensor:
    """Where each node of a row occurs first: [N, L] -> [N, L]."""
    steps = torch.arange(nodes.shape[1], device=nodes.device)
    return torch.where(nodes[:, :, None] == nodes[:, None, :], steps, nodes.shape[1]).amin(2)


def row_graphs(nodes: Tensor, first: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Node ids and their first positions [N, L] -> shares in the in-means and the out-means of the slots, [N, L, L]."""
    length = nodes.shape[1]
    edges = first[:, :-1] * length + first[:, 1:]  # edges to padding have cells of their own, which stay 0
    joined = torch.zeros(nodes.shape[0], length * length, dtype=dtype, device=nodes.device)
    joined = joined.scatter(1, edges, (nodes[:, 1:] != PAD).to(dtype)).view(-1, length, length)  # [source, target]
    return _shares(joined.transpose(1, 2)), _shares(joined)


def _shares(edges: Tensor) -> Tensor:
    """Zeros and ones -> rows that sum to 1, or to 0 where there is no edge."""
    return edges / edges.sum(-1, keepdim=True).clamp(min=1)


class GatedPropagation(nn.Module):
    """One step: a = [in-mean of (W_in h + b); out-mean of (W_out h + b)], then a GRU cell with input a and state h.

    The biases of the gates take the place of the constant that the paper adds to a.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.messages = nn.Linear(width, 2 * width)
        self.heard = nn.Linear(2 * width, 3 * width)
        self.own = nn.Linear(width, 3 * width)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5)

    def forward(self, hidden: Tensor, into: Tensor, out: Tensor) -> Tensor:
        """States [N, L, d] and shares [N, L or 2L, L] -> new states [N, L or 2L, d]; 2L: two states per position."""
        count, length, width = hidden.shape
        sources, targets = self.messages(hidden).chunk(2, -1)
        heard = self.heard(torch.cat([into @ sources, out @ targets], -1)).view(count, -1, length, 3 * width)
        heard_gates, heard_candidate = heard.split([2 * width, width], -1)  # [N, 1 or 2, L, ...]
        own_gates, own_candidate = self.own(hidden)[:, None].split([2 * width, width], -1)  # [N, 1, L, ...]
        reset, update = torch.sigmoid(heard_gates + own_gates).chunk(2, -1)
        candidate = torch.tanh(heard_candidate + reset * own_candidate)
        return torch.lerp(candidate, hidden[:, None], update).flatten(1, 2)


class GraphConfig(EncoderConfig):
    """Settings of an encoder that reads session graphs."""

    steps: int = Field(1, gt=0, le=16, description="propagation steps over the session graph")


class SessionGraphEncoder(Encoder):
    """Base of the encoders that propagate over the session graph of each prefix, then read its states.

    A node is a distinct item, or a distinct pair of item and feedback if feedback is read.
    """

    def __init__(self, config: GraphConfig, dims: Dims) -> None:
        super().__init__(config, dims)
        self.steps = config.steps
        self.in_positions = config.steps == 1  # whether the positions form is exact
        self.propagation = GatedPropagation(config.dim)

    @abstractmethod
    def read_positions(self, here: Tensor, left: Tensor, graphs: PositionGraphs) -> Tensor:
        """States of the nodes in the positions form, [B, L, d] each -> state after every position [B, L, d]."""

    @abstractmethod
    def read_rows(self, states: Tensor, lengths: Tensor) -> Tensor:
        """State of the node at each position [N, L, d], number of positions [N] -> state after the last [N, d]."""

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        nodes = self._nodes(history)
        if not self.in_positions:
            return self._over_prefixes(embedded, nodes)
        graphs = position_graphs(nodes, embedded.dtype)
        here, left = self.propagation(embedded, graphs.into, graphs.out).chunk(2, 1)
        return self.read_positions(here, left, graphs)

    def last(self, embedded: Tensor, history: History) -> Tensor:
        return self._rows(embedded, self._nodes(history))

    def embed(self, items: Tensor, history: History) -> Tensor:
        """Embedded history; dropout is drawn once per node, so that a node starts with the same vector everywhere."""
        vectors = self.look_up(items, history)
        if not self.training:
            return vectors
        return _pick(self.dropout(vectors), first_positions(self._nodes(history)))

    def _nodes(self, history: History) -> Tensor:
        if self.feedback is None or history.feedback is None:
            return history.items
        return history.items * (self.dims.feedback + 1) + history.feedback

    def _rows(self, embedded: Tensor, nodes: Tensor) -> Tensor:
        """One graph per row: [N, L, d], [N, L] -> [N, d]."""
        first = first_positions(nodes)
        into, out = row_graphs(nodes, first, embedded.dtype)
        for _ in range(self.steps):
            embedded = self.propagation(embedded, into, out)
        return self.read_rows(_pick(embedded, first), (nodes != PAD).sum(1))

    def _over_prefixes(self, embedded: Tensor, nodes: Tensor) -> Tensor:
        """Every prefix as a row, those of similar length together; recomputed in the backward pass to save memory."""
        length = nodes.shape[1]

        def states(start: int, stop: int) -> Tensor:
            rows = prefixes(History(nodes[:, :stop])).items.view(-1, stop, stop)[:, start:]  # [B, rows, stop]
            vectors = embedded[:, None, :stop].expand(-1, stop - start, -1, -1)
            return self._rows(vectors.flatten(0, 1), rows.flatten(0, 1)).view(nodes.shape[0], stop - start, -1)

        if length <= _BLOCK or not torch.is_grad_enabled():
            parts = [states(start, min(start + _BLOCK, length)) for start in range(0, length, _BLOCK)]
        else:
            parts = [
                checkpoint(states, start, min(start + _BLOCK, length), use_reentrant=False)
                for start in range(0, length, _BLOCK)
            ]
        return torch.cat(parts, 1)


def _pick(vectors: Tensor, index: Tensor) -> Tensor:
    """Vector `index[n, j]` of row n for each j: [N, L, d], [N, L] -> [N, L, d]."""
    return vectors.gather(1, index[:, :, None].expand(-1, -1, vectors.shape[-1]))
