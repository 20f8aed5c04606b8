"""A document as one HTML file: no script, nothing from outside, for a screen, a phone and paper.

The templates escape every value, and the page's own policy forbids whatever is not on it.
"""

from dataclasses import dataclass
from functools import cache
from itertools import count

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ecoc.reporting.document import Document, Figure, Table
from ecoc.reporting.escaping import printable, slugs
from ecoc.reporting.figures import NARROW, WIDE, draw
from ecoc.reporting.tables import Written, blocks, is_empty_table, is_numeric

_MOST_ROWS = 500


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("ecoc.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def page(document: Document) -> str:
    """The whole page."""
    tables, figures = count(1), count(1)
    sections = [
        (
            section,
            anchor,
            [(next(tables), TableView.of(table)) for table in section.tables],
            [(number := next(figures), figure, *_drawings(figure, number)) for figure in section.figures],
        )
        for section, anchor in zip(document.sections, slugs(section.id for section in document.sections), strict=True)
    ]
    return _templates().get_template("page.html.j2").render(document=document, sections=sections)


def _drawings(figure: Figure, number: int) -> list[tuple[Markup, list[str]]]:
    """A wide drawing and one for a phone, each with its notes."""
    drawings = [draw(figure, width, f"figure-{number}-{width}") for width in (WIDE, NARROW)]
    return [(Markup(drawing.svg), drawing.notes) for drawing in drawings]  # noqa: S704 - figures.py escapes all text in it


@dataclass(frozen=True)
class TableView:
    """What the template needs to know of a table."""

    table: Table
    kinds: str  # CSS classes
    blocks: list[tuple[str, list[list[Written]]]]
    numeric: list[bool]
    rooms: list[int]  # letters of the longest spread of each column
    is_stacked: bool  # too many spreads to stand beside their numbers
    left_out: int

    @classmethod
    def of(cls, table: Table) -> "TableView":
        """Arrange a table for a page; the rows that are too many stay in the other files."""
        width, left_out = len(table.columns), max(0, len(table.rows) - _MOST_ROWS)
        kinds = ["table"] + ["short"] * (len(table.rows) <= 30) + ["small"] * (width < 4)
        kinds += ["widest-table"] if width > 12 else ["wide-table"] * (width > 7)
        groups = table.groups[:_MOST_ROWS]
        shown = list(blocks(table.model_copy(update={"rows": table.rows[:_MOST_ROWS], "groups": groups})))
        spreads = [[len(row[place].spread) for _, rows in shown for row in rows] for place in range(width)]
        rooms = [max(lengths, default=0) for lengths in spreads]
        is_stacked = sum(map(bool, rooms)) > 3
        numeric = [is_numeric(table, place) for place in range(width)]
        return cls(table, " ".join(kinds), shown, numeric, [0] * width if is_stacked else rooms, is_stacked, left_out)

    @property
    def is_empty(self) -> bool:
        """Whether no cell says anything."""
        return is_empty_table(self.table)

    @property
    def has_head(self) -> bool:
        """Whether any column has a name."""
        return any(column.name or column.unit for column in self.table.columns)
