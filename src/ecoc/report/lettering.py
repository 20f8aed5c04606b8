"""Text in drawings and pages: made safe, measured without a font, shortened, wrapped, and set where there is room."""

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Neither XML nor a reader can do anything with these; the last range turns the direction of everything that follows.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")
_NARROW, _WIDE = frozenset("ijl.,:;|!'`()[]{}ft/\\rI- "), frozenset("mwMW@%—…")


def escaped(text: str) -> str:
    """Text that stays text in HTML and XML, in elements and in attributes."""
    return html.escape(_UNPRINTABLE.sub("\ufffd", text), quote=True)


def slugs(ids: Iterable[str]) -> list[str]:
    """A different name for each id that is safe as a file name and as an anchor, near to what it was."""
    taken: set[str] = set()
    result = []
    for text in ids:
        plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
        base = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:80].strip("-") or "part"
        name, count = base, 1
        while name in taken:
            count += 1
            name = f"{base}-{count}"
        taken.add(name)
        result.append(name)
    return result


def width_of(text: str, size: float) -> float:
    """About how wide text is; on the wide side of common fonts, since nobody knows which one a reader has."""
    return size * sum(map(_advance, text))


def _advance(letter: str) -> float:
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.1
    if letter in _NARROW:
        return 0.4
    if letter in _WIDE:
        return 1.0
    return 0.74 if letter.isupper() else 0.64


def shorten(text: str, room: float, size: float) -> str:
    """Text that fits, its end replaced by … if it must be."""
    text = " ".join(text.split())
    if width_of(text, size) <= room:
        return text
    room -= width_of("…", size)
    used = 0.0
    for end, letter in enumerate(text):
        used += size * _advance(letter)
        if used > room:
            return text[:end].rstrip() + "…"
    return text


def wrap(text: str, room: float, size: float) -> list[str]:
    """Lines that fit, broken between words; a word that is too long is shortened."""
    lines: list[str] = []
    for word in text.split():
        if lines and width_of(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(shorten(word, room, size))
    return lines


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones, in their order, at least `gap` apart and within the bounds if they fit at all."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed = [0.0] * len(wanted)
    edge = low - gap
    for index in order:
        edge = placed[index] = max(wanted[index], edge + gap)
    edge = high + gap
    for index in reversed(order):
        edge = placed[index] = min(placed[index], edge - gap)
    return placed


@dataclass(frozen=True)
class Box:
    """A rectangle in a drawing."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        """Whether two have some of their inside in common."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def holds(self, other: "Box") -> bool:
        """Whether the other lies within."""
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.top <= other.top
            and other.bottom <= self.bottom
        )


@dataclass(frozen=True)
class Label:
    """Text that found its place: where its line of letters starts, and its point."""

    text: str
    x: float
    y: float
    at: tuple[float, float]
    is_far: bool


# Right of the point first, as one reads; then the other sides, then the same further away.
_SIDES = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1))
_DISTANCES = (7.0, 15.0, 24.0)


def place(
    texts: Sequence[tuple[str, float, float]], obstacles: Iterable[Box], within: Box, size: float
) -> list[Label | None]:
    """A place beside its point for each (text, x, y), clear of obstacles and of each other; none where there is none.

    Cells of a grid keep who is where, so that a thousand labels need no million comparisons.
    """
    taken = _Grid(cell=40.0)
    for box in obstacles:
        taken.add(box)
    labels: list[Label | None] = []
    for text, x, y in texts:
        shown = shorten(text, 150, size)
        found = _beside(shown, (x, y), within, size, taken) if shown else None
        labels.append(found)
    return labels


def _beside(text: str, at: tuple[float, float], within: Box, size: float, taken: "_Grid") -> Label | None:
    width, height = width_of(text, size), size * 1.1
    for distance in _DISTANCES:
        for across, down in _SIDES:
            middle_x = at[0] + across * (distance + width / 2)
            middle_y = at[1] + down * (distance + height / 2)
            box = Box(middle_x - width / 2, middle_y - height / 2, middle_x + width / 2, middle_y + height / 2)
            if within.holds(box) and not taken.overlaps(box):
                taken.add(box)
                return Label(text, box.left, middle_y + size * 0.35, at, distance > _DISTANCES[0])
    return None


class _Grid:
    """Boxes, found by where they are."""

    def __init__(self, cell: float) -> None:
        self._cell = cell
        self._boxes: dict[tuple[int, int], list[Box]] = {}

    def _cells(self, box: Box) -> list[tuple[int, int]]:
        across = range(int(box.left // self._cell), int(box.right // self._cell) + 1)
        down = range(int(box.top // self._cell), int(box.bottom // self._cell) + 1)
        return [(x, y) for x in across for y in down]

    def add(self, box: Box) -> None:
        """Remember a box."""
        for cell in self._cells(box):
            self._boxes.setdefault(cell, []).append(box)

    def overlaps(self, box: Box) -> bool:
        """Whether it overlaps any."""
        return any(box.overlaps(other) for cell in self._cells(box) for other in self._boxes.get(cell, []))
