"""Text in figures: measured with the font that matplotlib ships, shortened, wrapped, kept apart."""

import unicodedata
from collections.abc import Sequence

from ecoc.reporting.escaping import printable


def width_of(text: str, size: float) -> float:
    """Width of text in pixels; the font is wider than most that a reader has, but lacks East Asian signs."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(width) + 0.5 * size * sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)


def shortened(text: str, room: float, size: float) -> str:
    """Text that fits into `room`, its end replaced by … if necessary."""
    text = " ".join(printable(text).split())
    if width_of(text, size) <= room:
        return text
    fewest, most = 0, len(text)
    while fewest < most:  # the most letters that fit
        middle = (fewest + most + 1) // 2
        fits = width_of(text[:middle] + "…", size) <= room
        fewest, most = (middle, most) if fits else (fewest, middle - 1)
    return text[:fewest].rstrip() + "…"


def wrapped(text: str, room: float, size: float) -> str:
    """Text on at most two lines."""
    lines = [""]
    for word in printable(text).split():
        longer = f"{lines[-1]} {word}".strip()
        if len(lines) == 2 or not lines[-1] or width_of(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(shortened(line, room, size) for line in lines)


def tick_texts(values: Sequence[float]) -> list[str]:
    """Numbers along an axis: all with the digits that the finest needs, unless they span powers of ten."""
    is_geometric = len(values) > 2 and min(values) > 0 and max(values) / min(values) >= 50
    if is_geometric or any(value and not 1e-4 <= abs(value) < 1e9 for value in values):
        return [number_text(value) for value in values]
    digits = max(len(f"{value:.6g}".partition(".")[2]) for value in values)
    return [f"{value:,.{digits}f}".replace("-", "−") for value in values]


def number_text(value: float) -> str:
    """A number on its own, to about four digits."""
    is_large = 1000 <= abs(value) < 1e9
    return (f"{value:,.0f}" if is_large else f"{value:.4g}").replace("-", "−")


def spaced(places: Sequence[float], rooms: Sequence[float]) -> list[int]:
    """Indices of the labels to keep so that none overlaps an earlier one."""
    kept: list[int] = []
    for index, place in enumerate(places):
        if all(abs(place - places[other]) >= (rooms[index] + rooms[other]) / 2 + 5 for other in kept):
            kept.append(index)
    return kept
