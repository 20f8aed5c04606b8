"""Stage: raw files -> the table `staged`, typed, every row with its fate; then `events` with integers for ids."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ecoc.data.badrows import BadRows
from ecoc.data.cells import Cell, literal
from ecoc.data.engine import Engine
from ecoc.data.expression import render
from ecoc.data.readers import Reader
from ecoc.data.sources.base import Fields, Source
from ecoc.data.times import unit_of
from ecoc.errors import InputError
from ecoc.schema import Reason, RewardMap, TimeUnit

Progress = Callable[[str, float, float], None]
"""Called with a stage's name, how much is done and how much there is (0 if unknown)."""

_SLAB = 1 << 21  # rows between two looks at what went wrong
_LONGEST_ID = 1000
_MOST_FEEDBACKS = 255
_GREATEST_REWARD = 3e38  # the store keeps float32
_CODES = {reason: code for code, reason in enumerate(Reason, start=1)}
_REASONS = dict(enumerate(Reason, start=1))
_QUIET = (Reason.BLANK_USER, Reason.BLANK_ITEM, Reason.DROPPED_BY_SOURCE)  # counted, never refused


@dataclass(frozen=True)
class Staged:
    """What is known once all rows are in."""

    rows_in: int
    dropped: dict[Reason, int]
    feedback: RewardMap
    time_unit: TimeUnit


