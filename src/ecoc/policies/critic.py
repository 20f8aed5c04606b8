"""Critics: Q_j(s, a) = V(s) + nu_j(s) . h_j(a), j = 1, 2, over unit actions.

The value is bilinear in a state vector and an action vector, so h is applied once to the catalogue or to the pool of a
step, and all values follow by one product. Three kinds of state branch:

    tower     nu = f_q(E[x] + C[feedback]) + A stop(mu): an encoder and an item table of its own, reading mu one way
    shared    nu = mu, as the paper writes it; its gradient into mu can be scaled
    separate  nu_1, nu_2 from two encoders that read the actor's embedded history, detached, as the released code does
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
from ecoc.policies.base import TiedPolicy, item_table

Kind = Literal["tower", "shared", "separate"]


class ActionNet(nn.Module):
    """h_1..h_J on unit actions: [K, d] -> [J, K, d]; two layers with a ReLU between, or one if `hidden` is 0."""

    def __init__(self, heads: int, dim: int, hidden: int) -> None:
        super().__init__()
        widths = [dim, hidden, dim] if hidden else [dim, dim]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for before, after in pairwise(widths):
            bound = before**-0.5
            self.weights.append(torch.empty(heads, before, after).uniform_(-bound, bound))
            self.biases.append(torch.empty(heads, 1, after).uniform_(-bound, bound))

    def forward(self, unit: Tensor, *, frozen: bool = False) -> Tensor:
        """`frozen`: gradients reach the action, not h."""
        weights, biases = ([p.detach() if frozen else p for p in group] for group in (self.weights, self.biases))
        # the first layer of all heads is one product; the second has inputs of its own for each head
        first = unit @ weights[0].transpose(0, 1).flatten(1) + biases[0].flatten()  # [K, J width]
        x = first.unflatten(1, (len(weights[0]), -1)).transpose(0, 1)  # [J, K, width]
        return x if len(weights) == 1 else torch.baddbmm(biases[1], x.relu(), weights[1])


class Critic(nn.Module, ABC):
    """Base of the critics. State vectors are [S, .., d] and action vectors [A, K, d]; S and A are J or 1."""

    branches: ClassVar[int]  # S

    def __init__(self, dim: int, *, heads: int, hidden: int, dueling: bool) -> None:
        super().__init__()
        self.h = ActionNet(heads, dim, hidden)
        width = hidden or dim
        self.worth = nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, 1)) if dueling else None

    @abstractmethod
    def states(self, policy: TiedPolicy, history: History, mu: Tensor) -> Tensor:
        """State vectors after every position, [S, B, L, d]; mu [B, L, d]."""

    @abstractmethod
    def last(self, policy: TiedPolicy, history: History, mu: Tensor) -> Tensor:
        """State vectors after whole histories, [S, B, d]; mu [B, d]."""

    @abstractmethod
    def table(self, policy: TiedPolicy) -> Tensor:
        """The item vectors whose directions are the actions, [V, d]."""

    def actions(self, vectors: Tensor) -> Tensor:
        """Action vectors h_j(e / |e|), [A, K, d]."""
        return self.h(normalize(vectors, dim=-1))

    @property
    def width(self) -> int:
        """Width q of joined vectors: d, or J d if neither side is shared by the critics."""
        heads, dim, _ = self.h.weights[0].shape
        return dim if 1 in (self.branches, heads) else self.branches * dim

    def joined_states(self, states: Tensor) -> Tensor:
        """State vectors whose product with `joined_actions` is the mean of Q over critics: [S, N, d] -> [N, q]."""
        if self.width == states.shape[-1]:
            return states.mean(0)
        return torch.cat([*states], -1) / self.branches

    def joined_actions(self, actions: Tensor) -> Tensor:
        """Action vectors for `joined_states`: [A, K, d] -> [K, q]."""
        return actions.mean(0) if self.width == actions.shape[-1] else torch.cat([*actions], -1)

    def value(self, states: Tensor) -> Tensor:
        """V(s): [S, N, d] -> [N]; 0 for a critic that is not dueling."""
        if self.worth is None:
            return states.new_zeros(states.shape[1:-1])
        return self.worth(states.mean(0)).squeeze(-1)


def q_of(states: Tensor, actions: Tensor) -> Tensor:
    """Advantages nu_j . h_j of one action a state: [S, N, d], [A, N, d] -> [J, N]."""
    return (states * actions).sum(-1)


def q_all(states: Tensor, actions: Tensor) -> Tensor:
    """Advantages of every action in every state: [S, N, d], [A, K, d] -> [J, N, K]."""
    if len(states) == 1:  # one product for all heads
        return (states[0] @ actions.flatten(0, 1).T).view(-1, *actions.shape[:2]).transpose(0, 1)
    return states @ actions.mT


def clipped(states: Tensor, clip: Literal["q", "vector"]) -> Tensor:
    """State vectors for a pessimistic value, the least over critics of what they give.

    `q`: as they are. `vector`: their element-wise minimum, as in the released code; no lower bound of the values.
    """
    return states.amin(0, keepdim=True) if clip == "vector" else states


class TowerCritic(Critic):
    """Two towers with a one-way bridge: the behaviour tower never feels the critic."""

    branches = 1

    def __init__(self, encoder: Encoder, init: float, **shape: Any) -> None:
        super().__init__(encoder.dim, **shape)
        self.encoder = encoder
        self.items = item_table(encoder.dims.items, encoder.dim, init)
        self.bridge = nn.Linear(encoder.dim, encoder.dim, bias=False)

    def states(self, policy: TiedPolicy, history: History, mu: Tensor) -> Tensor:
        own = self.encoder(self.encoder.embed(self.table(policy), history), history)
        return (own + self.bridge(mu.detach()))[None]

    def last(self, policy: TiedPolicy, history: History, mu: Tensor) -> Tensor:
        own = self.encoder.last(self.encoder.embed(self.table(policy), history), history)
        return (own + self.bridge(mu.detach()))[None]

    def table(self, policy: TiedPolicy) -> Tensor:
        return self.encoder.items(self.items)


class SharedCritic(Critic):
    """Q_j = mu . h_j; of its gradient a share reaches mu, and none reaches the item table through actions."""

    branches = 1

    def __init__(self, dim: int, share: float, **shape: Any) -> None:
        super().__init__(dim, **shape)
        self.share = share

    def states(self, policy: TiedPolicy, history: History, mu: Tensor) -> Tensor:
        return self.last(policy, history, mu)

    def last(self, policy: TiedPolicy, history: History, mu: Tensor) -> Tensor:
        return (mu.detach() if self.share == 0 else mu * self.share + mu.detach() * (1 - self.share))[None]

    def table(self, policy: TiedPolicy) -> Tensor:
        return policy.item_vectors().detach()


class SeparateCritic(Critic):
    """Two encoders of the backbone's kind without an item table of their own."""

    branches = 2

    def __init__(self, make_encoder: Callable[[], Encoder], dim: int, **shape: Any) -> None:
        super().__init__(dim, **shape)
        self.encoders = nn.ModuleList(make_encoder() for _ in range(self.branches))

    def _embedded(self, policy: TiedPolicy, history: History) -> Tensor:
        return policy.encoder.embed(policy.item_vectors(), history).detach()

    def states(self, policy: TiedPolicy, history: History, mu: Tensor) -> Tensor:
        embedded = self._embedded(policy, history)
        return torch.stack([encoder(embedded, history) for encoder in self.encoders])

    def last(self, policy: TiedPolicy, history: History, mu: Tensor) -> Tensor:
        embedded = self._embedded(policy, history)
        return torch.stack([encoder.last(embedded, history) for encoder in self.encoders])  # type: ignore[operator]

    def table(self, policy: TiedPolicy) -> Tensor:
        return policy.item_vectors().detach()
