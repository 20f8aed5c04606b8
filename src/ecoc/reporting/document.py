"""A report as data: sections of text, tables and figures, kept as one JSON file beside the results it tells of.

Whoever computes something writes a `Document`; rendering reads it and knows nothing else. What a file of someone else
holds is checked like any input: sizes are limited, unknown keys refused, and text stays text.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ecoc.config import Config
from ecoc.errors import ArtifactError, InputError
from ecoc.storage.atomic import write_whole
from ecoc.storage.trusted import load_json

REPORT = "report.json"
_LARGEST = 32 << 20

Text = Annotated[str, Field(max_length=20_000)]
Name = Annotated[str, Field(max_length=300)]


class Number(Config):
    """A figure, how sure it is, and what it is compared with."""

    value: float
    low: float | None = None  # interval
    high: float | None = None
    sd: float | None = None  # over seeds
    mark: Name = ""  # such as * for significance
    is_compared: bool = True  # no: never the best of its column, such as a figure that cannot be trusted


Cell = Number | Name | None
Better = Literal["high", "low", "none"]
Head = str | tuple[str, int] | tuple[str, int, Better]
"""A column by its name, digits and which of its numbers is best."""


class Column(Config):
    """A column of a table."""

    name: Name
    better: Better = Field("none", description="which of its numbers is set in bold")
    digits: int = Field(4, ge=0, le=10, description="digits after the point")
    unit: Name = ""


def short_name(name: str) -> str:
    """A name of a run that leaves room for others beside it in a cell or title."""
    return name if len(name) <= 120 else f"{name[:119]}…"


def columns(*heads: Head) -> list[Column]:
    """Columns in short: names, those of numbers with their digits after the point."""
    parts = ((head,) if isinstance(head, str) else head for head in heads)
    return [Column.build(dict(zip(("name", "digits", "better"), values, strict=False))) for values in parts]


class Table(Config):
    """Rows of cells; numbers are compared within a group of rows."""

    id: Name
    title: Name
    columns: list[Column] = Field(min_length=1, max_length=100)
    rows: list[list[Cell]] = Field(max_length=10_000)  # each as long as columns
    groups: list[Name] = Field(default_factory=list, description="of each row; empty: all rows are one group")
    note: Text = ""

    @classmethod
    def of(
        cls,
        id: str,
        title: str,
        heads: Sequence[Head | Column],
        rows: Iterable[Sequence[Cell | float]],
        *,
        groups: Sequence[str] = (),
        note: str = "",
    ) -> Self:
        """A table from columns in short and plain numbers."""
        named = [head if isinstance(head, Column) else columns(head)[0] for head in heads]
        cells = [[Number(value=cell) if isinstance(cell, int | float) else cell for cell in row] for row in rows]
        return cls(id=id, title=title, columns=named, rows=cells, groups=list(groups), note=note)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"table {self.id}: every row has a cell for each of the {len(self.columns)} columns")
        if self.groups and len(self.groups) != len(self.rows):
            raise ValueError(f"table {self.id}: {len(self.groups)} groups for {len(self.rows)} rows")
        return self


class Axis(Config):
    """What a direction of a plot shows."""

    label: Name
    log: bool = False
    line: float | None = Field(None, description="a value to draw a line at")
    ticks: list[float] = Field(default_factory=list, max_length=50, description="where to write; empty: anywhere")
    names: list[Name] = Field(default_factory=list, max_length=1000, description="categories: x is their index")


class Point(Config):
    """A value with its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    label: Name = ""

    @classmethod
    def of(cls, x: float, number: Number, label: str = "") -> Self:
        """A number at a place."""
        return cls(x=x, y=number.value, low=number.low, high=number.high, label=label)


class Series(Config):
    """Points that belong together."""

    name: Name
    points: list[Point] = Field(max_length=100_000)
    dashed: bool = False  # a reference, such as what someone else published; a line even among points


class Figure(Config):
    """A plot. `bars`: x is a category; `lines`: points joined; `points`: a scatter, labelled where labels are given."""

    id: Name
    title: Name
    kind: Literal["lines", "bars", "points"]
    x: Axis
    y: Axis
    series: list[Series] = Field(min_length=1, max_length=100)
    note: Text = ""

    @classmethod
    def bars(
        cls, id: str, title: str, x: str, y: Axis, values: Sequence[tuple[str, str, Number]], note: str = ""
    ) -> Self:
        """Bars from (group, category, number): one series per group. `x` is what the categories are."""
        names = list(dict.fromkeys(category for _, category, _ in values))
        groups: dict[str, list[Point]] = {}
        for group, category, number in values:
            groups.setdefault(group, []).append(Point.of(names.index(category), number))
        series = [Series(name=group, points=points) for group, points in groups.items()]
        return cls(id=id, title=title, kind="bars", x=Axis(label=x, names=names), y=y, series=series, note=note)


class Section(Config):
    """One experiment."""

    id: Name
    title: Name
    findings: list[Text] = Field(default_factory=list, max_length=200, description="what it comes to, a sentence each")
    text: list[Text] = Field(default_factory=list, max_length=200)
    tables: list[Table] = Field(default_factory=list, max_length=200)
    figures: list[Figure] = Field(default_factory=list, max_length=200)
    caveats: list[Text] = Field(default_factory=list, max_length=1000)
    commands: list[Text] = Field(default_factory=list, description="what makes these results again")


class Document(Config):
    """Everything a page tells."""

    title: Name
    summary: list[Text] = Field(default_factory=list)
    facts: dict[Name, Name] = Field(default_factory=dict, description="data, machine, versions, date, seeds")
    sections: list[Section] = Field(default_factory=list, max_length=200)


def save_document(folder: Path, document: Document) -> Path:
    """Keep a document in a folder."""
    path = folder / REPORT
    write_whole(path, [document.model_dump_json(indent=1).encode()])
    return path


def load_document(folder: Path) -> Document:
    """The document of a folder."""
    path = folder / REPORT
    try:
        return Document.build(load_json(path, largest=_LARGEST, remedy="make it again"), where=str(path))
    except InputError as error:
        raise ArtifactError(f"{path}: not a readable report ({str(error)[:200]}); make it again") from None
