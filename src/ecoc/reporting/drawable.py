"""Which points of a figure can be drawn, and what a reader must know about the others."""

import math
from dataclasses import dataclass, replace

from ecoc.reporting.document import Axis, Figure, Point

_LARGEST, _SMALLEST = 1e30, 1e-30  # beyond these an axis cannot be scaled; the smallest counts on a log axis only
_MOST_IN_LINE, _MOST_DOTS, _MOST_BARS = 1500, 4000, 200


@dataclass(frozen=True)
class Drawable:
    """The points of each series that can be drawn (an interval has both ends or none), and notes about the rest."""

    series: list[list[Point]]
    notes: list[str]

    def points(self) -> list[Point]:
        """The points of all series."""
        return [point for points in self.series for point in points]

    def values(self) -> list[float]:
        """All values and ends of intervals."""
        return [value for point in self.points() for value in (point.y, point.low, point.high) if value is not None]


def drawable(figure: Figure) -> Drawable:
    """The part of a figure that can be drawn."""
    series = [[drawn for point in line.points if (drawn := _point(point, figure))] for line in figure.series]
    missing = sum(len(line.points) for line in figure.series) - sum(map(len, series))
    notes = []
    if missing:
        reason = "a log axis has no place for 0 and below" if figure.x.log or figure.y.log else "they are too large"
        notes.append(f"{missing:,} {'point is' if missing == 1 else 'points are'} not shown: {reason}.")
    if figure.y.log and any(point.low is not None and point.low <= _SMALLEST for line in series for point in line):
        notes.append("Intervals that reach 0 or less end at the edge.")
    return _thinned(Drawable(series, notes), figure)


def drawable_axis(axis: Axis) -> Axis:
    """An axis without a line or ticks that cannot be drawn."""
    low = _SMALLEST if axis.log else -_LARGEST
    line = axis.line if axis.line is not None and low <= axis.line <= _LARGEST else None
    return axis.model_copy(update={"line": line, "ticks": [tick for tick in axis.ticks if low <= tick <= _LARGEST]})


def is_empty(figure: Figure) -> bool:
    """Whether a figure has no point to draw."""
    return not any(_point(point, figure) for line in figure.series for point in line.points)


def _point(point: Point, figure: Figure) -> Point | None:
    if max(abs(point.x), abs(point.y)) > _LARGEST:
        return None
    if (figure.x.log and figure.kind != "bars" and point.x < _SMALLEST) or (figure.y.log and point.y < _SMALLEST):
        return None
    if point.low is None and point.high is None:
        return point
    ends = (point.y if end is None else min(max(end, -_LARGEST), _LARGEST) for end in (point.low, point.high))
    low, high = sorted(ends)
    return point.model_copy(update={"low": low, "high": high})


def _thinned(drawn: Drawable, figure: Figure) -> Drawable:
    """No more points than a reader or a browser can take."""
    if figure.kind == "lines":
        return replace(drawn, series=[_extremes(points) for points in drawn.series])
    total = sum(map(len, drawn.series))
    if figure.kind == "points" and total > _MOST_DOTS:
        stride = math.ceil(total / _MOST_DOTS)
        note = f"One point in {stride} of {total:,} is shown."
        return Drawable([points[::stride] for points in drawn.series], [*drawn.notes, note])
    places = sorted({point.x for point in drawn.points()})
    most = max(1, _MOST_BARS // len(drawn.series))
    if figure.kind == "bars" and len(places) > most:
        kept = set(places[:most])
        note = f"The first {most} of {len(places):,} places are shown."
        series = [[point for point in points if point.x in kept] for points in drawn.series]
        return Drawable(series, [*drawn.notes, note])
    return drawn


def _extremes(points: list[Point]) -> list[Point]:
    """The lowest and highest point of each stretch of a long line, and both ends: the line looks the same."""
    if len(points) <= _MOST_IN_LINE:
        return points
    stretch = math.ceil(2 * len(points) / _MOST_IN_LINE)
    kept = {0, len(points) - 1}
    for start in range(0, len(points), stretch):
        places = range(start, min(start + stretch, len(points)))
        kept |= {min(places, key=lambda place: points[place].y), max(places, key=lambda place: points[place].y)}
    return [points[place] for place in sorted(kept)]
