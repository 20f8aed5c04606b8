"""Queries, and lists and ranks from scores: in blocks of the catalogue, without PAD, with one rule for ties."""

from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from ecoc.batch import PAD

_ROWS, _BLOCK = 512, 1024  # a block of scores takes 2 MB: it stays in cache between product and count
_TOPK_BLOCK = 8192
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


def topk(
    scorer: Lister, query: Query, k: int, *, exclude: Tensor | None = None, only: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The k items of highest score and their scores, best first, ties by item index; [B, k] both.

    The items `exclude` [B, E] (padded with PAD) are left out; if `only` [M] is given, no others are candidates. A list
    with fewer than k candidates ends with PAD and -inf. k is cut to the number of candidates.
    """
    if only is not None:
        only = torch.unique(only[(only > PAD) & (only <= scorer.items)])
    k = min(k, scorer.items if only is None else len(only))
    parts = [
        _topk_rows(scorer, query[i : i + _ROWS], k, None if exclude is None else exclude[i : i + _ROWS], only)
        for i in range(0, len(query), _ROWS)
    ]
    if not parts:
        return torch.zeros(0, k, dtype=torch.int64), torch.zeros(0, k)
    items, scores = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    return items.masked_fill(scores == -torch.inf, PAD), scores


def _topk_rows(
    scorer: Lister, query: Query, k: int, exclude: Tensor | None, only: Tensor | None
) -> tuple[Tensor, Tensor]:
    items = torch.zeros(len(query), 0, dtype=torch.int64)
    scores = torch.zeros(len(query), 0)
    for start in range(PAD + 1, scorer.items + 1, _TOPK_BLOCK):
        stop = min(start + _TOPK_BLOCK, scorer.items + 1)
        if only is not None and not ((only >= start) & (only < stop)).any():
            continue
        block = _allowed(scorer.scores(query, start, stop), start, stop, exclude, only)
        chosen = stable_topk(block, k)
        items = torch.cat([items, chosen + start], 1)
        scores = torch.cat([scores, block.gather(1, chosen)], 1)
        if items.shape[1] > chosen.shape[1]:  # merge with earlier blocks
            best = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]  # earlier blocks have lower indices
            items, scores = items.gather(1, best), scores.gather(1, best)
    return items, scores


def _allowed(block: Tensor, start: int, stop: int, exclude: Tensor | None, only: Tensor | None) -> Tensor:
    """The block of scores with -inf at items that must not be listed."""
    if only is not None:
        keep = torch.zeros(stop - start, dtype=torch.bool)
        keep[only[(only >= start) & (only < stop)] - start] = True
        block = block.masked_fill(~keep, -torch.inf)
    if exclude is not None:
        column = (exclude - start).masked_fill((exclude < start) | (exclude >= stop), stop - start)
        padded = torch.nn.functional.pad(block, (0, 1))
        block = padded.scatter_(1, column, -torch.inf)[:, :-1]
    return block


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
