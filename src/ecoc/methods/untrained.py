"""Methods without training, as baselines in every table: popular, recent, markov.

All rank by counts; items without a count of their own are ordered by popularity.
"""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ecoc.batch import PAD, Batch, History, TrainSequences
from ecoc.methods.base import BuildContext, Loss, Method, MethodConfig
from ecoc.policies.base import Policy
from ecoc.policies.ranking import Query


class CountedPolicy(Policy):
    """score = the row's own count of the item, a whole number, + the item's share of all events, which is below 1."""

    def __init__(self, items: int, length: int) -> None:
        super().__init__()
        self.items, self.length = items, length
        self.share: Tensor
        self.register_buffer("share", torch.zeros(items + 1))
        self._last: tuple[Query, tuple[Tensor, Tensor, Tensor]] | None = None

    def fit_statistics(self, sessions: TrainSequences) -> None:
        """Count the items of the training sequences."""
        self._last = None
        counts = np.bincount(sessions.items, minlength=self.items + 1)
        self.share = torch.from_numpy((counts / (counts.sum() + 1)).astype(np.float32))

    @abstractmethod
    def own(self, query: Query) -> tuple[Tensor, Tensor, Tensor]:
        """Row, item and count of all pairs that have a count of their own; each pair once."""

    def _own(self, query: Query) -> tuple[Tensor, Tensor, Tensor]:
        """`own`, computed once for all blocks of the catalogue that are scored with the same query."""
        last = self._last  # read once: another thread may replace it
        if last is None or last[0] is not query:
            last = self._last = query, self.own(query)
        return last[1]

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        row, item, count = self._own(query)
        inside = (item >= first) & (item < last)
        result = self.share[first:last].repeat(len(query), 1)
        result[row[inside], item[inside] - first] += count[inside]
        return result

    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        row, item, count = self._own(query)
        key, order = (row * (self.items + 1) + item).sort()
        wanted = torch.arange(len(query))[:, None] * (self.items + 1) + items
        place = torch.searchsorted(key, wanted).clamp(max=max(len(key) - 1, 0))
        result = self.share[items]
        if len(key):
            result = result + count[order][place] * (key[place] == wanted)
        return result, torch.zeros_like(result)

    def vectors(self) -> None:
        return None


class PopularPolicy(CountedPolicy):
    """The most popular items, the same list for everyone."""

    def query(self, history: History) -> Query:
        return Query(torch.zeros(len(history.items), 1))

    def own(self, query: Query) -> tuple[Tensor, Tensor, Tensor]:
        none = torch.zeros(0, dtype=torch.int64)
        return none, none, none.float()


class RecentPolicy(CountedPolicy):
    """The user's own items, the latest first."""

    def query(self, history: History) -> Query:
        return Query(history.items)

    def own(self, query: Query) -> tuple[Tensor, Tensor, Tensor]:
        items = query.vector
        repeated = (items[:, :, None] == items[:, None, :]).triu(1).any(2)  # the item occurs again later
        row, place = ((items != PAD) & ~repeated).nonzero(as_tuple=True)
        return row, items[row, place], place.float() + 1


class MarkovPolicy(CountedPolicy):
    """The items that most often followed the last item."""

    def __init__(self, items: int, length: int) -> None:
        super().__init__(items, length)
        self.starts: Tensor
        self.followers: Tensor
        self.times: Tensor
        self.register_buffer("starts", torch.zeros(items + 2, dtype=torch.int64))
        self.register_buffer("followers", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("times", torch.zeros(0))

    def fit_statistics(self, sessions: TrainSequences) -> None:
        super().fit_statistics(sessions)
        before, after = sessions.pairs()
        pair = before * (self.items + 1) + after
        pair, times = np.unique(pair, return_counts=True)
        item, follower = np.divmod(pair, self.items + 1)
        self.starts = torch.from_numpy(np.searchsorted(item, np.arange(self.items + 2)))
        self.followers, self.times = torch.from_numpy(follower), torch.from_numpy(times.astype(np.float32))

    def has_sound_statistics(self) -> bool:
        starts, followers = self.starts, self.followers
        is_whole = int(starts[0]) == 0 and int(starts[-1]) == len(followers) == len(self.times)
        is_inside = bool(((followers > PAD) & (followers <= self.items)).all())
        return is_whole and is_inside and bool((starts.diff() >= 0).all())

    def query(self, history: History) -> Query:
        return Query(history.items.gather(1, history.lengths[:, None] - 1))

    def own(self, query: Query) -> tuple[Tensor, Tensor, Tensor]:
        item = query.vector.squeeze(1)
        first = self.starts[item]
        counts = self.starts[item + 1] - first
        row = torch.arange(len(item)).repeat_interleave(counts)
        place = torch.arange(len(row)) + (first - counts.cumsum(0) + counts)[row]
        return row, self.followers[place], self.times[place]


class Untrained(Method):
    """Base of the methods that only count."""

    is_trained: ClassVar[bool] = False
    kind: ClassVar[type[CountedPolicy]]
    policy: CountedPolicy

    def __init__(self, config: MethodConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.policy = self.kind(context.dims.items, context.encoder.length)

    def fit_statistics(self, sessions: TrainSequences) -> None:
        self.policy.fit_statistics(sessions)

    def loss(self, batch: Batch) -> Loss:
        raise TypeError("an untrained method has no loss")


class Popular(Untrained):
    """Most popular items."""

    kind = PopularPolicy


class Recent(Untrained):
    """The user's own history, latest first."""

    kind = RecentPolicy


class Markov(Untrained):
    """Item-to-item counts."""

    kind = MarkovPolicy
