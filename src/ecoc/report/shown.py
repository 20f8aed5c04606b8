"""Which points of a figure can be drawn, and what must be said of the others."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ecoc.report.document import Figure, Point

_MOST_IN_LINE, _MOST_DOTS, _MOST_BARS = 1500, 4000, 400


@dataclass(frozen=True)
class Dot:
    """A point that can be drawn, and its interval if it has one."""

    x: float
    y: float
    low: float | None
    high: float | None
    label: str


@dataclass(frozen=True)
class Shown:
    """The dots of each series, and what a reader must know of what is missing."""

    series: list[list[Dot]]
    notes: list[str]

    def dots(self) -> Iterator[Dot]:
        """All of them."""
        for dots in self.series:
            yield from dots

    def heights(self) -> Iterator[float]:
        """All values and ends of intervals."""
        for dot in self.dots():
            yield dot.y
            if dot.low is not None and dot.high is not None:
                yield from (dot.low, dot.high)


def shown(figure: Figure) -> Shown:
    """What of a figure can be drawn."""
    series = [[dot for point in line.points if (dot := _dot(point, figure)) is not None] for line in figure.series]
    missing = sum(len(line.points) for line in figure.series) - sum(map(len, series))
    notes = [f"{missing} not shown: a log axis has no place for numbers below or at 0."] if missing else []
    if figure.y.log and any(dot.low is not None and dot.low <= 0 for dots in series for dot in dots):
        notes.append("Intervals that reach 0 or less end at the edge.")
    return _thinned(Shown(series, notes), figure)


def is_empty(figure: Figure) -> bool:
    """Whether there is no point to draw."""
    return not any(_dot(point, figure) for line in figure.series for point in line.points)


def _dot(point: Point, figure: Figure) -> Dot | None:
    if not (math.isfinite(point.x) and math.isfinite(point.y)):
        return None
    if (figure.x.log and figure.kind != "bars" and point.x <= 0) or (figure.y.log and point.y <= 0):
        return None
    low, high = point.low, point.high
    if low is not None or high is not None:
        low, high = sorted(point.y if end is None else end for end in (low, high))
    return Dot(point.x, point.y, low, high, point.label)


def _thinned(found: Shown, figure: Figure) -> Shown:
    """No more than an eye or a browser can take."""
    if figure.kind == "lines":
        return replace(found, series=[_extremes(dots) for dots in found.series])
    total = sum(map(len, found.series))
    if figure.kind == "points" and total > _MOST_DOTS:
        stride = math.ceil(total / _MOST_DOTS)
        note = f"One point in {stride} of {total:,} is shown."
        return Shown([dots[::stride] for dots in found.series], [*found.notes, note])
    places = sorted({dot.x for dot in found.dots()})
    most = max(1, _MOST_BARS // len(found.series))
    if figure.kind == "bars" and len(places) > most:
        kept = set(places[:most])
        note = f"The first {most} of {len(places):,} places are shown."
        return Shown([[dot for dot in dots if dot.x in kept] for dots in found.series], [*found.notes, note])
    return found


def _extremes(dots: list[Dot]) -> list[Dot]:
    """Of each stretch of a long line its lowest and highest point, and both ends: what one would see of it anyway."""
    if len(dots) <= _MOST_IN_LINE:
        return dots
    stretch = math.ceil(2 * len(dots) / _MOST_IN_LINE)
    kept = {0, len(dots) - 1}
    for start in range(0, len(dots), stretch):
        places = range(start, min(start + stretch, len(dots)))
        kept |= {min(places, key=lambda place: dots[place].y), max(places, key=lambda place: dots[place].y)}
    return [dots[place] for place in sorted(kept)]
