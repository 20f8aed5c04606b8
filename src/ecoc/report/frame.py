"""What every chart has around its data: axes with their numbers, a legend, notes below."""

from collections.abc import Sequence
from dataclasses import dataclass

from ecoc.report.document import Axis, Figure
from ecoc.report.lettering import Box, escaped, shorten, width_of, wrap
from ecoc.report.marks import GRID, INK, MUTED, bar, colour, dashes, letters, line, marker, tag
from ecoc.report.ticks import Scale, number_text, tick_texts, ticks

WIDE, NARROW = 760, 360
_BOLD = f"fill:{INK};font-weight:600"
_FONT = "font-family:var(--sans,system-ui,sans-serif);font-variant-numeric:tabular-nums"


@dataclass(frozen=True)
class Look:
    """Sizes of a drawing of some width."""

    width: float

    @property
    def is_narrow(self) -> bool:
        """Whether it is for a phone."""
        return self.width < 500

    @property
    def size(self) -> float:
        """Of letters."""
        return 11.0 if self.is_narrow else 12.5

    @property
    def height(self) -> float:
        """Of the area that holds the data."""
        return 210.0 if self.is_narrow else 300.0

    @property
    def radius(self) -> float:
        """Of markers."""
        return 3.2 if self.is_narrow else 4.0


@dataclass(frozen=True)
class Mark:
    """A place on an axis with what is written there."""

    value: float
    text: str
    is_line: bool = False


@dataclass(frozen=True)
class Part:
    """A piece of a drawing and the height it takes."""

    svg: str
    height: float


def svg(figure: Figure, look: Look, parts: Sequence[Part], told: str) -> str:
    """Parts stacked into a drawing that says what it is to those who cannot see it."""
    placed, top = [], 2.0
    for part in parts:
        placed.append(f'<g transform="translate(0 {top:.1f})">{part.svg}</g>' if part.svg else "")
        top += part.height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {look.width:.0f} {top + 2:.0f}"'
        f' width="{look.width:.0f}" height="{top + 2:.0f}" style="{_FONT}">'
        f"<title>{escaped(figure.title)}</title><desc>{escaped(told)}</desc>{''.join(placed)}</svg>"
    )


def value_marks(axis: Axis, scale: Scale, look: Look, *, upright: bool) -> list[Mark]:
    """The numbers along an axis: those asked for or round ones, and its line; none overlap."""
    given = sorted(value for value in axis.ticks if scale.low <= value <= scale.high)
    if given:
        marks = _fitting([Mark(*pair) for pair in zip(given, tick_texts(given), strict=True)], scale, look, upright)
    else:
        marks = _round_marks(scale, look, upright)
    if axis.line is None or (axis.log and axis.line <= 0):
        return marks
    at = scale(axis.line)
    same = next((mark.text for mark in marks if abs(scale(mark.value) - at) < 0.1), None)
    reference = Mark(axis.line, same or number_text(axis.line), is_line=True)
    others = [mark for mark in marks if _are_apart(mark, reference, scale, look, upright)]
    return [*others, reference]


def _round_marks(scale: Scale, look: Look, upright: bool) -> list[Mark]:
    """As many round numbers as there is room for."""
    marks: list[Mark] = []
    for count in range(7 if upright else 10, 0, -1):
        values = ticks(scale.low, scale.high, log=scale.log, most=count)
        marks = [Mark(*pair) for pair in zip(values, tick_texts(values), strict=True)]
        if len(_fitting(marks, scale, look, upright)) == len(marks):
            return marks
    return _fitting(marks, scale, look, upright)


def _fitting(marks: Sequence[Mark], scale: Scale, look: Look, upright: bool) -> list[Mark]:
    """The marks that do not overlap the one before."""
    kept: list[Mark] = []
    for mark in marks:
        if not kept or _are_apart(kept[-1], mark, scale, look, upright):
            kept.append(mark)
    return kept


def _are_apart(one: Mark, other: Mark, scale: Scale, look: Look, upright: bool) -> bool:
    if upright:
        return abs(scale(one.value) - scale(other.value)) >= look.size * 1.25
    room = (width_of(one.text, look.size) + width_of(other.text, look.size)) / 2 + look.size * 0.7
    return abs(_middle(one, scale, look) - _middle(other, scale, look)) >= room


def _middle(mark: Mark, scale: Scale, look: Look) -> float:
    """Where text below an axis is centred: at its place, or as near as the edge of the drawing allows."""
    half = width_of(mark.text, look.size) / 2
    return min(max(scale(mark.value), half + 1), look.width - half - 1)


