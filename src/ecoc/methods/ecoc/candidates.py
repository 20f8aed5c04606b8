"""Candidates: the items that a step of ECoC considers as actions."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding

from ecoc.batch import PAD
from ecoc.policies.critic import Critic


@dataclass(frozen=True)
class Candidates:
    """The K candidate actions of a step, shared by its states."""

    items: Tensor | None  # [K]; none: the whole catalogue without PAD
    correction: Tensor | None  # [K]; logQ correction of a pool whose items were not equally likely to be drawn

    def logits(self, mu: Tensor, items: Tensor, *, sparse: bool = False) -> Tensor:
        """The policy's corrected logits of the candidates: states [N, d], item vectors [V, d] -> [N, K]."""
        vectors = items[PAD + 1 :] if self.items is None else embedding(self.items, items, sparse=sparse)
        logits = mu @ vectors.T
        return logits if self.correction is None else logits + self.correction

    def action_vectors(
        self, critic: Critic, table: Tensor, logged: Tensor, *, sparse: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Vectors h of the candidates [A, K, d] and of the logged items [A, N, d], by one pass of h."""
        if self.items is None:
            vectors = critic.h(table[PAD + 1 :])
            return vectors, vectors.index_select(1, logged - (PAD + 1))
        distinct, column = torch.unique(torch.cat([self.items, logged]), return_inverse=True)
        vectors = critic.h(embedding(distinct, table, sparse=sparse))
        candidate_column, logged_column = column.split([len(self.items), len(logged)])
        return vectors.index_select(1, candidate_column), vectors.index_select(1, logged_column)
