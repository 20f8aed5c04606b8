"""A column of a raw table as SQL: as text, as an integer or as a number, whatever its type."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "integer", "number", "time", "nanotime"]


@dataclass(frozen=True)
class SqlColumn:
    """One column: its SQL expression and the kind of values it holds. Unreadable values become NULL."""

    sql: str
    kind: Kind = "text"

    @property
    def text(self) -> str:
        """VARCHAR, in the usual notation of the value."""
        if self.kind == "text":
            return self.sql
        if self.kind == "number":  # an id that an export turned into a float (123.0) is the id 123
            return f"coalesce(CAST({self.integer} AS VARCHAR), CAST({self.sql} AS VARCHAR))"
        return f"CAST({self.sql} AS VARCHAR)"

    @property
    def integer(self) -> str:
        """Strict BIGINT: digits with an optional sign. A plain cast would round 1.5 and accept 1e3."""
        if self.kind == "integer":
            return f"TRY_CAST({self.sql} AS BIGINT)"
        if self.kind == "number":
            return f"(CASE WHEN {self.sql} = floor({self.sql}) THEN TRY_CAST({self.sql} AS BIGINT) END)"
        text, value = self.text, f"TRY_CAST({self.text} AS BIGINT)"
        shape = f"regexp_full_match({text}, '\\s*[+-]?[0-9]+\\s*')"
        return f"(CASE WHEN CAST({value} AS VARCHAR) = {text} THEN {value} WHEN {shape} THEN {value} END)"

    @property
    def number(self) -> str:
        """Strict finite DOUBLE."""
        value = f"TRY_CAST({self.text if self.kind == 'text' else self.sql} AS DOUBLE)"
        if self.kind in {"integer", "number"}:
            return f"(CASE WHEN isfinite({value}) THEN {value} END)"
        shape = r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*"
        return f"(CASE WHEN isfinite({value}) AND regexp_full_match({self.text}, '{shape}') THEN {value} END)"


def literal(text: str) -> str:
    """`text` as a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
