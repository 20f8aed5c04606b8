"""Figures as SVG: lines and scatters here, bars beside; one drawing for a page, a narrower one for a phone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ecoc.report.bars import bar_parts
from ecoc.report.document import Figure
from ecoc.report.frame import (
    NARROW,
    WIDE,
    Look,
    Mark,
    Part,
    footer,
    header,
    horizontal_axis,
    legend,
    name_marks,
    svg,
    value_marks,
    value_text,
    vertical_axis,
)
from ecoc.report.lettering import Box, Label, place, shorten, spread, width_of
from ecoc.report.marks import INK, MUTED, PAPER, colour, dashes, letters, line, marker, path, tag
from ecoc.report.shown import Dot, Shown, is_empty, shown
from ecoc.report.ticks import Scale, bounds, number_text

__all__ = ["NARROW", "WIDE", "draw", "is_empty"]

_MOST_TITLES = 400  # points that say what they are when pointed at


def draw(figure: Figure, width: float = WIDE) -> str:
    """The figure as an SVG element that needs nothing else."""
    look, found = Look(width), shown(figure)
    if is_empty(figure):
        return svg(figure, look, [_nothing(look), footer(found.notes, look)], "Nothing to show.")
    parts = bar_parts(figure, found, look) if figure.kind == "bars" else _plot_parts(figure, found, look)
    return svg(figure, look, parts, _told(figure, found))


def _nothing(look: Look) -> Part:
    text = letters("nothing to show", look.width / 2, 40, size=look.size, anchor="middle", style=f"fill:{MUTED}")
    return Part(text, 70)


def _told(figure: Figure, found: Shown) -> str:
    """The figure in words, for those who cannot see it."""
    lines = [f"{figure.y.label or 'values'} by {figure.x.label or 'place'}."]
    for series, dots in zip(figure.series[:12], found.series, strict=False):
        if dots:
            low, high = min(dot.y for dot in dots), max(dot.y for dot in dots)
            extent = number_text(low) if low == high else f"{number_text(low)} to {number_text(high)}"
            lines.append(f"{series.name}: {extent}, last {number_text(dots[-1].y)}.")
    return " ".join([*lines, *found.notes])


@dataclass(frozen=True)
class _Plot:
    """Where data is drawn."""

    box: Box
    x: Scale
    y: Scale
    look: Look

    def at(self, dot: Dot) -> tuple[float, float]:
        """Where a dot lies."""
        return self.x(dot.x), self.y(dot.y)


def _plot_parts(figure: Figure, found: Shown, look: Look) -> list[Part]:
    """Header, legend, plot, notes."""
    present = [index for index, dots in enumerate(found.series) if dots]
    plot, y_marks = _plot(figure, found, look, right=14.0)
    ends = _end_labels(figure, found, look) if figure.kind == "lines" and len(present) > 1 else None
    if ends is not None:
        plot, names = ends
        key = Part("", 4.0)
    else:
        names = ""
        is_told = len(present) > 1 or figure.series[present[0]].name not in ("", figure.y.label)
        key = legend(figure, present, look) if is_told else Part("", 4.0)
    x_marks = _x_marks(figure, plot)
    below = horizontal_axis(x_marks, figure.x, plot.x, plot.box, look, grid=figure.kind == "points")
    if figure.kind == "lines":
        data, notes = _lines(figure, found, plot), found.notes
    else:
        data, left_out = _points(figure, found, plot)
        told = f"{left_out} labels are left out for lack of room; the tables hold all."
        notes = [*found.notes, told] if left_out else found.notes
    edge = [(plot.box.left, plot.box.bottom), (plot.box.right, plot.box.bottom)]
    drawn = vertical_axis(y_marks, plot.y, plot.box, look) + line(edge, f"stroke:{MUTED}") + below.svg + data + names
    return [header(figure.y.label, look), key, Part(drawn, plot.box.bottom + below.height), footer(notes, look)]


def _plot(figure: Figure, found: Shown, look: Look, right: float) -> tuple[_Plot, list[Mark]]:
    """The area for the data, once the numbers of the vertical axis have their room."""
    heights = list(found.heights())
    if figure.y.line is not None:
        heights.append(figure.y.line)
    y = Scale(*bounds(heights, log=figure.y.log), figure.y.log, look.height, 8.0)
    marks = value_marks(figure.y, y, look, upright=True)
    left = min(max((width_of(mark.text, look.size) for mark in marks), default=0) + 14, look.width * 0.4)
    box = Box(left, 8.0, look.width - right, look.height)
    across = [dot.x for dot in found.dots()]
    if figure.x.line is not None:
        across.append(figure.x.line)
    inset = look.width * 0.06 if figure.kind == "points" and any(dot.label for dot in found.dots()) else 12.0
    if figure.x.names:
        inset = max(inset, (box.right - box.left) / len(figure.x.names) / 2)
    low, high = bounds(across, log=figure.x.log, pad=0.0)
    x = Scale(low, high, figure.x.log, box.left + inset, box.right - inset)
    return _Plot(box, x, y, look), marks


def _x_marks(figure: Figure, plot: _Plot) -> list[Mark]:
    if figure.x.names:
        return name_marks(figure.x.names, plot.x, plot.look)
    return value_marks(figure.x, plot.x, plot.look, upright=False)


def _end_labels(figure: Figure, found: Shown, look: Look) -> tuple[_Plot, str] | None:
    """Names at the ends of their lines, and a plot that leaves room for them; none where that would not be clean."""
    present = [(index, dots) for index, dots in enumerate(found.series) if dots]
    size = look.size
    longest = max(width_of(figure.series[index].name, size) for index, _ in present)
    if look.is_narrow or len(present) > 8 or longest > 190 or not all(figure.series[i].name for i, _ in present):
        return None
    plot, _ = _plot(figure, found, look, right=longest + 22)
    last = [plot.at(max(dots, key=lambda dot: dot.x)) for _, dots in present]
    placed = spread([y for _, y in last], size * 1.2, plot.box.top, plot.box.bottom)
    edge = plot.x.end
    moved = max(abs(y - to) for (_, y), to in zip(last, placed, strict=True))
    if moved > 2.4 * size or min(x for x, _ in last) < edge - 0.04 * look.width:
        return None
    drawn = []
    for (index, _), (x, y), to in zip(present, last, placed, strict=True):
        start = plot.box.right + 4
        if abs(to - y) > 3:
            drawn.append(line([(x + 6, y), (start - 2, to)], f"stroke:{colour(index)};stroke-width:.8;opacity:.7"))
        name = shorten(figure.series[index].name, longest + 2, size)
        drawn.append(letters(name, start, to + size * 0.36, size=size, style=f"fill:{colour(index)};font-weight:600"))
    return plot, "".join(drawn)


def _lines(figure: Figure, found: Shown, plot: _Plot) -> str:
    """Bands first, so that no line is under one; then lines; then markers."""
    has_titles = sum(map(len, found.series)) <= _MOST_TITLES
    bands, strokes, signs = [], [], []
    for index, (series, dots) in enumerate(zip(figure.series, found.series, strict=True)):
        bands.append(_band(index, dots, plot, 0.16 if len(figure.series) <= 4 else 0.09))
        if len(dots) > 1:
            style = f"stroke:{colour(index)};stroke-width:2;stroke-linejoin:round;{dashes(index, series.dashed)}"
            strokes.append(line([plot.at(dot) for dot in dots], style))
        radius = plot.look.radius * (1.0 if len(dots) <= 40 else 0.9)
        for dot in _signed(dots, index, len(figure.series)):
            title = _title(figure, index, dot) if has_titles else ""
            signs.append(marker(index, *plot.at(dot), radius, title))
    return "".join([*bands, *strokes, *signs])


def _signed(dots: Sequence[Dot], index: int, count: int) -> Sequence[Dot]:
    """The dots of a line that get a marker: all of a few, else some, at other places than the other lines."""
    if len(dots) <= 30:
        return dots
    stride = len(dots) // 8
    return dots[stride * index // max(count, 1) :: stride]


def _band(index: int, dots: Sequence[Dot], plot: _Plot, opacity: float) -> str:
    """The intervals of a line: an area, or whiskers where only single points have one."""
    sure = [dot for dot in dots if dot.low is not None]
    if len(sure) < 2 or len(sure) < len(dots):
        return "".join(_whisker(dot, plot, colour(index)) for dot in sure)
    upper = [(plot.x(dot.x), plot.y(dot.high or 0.0)) for dot in sure]
    lower = [(plot.x(dot.x), plot.y(dot.low or 0.0)) for dot in reversed(sure)]
    return tag("path", d=path([*upper, *lower]) + "Z", style=f"fill:{colour(index)};opacity:{opacity};stroke:none")


def _whisker(dot: Dot, plot: _Plot, stroke: str) -> str:
    if dot.low is None or dot.high is None:
        return ""
    x, top, bottom = plot.x(dot.x), plot.y(dot.high), plot.y(dot.low)
    ends = "".join(path([(x - 3, y), (x + 3, y)]) for y in (top, bottom))
    return tag("path", d=path([(x, top), (x, bottom)]) + ends, style=f"fill:none;stroke:{stroke};stroke-width:1.2")


def _points(figure: Figure, found: Shown, plot: _Plot) -> tuple[str, int]:
    """A scatter, and how many labels found no room; a dashed series is a line to compare with."""
    has_titles = sum(map(len, found.series)) <= _MOST_TITLES
    under, signs, named, taken = [], [], [], []
    radius = plot.look.radius + 0.6
    for index, (series, dots) in enumerate(zip(figure.series, found.series, strict=True)):
        if series.dashed and len(dots) > 1:
            style = f"stroke:{colour(index)};stroke-width:1.6;{dashes(index, True)}"
            under.append(line([plot.at(dot) for dot in dots], style))
            continue
        for dot in dots:
            under.append(_whisker(dot, plot, colour(index)))
            x, y = plot.at(dot)
            signs.append(marker(index, x, y, radius, _title(figure, index, dot) * has_titles))
            named.append((dot.label, x, y))
            ends = [y] if dot.low is None or dot.high is None else [plot.y(dot.low), plot.y(dot.high)]
            taken.append(Box(x - 3, min(ends), x + 3, max(ends)))
            taken.append(Box(x - radius, y - radius, x + radius, y + radius))
    labels = place(named, taken, replace(plot.box, right=plot.look.width), plot.look.size - 1)
    left_out = sum(label is None and bool(text) for label, (text, _, _) in zip(labels, named, strict=True))
    return "".join([*under, *signs, *(_label(label, plot.look) for label in labels if label)]), left_out


def _label(label: Label, look: Look) -> str:
    size = look.size - 1
    leader = ""
    if label.is_far:
        near = min(max(label.at[0], label.x), label.x + width_of(label.text, size))
        leader = line([label.at, (near, label.y - size * 0.35)], f"stroke:{MUTED};stroke-width:.7")
    halo = f"fill:{INK};paint-order:stroke;stroke:{PAPER};stroke-width:2.5px;stroke-linejoin:round"
    return leader + letters(label.text, label.x, label.y, size=size, style=halo)


def _title(figure: Figure, index: int, dot: Dot) -> str:
    """What a point says when pointed at."""
    names, at = figure.x.names, int(dot.x)
    x = names[at] if names and at == dot.x and 0 <= at < len(names) else number_text(dot.x)
    label = f" {dot.label}" if dot.label else ""
    return f"{figure.series[index].name}{label} at {x}: {value_text(dot.y, dot.low, dot.high)}"