def name_marks(names: Sequence[str], scale: Scale, look: Look) -> list[Mark]:
    """Categories along an axis; every second, third … where not all fit."""
    slot = abs(scale(1.0) - scale(0.0))
    marks = [
        Mark(float(place), shorten(name, max(slot - 8, 80), look.size))
        for place, name in enumerate(names)
        if scale.low <= place <= scale.high
    ]
    for stride in range(1, len(marks) + 1):
        if len(_fitting(marks[::stride], scale, look, upright=False)) == len(marks[::stride]):
            return marks[::stride]
    return []


def horizontal_axis(marks: Sequence[Mark], axis: Axis, scale: Scale, box: Box, look: Look, *, grid: bool) -> Part:
    """Numbers or names below a plot, its label under them, and lines through it."""
    size, drawn = look.size, []
    for mark in marks:
        x, middle = scale(mark.value), _middle(mark, scale, look)
        if grid or mark.is_line:
            drawn.append(line([(x, box.top), (x, box.bottom)], reference_style(mark)))
        elif mark.text:
            drawn.append(line([(x, box.bottom), (x, box.bottom + 4)], f"stroke:{MUTED}"))
        style = _BOLD if mark.is_line else f"fill:{MUTED}"
        drawn.append(letters(mark.text, middle, box.bottom + size + 6, size=size, anchor="middle", style=style))
    height = size + 10
    for text in wrap(axis.label, look.width - 20, size)[:2]:
        height += size + 4
        half = width_of(text, size) / 2
        middle = min(max((box.left + box.right) / 2, half + 1), look.width - half - 1)
        drawn.append(letters(text, middle, box.bottom + height - 1, size=size, anchor="middle"))
    return Part("".join(drawn), height + 6)


def vertical_axis(marks: Sequence[Mark], scale: Scale, box: Box, look: Look) -> str:
    """Numbers left of a plot and lines through it."""
    drawn = []
    for mark in marks:
        y = scale(mark.value)
        drawn.append(line([(box.left, y), (box.right, y)], reference_style(mark)))
        style = _BOLD if mark.is_line else f"fill:{MUTED}"
        text_y = y + look.size * 0.36
        drawn.append(letters(mark.text, box.left - 8, text_y, size=look.size, anchor="end", style=style))
    return "".join(drawn)


def reference_style(mark: Mark) -> str:
    """A line of the grid, or the one that was asked for."""
    return f"stroke:{INK};stroke-width:1.2;stroke-dasharray:2 3" if mark.is_line else f"stroke:{GRID}"


def header(label: str, look: Look) -> Part:
    """The label of the vertical axis, above it and level, where it can be read."""
    lines = wrap(label, look.width - 8, look.size)[:2]
    step = look.size + 4
    drawn = [letters(text, 2, step * place - 2, size=look.size) for place, text in enumerate(lines, 1)]
    return Part("".join(drawn), step * len(lines) + 6 if lines else 0.0)


def legend(figure: Figure, shown_series: Sequence[int], look: Look) -> Part:
    """A sign and a name for each series, in as many rows as it takes."""
    size, sign, step = look.size, 26.0, look.size + 7
    x, row, drawn = 2.0, 0, []
    for index in shown_series:
        name = figure.series[index].name or f"series {index + 1}"
        text = shorten(name, look.width - sign - 12, size)
        needed = sign + 6 + width_of(text, size) + 14
        if x > 2 and x + needed - 14 > look.width:
            x, row = 2.0, row + 1
        y = row * step + step / 2
        whole = tag("title", escaped(name)) if text != name else ""
        inside = whole + _sign(figure, index, x, y, sign) + letters(text, x + sign + 6, y + size * 0.36, size=size)
        drawn.append(f"<g>{inside}</g>")
        x += needed
    return Part("".join(drawn), (row + 1) * step + 6)


def _sign(figure: Figure, index: int, x: float, y: float, width: float) -> str:
    if figure.kind == "bars":
        return bar(index, Box(x, y - 6, x + width, y + 6))
    dashed = figure.series[index].dashed
    stroke = f"stroke:{colour(index)};stroke-width:2;{dashes(index, dashed)}"
    drawn = line([(x, y), (x + width, y)], stroke) if figure.kind == "lines" or dashed else ""
    is_plain = dashed and figure.kind == "points"
    return drawn if is_plain else drawn + marker(index, x + width / 2, y, 4.2)


def footer(notes: Sequence[str], look: Look) -> Part:
    """What must be said of what is not shown."""
    size = look.size - 1
    lines = wrap(" ".join(notes), look.width - 4, size)
    style = f"fill:{MUTED};font-style:italic"
    drawn = [letters(text, 2, (size + 4) * place, size=size, style=style) for place, text in enumerate(lines, 1)]
    return Part("".join(drawn), (size + 4) * len(lines) + 4 if lines else 0.0)


def value_text(y: float, low: float | None, high: float | None) -> str:
    """A value and its interval in words."""
    interval = "" if low is None or high is None else f" [{number_text(low)}, {number_text(high)}]"
    return number_text(y) + interval
