"""Policy: what acts. A history becomes a query, a query scores items; nothing of training is left in it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal, Self, get_args

import torch
from torch import Tensor, nn

from ecoc.batch import PAD, Batch, History
from ecoc.encoders import Encoder, PredictionTask
from ecoc.errors import ArtifactError, InputError
from ecoc.losses.behaviour_cloning import all_items_loss
from ecoc.policies import ranking

RankBy = Literal["policy", "blend", "rerank", "control", "cosine"]
"""What lists are ordered by: the cloned policy, policy and value in one product, the policy's best by value, a head
that was distilled from the blend, or the cloned policy's direction."""

ROUNDING = 1e-6
"""Of the sum of absolute products; two ways to sum 64 of them differ by less."""


def check_rank_by(rank_by: str | None) -> None:
    """Refuse a way of acting that does not exist."""
    if rank_by not in (None, *get_args(RankBy)):
        raise InputError(f"rank_by {rank_by!r:.40}: expected {', '.join(get_args(RankBy))}")


class Policy(nn.Module, ABC):
    """Base of every policy; a `ranking.Scorer`."""

    items: int
    length: int

    @abstractmethod
    def query(self, history: History) -> Tensor:
        """What the scores of each row depend on, [B, q]. No row is empty."""

    @abstractmethod
    def scores(self, query: Tensor, first: int, last: int) -> Tensor:
        """Scores of items first..last-1, [B, last - first]."""

    @abstractmethod
    def scores_of(self, query: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the given items [B, K] and how far rounding may move them, [B, K] both."""

    @abstractmethod
    def vectors(self) -> Tensor | None:
        """Item vectors [V, d] in which near means alike; none if the policy has no such space."""

    @property
    def has_critic(self) -> bool:
        """Whether there is more than one way to act."""
        return False

    @property
    def ranking_mode(self) -> str:
        """How it acts, in a word."""
        return "policy"

    def ranked_by(self, rank_by: RankBy | None = None, *, w: float | None = None, m: int | None = None) -> Self:
        """The same policy acting in another way; none: as it does. Only a policy with a critic has a choice."""
        check_rank_by(rank_by)
        if rank_by not in (None, "policy") or w is not None or m is not None:
            raise InputError("this policy has no critic to act on: it can only be ranked by policy, without w and m")
        return self

    def values(self, query: Tensor, items: Tensor, history: History) -> Tensor | None:
        """Long-term worth of the given items [B, K] as a critic sees it, none without one; `query` is the history's."""
        return None

    def ranks(self, query: Tensor, target: Tensor, exclude: Tensor | None = None) -> Tensor:
        """Rank of each target among all items, as `ranking.rank_of`."""
        return ranking.rank_of(self, query, target, exclude)

    def topk(
        self, query: Tensor, k: int, *, exclude: Tensor | None = None, only: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The best items and their scores, as `ranking.topk`."""
        return ranking.topk(self, query, k, exclude=exclude, only=only)


class InnerProductPolicy(Policy):
    """Scores are inner products of a query with one vector an item: one search answers it."""

    @abstractmethod
    def item_matrix(self) -> Tensor:
        """What a query is multiplied with, [V, q]; PAD's row first."""

    def query_vector(self, query: Tensor) -> Tensor:
        """The vector that is multiplied: the query, unless the policy weighs its parts."""
        return query

    def scores(self, query: Tensor, first: int, last: int) -> Tensor:
        return self.query_vector(query) @ self.item_matrix()[first:last].T

    def scores_of(self, query: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        products = self.query_vector(query)[:, None] * self.item_matrix()[items]  # [B, K, q]
        return products.sum(2), products.abs().sum(2) * ROUNDING


class TiedPolicy(InnerProductPolicy):
    """mu(s) from an encoder, scored by inner product with the same item vectors that the history was read with."""

    def __init__(self, encoder: Encoder, init: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.items, self.length = encoder.dims.items, encoder.length
        self.table = item_table(self.items, encoder.dim, init)
        self._kept: Tensor | None = None

    def train(self, mode: bool = True) -> "TiedPolicy":
        self._kept = None
        return super().train(mode)

    def item_vectors(self) -> Tensor:
        """[V, d]; an encoder that transforms the table does it once a training step, and once for a policy at rest."""
        if self.training or not self.encoder.transforms_items:
            return self.encoder.items(self.table)
        if self._kept is None:
            self._kept = self.encoder.items(self.table).detach()
        return self._kept

    def vectors(self) -> Tensor:
        return self.item_vectors()

    def item_matrix(self) -> Tensor:
        return self.item_vectors()

    def states(self, history: History) -> Tensor:
        """Mu after every position, [B, L, d]."""
        return self.encoder(self.encoder.embed(self.item_vectors(), history), history)

    def states_of(self, task: PredictionTask, history: History) -> Tensor:
        """Mu after every position, from the pass that was made to be taught if that was about these positions."""
        return self.states(history) if task.all_states is None else task.all_states

    @torch.no_grad()
    def eval_states(self, history: History) -> Tensor:
        """Mu after every position as the policy at rest sees it, without dropout."""
        was_training = self.training
        self.train(False)
        try:
            return self.states(history)
        finally:
            self.train(was_training)

    def prediction_task(self, batch: Batch, items: Tensor) -> PredictionTask:
        """States and the items they should point at; `items` are this step's item vectors."""
        return self.encoder.prediction_task(items, batch)

    def query(self, history: History) -> Tensor:
        return self.encoder.last(self.encoder.embed(self.item_vectors(), history), history)


class DensePolicy(TiedPolicy):
    """A dense head with a weight vector and a bias for every item, on top of the encoder: as discrete methods act."""

    def __init__(self, encoder: Encoder, init: float) -> None:
        super().__init__(encoder, init)
        self.head = Head(encoder.dim, self.items)

    def query(self, history: History) -> Tensor:
        return with_one(super().query(history))

    def item_matrix(self) -> Tensor:
        return self.head.weight


class Head(nn.Module):
    """W z + b for every item: [V, m + 1], the bias in the last column; PAD's row stays zero."""

    def __init__(self, width: int, items: int) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(items + 1, width + 1).uniform_(-bound, bound))
        with torch.no_grad():
            self.weight[:, -1] = 0
            self.weight[PAD] = 0

    def forward(self, states: Tensor) -> Tensor:
        """All items' values, without PAD's: [N, m] -> [N, V - 1]."""
        return with_one(states) @ self.weight[PAD + 1 :].T

    def of(self, states: Tensor, items: Tensor) -> Tensor:
        """Values of the given items: [N, m], [N, K] -> [N, K]."""
        return (nn.functional.embedding(items, self.weight) @ with_one(states)[..., None]).squeeze(2)

    def cross_entropy(self, states: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean cross-entropy of targets [N] in states [N, m]; `weight` [N] are constants."""
        return all_items_loss(with_one(states), self.weight, target, weight)


def with_one(states: Tensor) -> Tensor:
    """States with a last coordinate of 1, which meets the bias: [.., m] -> [.., m + 1]."""
    return torch.cat([states, torch.ones_like(states[..., :1])], -1)


def item_table(items: int, dim: int, init: float) -> nn.Parameter:
    """Fresh item embeddings, [V, d]; PAD's row is zero."""
    table = torch.randn(items + 1, dim).mul_(init)
    table[PAD] = 0
    return nn.Parameter(table)


def load_weights(policy: Policy, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Put saved tensors into a freshly built policy. Buffers may have any size, because data decide it."""
    expected = policy.state_dict()
    if set(expected) != set(tensors):
        odd = min(set(expected) ^ set(tensors))
        raise ArtifactError(f"{where}: tensor '{odd}' is {'missing' if odd in expected else 'foreign'}; train again")
    parameters = dict(policy.named_parameters())
    for name, tensor in tensors.items():
        like = expected[name]
        if tensor.dtype != like.dtype or (name in parameters and tensor.shape != like.shape):
            found = f"{tensor.dtype} {list(tensor.shape)}"
            raise ArtifactError(f"{where}: tensor '{name}' is {found}, expected {like.dtype} {list(like.shape)}")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ArtifactError(f"{where}: tensor '{name}' holds a number that is not finite; train again")
        if name in parameters:
            parameters[name].data.copy_(tensor)
        else:
            owner, _, last = name.rpartition(".")
            setattr(policy.get_submodule(owner), last, tensor)
