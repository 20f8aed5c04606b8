"""Spearman correlations of scores with cosines and with signed norms, for many queries over one table of item vectors.

    X_i = e_i . p        Y_i = cos(e_i, p)        Z_i = |e_i| sgn(X_i)

Ranks of Z need no sort: with items in the order of their norms they are counts of signs. Ranks of X and Y are exact by
one sort each, of float64 whose spare low bits carry the place. Large catalogues are counted into 65,536 classes
instead: items of a class share a rank, as equal values do. If their order within a class has nothing to do with the
other ranking, a correlation moves by a random amount whose standard error is known; where that is above `TOLERANCE`,
and wherever a score is zero, the row is sorted after all.
"""

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.generic)

TOLERANCE = 3e-7  # of a correlation
_EQUAL = 1e-6  # norms that differ by no more than this share differ by rounding only
_SPARE = 29  # bits of a float64 that a float32 leaves zero
_CLASSES = 1 << 16
_COUNTED = 1 << 15  # items from which classes can be fine enough
_TINY = 1e-30
_CELLS = 1 << 16  # scores sorted at a time: they stay in cache


class Table:
    """Item vectors in the order of their norms."""

    def __init__(self, vectors: Tensor) -> None:
        norms = vectors.double().norm(dim=1).numpy().astype(np.float32)
        if len(norms) and norms.max() - norms.min() <= _EQUAL * norms.max():
            norms[:] = norms.max()
        order = np.argsort(norms, kind="stable")
        self.vectors = vectors[torch.from_numpy(order)]  # [V, d]
        self.norms: Singles = norms[order]
        self.divisor = np.where(self.norms > 0, self.norms, np.float32(1))  # a zero vector has cosine 0
        first = np.searchsorted(self.norms, self.norms, "left")
        last = np.searchsorted(self.norms, self.norms, "right") - 1
        self.tied = np.flatnonzero(first < last)  # items that share their norm
        self.first, self.last = first[self.tied], last[self.tied]  # of those that share it

    def __len__(self) -> int:
        return len(self.norms)

    def scores(self, directions: Tensor) -> Singles:
        """X of each query, items in the order of their norms: [B, d] -> [B, V]."""
        products: Singles = (directions @ self.vectors.T).numpy()
        return products

    def correlations(self, x: Singles) -> Floats:
        """Spearman(X, Y) and Spearman(X, Z) of each row of scores, no number where undefined: [B, V] -> [2, B]."""
        correlations = np.full((2, len(x)), np.nan)
        if len(self) >= _COUNTED:
            count = _Counting(self)
            for row, scores in enumerate(x):  # a row is large enough
                correlations[:, row] = count.correlations(scores)
        left = np.flatnonzero(np.isnan(correlations[0]))
        rows = max(1, _CELLS // max(len(self), 1))
        for begin in range(0, len(left), rows):
            chosen = left[begin : begin + rows]
            correlations[:, chosen] = self.sorted_correlations(x[chosen])
        return correlations

    def sorted_correlations(self, x: Singles) -> Floats:
        """The same, always by sorting."""
        by_x, rank_x = _ranked(x)
        y: Singles = np.divide(x, self.divisor, dtype=np.float32)
        by_y, rank_y = _ranked(_taken(y, by_x))  # places in the order of X instead of items
        rank_z = self._ranks_of_z(x)
        x_by_y, z_by_x = _taken(rank_x, by_y), _taken(rank_z, by_x)
        xy, xz = np.vecdot(x_by_y, rank_y), np.vecdot(rank_x, z_by_x)
        size_x, size_y, size_z = (np.vecdot(rank, rank) for rank in (rank_x, rank_y, rank_z))
        with np.errstate(invalid="ignore"):
            return np.stack([xy / np.sqrt(size_x * size_y), xz / np.sqrt(size_x * size_z)])

    def _ranks_of_z(self, x: Singles) -> Floats:
        """Centred average ranks of |e| sgn(X): below zero the largest norm comes first, above zero last."""
        above, below, zero = x > 0, x < 0, x == 0
        negative, middle = below.sum(1)[:, None], zero.sum(1)[:, None]
        ranks: Floats = (negative + middle + self._counted(above)) * above
        ranks += (negative + 1 - self._counted(below)) * below
        ranks += (negative + (middle + 1) / 2) * zero
        ranks -= (x.shape[1] + 1) / 2
        return ranks

    def _counted(self, sign: NDArray[np.bool_]) -> Floats:
        """Average rank of each item's norm among the items of a sign, 1 is the smallest; of others nothing."""
        counts = np.cumsum(sign, axis=1, dtype=np.int32).astype(np.float64)  # in whole numbers it is faster
        before = counts[:, self.first] - sign[:, self.first]
        counts[:, self.tied] = (counts[:, self.last] + before + 1) / 2
        return counts


def _ranked(values: Singles) -> tuple[Ints, Floats]:
    """Where each row's values stand in ascending order, and the centred average rank at each place. [B, V] both.

    A float32 as float64 has 29 zero bits at its end: with the place in them one sort of numbers, which is much faster
    than one of indices, gives the order. Only equal values are moved by it, and those share a rank.
    """
    rows, width = values.shape
    keys = np.add(values, 0.0, dtype=np.float64)  # no -0.0
    bits = keys.view(np.int64)
    bits |= np.arange(width)
    keys.sort(axis=1)
    order = bits & ((1 << _SPARE) - 1)
    bits >>= _SPARE
    same = np.zeros((rows, width), bool)
    np.equal(bits[:, 1:], bits[:, :-1], out=same[:, 1:])
    ranks = np.empty((rows, width))
    ranks[:] = np.arange(width) - (width - 1) / 2
    _share(ranks.reshape(-1), np.flatnonzero(same))
    return order, ranks


def _share(ranks: Floats, repeated: Ints) -> None:
    """Give runs of equal values the mean of their ranks; `repeated` are the places that equal the one before."""
    if not len(repeated):
        return
    begins = np.diff(repeated, prepend=-1) != 1
    first = repeated[begins] - 1
    last = repeated[np.append(begins[1:], True)]
    shared = (ranks[first] + ranks[last]) / 2
    ranks[first] = shared
    ranks[repeated] = shared[np.cumsum(begins) - 1]


def _taken(values: NDArray[_Number], places: Ints) -> NDArray[_Number]:
    """Each row's values at its places."""
    rows, width = values.shape
    taken: NDArray[_Number] = values.reshape(-1).take(places + width * np.arange(rows)[:, None])
    return taken


class _Counting:
    """Correlations of one row at a time by counting; memory is taken once."""

    def __init__(self, table: Table) -> None:
        self.table, self.width = table, len(table)
        width = self.width
        self._place = np.arange(width, dtype=np.int32)
        self._ends = table.first + table.last
        self._size, self._share, self._y = (np.empty(width, np.float32) for _ in range(3))
        self._class = np.empty(width, np.int64)
        self._upto, self._middle = np.empty(_CLASSES, np.int64), np.empty(_CLASSES, np.int32)
        self._whole, self._down, self._z = (np.empty(width, np.int32) for _ in range(3))
        self._x_rank, self._other = np.empty(width), np.empty(width)

    def correlations(self, x: Singles) -> tuple[float, float]:
        """Spearman(X, Y) and Spearman(X, Z), no numbers where only a sort can tell: [V]."""
        if (x == 0).any():
            return np.nan, np.nan
        size_x = self._ranks(x, self._x_rank)
        size_y = self._ranks(np.divide(x, self.table.divisor, out=self._y), self._other)
        if not min(size_x, size_y) > 0:
            return np.nan, np.nan
        xy = self._x_rank @ self._other / np.sqrt(size_x * size_y)
        self._other[:] = self._twice_ranks_of_z(x)
        self._other -= self._other.mean()
        size_z = self._other @ self._other
        if not size_z > 0:
            return np.nan, np.nan
        return float(xy), float(self._x_rank @ self._other / np.sqrt(size_x * size_z))

    def _ranks(self, values: Singles, ranks: Floats) -> float:
        """Twice the centred ranks, shared within a class, and their sum of squares; 0 if classes are too coarse.

        What sharing takes from the sum of squares of distinct ranks, (V^3 - V) / 3, gives the standard error.
        """
        np.abs(values, out=self._size)
        scale = self._size.mean()
        if not _TINY < scale < 1 / _TINY:  # or products with it could be zero or infinite
            return 0.0
        self._size += scale
        np.divide(values, self._size, out=self._share)  # in (-1, 1), about evenly for bells and for long tails
        self._share *= np.float32(_CLASSES / 2 - 1)
        self._share += np.float32(_CLASSES / 2)
        self._class[:] = self._share
        counts = np.bincount(self._class, minlength=_CLASSES)
        np.cumsum(counts, out=self._upto)
        self._upto += self._upto
        self._upto -= counts
        np.subtract(self._upto, self.width, out=self._middle, casting="unsafe")
        np.take(self._middle, self._class, out=self._whole, mode="wrap")
        ranks[:] = self._whole
        size = float(ranks @ ranks)
        lost = (float(self.width) ** 3 - self.width) / 3 - size
        return size if np.sqrt(3 * max(lost, 0.0)) <= TOLERANCE * float(self.width) ** 2 else 0.0

    def _twice_ranks_of_z(self, x: Singles) -> NDArray[np.int32]:
        """Twice the average ranks of |e| sgn(X), but for a constant; no score is zero."""
        np.right_shift(x.view(np.int32), 31, out=self._z)  # -1 where negative
        np.cumsum(self._z, out=self._down)
        tied, first = self.table.tied, self.table.first
        below = self._z[tied]
        both = self._down[self.table.last] + self._down[first] - self._z[first]
        np.invert(self._z, out=self._z)
        self._z &= self._place
        self._z += self._down
        self._z += self._z
        self._z[tied] = both + np.where(below, -1, self._ends)
        return self._z
