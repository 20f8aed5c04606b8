"""Policy: what acts. A history becomes a query, a query scores items; nothing of training is left in it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ecoc import ranking
from ecoc.batch import Batch, History
from ecoc.encoders import Encoder, Imitation
from ecoc.errors import ArtifactError
from ecoc.schema import PAD

_ROUNDING = 1e-6  # of the sum of absolute products; two ways to sum 64 of them differ by less


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

    def ranks(self, query: Tensor, target: Tensor, exclude: Tensor | None = None) -> Tensor:
        """Rank of each target among all items, as `ranking.rank_of`."""
        return ranking.rank_of(self, query, target, exclude)

    def topk(
        self, query: Tensor, k: int, *, exclude: Tensor | None = None, only: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The best items and their scores, as `ranking.topk`."""
        return ranking.topk(self, query, k, exclude=exclude, only=only)


class TiedPolicy(Policy):
    """mu(s) from an encoder, scored by inner product with the same item vectors that the history was read with."""

    def __init__(self, encoder: Encoder, init: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.items, self.length = encoder.dims.items, encoder.length
        self.table = nn.Parameter(torch.randn(self.items + 1, encoder.dim).mul_(init))
        with torch.no_grad():
            self.table[PAD] = 0
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

    def states(self, history: History) -> Tensor:
        """Mu after every position, [B, L, d]."""
        return self.encoder(self.encoder.embed(self.item_vectors(), history), history)

    def imitate(self, batch: Batch, items: Tensor) -> Imitation:
        """States and the items they should point at; `items` are this step's item vectors."""
        return self.encoder.imitate(items, batch)

    def query(self, history: History) -> Tensor:
        return self.encoder.last(self.encoder.embed(self.item_vectors(), history), history)

    def scores(self, query: Tensor, first: int, last: int) -> Tensor:
        return query @ self.item_vectors()[first:last].T

    def scores_of(self, query: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        products = query[:, None] * self.item_vectors()[items]  # [B, K, d]
        return products.sum(2), products.abs().sum(2) * _ROUNDING


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
