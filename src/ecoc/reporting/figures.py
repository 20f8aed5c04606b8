"""Figures as files: SVG for a page, PDF and PNG on request; the same figure always gives the same bytes.

matplotlib is imported inside the functions, because that takes a second.
"""

import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from io import BytesIO
from typing import Literal

from ecoc.reporting.document import Figure
from ecoc.reporting.drawable import Drawable, drawable
from ecoc.reporting.escaping import escaped
from ecoc.reporting.labels import number_text

WIDE, NARROW = 760, 360
Kind = Literal["svg", "pdf", "png"]
_METADATA: dict[Kind, dict[str, None]] = {  # nothing that differs between two runs
    "svg": {"Date": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
_TAG = re.compile(r"<[^>]*>")  # matplotlib escapes < and > in text
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")


@dataclass(frozen=True)
class Drawing:
    """A figure as an SVG element, and what its caption must add."""

    svg: str
    notes: list[str]


def draw(figure: Figure, width: float = WIDE, prefix: str = "figure") -> Drawing:
    """The figure as an SVG element; each drawing of a page needs a `prefix` of its own, so that its ids are unique."""
    drawn = drawable(figure)
    content, notes = _saved(figure, drawn, width, "svg")
    return Drawing(_element(content.decode(), figure, [*_described(figure, drawn), *notes], prefix), notes)


def picture(figure: Figure, kind: Kind) -> bytes:
    """The figure as a file of its own; PDF and PNG are on white."""
    return draw(figure).svg.encode() if kind == "svg" else _saved(figure, drawable(figure), WIDE, kind)[0]


def _saved(figure: Figure, drawn: Drawable, width: float, kind: Kind) -> tuple[bytes, list[str]]:
    buffer = BytesIO()
    with _style():
        from ecoc.reporting.plot import Plot

        plot = Plot(figure, drawn, width)
        dpi, background = 144 if kind == "png" else 72, "none" if kind == "svg" else "white"
        plot.build().savefig(buffer, format=kind, dpi=dpi, facecolor=background, metadata=_METADATA[kind])
    return buffer.getvalue(), plot.notes


@contextmanager
def _style() -> Iterator[None]:
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # where the home is read-only, it speaks of its caches
    import matplotlib.style

    style = str(files("ecoc.reporting") / "figures.mplstyle")
    with matplotlib.style.context(style, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the reader's fonts may have it
        yield


def _described(figure: Figure, drawn: Drawable) -> list[str]:
    """The figure in words, for those who cannot see it."""
    if not drawn.points():
        return ["Nothing to show."]
    lines = [f"{figure.y.label or 'values'} by {figure.x.label or 'place'}."]
    for series, points in zip(figure.series[:12], drawn.series, strict=False):
        if points:
            low, high = min(point.y for point in points), max(point.y for point in points)
            extent = number_text(low) if low == high else f"{number_text(low)} to {number_text(high)}"
            lines.append(f"{series.name}: {extent}, last {number_text(points[-1].y)}.")
    return lines


def _element(svg: str, figure: Figure, description: Sequence[str], prefix: str) -> str:
    """Matplotlib's SVG as an element of a page: colours as variables, ids of its own, words for a screen reader."""
    from ecoc.reporting.plot import GRID, INK, MUTED, PAPER, SERIES

    variables = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"}
    variables |= {colour: f"--c{place}" for place, colour in enumerate(SERIES, 1)}

    def adapted(match: re.Match[str]) -> str:
        tag = re.sub(r' id="[^"]*[_.][^"]*"', "", match[0])  # ids of groups, which nothing refers to
        tag = re.sub(r'( id="|href="#|url\(#)', rf"\1{prefix}-", tag).replace("xlink:href", "href")
        tag = re.sub(r" font-family: [^;\"]*;?| transform=\"rotate\(-0 [^)]*\)\"", "", tag)
        tag = re.sub(r"(\.\d\d)\d+", r"\1", tag).replace("\n", "")
        return _COLOUR.sub(lambda colour: f"var({variables[colour[0]]}, {colour[0]})", tag)

    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0]
    content = svg[svg.index('<g id="figure_1">') : svg.rindex("</svg>")]
    content = re.sub(r">\s+<", "><", _TAG.sub(adapted, content))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img" aria-labelledby="{prefix}-title {prefix}-desc" stroke-linejoin="round"'
        ' style="font-family: var(--sans, system-ui, sans-serif)">'
        f'<title id="{prefix}-title">{escaped(figure.title)}</title>'
        f'<desc id="{prefix}-desc">{escaped(" ".join(description))}</desc>{content}</svg>'
    )
