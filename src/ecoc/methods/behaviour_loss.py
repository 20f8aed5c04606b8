"""L_BC as a method is told to take it: which form, which negatives. One for every method with a tied item table."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ecoc.batch import TrainSequences
from ecoc.encoders import Encoder
from ecoc.losses.behaviour_cloning import all_items_loss, bpr_loss, softmax_loss
from ecoc.losses.sampling import sample_pool
from ecoc.methods.base import MethodConfig
from ecoc.policies.base import Head, with_one

_FULL_UP_TO = 1000  # items; a step's own targets are a pool of about this size, so sampling would save nothing
_BPR_NEGATIVES = 256
_GROUP = 1024  # most states that are each other's negatives


class ImitationConfig(MethodConfig):
    """Settings of L_BC."""

    loss: Literal["auto", "full", "sampled", "bpr"] = Field(
        "auto",
        description="L_BC: full softmax, softmax over a sampled pool with logQ correction, or BPR; auto: full for small"
        " catalogues, else sampled",
    )
    in_batch: bool = Field(True, description="sampled: the targets of the step are each other's negatives")
    n2: int | None = Field(
        None, ge=0, le=10_000_000, description="negatives N2 drawn uniformly and shared by a step; none: 0, BPR 256"
    )


class BehaviourLoss(nn.Module):
    """L_BC in the form chosen. A large step shares negatives within groups, so cost stays linear in targets."""

    def __init__(self, config: ImitationConfig, items: int) -> None:
        super().__init__()
        self.items = items
        self.form = config.loss
        if self.form == "auto":
            self.form = "full" if items <= _FULL_UP_TO else "sampled"
        self.in_batch = config.in_batch and self.form == "sampled"
        self.n2 = (_BPR_NEGATIVES if self.form == "bpr" else 0) if config.n2 is None else config.n2
        if self.form != "full" and not self.in_batch and self.n2 == 0:
            self.n2 = _BPR_NEGATIVES
        self.frequency: Tensor
        self.register_buffer("frequency", torch.zeros(items + 1), persistent=False)

    def touches_sparse_rows(self, encoder: Encoder) -> bool:
        """Whether a step reads and moves only some rows of the item table."""
        return self.form != "full" and not encoder.transforms_items

    def fit_statistics(self, sessions: TrainSequences) -> None:
        """Count how often each item is a target."""
        self.frequency = sessions.frequency(self.items)

    def forward(
        self, states: Tensor, target: Tensor, items: Tensor, *, sparse: bool, weight: Tensor | None = None
    ) -> Tensor:
        """Mean over states [N, d] with targets [N]; `items` [V, d] are the item vectors, `weight` [N] a constant."""
        if self.form == "full":
            return all_items_loss(states, items, target, weight)
        groups = -(-len(target) // _GROUP) if self.in_batch else 1
        weights = [None] * groups if weight is None else weight.tensor_split(groups)
        losses = [
            self._sampled(part, mine, items, sparse, factor) * (len(mine) / len(target))
            for part, mine, factor in zip(
                states.tensor_split(groups), target.tensor_split(groups), weights, strict=True
            )
        ]
        return torch.stack(losses).sum()

    def _sampled(self, states: Tensor, target: Tensor, items: Tensor, sparse: bool, weight: Tensor | None) -> Tensor:
        pool = sample_pool(target, self.frequency, self.n2, in_batch=self.in_batch)
        vectors = nn.functional.embedding(pool.items, items, sparse=sparse)
        if self.form == "bpr":
            return bpr_loss(states, vectors, pool.own, pool.drawn, weight)
        return softmax_loss(states, vectors, pool.own, pool.correction, weight)

    def choice(self) -> str:
        """The form in words."""
        sources = ["the step's own targets"] * self.in_batch + [f"{self.n2:,} shared uniform negatives"] * (self.n2 > 0)
        return {
            "full": f"softmax over all {self.items:,} items",
            "sampled": f"softmax over {' and '.join(sources)}, logQ-corrected",
            "bpr": f"BPR with {self.n2:,} shared uniform negatives",
        }[self.form]


def dense_loss(head: Head, states: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """L_BC of a dense head: the mean cross-entropy of targets [N] in states [N, m]."""
    return all_items_loss(with_one(states), head.weight, target, weight)
