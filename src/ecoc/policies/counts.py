"""The counts term: what followed the last items in the log, added to a policy's scores; docs/equations.md §3.7.

    n_ji   = sum over the training sequences of 0.7^(l - 1) for each i that follows j at distance l = 1..5
    p_i(h) = sum_k 0.7^(k - 1) n_{j_k i} / (n_{j_k} + 10) / sum_k 0.7^(k - 1)      j_k the k-th last item, k = 1..5
    q_i(h) = sum of r_k over the k = 1..50 with j_k = i
    r_k    = share of the training events that repeat the item k places before them
    g_i(h) = log(1 + V p_i(h)) + 2 log(1 + V q_i(h))                               V the number of items
    score  = score of the policy + omega g_i(h)

g is 0 but for the followers of the last items and the items of the history. So the inner product's index stays as it
is: the best k of the sum are among the policy's best k and these items.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecoc.batch import PAD, History, TrainSequences
from ecoc.errors import ArtifactError
from ecoc.policies.base import ROUNDING, Policy, RankBy
from ecoc.policies.ranking import Query

LARGEST_COUNTS_WEIGHT = 1000.0
DISTANCE = 5
"""Last items of a history whose followers are looked up, and the largest distance of a pair that is counted."""
DEPTH = 50
"""Last items of a history that may be repeated."""
DECAY = 0.7
"""Weight of each further place."""
PRIOR = 10.0
"""Added to the number of pairs that a share is of: a few pairs say little."""
REPEATED = 2.0
"""Weight of a repeat beside that of a follower."""
KEPT = 100
"""Most followers of an item; those with the largest counts are kept."""
_EVENTS = 1 << 21  # whose pairs are counted at a time: 80 MB of keys
_LAG_BITS, _LAG_MASK, _SHARE_BITS = 3, 7, 31
_WEIGHTS = np.array([0.0, *(DECAY**place for place in range(DISTANCE))])  # of a pair, by its distance

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Transitions(nn.Module):
    """Which items followed each item in training, and how often: one row per item, PAD's is empty. And repeats."""

    starts: Tensor  # [V + 2] int64; the row of item j is starts[j]..starts[j + 1] - 1
    followers: Tensor  # [E] int32
    shares: Tensor  # [E] float32; n_ji / (n_j + PRIOR)
    repeats: Tensor  # [DEPTH] float32; r_k

    def __init__(self, starts: Tensor, followers: Tensor, shares: Tensor, repeats: Tensor) -> None:
        super().__init__()
        self.register_buffer("starts", starts)
        self.register_buffer("followers", followers)
        self.register_buffer("shares", shares)
        self.register_buffer("repeats", repeats)

    @property
    def items(self) -> int:
        """Number of items."""
        return len(self.starts) - 2

    @classmethod
    def count(cls, sessions: TrainSequences, items: int) -> "Transitions":
        """Count the pairs of the training sequences, some items at a time."""
        sequence = np.repeat(np.arange(len(sessions.offsets) - 1), np.diff(sessions.offsets))
        group = np.cumsum(np.bincount(sessions.items, minlength=items + 1)) // _EVENTS
        group[PAD] = -1
        parts = [_rows(sessions, sequence, items, group == number) for number in range(int(group[-1]) + 1)]
        item, follower, share = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        starts = np.concatenate([[0], np.cumsum(np.bincount(item, minlength=items + 1))])
        return cls(
            torch.from_numpy(starts.astype(np.int64)),
            torch.from_numpy(follower.astype(np.int32)),
            torch.from_numpy(share.astype(np.float32)),
            torch.from_numpy(_repeat_rates(sessions, sequence)),
        )

    @classmethod
    def open(cls, tensors: Mapping[str, Tensor], items: int, where: str) -> "Transitions":
        """From saved tensors, which are checked."""
        dtypes = {"starts": torch.int64, "followers": torch.int32, "shares": torch.float32, "repeats": torch.float32}
        if set(tensors) != set(dtypes):
            raise ArtifactError(f"{where}: not the tensors of a counts term; train again")
        for name, dtype in dtypes.items():
            if tensors[name].dtype != dtype or tensors[name].ndim != 1:
                raise ArtifactError(f"{where}: tensor '{name}' is not a vector of {dtype}; train again")
        starts, followers, shares, repeats = (tensors[name] for name in dtypes)
        sizes = starts.diff()
        is_whole = len(starts) == items + 2 and int(starts[0]) == 0 and int(starts[-1]) == len(followers) == len(shares)
        if not is_whole or not bool(((sizes >= 0) & (sizes <= KEPT)).all()) or int(sizes[PAD]):
            raise ArtifactError(f"{where}: the rows of its counts do not fit {items} items; train again")
        if not bool(((followers > PAD) & (followers <= items)).all()):
            raise ArtifactError(f"{where}: its counts name an item that does not exist; train again")
        if len(repeats) != DEPTH or not all(bool(((part >= 0) & (part <= 1)).all()) for part in (shares, repeats)):
            raise ArtifactError(f"{where}: its counts hold a share that is not in 0..1; train again")
        return cls(starts, followers, shares, repeats)

    def gains(self, recent: Tensor) -> "Gains":
        """Where g is above 0 after the given last items [B, m], the latest first, PAD where short."""
        latest, rows = recent[:, :DISTANCE], torch.arange(len(recent))[:, None]
        weight = DECAY ** torch.arange(latest.shape[1]) * (latest != PAD)  # [B, 5]
        weight = weight / weight.sum(1, keepdim=True).clamp(min=1)
        first = self.starts[latest].flatten()
        counts = self.starts[latest + 1].flatten() - first
        looked_up = torch.arange(len(counts)).repeat_interleave(counts)  # the place in `latest` of each follower
        place = torch.arange(len(looked_up)) + (first - counts.cumsum(0) + counts)[looked_up]
        followers = self.followers[place].long() * len(recent) + rows.expand_as(latest).flatten()[looked_up]
        is_own = (recent != PAD) & (self.repeats[: recent.shape[1]] > 0)
        own = (recent * len(recent) + rows)[is_own]
        key, merged = torch.unique(torch.cat([followers, own]), return_inverse=True)
        shares = weight.flatten()[looked_up] * self.shares[place]
        p = torch.zeros(len(key)).index_add_(0, merged[: len(followers)], shares)
        rates = self.repeats[: recent.shape[1]].expand_as(recent)[is_own]
        q = torch.zeros(len(key)).index_add_(0, merged[len(followers) :], rates)
        return Gains(key, torch.log1p(self.items * p) + REPEATED * torch.log1p(self.items * q), len(recent))