class Stage:
    """Fills the tables `staged` and `events` of an engine from a source."""

    def __init__(self, engine: Engine, source: Source, bad: BadRows, progress: Progress) -> None:
        self._engine = engine
        self._source = source
        self._bad = bad
        self._progress = progress
        self._base = 0
        self._has_feedback = False
        self._has_reward = False
        self._unit: TimeUnit | None = None
        self._fates: dict[str, str | Reason] = {}  # raw feedback -> its name, or why its rows are dropped

    def run(self) -> Staged:
        """Read every file; then number users and items."""
        self._engine.run(
            "CREATE TABLE staged (user VARCHAR, item VARCHAR, sequence VARCHAR, time BIGINT, rank BIGINT,"
            " feedback VARCHAR, reward DOUBLE, is_test BOOLEAN, category VARCHAR, row BIGINT, reason UTINYINT)"
        )
        read = 0
        for reader, fields in self._source.readers(self._bad):
            self._read(reader, fields, read)
            read += Path(reader.path).stat().st_size if Path(reader.path).is_file() else 0
        feedback = self._feedback_map()
        dropped = self._dropped()
        rows_in = self._engine.one("SELECT count(*) FROM staged") + self._bad.counts.total()
        dropped.update(self._bad.counts)
        largest = self._engine.one("SELECT max(abs(time)) FROM staged WHERE reason = 0")
        self._number()
        return Staged(rows_in, dropped, feedback, self._unit or unit_of(largest or 0))

    def _read(self, reader: Reader, fields: Fields, bytes_before: int) -> None:
        self._has_feedback = fields.feedback is not None
        self._has_reward = fields.reward is not None
        self._unit = fields.time_rule.unit
        insert = f"INSERT INTO staged {_select(reader, fields, self._base)}"
        batches = reader.batches()
        largest = -1
        for first in batches:
            start = self._base + first.column("row")[0].as_py() if first.num_rows else self._base
            self._engine.feed(_slab(first, batches), insert)
            reader.report()
            self._look(reader, fields, start)
            largest = max(largest, self._engine.one("SELECT coalesce(max(row), -1) FROM staged"))
            self._progress("reading", bytes_before + reader.bytes_read, self._source.size)
        reader.report()
        self._base = max(self._base, largest + 1)

    def _look(self, reader: Reader, fields: Fields, start: int) -> None:
        """Refuse, or list, what went wrong in the rows since `start`, in file order."""
        quiet = ", ".join(str(_CODES[reason]) for reason in _QUIET)
        found = self._engine.run(
            f"SELECT row, reason FROM staged WHERE row >= ? AND reason > 0 AND reason NOT IN ({quiet})"
            " ORDER BY row, rank LIMIT ?",
            [start, self._bad.room if self._bad.skip else 1],
        )
        for row, code in found:
            self._explain(reader, fields, row - self._base, _REASONS[code])
        if fields.feedback is not None:
            self._look_at_feedback(reader, fields, start)

    def _look_at_feedback(self, reader: Reader, fields: Fields, start: int) -> None:
        values = self._engine.run(
            "SELECT coalesce(feedback, '') AS raw, min(row) FROM staged WHERE row >= ? AND reason = 0"
            " GROUP BY raw ORDER BY 2 LIMIT ?",
            [start, _MOST_FEEDBACKS * 40],
        )
        for raw, row in values:
            if raw not in self._fates:
                self._fates[raw] = self._fate(raw)
                if self._fates[raw] is Reason.BAD_FEEDBACK and (self._bad.room or not self._bad.skip):
                    self._explain(reader, fields, row - self._base, Reason.BAD_FEEDBACK)
        names = {fate for fate in self._fates.values() if not isinstance(fate, Reason)}
        if len(names) > _MOST_FEEDBACKS:
            raise InputError(
                f"{reader.path}: column '{fields.feedback}' has more than {_MOST_FEEDBACKS} different values; "
                f"if they are amounts, pass --reward-column {fields.feedback} instead of --feedback"
            )

    def _fate(self, raw: str) -> str | Reason:
        """The name of a raw feedback value, or the reason why its rows are dropped."""
        rule = self._source.feedback
        name = rule.labels.get(raw, raw).strip()
        if name in rule.dropped:
            return Reason.DROPPED_FEEDBACK
        if rule.rewards is not None:
            return name if name in rule.rewards else Reason.BAD_FEEDBACK
        if rule.numeric:
            number = _finite(name)
            return Reason.BAD_FEEDBACK if number is None else f"{number:.15g}"
        is_known = not rule.labels or raw in rule.labels
        return name if name and is_known and len(name) <= _LONGEST_ID else Reason.BAD_FEEDBACK

    def _explain(self, reader: Reader, fields: Fields, row: int, reason: Reason) -> None:
        values = reader.values_at(row)
        self._bad.example(f"{reader.path}:{reader.line_of(row)}", _message(reason, fields, values, self._source))

    def _feedback_map(self) -> RewardMap:
        """Feedback codes, in an order that does not depend on the rows' order."""
        rule = self._source.feedback
        if not self._has_feedback:
            return RewardMap(names=("event",), rewards=None if self._has_reward else (1.0,))
        if rule.rewards is not None:
            names = [name for name in rule.rewards if name not in rule.dropped]
            return RewardMap(names=tuple(names), rewards=tuple(rule.rewards[name] for name in names))
        names = sorted({fate for fate in self._fates.values() if not isinstance(fate, Reason)})
        if rule.numeric:
            names.sort(key=float)
            return RewardMap(names=tuple(names), rewards=tuple(map(float, names)))
        return RewardMap(names=tuple(names), rewards=None)

    def _dropped(self) -> dict[Reason, int]:
        """Give rows with a bad or unwanted feedback their reason, and count all reasons."""
        for reason in (Reason.BAD_FEEDBACK, Reason.DROPPED_FEEDBACK):
            values = [literal(raw) for raw, fate in self._fates.items() if fate is reason]
            if values:
                self._engine.run(
                    f"UPDATE staged SET reason = {_CODES[reason]}"
                    f" WHERE reason = 0 AND coalesce(feedback, '') IN ({', '.join(values)})"
                )
        counts = self._engine.run("SELECT reason, count(*) FROM staged WHERE reason > 0 GROUP BY reason")
        return {_REASONS[code]: count for code, count in counts}

    def _number(self) -> None:
        """Users, sequences and items get numbers by their text, so no number depends on the rows' order."""
        run = self._engine.run
        codes = {name: code for code, name in enumerate(self._feedback_map().names)}
        run("CREATE TABLE codes (feedback VARCHAR, code UTINYINT)")
        for raw, fate in self._fates.items():
            if not isinstance(fate, Reason):
                run("INSERT INTO codes VALUES (?, ?)", [raw, codes[fate]])
        self._progress("numbering", 0, 0)
        run(
            "CREATE TABLE sequence_ids AS SELECT user, sequence, CAST(row_number() OVER (ORDER BY user, sequence) - 1"
            " AS INTEGER) AS seq FROM (SELECT DISTINCT user, sequence FROM staged WHERE reason = 0)"
        )
        run(
            "CREATE TABLE item_ids AS SELECT item, category, CAST(row_number() OVER (ORDER BY item) - 1 AS INTEGER) AS"
            " number FROM (SELECT item, min(nullif(category, '')) AS category FROM staged WHERE reason = 0 GROUP BY item)"
        )
        code = "code" if self._has_feedback else "0::UTINYINT AS code"
        join = "JOIN codes USING (feedback)" if self._has_feedback else ""
        run(
            f"CREATE TABLE events AS SELECT seq, number AS item, time, rank, {code}, reward::FLOAT AS reward, is_test, row"
            " FROM staged JOIN sequence_ids USING (user, sequence) JOIN item_ids USING (item)"
            f" {join} WHERE reason = 0"
        )
        run("DROP TABLE staged")


