"""How a time column is read: as epoch integers, dates, a pattern, or not at all (row order).

Times are int64 throughout: in the unit of the log for integers, in seconds or microseconds for dates. Each rule writes
a SQL expression of type BIGINT that is NULL for a value it cannot read.
"""

import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ecoc.data.schema import TimeUnit
from ecoc.data.sql_columns import SqlColumn, literal
from ecoc.errors import InputError

_SHORTEST_EPOCH = 10_000_000  # smaller integers are ranks or steps, not seconds since 1970
_UNIT_LIMITS: tuple[tuple[int, TimeUnit], ...] = (
    (_SHORTEST_EPOCH, "order"),
    (10**11, "s"),
    (10**14, "ms"),
    (10**17, "us"),
)
NAMED = ("auto", "epoch", "epoch-s", "epoch-ms", "epoch-us", "epoch-ns", "iso", "order")
_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
_DECIMAL = re.compile(r"\s*[+-]?\d+\.\d*([eE][+-]?\d+)?\s*|\s*[+-]?\d+[eE][+-]?\d+\s*")
_ISO = re.compile(r"\s*\d{4}-\d{1,2}-\d{1,2}([ T].*)?")


class TimeRule(Protocol):
    """Reads one notation of time."""

    expected: str
    unit: TimeUnit | None

    def sql(self, column: SqlColumn) -> str:
        """BIGINT expression for a column; NULL where its value is no such time."""


class Epoch:
    """Integers, kept unchanged. The unit, if not given, follows from the largest one."""

    expected = "a whole number of seconds, milliseconds or microseconds since 1970"

    def __init__(self, unit: TimeUnit | None = None) -> None:
        self.unit = unit

    def sql(self, column: SqlColumn) -> str:
        return column.integer


class EpochDecimal:
    """Decimal numbers since 1970, in seconds unless they are too large for that; kept as integer microseconds."""

    expected = "a number of seconds, milliseconds or microseconds since 1970, with or without a fraction"
    unit: TimeUnit | None = "us"

    def __init__(self, sample: str) -> None:
        size = min(abs(float(sample)), 1e18)
        self._micros = 1e6 / PER_SECOND.get(unit_of(int(size)), 1)

    def sql(self, column: SqlColumn) -> str:
        micros = f"{column.number} * {self._micros!r}::DOUBLE"
        return f"(CASE WHEN abs({micros}) < 9e18 THEN CAST(round({micros}) AS BIGINT) END)"


class Iso:
    """ISO dates with or without time, fraction and UTC offset (default 0); kept as microseconds."""

    expected = "an ISO date such as 2024-05-31 or 2024-05-31T23:59:59+02:00"
    unit: TimeUnit | None = "us"

    def sql(self, column: SqlColumn) -> str:
        # a plain TIMESTAMP cast would drop the offset without an error
        text = column.text
        stamp = f"TRY_CAST({text} AS TIMESTAMPTZ)"
        return f"(CASE WHEN {text} SIMILAR TO '\\s*\\d.*' AND isfinite({stamp}) THEN epoch_us({stamp}) END)"


class Pattern:
    """Dates in a strptime pattern; kept as seconds, or as microseconds if the pattern has fractions."""

    def __init__(self, pattern: str) -> None:
        if "%" not in pattern:
            raise InputError(
                f"--time-format {pattern!r}: expected one of {', '.join(NAMED)} or a strptime pattern such as %d/%m/%Y"
            )
        self.expected = f"a time written as {pattern}"
        self._pattern = pattern
        self._has_fraction = any(code in pattern for code in ("%f", "%g", "%n"))
        self.unit: TimeUnit | None = "us" if self._has_fraction else "s"

    def sql(self, column: SqlColumn) -> str:
        micros = f"epoch_us(try_strptime({column.text}, {literal(self._pattern)}))"
        return micros if self._has_fraction else f"({micros} // 1000000)"


class MonthDay:
    """Integers mmdd of a known year (Tmall); kept as the second at which that day begins."""

    expected = "a day written mmdd, such as 1111"
    unit: TimeUnit | None = "s"

    def __init__(self, year: int) -> None:
        self._year = year

    def sql(self, column: SqlColumn) -> str:
        day = column.integer
        text = f"printf('{self._year:04d}-%02d-%02d', {day} // 100, {day} % 100)"
        return f"(CASE WHEN {day} BETWEEN 101 AND 1231 THEN epoch(TRY_CAST({text} AS DATE))::BIGINT END)"


class Native:
    """A column of type date or timestamp (Parquet); kept as microseconds, or as nanoseconds if it has them."""

    expected = "a timestamp"

    def __init__(self, nanoseconds: bool) -> None:
        self.unit: TimeUnit | None = "ns" if nanoseconds else "us"

    def sql(self, column: SqlColumn) -> str:
        stamp = f"TRY_CAST({column.sql} AS {'TIMESTAMP_NS' if self.unit == 'ns' else 'TIMESTAMP'})"
        return f"(CASE WHEN isfinite({stamp}) THEN epoch_{self.unit}({stamp}) END)"


class RowOrder:
    """No time column: the position of a row is its time."""

    expected = "nothing"
    unit: TimeUnit | None = "order"

    def sql(self, column: SqlColumn) -> str:
        return "row"


def rule_for(time_format: str, column: SqlColumn | None, samples: Sequence[str]) -> TimeRule:
    """The rule for `--time-format`; `auto` uses the type of the column and its first readable value."""
    sample = next((value for value in samples if _looks_like_time(value)), samples[0] if samples else None)
    if time_format == "order":
        return RowOrder()
    if time_format == "iso":
        return Iso()
    if time_format == "epoch":
        return EpochDecimal(sample) if sample and _DECIMAL.fullmatch(sample) else Epoch()
    if time_format.startswith("epoch-") and time_format in NAMED:
        unit: dict[str, TimeUnit] = {"s": "s", "ms": "ms", "us": "us", "ns": "ns"}
        return Epoch(unit[time_format.removeprefix("epoch-")])
    if time_format != "auto":
        return Pattern(time_format)
    if column is not None and column.kind in {"time", "nanotime"}:
        return Native(column.kind == "nanotime")
    if sample is None or _INTEGER.fullmatch(sample):
        return Epoch()
    if _DECIMAL.fullmatch(sample):
        return EpochDecimal(sample)
    if _ISO.fullmatch(sample):
        return Iso()
    raise InputError(
        f"time {sample[:40]!r} is neither a number nor an ISO date;"
        " pass its pattern, e.g. --time-format '%d/%m/%Y %H:%M'"
    )


def _looks_like_time(value: str) -> bool:
    return any(shape.fullmatch(value) for shape in (_INTEGER, _DECIMAL, _ISO))


def unit_of(largest: int) -> TimeUnit:
    """The unit of epoch integers, from the size of the largest."""
    return next((unit for limit, unit in _UNIT_LIMITS if abs(largest) < limit), "ns")


PER_SECOND: dict[TimeUnit, int] = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
"""Ticks per second of each unit; `order` has none."""


LATEST = 3 * 10**11
"""Seconds since 1970 that a time may be away from it, in a `History`: after the year 9999; milliseconds are larger."""


def in_seconds(times: NDArray[np.int64], unit: TimeUnit) -> NDArray[np.int64]:
    """Stored times in whole seconds since 1970, as a `History` holds them: 0 means unknown, so second 0 becomes 1.

    Where the log has only an order, every time is unknown.
    """
    if unit == "order":
        return np.zeros_like(times)
    seconds = np.clip(times // PER_SECOND[unit], -LATEST, LATEST)
    return np.where(seconds == 0, 1, seconds)
