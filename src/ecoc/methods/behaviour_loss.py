"""L_BC in the form that the settings choose: which loss, which negatives. For every method with a tied item table."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ecoc.batch import TrainSequences
from ecoc.encoders import Encoder
from ecoc.losses.behaviour_cloning import all_items_loss, bpr_loss, softmax_loss
from ecoc.losses.sampling import sample_pool
from ecoc.methods.base import MethodConfig

_FULL_UP_TO = 1000  # items; the targets of a step are a pool of about this size, so sampling would save nothing
_BPR_NEGATIVES = 256
_GROUP = 1024  # states that share negatives


class BehaviourLossConfig(MethodConfig):
    """Settings of L_BC."""

    loss: Literal["auto", "full", "sampled", "bpr"] = Field(
        "auto",
        description="form of L_BC: full, softmax over all items; sampled, softmax over a sampled pool with logQ"
        " correction; bpr; auto: full up to 1,000 items, else sampled",
    )
    in_batch: bool = Field(True, description="sampled: the pool contains the targets of the step")
    n2: int | None = Field(
        None,
        ge=0,
        le=10_000_000,
        description="number N2 of negatives drawn uniformly per step and shared by its states; none: 0, for bpr 256",
    )


class BehaviourLoss(nn.Module):
    """L_BC in the chosen form; docs/equations.md §2.1.

    A large step shares negatives within groups of states, so the cost stays linear in the number of targets.
    """

    def __init__(self, config: BehaviourLossConfig, items: int) -> None:
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
        """Whether a step reads and updates only some rows of the item table."""
        return self.form != "full" and not encoder.transforms_items

    def fit_statistics(self, sessions: TrainSequences) -> None:
        """Count how often each item is a target."""
        self.frequency = sessions.frequency(self.items)

    def forward(self, states: Tensor, target: Tensor, items: Tensor, *, sparse: bool) -> Tensor:
        """Mean over states [N, d] with targets [N]; `items` [V, d] are the item vectors.

        `sparse`: the gradient of `items` is row-sparse.
        """
        if self.form == "full":
            return all_items_loss(states, items, target)
        groups = -(-len(target) // _GROUP) if self.in_batch else 1
        losses = [
            self._sampled(group, group_target, items, sparse) * (len(group_target) / len(target))
            for group, group_target in zip(states.tensor_split(groups), target.tensor_split(groups), strict=True)
        ]
        return torch.stack(losses).sum()

    def _sampled(self, states: Tensor, target: Tensor, items: Tensor, sparse: bool) -> Tensor:
        pool = sample_pool(target, self.frequency, self.n2, in_batch=self.in_batch)
        vectors = nn.functional.embedding(pool.items, items, sparse=sparse)
        if self.form == "bpr":
            return bpr_loss(states, vectors, pool.own, pool.drawn)
        return softmax_loss(states, vectors, pool.own, pool.correction)

    def describe(self) -> str:
        """The chosen form in words."""
        sources = ["the step's own targets"] * self.in_batch + [f"{self.n2:,} shared uniform negatives"] * (self.n2 > 0)
        return {
            "full": f"softmax over all {self.items:,} items",
            "sampled": f"softmax over {' and '.join(sources)}, logQ-corrected",
            "bpr": f"BPR with {self.n2:,} shared uniform negatives",
        }[self.form]