@dataclass(frozen=True)
class Gains:
    """Where g is above 0: pairs of item and row, sorted by item and then row, each once."""

    key: Tensor  # [n] item * rows + row
    value: Tensor  # [n]
    rows: int

    def added(self, scores: Tensor, first: int, last: int, weight: float) -> Tensor:
        """The scores of items first..last - 1, [rows, last - first], with weight * g."""
        start, stop = torch.searchsorted(self.key, torch.tensor([first * self.rows, last * self.rows])).tolist()
        item, row = self.key[start:stop] // max(self.rows, 1), self.key[start:stop] % max(self.rows, 1)
        gains = (weight * self.value[start:stop]).to(scores.dtype)
        return scores.flatten().index_add(0, row * (last - first) + item - first, gains).view_as(scores)

    def of(self, items: Tensor) -> Tensor:
        """The g of the given items, [rows, K]."""
        wanted = items * self.rows + torch.arange(self.rows)[:, None]
        if not len(self.key):
            return torch.zeros(items.shape)
        place = torch.searchsorted(self.key, wanted).clamp(max=len(self.key) - 1)
        return self.value[place] * (self.key[place] == wanted)


@dataclass(frozen=True)
class CountsQuery(Query):
    """A policy's query with the last items of each history."""

    policy_query: Query
    recent: Tensor  # [B, m]; the latest first, PAD where short
    transitions: Transitions

    def __getitem__(self, rows: slice | Tensor) -> "CountsQuery":
        if isinstance(rows, slice) and rows.indices(len(self)) == (0, len(self), 1):
            return self  # with the gains that it has computed
        part = self.policy_query[rows]
        return CountsQuery(part.vector, part, self.recent[rows], self.transitions)

    @cached_property
    def gains(self) -> Gains:
        """The g of these histories."""
        return self.transitions.gains(self.recent)


