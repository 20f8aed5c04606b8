"""One drawing of a figure with matplotlib's object API.

The layout is computed from measured text, so that nothing overlaps or leaves the canvas. Sizes are in pixels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis as DrawnAxis
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from ecoc.reporting.document import Axis, Figure, Point
from ecoc.reporting.drawable import Drawable, drawable_axis
from ecoc.reporting.labels import number_text, shortened, spaced, tick_texts, width_of, wrapped

# Okabe and Ito's colours, darkened where they were too pale on white; style.css has those of a dark page too.
SERIES = ("#0072b2", "#d55e00", "#008763", "#b8558c", "#8a6d00", "#3b9bdc", "#7a3e00", "#5c5c5c")
INK, MUTED, GRID, PAPER = "#1c1d1f", "#5f6368", "#e3e4e6", "#ffffff"
_MARKERS = ("o", "s", "^", "D", "v", "P")
_HATCHES = ("", "//", "--", "\\\\", "||", "xx", "++")
_HANDLE = 50.0  # a legend entry without its name
_GAP = 9.0  # between groups of bars
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))  # of a point, for its label

Range = tuple[float, float]


@dataclass(frozen=True)
class _Tick:
    """A place on an axis and its text."""

    value: float
    text: str
    is_line: bool = False


@dataclass(frozen=True)
class _Layout:
    """Axes, texts and sizes of a drawing."""

    x: Axis
    y: Axis
    x_range: Range
    x_ticks: list[_Tick]
    y_ticks: list[_Tick]
    header: str
    footer: str
    columns: int  # of the legend
    names: list[str]
    left: float
    across: float  # width of the data
    upwards: float  # height of the data
    above: float  # of the legend
    below: float
    height: float


class Plot:
    """A figure on a canvas of some width."""

    def __init__(self, figure: Figure, drawn: Drawable, width: float) -> None:
        self.figure = figure.model_copy(update={"x": drawable_axis(figure.x), "y": drawable_axis(figure.y)})
        self.width, self.notes = float(width), list(drawn.notes)
        self.is_bars, self.is_wide = figure.kind == "bars", width >= 500
        self.size = 12.5 if self.is_wide else 11.0
        self.values = _limits(drawn.values(), self.figure.y, pad=0.05, zero=self.is_bars)
        self.series = {
            index: [_within(point, self.values) for point in points]
            for index, points in enumerate(drawn.series)
            if points
        }
        self.points = [point for points in self.series.values() for point in points]
        self.places = sorted({point.x for point in self.points})  # of bars

    def build(self) -> Canvas:
        """The canvas with everything on it."""
        if not self.series:
            canvas = Canvas(figsize=(self.width / 72, 1), dpi=72)
            canvas.text(0.5, 0.5, "Nothing to show.", ha="center", va="center", size=self.size, color=MUTED)
            return canvas
        layout = self._layout()
        width, height = self.width, layout.height
        canvas = Canvas(figsize=(width / 72, height / 72), dpi=72)
        box = (layout.left / width, layout.below / height, layout.across / width, layout.upwards / height)
        axes = canvas.add_axes(box)
        axes.set_xscale("log" if layout.x.log else "linear")
        axes.set_yscale("log" if layout.y.log and not self.is_bars else "linear")
        self._set_axis(axes.xaxis, layout.x_ticks, has_grid=self.figure.kind != "lines")
        self._set_axis(axes.yaxis, layout.y_ticks, has_grid=not self.is_bars)
        axes.set(xlim=layout.x_range, ylim=(len(self.places) - 0.5, -0.5) if self.is_bars else self.values)
        {"bars": self._draw_bars, "lines": self._draw_lines, "points": self._draw_points}[self.figure.kind](axes)
        self._draw_references(axes)
        middle = (layout.left + layout.across / 2) / width
        canvas.text(0, 1 - 2 / height, layout.header, ha="left", va="top", size=self.size)
        canvas.text(middle, 3 / height, layout.footer, ha="center", va="bottom", size=self.size)
        if layout.names:
            handles = [self._handle(index) for index in self.series]
            look: dict[str, Any] = {"bbox_to_anchor": (0, 1 - layout.above / height), "fontsize": self.size}
            canvas.legend(handles, layout.names, loc="upper left", ncols=layout.columns, **look)
        return canvas

    def _layout(self) -> "_Layout":
        """Where everything goes: the labels along the axes take their room, the data get the rest."""
        size, line = self.size, 1.35 * self.size
        x, y = (self.figure.y, self.figure.x) if self.is_bars else (self.figure.x, self.figure.y)
        upwards = self._slot() * len(self.places) if self.is_bars else 300.0 if self.is_wide else 210.0
        y_ticks = self._bar_ticks() if self.is_bars else self._ticks(y, self.values, upwards, 1.1 * size)
        left = max(width_of(tick.text, size) for tick in y_ticks) + 10.0
        x_range = self.values if self.is_bars else self._x_range()
        x_ticks = self._ticks(x, x_range, self.width - left - 30.0)
        left = max(left, width_of(x_ticks[0].text, size) / 2 + 2)
        across = self.width - left - max(14.0, width_of(x_ticks[-1].text, size) / 2 + 4)
        x_ticks = self._ticks(x, x_range, across)  # now that the room is known
        header, footer = wrapped(y.label, self.width, size), wrapped(x.label, self.width - left, size)
        columns, names = self._legend()
        above = line * (header.count("\n") + 1.4) * bool(header)
        below = line * (1.5 + (footer.count("\n") + 1.2) * bool(footer))
        height = above + line * math.ceil(len(names) / columns) + 6.0 + upwards + below
        edges = (left, across, upwards, above, below, height)
        return _Layout(x, y, x_range, x_ticks, y_ticks, header, footer, columns, names, *edges)

    def _slot(self) -> float:
        """Height of a group of bars."""
        return len(self.series) * (18.0 if len(self.series) == 1 else 11.0) + _GAP

    def _x_range(self) -> Range:
        pad = 0.02 if self.figure.kind == "lines" else 0.12 if any(point.label for point in self.points) else 0.05
        return _limits([point.x for point in self.points], self.figure.x, pad=pad)

    def _bar_ticks(self) -> list[_Tick]:
        names, known = self.figure.x.names, range(len(self.figure.x.names))
        texts = [names[int(place)] if place in known else number_text(place) for place in self.places]
        return [_Tick(at, shortened(text, 0.36 * self.width, self.size)) for at, text in enumerate(texts)]

    def _ticks(self, axis: Axis, limits: Range, length: float, tall: float = 0.0) -> list[_Tick]:
        """What is written along an axis, always the value of its line; `tall` is the room of a text upwards."""
        low, high = limits
        is_named = not (self.is_bars or tall or axis.log)
        places = [place for place in range(len(axis.names)) if is_named and low <= place <= high]
        if places:
            room = max(length / len(places) - 6, 40.0)
            ticks = [_Tick(place, shortened(axis.names[place], room, self.size)) for place in places]
        else:
            values = [value for value in axis.ticks if low <= value <= high]
            values = values or _round_values(axis, limits, length, tall)
            ticks = [_Tick(value, text) for value, text in zip(values, tick_texts(values), strict=True)]
        if axis.line is not None and low <= axis.line <= high:
            ticks = [tick for tick in ticks if tick.value != axis.line]
            ticks.insert(0, _Tick(axis.line, number_text(axis.line), is_line=True))
        scale = math.log10 if axis.log else float
        extent = scale(high) - scale(low)
        at = [length * (scale(tick.value) - scale(low)) / extent for tick in ticks]
        kept = spaced(at, [tall or width_of(tick.text, self.size) for tick in ticks])
        return sorted((ticks[index] for index in kept), key=lambda tick: tick.value)

    def _set_axis(self, axis: DrawnAxis, ticks: list[_Tick], *, has_grid: bool) -> None:
        axis.set_ticks([tick.value for tick in ticks], labels=[tick.text for tick in ticks], fontsize=self.size)
        axis.set_minor_locator(NullLocator())
        axis.grid(has_grid)
        for label, tick in zip(axis.get_ticklabels(), ticks, strict=True):
            label.set_fontweight("bold" if tick.is_line else "normal")

    def _legend(self) -> tuple[int, list[str]]:
        """Columns and names of the legend; no names where one series has nothing to say."""
        names = [self.figure.series[index].name for index in self.series]
        if len(names) == 1 and names[0] in ("", self.figure.y.label):
            return 1, []
        names = [shortened(name, self.width - _HANDLE, self.size) for name in names]
        widest = max(width_of(name, self.size) for name in names) + _HANDLE
        return max(1, min(len(names), int(self.width / widest))), names

    def _style(self, index: int) -> dict[str, Any]:
        """How a series is drawn: colour, line, marker, so that twelve can be told apart without colour."""
        colour, is_hollow = SERIES[index % len(SERIES)], index // len(_MARKERS) % 2 == 1
        dashes: Any = "-" if index < len(SERIES) else (0, (5, 1.5, 1, 1.5))
        style = {
            "color": colour,
            "linestyle": (0, (3, 2)) if self.figure.series[index].dashed else dashes,
            "marker": _MARKERS[index % len(_MARKERS)],
            "markersize": 7.0 if self.is_wide else 6.0,
            "markerfacecolor": PAPER if is_hollow else colour,
            "markeredgecolor": colour if is_hollow else PAPER,
            "markeredgewidth": 1.4 if is_hollow else 0.6,
        }
        if self.figure.kind == "points":
            style |= {"marker": ""} if self.figure.series[index].dashed else {"linestyle": "none"}
        return style

    def _bar_style(self, index: int) -> dict[str, Any]:
        hatch = _HATCHES[index % len(_HATCHES)] if len(self.series) > 1 else ""
        return {"facecolor": SERIES[index % len(SERIES)], "edgecolor": PAPER, "linewidth": 0.0, "hatch": hatch}

    def _handle(self, index: int) -> Patch | Line2D:
        return Patch(**self._bar_style(index)) if self.is_bars else Line2D([], [], **self._style(index))

    def _draw_bars(self, axes: Axes) -> None:
        axes.spines["bottom"].set_visible(False)
        count, base = len(self.series), self.values[0] if self.figure.y.log else 0.0
        axes.axvline(base, color=MUTED, linewidth=1, zorder=2.4)
        thick = (1 - _GAP / self._slot()) / count
        for order, (index, points) in enumerate(self.series.items()):
            at = [self.places.index(point.x) + (order - (count - 1) / 2) * thick for point in points]
            axes.barh(at, [point.y - base for point in points], thick * 0.94, left=base, **self._bar_style(index))
            self._draw_whiskers(axes, points, at, INK)

    def _draw_lines(self, axes: Axes) -> None:
        for index, points in self.series.items():
            style, at = self._style(index), [point.x for point in points]
            ends = _ends(points)
            if len(ends) == len(points) > 1:
                opacity = 0.16 if len(self.series) <= 4 else 0.09
                lows, highs = zip(*ends, strict=True)
                axes.fill_between(at, lows, highs, color=style["color"], alpha=opacity, linewidth=0)
            else:
                self._draw_whiskers(axes, points, at, style["color"])
            stride = max(1, len(points) // 8) if len(points) > 30 else 1
            first = stride * index // len(self.figure.series)  # markers of other lines stand elsewhere
            axes.plot(at, [point.y for point in points], markevery=(first, stride), **style)

    def _draw_points(self, axes: Axes) -> None:
        labelled: list[Point] = []
        for index, points in self.series.items():
            style, at = self._style(index), [point.x for point in points]
            axes.plot(at, [point.y for point in points], zorder=3, **style)
            if style["marker"]:
                self._draw_whiskers(axes, points, at, style["color"])
                labelled += points
        left_out = self._draw_labels(axes, labelled)
        if left_out:
            self.notes.append(f"{left_out} labels are left out for lack of room; the tables hold all.")

    def _draw_labels(self, axes: Axes, points: Sequence[Point]) -> int:
        """Write labels beside their points where there is room; return how many found none."""
        taken, left_out, size = list[tuple[float, ...]](), 0, self.size - 1
        spots = [axes.transData.transform((point.x, point.y)) for point in points]
        for point, (x, y) in zip(points, spots, strict=True):
            ends = [axes.transData.transform((point.x, end))[1] for end in (point.low, point.high) if end is not None]
            taken += [(x - 5, y - 5, x + 5, y + 5), (x - 2, min(ends, default=y), x + 2, max(ends, default=y))]
        for point, (x, y) in zip(points, spots, strict=True):
            text = shortened(point.label, 150.0, size)
            half, tall = width_of(text, size) / 2 if text else 0.0, 0.6 * size
            for across, up in ((far * side[0], far * side[1]) for far in (1, 2) for side in _SIDES):
                middle = x + 8 * across + half * (across > 0) - half * (across < 0), y + (8 + tall) * up
                box = (middle[0] - half, middle[1] - tall, middle[0] + half, middle[1] + tall)
                is_inside = box[0] >= 0 and box[2] <= self.width and axes.bbox.y0 <= box[1] and box[3] <= axes.bbox.y1
                if text and is_inside and not any(_overlap(box, other) for other in taken):
                    taken.append(box)
                    axes.annotate(text, middle, xycoords="figure pixels", ha="center", va="center", size=size, zorder=4)
                    break
            else:
                left_out += bool(text)
        return left_out

    def _draw_whiskers(self, axes: Axes, points: Sequence[Point], at: Sequence[float], colour: str) -> None:
        """Intervals as lines with caps."""
        ends = _ends(points)
        if not ends:
            return
        places = [place for place, point in zip(at, points, strict=True) if point.low is not None]
        lows, highs = zip(*ends, strict=True)
        style: dict[str, Any] = {"color": colour, "zorder": 2.6}
        (axes.hlines if self.is_bars else axes.vlines)(places, lows, highs, linewidth=1.3, **style)
        for side in (lows, highs):
            x, y, cap = (side, places, "|") if self.is_bars else (places, side, "_")
            axes.plot(x, y, marker=cap, markersize=6, markeredgewidth=1.3, linestyle="none", **style)

    def _draw_references(self, axes: Axes) -> None:
        """The lines that the axes ask for."""
        style: dict[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": (0, (2, 3)), "zorder": 2.5}
        if self.figure.y.line is not None:
            (axes.axvline if self.is_bars else axes.axhline)(self.figure.y.line, **style)
        if self.figure.x.line is not None and not self.is_bars:
            axes.axvline(self.figure.x.line, **style)


def _limits(values: Sequence[float], axis: Axis, *, pad: float, zero: bool = False) -> Range:
    """A range that holds all values and the axis's line, with some room; never an empty one."""
    values = [*values, *([] if axis.line is None else [axis.line]), *[0.0] * (zero and not axis.log)]
    if axis.log:
        values = [math.log10(value) for value in values if value > 1e-30]
    low, high = min(values, default=0.0), max(values, default=1.0)
    largest = max(abs(low), abs(high))
    if high - low <= 1e-9 * largest:
        room = 0.3 if axis.log else 0.1 * largest or 1.0
        low, high = (low if zero and low == 0 else low - room), high + room
    else:
        room = pad * (high - low)
        low, high = (low if zero and low == 0 else low - room), (high if zero and high == 0 else high + room)
    return (10**low, 10**high) if axis.log else (low, high)


def _within(point: Point, limits: Range) -> Point:
    """A point whose interval ends at the edge of the plot at the latest."""
    if point.low is None or point.high is None:
        return point
    return point.model_copy(update={"low": max(point.low, limits[0]), "high": min(point.high, limits[1])})


def _ends(points: Sequence[Point]) -> list[Range]:
    return [(point.low, point.high) for point in points if point.low is not None and point.high is not None]


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _round_values(axis: Axis, limits: Range, length: float, tall: float) -> list[float]:
    """Round numbers along an axis."""
    low, high = limits
    most = max(3, min(8, int(length / (3.5 * tall if tall else 75))))
    values = LogLocator(numticks=most + 1).tick_values(low, high) if axis.log else ()
    shown = [float(value) for value in values if low <= value <= high]
    if len(shown) < 2:
        steps = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        shown = [float(value) for value in steps if low <= value <= high]
    return shown or [low]