def _slab(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`first` and the batches after it, up to the size of a slab."""
    rows = first.num_rows
    yield first
    while rows < _SLAB:
        batch = next(batches, None)
        if batch is None:
            return
        rows += batch.num_rows
        yield batch


def _select(reader: Reader, fields: Fields, base: int) -> str:
    """SQL from a reader's columns to those of `staged`."""

    def part(name: str | None, read: Callable[[Cell], str]) -> str:
        return "NULL" if name is None else read(reader.cell(name))

    def text(name: str | None) -> str:
        return part(name, lambda cell: cell.text)

    time = part(fields.time, fields.time_rule.sql) if fields.time else f"row + {base}"
    reward = render(fields.reward, lambda name: reader.cell(name).number) if fields.reward else "NULL"
    left_out = "false"
    if fields.left_out is not None:
        left_out = f"trim({text(fields.left_out[0])}) = {literal(fields.left_out[1])}"
    malformed_id = " OR ".join(
        f"strlen({name}) > {_LONGEST_ID} OR contains({name}, chr(10))" for name in ("user", "item")
    )
    checks = [
        (Reason.MALFORMED_ROW, "malformed"),
        (Reason.BLANK_USER, "user IS NULL OR trim(user) = ''"),
        (Reason.BLANK_ITEM, "item IS NULL OR trim(item) = ''"),
        (Reason.DROPPED_BY_SOURCE, "left_out"),
        (Reason.MALFORMED_ID, malformed_id),
        (Reason.BAD_TIME, "time IS NULL"),
        (Reason.BAD_REWARD, f"reward IS NULL OR abs(reward) > {_GREATEST_REWARD}" if fields.reward else "false"),
    ]
    cases = " ".join(f"WHEN {test} THEN {_CODES[reason]}" for reason, test in checks)
    return (
        "SELECT user, item, sequence, time, rank, feedback, reward, is_test, category, row,"
        f" CASE {cases} ELSE 0 END FROM (SELECT {text(fields.user)} AS user, {text(fields.item)} AS item,"
        f" {text(fields.sequence) if fields.sequence else literal('')} AS sequence, {time} AS time,"
        f" {part(fields.rank, lambda cell: cell.integer) if fields.rank else '0'} AS rank,"
        f" {text(fields.feedback)} AS feedback, {reward} AS reward,"
        f" {part(fields.is_test, lambda cell: cell.integer)} = 1 AS is_test, {text(fields.category)} AS category,"
        f" row + {base} AS row, {reader.malformed} AS malformed, {left_out} AS left_out FROM {reader.relation})"
    )


def _message(reason: Reason, fields: Fields, values: dict[str, str], source: Source) -> str:
    """What was found in a row and what was expected."""
    if reason is Reason.BAD_TIME:
        return f"time {values.get(fields.time or '', '')[:60]!r}, expected {fields.time_rule.expected}"
    if reason is Reason.BAD_FEEDBACK:
        return f"feedback {values.get(fields.feedback or '', '')[:60]!r}, expected {source.feedback.expected}"
    if reason is Reason.BAD_REWARD:
        used = ", ".join(f"{name}={value[:40]!r}" for name, value in values.items())
        return f"no finite reward from {used}; numbers were expected"
    if reason is Reason.MALFORMED_ID:
        return f"a user or item id with a line break or over {_LONGEST_ID} bytes; an unclosed quote?"
    return "not a row that can be read"


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) <= _GREATEST_REWARD else None
