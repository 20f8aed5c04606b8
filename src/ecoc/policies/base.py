"""Policy: what recommends. A history becomes a query, and a query scores items. It knows nothing of training."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ecoc.batch import PAD, History
from ecoc.encoders import Encoder, PredictionTask
from ecoc.errors import ArtifactError, InputError
from ecoc.losses.behaviour_cloning import all_items_loss
from ecoc.policies import ranking
from ecoc.policies.ranking import Query

RankBy = Literal["policy", "blend", "rerank", "control", "cosine"]
"""Score that orders lists: the cloned policy, the blend of policy and value, the policy's best items by value, a head
distilled from the blend, or the cosine with the cloned policy; docs/equations.md §2.6."""

ROUNDING = 1e-6
"""Relative to the sum of absolute products; two ways to sum 64 products differ by less."""


def check_rank_by(rank_by: str | None) -> None:
    """Refuse a ranking mode that does not exist."""
    if rank_by not in (None, *get_args(RankBy)):
        raise InputError(f"rank_by {rank_by!r:.40}: expected {', '.join(get_args(RankBy))}")


class Policy(nn.Module, ABC):
    """Base of every policy; a `ranking.Scorer`."""

    items: int
    length: int

    @abstractmethod
    def query(self, history: History) -> Query:
        """What the scores of each row depend on. No row of the history is empty."""

    def encoded(self, history: History) -> Query:
        """A query with what every ranking mode needs, for `query_of`; one pass serves requests with different modes."""
        return self.query(history)

    def query_of(self, encoded: Query, w: Tensor | None = None) -> Query:
        """The query of this ranking mode from one that `encoded` gave; the weight w [B] may differ by row."""
        return encoded

    @abstractmethod
    def scores(self, query: Query, first: int, last: int) -> Tensor:
        """Scores of items first..last - 1, [B, last - first]."""

    @abstractmethod
    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the given items [B, K], and how far rounding may move each from `scores`; [B, K] both."""

    @abstractmethod
    def vectors(self) -> Tensor | None:
        """Item vectors [V, d] whose cosine measures similarity; none if the policy has no item vectors."""

    def unit_vectors(self) -> Tensor | None:
        """The same vectors with length 1."""
        vectors = self.vectors()
        return None if vectors is None else normalize(vectors, dim=1)

    def finished(self) -> dict[str, Tensor]:
        """What is computed from the weights once, by name, for every ranking mode."""
        return {}

    def finished_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what `finished` gives."""
        return {}

    def adopt(self, finished: Mapping[str, Tensor]) -> None:
        """Use what `finished` gave instead of computing it."""
        if set(finished) != set(self.finished_shapes()):
            raise ValueError("not what `finished` gave")

    def has_sound_statistics(self) -> bool:
        """Whether buffers that were read from a file, and that index other tensors, stay within them."""
        return True

    @property
    def has_critic(self) -> bool:
        """Whether the policy has a critic, hence more than one ranking mode."""
        return False

    @property
    def ranking_mode(self) -> str:
        """Name of the ranking mode with its parameter, for example `blend-w10`."""
        return "policy"

    @property
    def takes_counts(self) -> bool:
        """Whether a counts term may be added to the scores of this ranking mode; see `policies.counts`."""
        return True

    @property
    def without_counts(self) -> "Policy":
        """The policy without its counts term."""
        return self

    def ranked_by(self, rank_by: RankBy | None = None, *, w: float | None = None, m: int | None = None) -> Self:
        """The same policy with another ranking mode; none: unchanged. Only a policy with a critic has a choice."""
        check_rank_by(rank_by)
        if rank_by not in (None, "policy") or w is not None or m is not None:
            raise InputError("this policy has no critic: it can only be ranked by policy, without w and m")
        return self

    def values(self, query: Query, items: Tensor, history: History) -> Tensor | None:
        """Long-term value of the given items [B, K] by the critic, none without one; `query` is the history's."""
        return None

    def ranks(self, query: Query, target: Tensor, exclude: Tensor | None = None) -> Tensor:
        """Rank of each target among all items; see `ranking.rank_of`."""
        return ranking.rank_of(self, query, target, exclude)

    def topk(
        self, query: Query, k: int, *, exclude: Tensor | None = None, only: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The best items and their scores; see `ranking.topk`, and `ranking.topk_of` if `only` [M] is given."""
        if only is not None:
            return ranking.topk_of(self, query, k, only, exclude=exclude)
        return ranking.topk(self, query, k, exclude=exclude)


class InnerProductPolicy(Policy):
    """Scores are inner products of the query vector with one vector per item: one index serves it."""

    @abstractmethod
    def item_matrix(self) -> Tensor:
        """One vector per item, [V, q]; the first row is PAD's. A score is its product with the query vector."""

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        return query.vector @ self.item_matrix()[first:last].T

    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        products = query.vector[:, None] * self.item_matrix()[items]  # [B, K, q]
        return products.sum(2), products.abs().sum(2) * ROUNDING


class TiedPolicy(InnerProductPolicy):
    """mu(s) from an encoder, scored by inner product with the item vectors that embed the history (tied weights)."""

    def __init__(self, encoder: Encoder, init: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.items, self.length = encoder.dims.items, encoder.length
        self.table = item_table(self.items, encoder.dim, init)
        self._derived: dict[str, Tensor] = {}  # computed from the weights once, in evaluation mode; views share it
        self.runtime: Callable[[Tensor, History], Tensor] | None = None
        """Computes `state` in place of the encoder, from item vectors [V, d] and a history without users."""

    def train(self, mode: bool = True) -> "TiedPolicy":
        self._derived.clear()
        return super().train(mode)

    def item_vectors(self) -> Tensor:
        """Item vectors [V, d]; an encoder that transforms the table does so once in evaluation mode."""
        if not self.encoder.transforms_items:
            return self.table
        return self._once("items", lambda: self.encoder.items(self.table))

    def _once(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        if self.training:
            return compute()
        if name not in self._derived:
            self._derived[name] = compute().detach()
        return self._derived[name]

    def vectors(self) -> Tensor:
        return self.item_vectors()

    def unit_vectors(self) -> Tensor:
        return self._once("unit", lambda: normalize(self.item_vectors(), dim=1))

    def finished(self) -> dict[str, Tensor]:
        self.item_vectors(), self.unit_vectors()
        return dict(self._derived)

    def finished_shapes(self) -> dict[str, tuple[int, ...]]:
        names = ("unit", "items") if self.encoder.transforms_items else ("unit",)
        return {name: tuple(self.table.shape) for name in names}

    def adopt(self, finished: Mapping[str, Tensor]) -> None:
        super().adopt(finished)
        self._derived.update(finished)

    def item_matrix(self) -> Tensor:
        return self.item_vectors()

    def states(self, history: History) -> Tensor:
        """Mu after every position, [B, L, d]."""
        return self.encoder(self.encoder.embed(self.item_vectors(), history), history)

    def states_of(self, task: PredictionTask, history: History) -> Tensor:
        """Mu after every position, [B, L, d]: the states of the training task if it has them, else a new pass."""
        return self.states(history) if task.all_states is None else task.all_states

    @torch.no_grad()
    def eval_states(self, history: History) -> Tensor:
        """Mu after every position in evaluation mode, without dropout and gradient, [B, L, d]."""
        was_training = self.training
        self.train(False)
        try:
            return self.states(history)
        finally:
            self.train(was_training)

    def state(self, history: History) -> Tensor:
        """Mu after the whole history, [B, d]."""
        if self.runtime is not None and history.users is None:
            return self.runtime(self.item_vectors(), history)
        return self.encoder.last(self.encoder.embed(self.item_vectors(), history), history)

    def query(self, history: History) -> Query:
        return Query(self.state(history))


class DensePolicy(TiedPolicy):
    """An encoder with a dense head: one weight vector and one bias per item, as in methods with discrete actions."""

    def __init__(self, encoder: Encoder, init: float) -> None:
        super().__init__(encoder, init)
        self.head = Head(encoder.dim, self.items)

    def query(self, history: History) -> Query:
        return Query(with_one(self.state(history)))

    def item_matrix(self) -> Tensor:
        return self.head.weight


class Head(nn.Module):
    """W z + b with one row per item: [V, m + 1], the bias in the last column; PAD's row stays zero."""

    def __init__(self, width: int, items: int) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(items + 1, width + 1).uniform_(-bound, bound))
        with torch.no_grad():
            self.weight[:, -1] = 0
            self.weight[PAD] = 0

    def forward(self, states: Tensor) -> Tensor:
        """Outputs of all items but PAD: [N, m] -> [N, V - 1]."""
        return with_one(states) @ self.weight[PAD + 1 :].T

    def of(self, states: Tensor, items: Tensor) -> Tensor:
        """Outputs of the given items: [N, m], [N, K] -> [N, K]."""
        return (nn.functional.embedding(items, self.weight) @ with_one(states)[..., None]).squeeze(2)

    def cross_entropy(self, states: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean cross-entropy of targets [N] in states [N, m]; `weight` [N] are constants."""
        return all_items_loss(with_one(states), self.weight, target, weight)


def with_one(states: Tensor) -> Tensor:
    """States with a last coordinate of 1, which multiplies the bias: [.., m] -> [.., m + 1]."""
    return torch.cat([states, torch.ones_like(states[..., :1])], -1)


def item_table(items: int, dim: int, init: float) -> nn.Parameter:
    """Fresh item embeddings, [V, d]; PAD's row is zero."""
    table = torch.randn(items + 1, dim).mul_(init)
    table[PAD] = 0
    return nn.Parameter(table)


LARGEST_WEIGHT = 1e12
"""Products of larger weights may overflow; training never comes near."""


def check_weights(policy: Policy, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Refuse tensors that are not those of a policy. A buffer that is made empty gets its size from the data."""
    expected = policy.state_dict()
    if set(expected) != set(tensors):
        odd = min(set(expected) ^ set(tensors))
        raise ArtifactError(f"{where}: tensor '{odd}' is {'missing' if odd in expected else 'foreign'}; train again")
    parameters = dict(policy.named_parameters())
    for name, tensor in tensors.items():
        like = expected[name]
        is_sized_by_data = name not in parameters and tensor.ndim == like.ndim > 0 and like.numel() <= 1
        if tensor.dtype != like.dtype or (tensor.shape != like.shape and not is_sized_by_data):
            kind = f"{tensor.dtype} {list(tensor.shape)}"
            raise ArtifactError(f"{where}: tensor '{name}' is {kind}, expected {like.dtype} {list(like.shape)}")
        check_finite(name, tensor, where)


def check_finite(name: str, tensor: Tensor, where: str) -> None:
    """Refuse a tensor with a number that is not finite, or so large that scores would not be."""
    if tensor.is_floating_point() and not bool((tensor.abs() <= LARGEST_WEIGHT).all()):  # NaN is not
        raise ArtifactError(f"{where}: tensor '{name}' holds a number that is not finite or too large; train again")


def load_weights(policy: Policy, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Make saved tensors those of a freshly built policy; they are not copied."""
    check_weights(policy, tensors, where=where)
    parameters = dict(policy.named_parameters())
    for name, tensor in tensors.items():
        if name in parameters:
            parameters[name].data = tensor
        else:
            owner, _, last = name.rpartition(".")
            setattr(policy.get_submodule(owner), last, tensor)
    for module in policy.modules():
        if isinstance(module, Encoder | Policy) and not module.has_sound_statistics():
            raise ArtifactError(f"{where}: its statistics of the log contradict one another; train again")
