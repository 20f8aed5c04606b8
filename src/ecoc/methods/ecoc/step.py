"""StepTensors: everything that the losses of an ECoC step read."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ecoc.batch import History
from ecoc.losses.returns import Transitions
from ecoc.methods.ecoc.candidates import Candidates
from ecoc.policies.critic import q_all


@dataclass(frozen=True)
class StepTensors:
    """N transitions, K candidate actions, and n of the states in which the candidates are explored.

    d is the width of state and item vectors; J critics have S state branches and A action networks (each J or 1).
    """

    history: History
    transitions: Transitions
    candidates: Candidates
    items: Tensor  # [V, d] the actor's item vectors
    all_mu: Tensor  # [B, L, d] the actor's state after every position
    nu: Tensor  # [S, N, d] critic's state vectors
    advantage: Tensor  # [J, N] nu . h of the logged items
    actions: Tensor  # [A, K, d] h of the candidates
    explored_rows: Tensor | None  # [n] which transitions' states are explored; none: all of them
    mu: Tensor  # [n, d]
    explored_nu: Tensor  # [S, n, d]
    explored_advantage: Tensor  # [J, n] nu . h of the logged items
    exploration_weights: Tensor | None  # [n, K] log weights of the explored actions; none: all count the same

    def rows_read(self) -> Tensor | None:
        """Items whose table rows the step reads; none: all."""
        if self.candidates.items is None:
            return None
        return torch.cat([self.history.items.flatten(), self.transitions.item, self.candidates.items])

    def explored(self, values: Tensor, dim: int = 0) -> Tensor:
        """The entries of the explored states, of values with one entry per transition along `dim`."""
        return values if self.explored_rows is None else values.index_select(dim, self.explored_rows)

    def logged_items(self) -> Tensor:
        """The logged items of the explored states, [n]."""
        return self.explored(self.transitions.item)

    def candidate_advantages(self) -> Tensor:
        """Values nu . h of all candidates in the explored states, mean over critics, [n, K]."""
        return q_all(self.explored_nu, self.actions).mean(0)

    def exploration_shares(self) -> Tensor:
        """The exploration weights as shares that sum to 1, [n, K]."""
        if self.exploration_weights is None:
            count = self.actions.shape[1]
            return self.mu.new_full((len(self.mu), count), 1 / count)
        return self.exploration_weights.softmax(1)


def per_branch(rows: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
    """The same rows of each state branch: [S, B, L, d] -> [S, N, d]."""
    return rows(states[0])[None] if len(states) == 1 else torch.stack([rows(branch) for branch in states])
