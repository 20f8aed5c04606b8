"""What the losses of an ECoC step look at: transitions, candidate actions, and the vectors of both."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding

from ecoc.batch import PAD
from ecoc.losses.returns import Transitions
from ecoc.policies.critic import Critic, q_all


@dataclass(frozen=True)
class Columns:
    """The candidate actions of a step."""

    items: Tensor | None  # [K]; none: the whole catalogue, PAD left out
    correction: Tensor | None  # [K]; added to logits, for a pool that was not drawn evenly

    def rows(self, table: Tensor, *, sparse: bool = False) -> Tensor:
        """Their rows of a table, [K, d]."""
        return table[PAD + 1 :] if self.items is None else embedding(self.items, table, sparse=sparse)

    def actions(self, critic: Critic, table: Tensor, logged: Tensor, *, sparse: bool = False) -> tuple[Tensor, Tensor]:
        """Action vectors of the columns [A, K, d] and of the logged items [A, N, d], by one pass of h."""
        if self.items is None:
            found = critic.actions(table[PAD + 1 :])
            return found, found.index_select(1, logged - (PAD + 1))
        items, place = torch.unique(torch.cat([self.items, logged]), return_inverse=True)  # a pool holds logged items
        found = critic.actions(embedding(items, table, sparse=sparse))
        columns, own = place.split([len(self.items), len(logged)])
        return found.index_select(1, columns), found.index_select(1, own)

    def corrected(self, logits: Tensor) -> Tensor:
        """Logits as if every item had been as likely to be a column."""
        return logits if self.correction is None else logits + self.correction


@dataclass(frozen=True)
class Scene:
    """What the losses of a step look at: N transitions, and n of their states in which K columns are explored."""

    moves: Transitions
    columns: Columns
    items: Tensor  # [V, d] the actor's item vectors
    nu: Tensor  # [S, N, d]
    advantage: Tensor  # [J, N] of the logged items
    some: Tensor | None  # [n] the states explored; none: all
    mu: Tensor  # [n, d]
    actions: Tensor  # [A, K, d]
    near: Tensor | None  # [n, K] log weights of the explored actions; none: all alike

    @property
    def explorers(self) -> tuple[Tensor, Tensor]:
        """State vectors [S, n, d] and advantages of the logged items [J, n], where columns are explored."""
        if self.some is None:
            return self.nu, self.advantage
        return self.nu.index_select(1, self.some), self.advantage.index_select(1, self.some)

    def touched(self, history: Tensor) -> Tensor | None:
        """Items whose rows the step reads; none: all."""
        if self.columns.items is None:
            return None
        return torch.cat([history.flatten(), self.moves.item, self.columns.items])

    def logged(self) -> Tensor:
        """The logged items of the states explored, [n]."""
        return self.moves.item if self.some is None else self.moves.item[self.some]

    def explored(self) -> Tensor:
        """Advantages of all columns, mean over critics, [n, K]."""
        return q_all(self.explorers[0], self.actions).mean(0)

    def share(self) -> Tensor:
        """How much each column is explored, [n, K]; rows sum to 1."""
        if self.near is None:
            count = self.actions.shape[1]
            return self.mu.new_full((len(self.mu), count), 1 / count)
        return self.near.softmax(1)


def of_branches(rows: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
    """The same rows of each branch of a critic: [S, B, L, d] -> [S, N, d]."""
    return rows(states[0])[None] if len(states) == 1 else torch.stack([rows(branch) for branch in states])
