"""Supervised: the backbone alone, trained to predict the next item by L_BC; methods.md section 3.6."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from ecoc.batch import Batch, Sessions
from ecoc.imitation import all_items_loss, bpr_loss, sample_pool, softmax_loss
from ecoc.methods.base import Loss, Method, MethodConfig, Parts
from ecoc.policy import TiedPolicy

_FULL_UP_TO = 1000  # items; a step's own targets are a pool of about this size, so sampling would save nothing
_BPR_NEGATIVES = 256
_GROUP = 1024  # most states that are each other's negatives


class Supervised(Method):
    """Rank the logged item first: L = L_BC."""

    policy: TiedPolicy

    class Config(MethodConfig):
        """Settings of supervised training."""

        loss: Literal["auto", "full", "sampled", "bpr"] = Field(
            "auto",
            description="full softmax, softmax over a sampled pool with logQ correction, or BPR; auto: full for small"
            " catalogues, else sampled",
        )
        in_batch: bool = Field(True, description="sampled: the targets of the step are each other's negatives")
        n2: int | None = Field(
            None, ge=0, le=10_000_000, description="negatives N2 drawn uniformly and shared by a step; none: 0, BPR 256"
        )

    def __init__(self, config: Config, parts: Parts) -> None:
        super().__init__(config, parts)
        self.policy = TiedPolicy(parts.make_encoder(), parts.encoder.init)
        self.form = config.loss
        if self.form == "auto":
            self.form = "full" if parts.dims.items <= _FULL_UP_TO else "sampled"
        self.in_batch = config.in_batch and self.form == "sampled"
        self.n2 = (_BPR_NEGATIVES if self.form == "bpr" else 0) if config.n2 is None else config.n2
        if self.form != "full" and not self.in_batch and self.n2 == 0:
            self.n2 = _BPR_NEGATIVES
        self.frequency: Tensor
        self.register_buffer("frequency", torch.zeros(parts.dims.items + 1), persistent=False)

    @property
    def touches_few_rows(self) -> bool:
        return self.form != "full" and not self.policy.encoder.transforms_items

    def learn(self, sessions: Sessions) -> None:
        counts = torch.bincount(torch.from_numpy(sessions.items), minlength=len(self.frequency)).float()
        self.frequency = counts.clamp(min=1) / counts.sum()
        self.policy.encoder.learn(sessions)

    def loss(self, batch: Batch) -> Loss:
        with self.clock("encode"):
            items = self.policy.item_vectors()
            asked = self.policy.imitate(batch, items)
        with self.clock("loss"):
            imitation = self._imitation(asked.states, asked.target, items)
            total = sum(asked.extra.values(), imitation)
        return Loss(total, {"bc": imitation, **asked.extra})

    def _imitation(self, states: Tensor, target: Tensor, items: Tensor) -> Tensor:
        """L_BC in the form chosen. A large step shares negatives within groups, so cost stays linear in targets."""
        if self.form == "full":
            return all_items_loss(states, items, target)
        groups = -(-len(target) // _GROUP) if self.in_batch else 1
        losses = [
            self._sampled(part, mine, items) * (len(mine) / len(target))
            for part, mine in zip(states.tensor_split(groups), target.tensor_split(groups), strict=True)
        ]
        return torch.stack(losses).sum()

    def _sampled(self, states: Tensor, target: Tensor, items: Tensor) -> Tensor:
        pool = sample_pool(target, self.frequency, self.n2, in_batch=self.in_batch)
        vectors = torch.nn.functional.embedding(pool.items, items, sparse=self.policy.encoder.sparse)
        if self.form == "bpr":
            return bpr_loss(states, vectors, pool.own, pool.drawn)
        return softmax_loss(states, vectors, pool.own, pool.correction)

    def choices(self) -> dict[str, str]:
        names = {
            "full": f"softmax over all {self.policy.items:,} items",
            "sampled": "softmax over "
            + " and ".join(
                ["the step's own targets"] * self.in_batch + [f"{self.n2:,} shared uniform negatives"] * (self.n2 > 0)
            )
            + ", logQ-corrected",
            "bpr": f"BPR with {self.n2:,} shared uniform negatives",
        }
        return {"loss": names[self.form]}
