"""Bars: upright where the names below them fit, lying where they do not, so that no name is ever turned."""

from collections.abc import Sequence
from dataclasses import dataclass

from ecoc.report.document import Axis, Figure
from ecoc.report.frame import (
    Look,
    Mark,
    Part,
    footer,
    header,
    horizontal_axis,
    legend,
    value_marks,
    value_text,
    vertical_axis,
)
from ecoc.report.lettering import Box, escaped, shorten, width_of
from ecoc.report.marks import INK, MUTED, PAPER, bar, letters, line, path, tag
from ecoc.report.shown import Dot, Shown
from ecoc.report.ticks import Scale, bounds, number_text

_THICKEST = 60.0  # a few bars do not become slabs


def bar_parts(figure: Figure, found: Shown, look: Look) -> list[Part]:
    """Header, legend, bars, notes."""
    present = [index for index, dots in enumerate(found.series) if dots]
    places = sorted({dot.x for dot in found.dots()})
    names = [_name(figure.x, place) for place in places]
    is_told = len(present) > 1 or figure.series[present[0]].name not in ("", figure.y.label)
    key = legend(figure, present, look) if is_told else Part("", 4.0)
    slot = (look.width - 60) / len(places)
    fits = all(width_of(name, look.size) <= slot - 8 for name in names)
    is_upright = fits and slot * 0.8 / len(present) >= 7
    chart = _Bars(figure, found, look, present, places, names)
    notes = footer(found.notes, look)
    if is_upright:
        return [header(figure.y.label, look), key, chart.upright(), notes]
    return [key, header(figure.x.label, look), chart.lying(), notes]


def _name(axis: Axis, place: float) -> str:
    if axis.names and place.is_integer() and 0 <= place < len(axis.names):
        return axis.names[int(place)]
    return number_text(place)


@dataclass(frozen=True)
class _Bars:
    figure: Figure
    found: Shown
    look: Look
    present: Sequence[int]
    places: Sequence[float]
    names: Sequence[str]

    def _range(self) -> tuple[float, float]:
        values = list(self.found.heights())
        if self.figure.y.line is not None:
            values.append(self.figure.y.line)
        return bounds(values, log=self.figure.y.log, zero=True)

    def upright(self) -> Part:
        """Bars that stand on the axis."""
        look, axis = self.look, self.figure.y
        scale = Scale(*self._range(), axis.log, look.height, 8.0)
        marks = value_marks(axis, scale, look, upright=True)
        left = max(width_of(mark.text, look.size) for mark in marks) + 14
        box = Box(left, 8.0, look.width - 4, look.height)
        slot = (box.right - box.left) / len(self.places)
        drawn = [
            self._bar(index, dot, left + slot * place, slot, scale, upright=True) for index, place, dot in self._all()
        ]
        middles = Scale(0, len(self.places), False, left, box.right)
        below = horizontal_axis(
            [Mark(place + 0.5, name) for place, name in enumerate(self.names)],
            self.figure.x,
            middles,
            box,
            look,
            grid=False,
        )
        base = scale(0.0)
        ground = line([(box.left, base), (box.right, base)], f"stroke:{MUTED}")
        grid, over = _split(marks)
        svg = vertical_axis(grid, scale, box, look) + "".join(bars for bars, _ in drawn) + ground
        svg += vertical_axis(over, scale, box, look) + "".join(whisker for _, whisker in drawn) + below.svg
        return Part(svg, box.bottom + below.height)

    def lying(self) -> Part:
        """Bars that grow to the right, each group beside its name."""
        look, axis, size = self.look, self.figure.y, self.look.size
        room = look.width * 0.36
        left = min(max(width_of(name, size) for name in self.names), room) + 12
        thick = 18.0 if len(self.present) == 1 else 11.0
        slot = len(self.present) * thick + (10 if len(self.present) > 1 else 8)
        box = Box(left, 4.0, look.width - 14, 4.0 + slot * len(self.places))
        scale = Scale(*self._range(), axis.log, box.left, box.right)
        marks = value_marks(axis, scale, look, upright=False)
        drawn = [
            self._bar(index, dot, box.top + slot * place, slot, scale, upright=False)
            for index, place, dot in self._all()
        ]
        texts = [
            tag("title", escaped(name)) + letters(shorten(name, room, size), left - 8, y, size=size, anchor="end")
            for place, name in enumerate(self.names)
            if (y := box.top + slot * (place + 0.5) + size * 0.36)
        ]
        base = scale(0.0)
        ground = line([(base, box.top), (base, box.bottom)], f"stroke:{MUTED}")
        grid, over = _split(marks)
        below = horizontal_axis(grid, axis, scale, box, look, grid=True)
        above = horizontal_axis(over, Axis(label=""), scale, box, look, grid=True)
        svg = below.svg + "".join(bars for bars, _ in drawn) + ground + above.svg
        svg += "".join(whisker for _, whisker in drawn) + "".join(f"<g>{text}</g>" for text in texts)
        return Part(svg, box.bottom + below.height)

    def _all(self) -> list[tuple[int, int, Dot]]:
        where = {place: index for index, place in enumerate(self.places)}
        return [(index, where[dot.x], dot) for index in self.present for dot in self.found.series[index]]

    def _bar(self, index: int, dot: Dot, start: float, slot: float, scale: Scale, *, upright: bool) -> tuple[str, str]:
        """A bar and its whisker; `start` and `slot` are the room of its group."""
        count = len(self.present)
        thick = min(slot * 0.8 / count, _THICKEST)
        first = start + (slot - thick * count) / 2 + thick * self.present.index(index)
        gap = 0.5 if count > 1 else 0.0
        ends = sorted((scale(0.0), scale(dot.y)))
        across = first + gap, first + thick - gap
        box = Box(across[0], ends[0], across[1], ends[1]) if upright else Box(ends[0], across[0], ends[1], across[1])
        name = self.names[self.places.index(dot.x)]
        label = f" {dot.label}" if dot.label else ""
        title = f"{name}, {self.figure.series[index].name}{label}: {value_text(dot.y, dot.low, dot.high)}"
        hatch = index if count > 1 else 0
        return bar(hatch, box, title), _whisker(dot, first + thick / 2, min(thick / 4, 4.0), scale, upright=upright)


def _split(marks: Sequence[Mark]) -> tuple[list[Mark], list[Mark]]:
    """The grid, which bars cover, and the line asked for, which they do not."""
    return [mark for mark in marks if not mark.is_line], [mark for mark in marks if mark.is_line]


def _whisker(dot: Dot, middle: float, half: float, scale: Scale, *, upright: bool) -> str:
    if dot.low is None or dot.high is None:
        return ""
    low, high = scale(dot.low), scale(dot.high)
    strokes = [[(middle, low), (middle, high)]] + [[(middle - half, end), (middle + half, end)] for end in (low, high)]
    if not upright:
        strokes = [[(y, x) for x, y in stroke] for stroke in strokes]
    drawn = "".join(map(path, strokes))
    halo = tag("path", d=drawn, style=f"fill:none;stroke:{PAPER};stroke-width:3.4;opacity:.7")
    return halo + tag("path", d=drawn, style=f"fill:none;stroke:{INK};stroke-width:1.4")