class PolicyWithCounts(Policy):
    """A policy whose scores have the counts term.

    Ranking modes `rerank` and `cosine` stay as they are: one orders the policy's own best items, the other has scores
    of another scale than the weight was chosen for.
    """

    def __init__(self, policy: Policy, transitions: Transitions, weight: float) -> None:
        super().__init__()
        self.items, self.length = policy.items, policy.length
        self.policy, self.transitions, self.weight = policy, transitions, weight

    @property
    def without_counts(self) -> Policy:
        return self.policy

    @property
    def has_critic(self) -> bool:
        return self.policy.has_critic

    @property
    def ranking_mode(self) -> str:
        return self.policy.ranking_mode

    def ranked_by(self, rank_by: RankBy | None = None, *, w: float | None = None, m: int | None = None) -> Self:
        view = copy(self)
        view._modules = {**self._modules, "policy": self.policy.ranked_by(rank_by, w=w, m=m)}
        return view

    def weighted(self, weight: float) -> Self:
        """The same policy with another weight of its counts."""
        view = copy(self)
        view.weight = weight
        return view

    def query(self, history: History) -> Query:
        query = self.policy.query(history)
        return self._with_recent(query, history) if self.policy.takes_counts else query

    def encoded(self, history: History) -> Query:
        return self._with_recent(self.policy.encoded(history), history)

    def query_of(self, encoded: Query, w: Tensor | None = None) -> Query:
        if not isinstance(encoded, CountsQuery):
            raise TypeError("the query must be one that `encoded` gave")
        query = self.policy.query_of(encoded.policy_query, w)
        return replace(encoded, vector=query.vector, policy_query=query) if self.policy.takes_counts else query

    def _with_recent(self, query: Query, history: History) -> CountsQuery:
        place = history.lengths[:, None] - 1 - torch.arange(min(DEPTH, history.items.shape[1]))  # [B, m]
        recent = history.items.gather(1, place.clamp(min=0)) * (place >= 0)
        return CountsQuery(query.vector, query, recent, self.transitions)

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        if not isinstance(query, CountsQuery):
            return self.policy.scores(query, first, last)
        return query.gains.added(self.policy.scores(query.policy_query, first, last), first, last, self.weight)

    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        if not isinstance(query, CountsQuery):
            return self.policy.scores_of(query, items)
        scores, slack = self.policy.scores_of(query.policy_query, items)
        gains = self.weight * query.gains.of(items)
        return scores + gains, slack + gains * ROUNDING

    def vectors(self) -> Tensor | None:
        return self.policy.vectors()

    def unit_vectors(self) -> Tensor | None:
        return self.policy.unit_vectors()

    def finished(self) -> dict[str, Tensor]:
        return self.policy.finished()

    def finished_shapes(self) -> dict[str, tuple[int, ...]]:
        return self.policy.finished_shapes()

    def adopt(self, finished: Mapping[str, Tensor]) -> None:
        self.policy.adopt(finished)

    def values(self, query: Query, items: Tensor, history: History) -> Tensor | None:
        return self.policy.values(query.policy_query if isinstance(query, CountsQuery) else query, items, history)

    def ranks(self, query: Query, target: Tensor, exclude: Tensor | None = None) -> Tensor:
        if not isinstance(query, CountsQuery):
            return self.policy.ranks(query, target, exclude)
        return super().ranks(query, target, exclude)

    def topk(
        self, query: Query, k: int, *, exclude: Tensor | None = None, only: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if not isinstance(query, CountsQuery):
            return self.policy.topk(query, k, exclude=exclude, only=only)
        return super().topk(query, k, exclude=exclude, only=only)


def _repeat_rates(sessions: TrainSequences, sequence: Ints) -> NDArray[np.float32]:
    """Share of the training events that repeat the item k places before them, for k = 1..DEPTH."""
    rates = np.zeros(DEPTH, np.float32)
    for lag in range(1, min(DEPTH, len(sequence) - 1) + 1):
        inside = sequence[:-lag] == sequence[lag:]
        same = sessions.items[:-lag] == sessions.items[lag:]
        rates[lag - 1] = np.count_nonzero(inside & same) / (np.count_nonzero(inside) + PRIOR)
    return rates


def _rows(sessions: TrainSequences, sequence: Ints, items: int, chosen: NDArray[np.bool_]) -> tuple[Ints, Ints, Floats]:
    """Item, follower and share of the pairs that begin with a chosen item, sorted by item; at most KEPT of each."""
    bits = items.bit_length()  # a pair as one number: the item's bits, the follower's, the distance's
    is_chosen, keys = chosen[sessions.items], []
    for lag in range(1, DISTANCE + 1):
        place = np.flatnonzero(is_chosen[:-lag] & (sequence[:-lag] == sequence[lag:]))
        keys.append((((sessions.items[place] << bits) | sessions.items[place + lag]) << _LAG_BITS) | lag)
    key = np.concatenate(keys)
    del keys
    key.sort()
    weights = _WEIGHTS[key & _LAG_MASK]
    key >>= _LAG_BITS
    first = np.flatnonzero(np.diff(key, prepend=-1))
    counts = np.add.reduceat(weights, first) if len(first) else weights
    item, follower = key[first] >> bits, key[first] & ((1 << bits) - 1)
    share = counts / (np.bincount(item, counts, items + 1) + PRIOR)[item]
    keep = _strongest(item, share.astype(np.float32))
    return item[keep], follower[keep], share[keep]


def _strongest(item: Ints, share: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which pairs are among the KEPT largest of their item, of equal ones the first; pairs are sorted by item."""
    sizes = np.bincount(item)
    crowded = np.flatnonzero(sizes > KEPT)
    keep = (sizes <= KEPT)[item]
    if not len(crowded):
        return keep
    place = np.flatnonzero(~keep)
    order = share[place].view(np.int32).astype(np.int64)  # positive floats are ordered as their bits are
    own = item[place]
    key = (own << _SHARE_BITS) | order
    key.sort()
    ends = np.cumsum(sizes[crowded])
    least = np.zeros(len(sizes), np.int64)
    least[crowded] = key[ends - KEPT] & ((1 << _SHARE_BITS) - 1)  # the smallest share that enters
    above, level = order > least[own], order == least[own]
    room = KEPT - np.bincount(own[above], minlength=len(sizes))
    count = np.cumsum(level)
    begins = ends - sizes[crowded]
    before = np.zeros(len(sizes), np.int64)
    before[crowded] = count[begins] - level[begins]
    keep[place] = above | (level & (count - before[own] <= room[own]))
    return keep
