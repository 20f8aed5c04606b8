"""What charts are drawn of: colours that most eyes tell apart; markers, dashes and hatches where there is no colour."""

from collections.abc import Sequence

from ecoc.report.lettering import Box, escaped

# Okabe and Ito's colours, darkened where they were too pale on white, and the same lightened for a dark page.
LIGHT = ("#0072b2", "#d55e00", "#008763", "#b8558c", "#8a6d00", "#3b9bdc", "#7a3e00", "#5c5c5c")
DARK = ("#5aa9e6", "#ff8a3d", "#3fcf9f", "#e79bc6", "#e6c229", "#9ad1ff", "#d3a06a", "#b5b5b5")
INK, MUTED, GRID, PAPER = (
    "var(--ink,#1c1d1f)",
    "var(--muted,#5f6368)",
    "var(--grid,#e3e4e6)",
    "var(--paper,#ffffff)",
)
_SHAPES = 6
_CROSS = ((-0.4, -1.15), (0.4, -1.15), (0.4, -0.4), (1.15, -0.4), (1.15, 0.4), (0.4, 0.4))


def colour(index: int) -> str:
    """The colour of a series: the page's, or its own where there is no page."""
    place = index % len(LIGHT)
    return f"var(--c{place + 1},{LIGHT[place]})"


def variables(colours: Sequence[str]) -> str:
    """The colours as the CSS variables that `colour` asks for."""
    return "".join(f"--c{place}:{value};" for place, value in enumerate(colours, 1))


def number(value: float) -> str:
    """A coordinate, to a tenth."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def tag(name: str, *inside: str, **attributes: str | float) -> str:
    """An element; underscores of attribute names become hyphens."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value) if isinstance(value, str) else number(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{told}>{''.join(inside)}</{name}>" if inside else f"<{name}{told}/>"


def letters(text: str, x: float, y: float, *, size: float, style: str = "", anchor: str = "start") -> str:
    """A line of text."""
    return tag("text", escaped(text), x=x, y=y, font_size=size, text_anchor=anchor, style=style or f"fill:{INK}")


def line(points: Sequence[tuple[float, float]], style: str) -> str:
    """Points joined."""
    return tag("path", d=path(points), style=f"fill:none;{style}")


def path(points: Sequence[tuple[float, float]]) -> str:
    """Points joined, as the `d` of a path."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def dashes(index: int, dashed: bool) -> str:
    """How the line of a series is broken: references are dashed, and colours that come again get dots."""
    if dashed:
        return "stroke-dasharray:6 4;"
    return "stroke-dasharray:9 3 2 3;" if index >= len(LIGHT) else ""


def marker(index: int, x: float, y: float, radius: float, title: str = "") -> str:
    """The sign of a series, one of six shapes, full and then hollow; with a title that a pointer shows."""
    r, inside = radius, (tag("title", escaped(title)),) if title else ()
    is_hollow = index // _SHAPES % 2 == 1
    fill = PAPER if is_hollow else colour(index)
    style = f"fill:{fill};stroke:{colour(index) if is_hollow else PAPER};stroke-width:{1.6 if is_hollow else 0.8}"
    shape = index % _SHAPES
    if shape == 0:
        return tag("circle", *inside, cx=x, cy=y, r=r, style=style)
    corners = (
        ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        ((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
        ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
        ((0, 1.15), (1.1, -0.85), (-1.1, -0.85)),
        (*_CROSS, *((-across, -down) for across, down in _CROSS)),
    )[shape - 1]
    outline = path([(x + r * across, y + r * down) for across, down in corners]) + "Z"
    return tag("path", *inside, d=outline, style=style)


def bar(index: int, box: Box, title: str = "") -> str:
    """The bar of a series, hatched in a way of its own from the second series on."""
    size = {"x": box.left, "y": box.top, "width": box.right - box.left, "height": box.bottom - box.top}
    inside = (tag("title", escaped(title)),) if title else ()
    drawn = tag("rect", *inside, **size, style=f"fill:{colour(index)}")
    hatch = _hatch(index, box)
    if not hatch:
        return drawn
    strokes = "".join(path(stroke) for stroke in hatch)
    style = f"fill:none;stroke:{PAPER};stroke-width:1.3;opacity:var(--hatch,.6);pointer-events:none"
    return drawn + tag("path", d=strokes, style=style)


_HATCHES = ("", "/", "-", "\\", "|", "/\\", "-|")
_GAP = 6.0


def _hatch(index: int, box: Box) -> list[list[tuple[float, float]]]:
    """Strokes that end at the edges of the box, so that no clipping is needed."""
    kind = _HATCHES[index % len(_HATCHES)]
    strokes: list[list[tuple[float, float]]] = []
    if "-" in kind:
        strokes += [[(box.left, y), (box.right, y)] for y in _every(box.top, box.bottom)]
    if "|" in kind:
        strokes += [[(x, box.top), (x, box.bottom)] for x in _every(box.left, box.right)]
    height = box.bottom - box.top
    for start in _every(box.left - height, box.right) if "/" in kind or "\\" in kind else []:
        first, last = max(start, box.left), min(start + height, box.right)
        if "/" in kind:
            strokes.append([(first, box.bottom - (first - start)), (last, box.bottom - (last - start))])
        if "\\" in kind:
            strokes.append([(first, box.top + (first - start)), (last, box.top + (last - start))])
    return strokes


def _every(low: float, high: float) -> list[float]:
    return [low + _GAP * step for step in range(1, int((high - low) / _GAP) + 1) if low + _GAP * step < high]
