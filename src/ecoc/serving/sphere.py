"""The unit sphere of items in two dimensions: popular items, and the action of the policy after a history.

Item vectors have length 1. They are projected on their two leading principal directions, which are orthonormal, so
every point lies in the unit disc. The action a of a ranking is the direction in the space of item vectors that
reproduces the scores s best:

    a, c = argmin sum_i (v_i . a + c - s_i)^2      over the popular items i with vectors v_i

For a policy that scores by mu . v_i this is mu itself. For the blend it is the nearest single direction.
"""

from collections.abc import Sequence

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray

from ecoc.errors import InputError
from ecoc.model import Event, as_history
from ecoc.policies.base import RankBy
from ecoc.serving.engine import Served

MOST_ITEMS = 2000
LONGEST_TITLE = 200
"""Characters of a title on the sphere and in sessions: titles may be long, and there are many."""

Floats = NDArray[np.float64]


class Place(Struct, frozen=True):
    """Where an item lies."""

    item: str
    title: str | None
    x: float
    y: float


class Point(Struct, frozen=True):
    """Where the action lies."""

    x: float
    y: float


class Sphere:
    """The projection of a model's items, computed once."""

    def __init__(self, served: Served) -> None:
        unit, vectors = served.model.policy.unit_vectors(), served.model.policy.vectors()
        if unit is None or vectors is None:
            method = served.model.config.method_name
            raise InputError(f"Method {method} has no item vectors, so there is no sphere to draw.")
        self.served, self._unit = served, unit.detach()
        popular_first = np.argsort(-served.model.vocab.popularity()[1:], kind="stable")
        self._items = torch.from_numpy(popular_first[:MOST_ITEMS] + 1)
        near = self._unit[self._items].double().numpy()  # [n, d]
        self.axes, self.share = _principal_directions(near)
        design = vectors.detach()[self._items].double().numpy()
        self._inverse = np.linalg.pinv(design - design.mean(0), rcond=1e-6)  # [d, n]

    @property
    def total(self) -> int:
        """Number of items in the catalogue."""
        return len(self.served.ids)

    def items(self) -> list[Place]:
        """The most popular items."""
        return self._places(self._items.numpy())

    def places(self, ids: Sequence[str]) -> list[Place]:
        """The given items, without those that the model does not know."""
        index = self.served.model.vocab.indices(list(ids)).astype(np.int64)
        return self._places(index[index > 0])

    def action(self, history: Sequence[Event], rank_by: RankBy | None, w: float | None) -> Point | None:
        """The action after a history; none if no item of it is known, because then popular items are listed."""
        model = self.served.model
        policy = model.policy.without_counts.ranked_by(rank_by, w=w)
        read = model.read(history)
        if not len(read.items):
            return None
        with torch.inference_mode():
            query = policy.query(as_history([read], policy.length))
            scores = policy.scores_of(query, self._items[None])[0][0].double().numpy()
        direction = self._inverse @ (scores - scores.mean())
        length = float(np.linalg.norm(direction))
        x, y = (direction / length if length else direction) @ self.axes
        return Point(_rounded(x), _rounded(y))

    def _places(self, index: NDArray[np.int64]) -> list[Place]:
        points = self._unit[torch.from_numpy(index)].double().numpy() @ self.axes
        ids, titles = self.served.ids, self.served.titles
        return [
            Place(ids[item - 1], short_title(titles[item - 1]), _rounded(x), _rounded(y))
            for item, (x, y) in zip(index.tolist(), points, strict=True)
        ]


def _principal_directions(points: Floats) -> tuple[Floats, float]:
    """The two leading principal directions as columns, [d, 2], and the share of the variance that they hold."""
    centred = points - points.mean(0)
    variances, columns = np.linalg.eigh(centred.T @ centred)  # smallest first
    axes: Floats = columns[:, ::-1][:, :2]
    axes = axes * np.where(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])] < 0, -1.0, 1.0)  # one sign everywhere
    axes = np.pad(axes, ((0, 0), (0, 2 - axes.shape[1])))  # vectors of one dimension lie on a line
    total = float(variances.sum())
    return axes, float(variances[::-1][:2].sum()) / total if total > 0 else 1.0


def _rounded(value: float) -> float:
    return round(float(value), 4)


def short_title(title: str | None) -> str | None:
    """A title as the page draws it in places with little room."""
    return title if title is None or len(title) <= LONGEST_TITLE else title[: LONGEST_TITLE - 1] + "…"
