"""Base of every typed result: a frozen model that prints, dumps to JSON and turns into a table."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pydantic import ConfigDict

from ecoc.config import Config
from ecoc.errors import InputError

Value = str | int | float | bool | None
Row = Mapping[str, Value]


class Result(Config):
    """What a function computed. `model_dump()` gives the JSON keys; infinite numbers are text in saved files."""

    model_config = ConfigDict(
        allow_inf_nan=True,
        serialize_by_alias=True,
        validate_by_name=True,
        validate_by_alias=True,
        ser_json_inf_nan="strings",
        protected_namespaces=(),
    )

    def __getitem__(self, key: str) -> Any:
        """Value of a JSON key, as when results were dictionaries."""
        if key not in self:
            raise KeyError(key)
        name = next(name for name, field in type(self).model_fields.items() if key in (name, field.alias))
        warnings.warn(
            f"results are no longer dictionaries: write .{name} in place of ['{key}']", DeprecationWarning, stacklevel=2
        )
        return getattr(self, name)

    def __contains__(self, key: object) -> bool:
        return any(key in (name, field.alias) for name, field in type(self).model_fields.items())

    def keys(self) -> Iterator[str]:
        """The JSON keys, so that `dict(result)` works."""
        return (field.alias or name for name, field in type(self).model_fields.items())


class TableResult(Result):
    """A result that holds a table."""

    @abstractmethod
    def records(self) -> Sequence[Row]:
        """The table, row by row; all rows have the same keys."""

    def to_table(self) -> pa.Table:
        """The table as an Arrow table."""
        return pa.Table.from_pylist([dict(row) for row in self.records()])

    def to_frame(self) -> Any:
        """The table as a pandas frame."""
        return as_pandas(self.to_table())

    def heading(self) -> str:
        """One line above the printed table."""
        return type(self).__name__

    def __str__(self) -> str:
        return "\n".join([self.heading(), *aligned(self.records())])

    def __repr__(self) -> str:
        return f"<{self.heading()}>"


def attributes(holder: object, *names: str) -> dict[str, Any]:
    """Attributes of an object by name, such as columns of a table."""
    return {name: getattr(holder, name) for name in names}


def as_pandas(table: pa.Table, instead: str = "to_table()") -> Any:
    """An Arrow table as a pandas frame; pandas is not among what ecoc installs. `instead` needs no pandas."""
    try:
        import pandas  # noqa: F401 - Arrow makes the frame
    except ImportError:
        raise InputError(f"pandas is not installed; install it, or use {instead} for an Arrow table") from None
    return table.to_pandas()


def aligned(rows: Sequence[Row]) -> list[str]:
    """Rows as lines of text: numbers to the right, text to the left."""
    if not rows:
        return ["  (no rows)"]
    cells = [[*rows[0]], *([_text(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    is_text = [any(isinstance(row[name], str) for row in rows) for name in rows[0]]
    columns = list(zip(widths, is_text, strict=True))
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if left else cell.rjust(width) for cell, (width, left) in zip(line, columns, strict=True)
        ).rstrip()
        for line in cells
    ]


def _text(value: Value) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
