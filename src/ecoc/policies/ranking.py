"""Queries, and lists and ranks from scores: in blocks of the catalogue, without PAD, with one rule for ties."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, Self

import torch
from torch import Tensor

from ecoc.batch import PAD

_ROWS, _BLOCK = 512, 1024  # a block of scores takes 2 MB: it stays in cache between product and count
_TOPK_BLOCK, _GROUP = 1 << 17, 64  # scores of a block, which takes 512 kB; items of a group
_SCORES = 1 << 25  # most scores kept at a time for lists: 128 MB
_FEW_GROUPS = 4  # per place of the list; fewer are not worth a second look
_GATHERED = 1 << 24  # most floats gathered at a time


@dataclass(frozen=True)
class Query:
    """What the scores of each history depend on, one row per history. The policy that made it reads it."""

    vector: Tensor  # [B, q]; an inner-product policy multiplies it with its item matrix

    def __len__(self) -> int:
        return len(self.vector)

    def __getitem__(self, rows: slice | Tensor) -> Self:
        """The chosen rows; a slice copies nothing."""
        return replace(self, vector=self.vector[rows])


class Lister(Protocol):
    """Scores items 1..items in blocks: enough for lists."""

    items: int

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        """Scores of items first..last-1 for each query, [B, last - first]."""


class Scorer(Lister, Protocol):
    """Also scores single items: enough for ranks."""

    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the given items [B, K], and how far rounding may move each from `scores`; [B, K] both."""


def rank_of(scorer: Scorer, query: Query, target: Tensor, exclude: Tensor | None = None) -> Tensor:
    """Rank of each target among all items, [B] float64: 1 + number of higher scores + half the number of equal ones.

    Scores that differ by less than rounding count as equal. The items `exclude` [B, E] (padded with PAD) are no
    candidates; a target among them has an infinite rank.
    """
    ranks = torch.empty(len(query), dtype=torch.float64)
    for first in range(0, len(query), _ROWS):
        rows = slice(first, first + _ROWS)
        part, wanted = query[rows], target[rows, None]
        truth, slack = scorer.scores_of(part, wanted)
        high, low = truth + slack, truth - slack  # [n, 1]
        doubled = torch.zeros(len(part), dtype=torch.float64)  # items above count twice, equal ones once
        flags, ones = truth.new_empty(len(part), _BLOCK), truth.new_ones(_BLOCK)
        for start in range(PAD + 1, scorer.items + 1, _BLOCK):
            block = scorer.scores(part, start, min(start + _BLOCK, scorer.items + 1))
            doubled += _counted(block, high, low, flags, ones)
        ranks[rows] = 1 + (doubled - 1) / 2  # the target equals itself: subtract it
        if exclude is not None:
            ranks[rows] -= _excluded(scorer, part, wanted, exclude[rows], high, low)
        ranks[rows].masked_fill_(truth.squeeze(1).isnan(), torch.inf)  # comparisons with NaN are false
    return ranks.clamp_(min=1)


def _counted(scores: Tensor, high: Tensor, low: Tensor, flags: Tensor, ones: Tensor) -> Tensor:
    """#{> high} + #{>= low} per row. Comparing into floats and multiplying with ones is the fastest way to count."""
    flags, ones = flags[:, : scores.shape[1]], ones[: scores.shape[1]]
    above = torch.gt(scores, high, out=flags) @ ones
    return (above + torch.ge(scores, low, out=flags) @ ones).double()


