"""Critics: Q_j(s, a) = V(s) + nu_j(s) . h_j(a), j = 1, 2, for unit actions a; docs/equations.md §2.2.

Q is bilinear in the state vector nu and the action vector h. So h is applied once per step to the candidate items, and
all values follow by one matrix product. There are three kinds of state branch:

    tower     nu = f_q(E[x] + C[feedback]) + A stop(mu): an encoder and an item table of its own; it reads mu detached
    shared    nu = mu, as in the paper; the gradient into mu can be scaled
    separate  nu_1, nu_2 from two encoders that read the actor's embedded history, detached, as in the released code
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ecoc.batch import History
from ecoc.encoders import Encoder
from ecoc.policies.base import item_table

Kind = Literal["tower", "shared", "separate"]


class ActionNet(nn.Module):
    """h_1..h_J of the unit vectors e / |e|: [K, d] -> [J, K, d]; two layers with a ReLU between, or one layer."""

    def __init__(self, heads: int, dim: int, hidden: int) -> None:
        super().__init__()
        widths = [dim, hidden, dim] if hidden else [dim, dim]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for before, after in pairwise(widths):
            bound = before**-0.5
            self.weights.append(torch.empty(heads, before, after).uniform_(-bound, bound))
            self.biases.append(torch.empty(heads, 1, after).uniform_(-bound, bound))

    def forward(self, vectors: Tensor, *, frozen: bool = False) -> Tensor:
        """`frozen`: gradients reach the vectors but not the weights of h."""
        unit = normalize(vectors, dim=-1)
        weights, biases = ([p.detach() if frozen else p for p in group] for group in (self.weights, self.biases))
        # the first layers of all heads are one product; the second layers have different inputs
        first = unit @ weights[0].transpose(0, 1).flatten(1) + biases[0].flatten()  # [K, J width]
        x = first.unflatten(1, (len(weights[0]), -1)).transpose(0, 1)  # [J, K, width]
        return x if len(weights) == 1 else torch.baddbmm(biases[1], x.relu(), weights[1])


class Critic(nn.Module, ABC):
    """Base of the critics. State vectors are [S, .., d] and action vectors [A, K, d]; S and A are J or 1."""

    branches: ClassVar[int]  # S
    reads_embedded: ClassVar[bool] = False
    """Whether the state branch reads the history as the actor embeds it."""

    def __init__(self, dim: int, *, heads: int, hidden: int, dueling: bool) -> None:
        super().__init__()
        self.h = ActionNet(heads, dim, hidden)
        self.width = dim if 1 in (self.branches, heads) else self.branches * dim  # q, of joined vectors
        width = hidden or dim
        # the network V; its name is part of saved models
        self.worth = nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, 1)) if dueling else None

    @abstractmethod
    def states(self, history: History, mu: Tensor, embedded: Tensor | None) -> Tensor:
        """State vectors after every position, [S, B, L, d]; mu and, if it is read, the embedded history [B, L, d]."""

    @abstractmethod
    def last(self, history: History, mu: Tensor, embedded: Tensor | None) -> Tensor:
        """State vectors after whole histories, [S, B, d]; mu [B, d], embedded history [B, L, d]."""

    @abstractmethod
    def table(self, items: Tensor) -> Tensor:
        """The item vectors whose directions are the actions, [V, d]; `items` [V, d] are the actor's."""

    def joined_states(self, states: Tensor) -> Tensor:
        """State vectors whose product with `joined_actions` is the mean advantage over critics: [S, N, d] -> [N, q].

        q is d, or J d if the critics share neither the state branch nor the action network.
        """
        if self.width == states.shape[-1]:
            return states.mean(0)
        return torch.cat([*states], -1) / self.branches

    def joined_actions(self, actions: Tensor) -> Tensor:
        """Action vectors for `joined_states`: [A, .., d] -> [.., q]."""
        return actions.mean(0) if self.width == actions.shape[-1] else torch.cat([*actions], -1)

    def value(self, states: Tensor) -> Tensor:
        """V(s): [S, .., d] -> [..]; 0 for a critic that is not dueling."""
        if self.worth is None:
            return states.new_zeros(states.shape[1:-1])
        return self.worth(states.mean(0)).squeeze(-1)