def _excluded(scorer: Scorer, query: Query, target: Tensor, exclude: Tensor, high: Tensor, low: Tensor) -> Tensor:
    """What the excluded items added to the rank; -inf where the target is one of them."""
    items = exclude.sort(1).values
    repeated = torch.zeros_like(items, dtype=torch.bool)
    repeated[:, 1:] = items[:, 1:] == items[:, :-1]
    is_real = (items != PAD) & ~repeated
    step = max(1, _GATHERED // max(1, items.shape[1] * query.vector.shape[-1]))
    added = torch.zeros(len(query), dtype=torch.float64)
    for first in range(0, len(query), step):
        rows = slice(first, first + step)
        scores, _ = scorer.scores_of(query[rows], items[rows])
        doubled = (scores > high[rows]).double() + (scores >= low[rows]).double()
        added[rows] = (doubled * is_real[rows]).sum(1) / 2
    return added.masked_fill_(((items == target) & is_real).any(1), -torch.inf)


def topk(scorer: Lister, query: Query, k: int, *, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k items of highest score and their scores, best first, ties by item index; [B, k] both.

    The items `exclude` [B, E] (padded with PAD) are left out. A list with fewer than k candidates ends with PAD and
    -inf. k is cut to the number of items.
    """
    k = min(k, scorer.items)
    return _by_rows(partial(_best_of_all, scorer, k), query, k, exclude, scorer.items)


def topk_of(
    scorer: Scorer, query: Query, k: int, items: Tensor, *, exclude: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """As `topk`, with the given items [M] as the only candidates; no other item's vector is read."""
    items = torch.unique(items[(items > PAD) & (items <= scorer.items)])
    k = min(k, len(items))
    return _by_rows(partial(_best_of_some, scorer, k, items), query, k, exclude, len(items))


def _by_rows(
    best: Callable[[Query, Tensor | None], tuple[Tensor, Tensor]],
    query: Query,
    k: int,
    exclude: Tensor | None,
    candidates: int,
) -> tuple[Tensor, Tensor]:
    """Lists of some rows at a time; a place without a candidate holds PAD."""
    rows = min(max(1, _SCORES // max(1, candidates)), _ROWS)
    parts = [
        best(query[i : i + rows], None if exclude is None else exclude[i : i + rows])
        for i in range(0, len(query) if k else 0, rows)
    ]
    if not parts:
        return torch.zeros(len(query), k, dtype=torch.int64), torch.zeros(len(query), k)
    items, scores = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    return items.masked_fill(scores == -torch.inf, PAD), scores


class _Scratch(threading.local):
    """Memory for scores, kept per thread: with fresh pages each time a large pass takes half as long again."""

    memory: Tensor | None = None

    def matrix(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """Uninitialised, valid until the next call."""
        if self.memory is None or self.memory.numel() < rows * columns or self.memory.dtype != dtype:
            with torch.inference_mode(False):  # or no later call outside of inference mode could write to it
                self.memory = torch.empty(rows * columns, dtype=dtype)
        return self.memory[: rows * columns].view(rows, columns)


_scratch = _Scratch()


@torch.no_grad()
def _best_of_all(scorer: Lister, k: int, query: Query, exclude: Tensor | None) -> tuple[Tensor, Tensor]:
    """Score all items, keeping the highest score of each group; then look for the best in the best k groups alone.

    All items of a list are in these: each better group holds an item that comes before.
    """
    count = scorer.items // _GROUP + 1  # so that the last column is no item's
    step = max(1, _TOPK_BLOCK // (len(query) * _GROUP)) * _GROUP
    block = scorer.scores(query, 1, min(step, scorer.items) + 1)
    scores, tops = _scratch.matrix(len(query), count * _GROUP, block.dtype), block.new_empty(len(query), count)
    scores[:, scorer.items :] = -torch.inf  # column c is item c + 1
    groups = scores.view(len(query), count, _GROUP)
    for start in range(0, scorer.items, step):
        stop = min(start + step, scorer.items)
        scores[:, start:stop] = scorer.scores(query, start + 1, stop + 1) if start else block
        part = slice(start // _GROUP, -(-stop // _GROUP))
        tops[:, part] = groups[:, part].amax(2)  # while the block is in cache
    tops[:, -(-scorer.items // _GROUP) :] = -torch.inf
    if exclude is not None:
        _leave_out(scores, tops, exclude)
    if count <= _FEW_GROUPS * k:
        columns = stable_topk(scores, k)
    else:
        chosen = stable_topk(tops, k).sort(1).values  # in order, so that ties are resolved by item index
        candidates = (chosen[:, :, None] * _GROUP + torch.arange(_GROUP)).flatten(1)
        columns = candidates.gather(1, stable_topk(scores.gather(1, candidates), k))
    return columns + 1, scores.gather(1, columns)


def _leave_out(scores: Tensor, tops: Tensor, exclude: Tensor) -> None:
    """Give the excluded items [B, E] a score of -inf, in place, and correct the highest scores of their groups."""
    last = scores.shape[1] - 1
    column = (exclude - 1).masked_fill((exclude <= PAD) | (exclude > last), last)
    scores.scatter_(1, column, -torch.inf)
    group = column // _GROUP
    inside = (group[:, :, None] * _GROUP + torch.arange(_GROUP)).flatten(1)
    tops.scatter_(1, group, scores.gather(1, inside).view(*group.shape, _GROUP).amax(2))


def _best_of_some(scorer: Scorer, k: int, items: Tensor, query: Query, exclude: Tensor | None) -> tuple[Tensor, Tensor]:
    """The best of the given items [M], which are sorted, each once."""
    step = max(1, _GATHERED // max(1, len(query) * query.vector.shape[-1]))
    parts = [scorer.scores_of(query, part.expand(len(query), -1))[0] for part in torch.split(items, step)]
    scores = torch.cat(parts, 1)
    if exclude is not None:
        place = torch.searchsorted(items, exclude).clamp_(max=len(items) - 1)
        row, column = (items[place] == exclude).nonzero(as_tuple=True)
        scores[row, place[row, column]] = -torch.inf
    columns = stable_topk(scores, k)
    return items[columns], scores.gather(1, columns)


def stable_topk(scores: Tensor, k: int) -> Tensor:
    """Columns of the k highest scores of each row, highest first, ties by column; [B, min(k, columns)]."""
    k = min(k, scores.shape[1])
    if k == 0:
        return torch.zeros(len(scores), 0, dtype=torch.int64)
    values, columns = scores.topk(k, 1)
    # torch.topk leaves the order of ties open: sort them, and choose those that enter where the k-th has ties outside
    order = columns.sort(1).indices
    values, columns = values.gather(1, order), columns.gather(1, order)
    order = values.sort(dim=1, descending=True, stable=True).indices
    columns = columns.gather(1, order)
    edge = scores.gather(1, columns[:, -1:])
    inside = (scores.gather(1, columns) == edge).sum(1)
    crowded = ((scores == edge).sum(1) > inside).nonzero().squeeze(1)
    if len(crowded):
        columns[crowded] = scores[crowded].sort(dim=1, descending=True, stable=True).indices[:, :k]
    return columns