def q_of(states: Tensor, actions: Tensor) -> Tensor:
    """Advantages nu_j . h_j of one action per state: [S, N, d], [A, N, d] -> [J, N]."""
    return (states * actions).sum(-1)


def q_all(states: Tensor, actions: Tensor) -> Tensor:
    """Advantages of every action in every state: [S, N, d], [A, K, d] -> [J, N, K]."""
    if len(states) == 1:  # one product for all heads
        return (states[0] @ actions.flatten(0, 1).T).view(-1, *actions.shape[:2]).transpose(0, 1)
    return states @ actions.mT


def clipped(states: Tensor, clip: Literal["q", "vector"]) -> Tensor:
    """State vectors whose least Q over critics is the pessimistic value.

    `q`: unchanged. `vector`: their element-wise minimum, as in the released code; this is no lower bound of Q.
    """
    return states.amin(0, keepdim=True) if clip == "vector" else states


class TowerCritic(Critic):
    """An encoder and an item table of its own. It reads mu without gradient, so the actor never feels the critic."""

    branches = 1

    def __init__(self, encoder: Encoder, init: float, **shape: Any) -> None:
        super().__init__(encoder.dim, **shape)
        self.encoder = encoder
        self.items = item_table(encoder.dims.items, encoder.dim, init)
        self.bridge = nn.Linear(encoder.dim, encoder.dim, bias=False)

    def states(self, history: History, mu: Tensor, embedded: Tensor | None) -> Tensor:
        own = self.encoder(self.encoder.embed(self.encoder.items(self.items), history), history)
        return (own + self.bridge(mu.detach()))[None]

    def last(self, history: History, mu: Tensor, embedded: Tensor | None) -> Tensor:
        own = self.encoder.last(self.encoder.embed(self.encoder.items(self.items), history), history)
        return (own + self.bridge(mu.detach()))[None]

    def table(self, items: Tensor) -> Tensor:
        return self.encoder.items(self.items)


class SharedCritic(Critic):
    """Q_j = mu . h_j. A share of its gradient reaches mu; none reaches the item table through actions."""

    branches = 1

    def __init__(self, dim: int, share: float, **shape: Any) -> None:
        super().__init__(dim, **shape)
        self.share = share

    def states(self, history: History, mu: Tensor, embedded: Tensor | None) -> Tensor:
        return self.last(history, mu, embedded)

    def last(self, history: History, mu: Tensor, embedded: Tensor | None) -> Tensor:
        return (mu.detach() if self.share == 0 else mu * self.share + mu.detach() * (1 - self.share))[None]

    def table(self, items: Tensor) -> Tensor:
        return items.detach()


class SeparateCritic(Critic):
    """Two encoders of the actor's kind that read the actor's embedded history without gradient."""

    branches = 2
    reads_embedded = True

    def __init__(self, make_encoder: Callable[[], Encoder], dim: int, **shape: Any) -> None:
        super().__init__(dim, **shape)
        self.encoders = nn.ModuleList(make_encoder() for _ in range(self.branches))

    def states(self, history: History, mu: Tensor, embedded: Tensor | None) -> Tensor:
        return torch.stack([encoder(_given(embedded), history) for encoder in self.encoders])

    def last(self, history: History, mu: Tensor, embedded: Tensor | None) -> Tensor:
        states = [encoder.last(_given(embedded), history) for encoder in self.encoders]  # type: ignore[operator]
        return torch.stack(states)

    def table(self, items: Tensor) -> Tensor:
        return items.detach()


def _given(embedded: Tensor | None) -> Tensor:
    if embedded is None:
        raise TypeError("this critic reads the embedded history")
    return embedded.detach()
