"""Stage: raw files -> the typed table `staged`, each row kept or dropped for a reason -> sorted, numbered events."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ecoc.data.bad_rows import BadRows
from ecoc.data.engine import Engine
from ecoc.data.expression import Expression, columns_of, parse
from ecoc.data.expression_sql import number_sql, text_sql, truth_sql
from ecoc.data.readers import Reader
from ecoc.data.schema import GREATEST_REWARD, PreparationStep, Reason, RewardMap, TimeUnit
from ecoc.data.sorted_events import SortedEvents
from ecoc.data.sources.base import Fields, PrepareConfig, Source
from ecoc.data.sql_columns import literal
from ecoc.data.times import unit_of
from ecoc.errors import InputError
from ecoc.progress import ProgressCallback

_SLAB = 1 << 21  # rows between two checks for bad rows
_LONGEST_ID = 1000
_MOST_FEEDBACKS = 255
_CODES = {reason: code for code, reason in enumerate(Reason, start=1)}
_REASONS = dict(enumerate(Reason, start=1))
_QUIET = (
    Reason.BLANK_USER,
    Reason.BLANK_ITEM,
    Reason.DROPPED_BY_SOURCE,
    Reason.DROPPED_BY_WHERE,
)  # counted, never refused
_ITEM_COLUMNS = {"title": "VARCHAR", "price": "DOUBLE", "category": "VARCHAR"}
_OPTIONAL = ("sequence", "rank", "feedback", "reward", "is_test", *_ITEM_COLUMNS)


@dataclass(frozen=True)
class Staged:
    """Result of reading all rows. `columns` are those of the view `events`: only the ones the source has."""

    step: PreparationStep
    columns: tuple[str, ...]
    rows_in: int
    dropped: dict[Reason, int]
    feedback: RewardMap
    time_unit: TimeUnit
    title_conflicts: int = 0
    """Items with several titles."""


class Stage:
    """Reads a source into the table `staged` of an engine, numbers its ids and sorts its events."""

    def __init__(self, engine: Engine, source: Source, bad: BadRows, progress: ProgressCallback) -> None:
        self._engine = engine
        self._source = source
        self._bad = bad
        self._progress = progress
        self._base = 0
        self._has: tuple[str, ...] = ()
        self._unit: TimeUnit | None = None
        self._has_bad_feedback = False
        self._feedback_names: dict[str, str | Reason] = {}  # raw feedback -> its name, or why its rows are dropped

    def run(self) -> Staged:
        """Read every file; then number users and items."""
        bytes_before = 0
        for reader, fields in self._source.readers(self._bad):
            self._read(reader, fields, bytes_before)
            bytes_before += reader.path.stat().st_size if reader.path.is_file() else 0
        feedback = self._feedback_map()
        dropped = self._dropped()
        rows_in = self._engine.scalar("SELECT count(*) FROM staged") + self._bad.counts.total()
        for reason, rows in self._bad.counts.items():
            dropped[reason] = dropped.get(reason, 0) + rows
        extremes = self._engine.run("SELECT min(time), max(time) FROM staged WHERE reason = 0")[0]
        columns = self._number(feedback)
        counts = self._engine.run(
            "SELECT (SELECT count(*) FROM staged WHERE reason = 0),"
            " (SELECT count(*) FROM sequence_ids), (SELECT count(*) FROM item_ids)"
        )[0]
        step = PreparationStep(name="read", interactions=counts[0], sequences=counts[1], items=counts[2])
        unit = self._unit or unit_of(max(abs(time or 0) for time in extremes))
        return Staged(step, columns, rows_in, dropped, feedback, unit, self._title_conflicts())

    def _read(self, reader: Reader, fields: Fields, bytes_before: int) -> None:
        self._has = tuple(name for name in _OPTIONAL if getattr(fields, name) is not None)
        self._unit = fields.time_rule.unit
        types = {"rank": "BIGINT", "reward": "DOUBLE", "price": "DOUBLE", "is_test": "BOOLEAN"}
        optional = "".join(f", {name} {types.get(name, 'VARCHAR')}" for name in self._has)
        self._engine.run(
            "CREATE TABLE IF NOT EXISTS staged"
            f" (user VARCHAR, item VARCHAR, time BIGINT, row BIGINT, reason UTINYINT{optional})"
        )
        where = self._where(reader)
        insert = f"INSERT INTO staged {_select(reader, fields, self._has, self._base, where)}"
        batches = reader.batches()
        for first in batches:
            start = self._base + first.column("row")[0].as_py() if first.num_rows else self._base
            self._engine.feed(_slab(first, batches), insert)
            reader.report()
            self._check_rows(reader, fields, start)
            self._bad.raise_or_record()
            self._progress("reading", bytes_before + reader.bytes_read, self._source.size)
        reader.report()
        self._bad.raise_or_record()
        self._base = max(self._base, self._engine.scalar("SELECT coalesce(max(row), -1) FROM staged") + 1)

    def _where(self, reader: Reader) -> str:
        """The condition of `where` as SQL; its columns are selected too."""
        text = self._source.config.where
        if text is None:
            return "true"
        expression = parse(text, reader.columns, "--where", "truth")
        reader.select([*reader.selected, *columns_of(expression)])
        return truth_sql(expression, reader.sql_column)

    def _check_rows(self, reader: Reader, fields: Fields, start: int) -> None:
        """Refuse or list the bad rows since `start`, in file order."""
        quiet = ", ".join(str(_CODES[reason]) for reason in _QUIET)
        bad_rows = self._engine.run(
            f"SELECT row, reason FROM staged WHERE row >= ? AND reason > 0 AND reason NOT IN ({quiet})"
            " ORDER BY row LIMIT ?",
            [start, self._bad.room("row")],
        )
        for row, code in bad_rows:
            self._explain("row", reader, fields, row - self._base, _REASONS[code])
        if fields.feedback is not None:
            self._check_feedback(reader, fields, start)

    def _check_feedback(self, reader: Reader, fields: Fields, start: int) -> None:
        values = self._engine.run(
            "SELECT feedback, min(row) FROM staged WHERE row >= ? AND reason = 0 GROUP BY feedback ORDER BY 2",
            [start],
        )
        for raw, row in values:
            name = self._feedback_name(raw)
            if name is not Reason.BAD_FEEDBACK:
                self._feedback_names[raw] = name
            else:
                self._has_bad_feedback = True
                if self._bad.room("feedback"):
                    self._explain("feedback", reader, fields, row - self._base, Reason.BAD_FEEDBACK)
        names = {name for name in self._feedback_names.values() if not isinstance(name, Reason)}
        if len(names) > _MOST_FEEDBACKS:
            column = fields.feedback if isinstance(fields.feedback, str) else None
            raise InputError(
                f"{reader.path}: {'the feedback' if column is None else f'column {column!r}'} has more than"
                f" {_MOST_FEEDBACKS} different values; if they are amounts, pass --reward-column"
                f" {column or 'EXPRESSION'} instead of --feedback"
            )

    def _feedback_name(self, raw: str) -> str | Reason:
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

    def _explain(self, check: str, reader: Reader, fields: Fields, row: int, reason: Reason) -> None:
        message = _message(reason, fields, reader.values_at(row), self._source)
        self._bad.example(check, reader.path, reader.line_of(row), message)

    def _feedback_map(self) -> RewardMap:
        """Feedback codes, in an order that does not depend on the order of rows."""
        rule = self._source.feedback
        if "feedback" not in self._has:
            return RewardMap(names=("event",), rewards=None if "reward" in self._has else (1.0,))
        if rule.rewards is not None:
            names = [name for name in rule.rewards if name not in rule.dropped]
            return RewardMap(names=tuple(names), rewards=tuple(rule.rewards[name] for name in names))
        names = sorted({name for name in self._feedback_names.values() if not isinstance(name, Reason)})
        if rule.numeric:
            names.sort(key=float)
            return RewardMap(names=tuple(names), rewards=tuple(map(float, names)))
        return RewardMap(names=tuple(names), rewards=None)

    def _dropped(self) -> dict[Reason, int]:
        """Mark rows with a bad or unwanted feedback, and count the rows per reason."""
        left_out = [literal(raw) for raw, name in self._feedback_names.items() if isinstance(name, Reason)]
        named = [literal(raw) for raw, name in self._feedback_names.items() if not isinstance(name, Reason)]
        mark = "UPDATE staged SET reason = {} WHERE reason = 0 AND feedback {} ({})"
        if left_out:
            self._engine.run(mark.format(_CODES[Reason.DROPPED_FEEDBACK], "IN", ", ".join(left_out)))
        if self._has_bad_feedback:
            self._engine.run(mark.format(_CODES[Reason.BAD_FEEDBACK], "NOT IN", ", ".join(named) or "chr(0)"))
        counts = self._engine.run("SELECT reason, count(*) FROM staged WHERE reason > 0 GROUP BY reason")
        return {_REASONS[code]: count for code, count in counts}

    def _number(self, feedback: RewardMap) -> tuple[str, ...]:
        """Number users, sequences and items by the order of their ids, so no number depends on the order of rows."""
        run = self._engine.run
        self._progress("numbering", 0, 0)
        run("CREATE TABLE codes (feedback VARCHAR, code UTINYINT)")
        for raw, name in self._feedback_names.items():
            if not isinstance(name, Reason):
                run("INSERT INTO codes VALUES (?, ?)", [raw, feedback.names.index(name)])
        sequence = ", sequence" if "sequence" in self._has else ""
        unnamed = "" if sequence else ", '' AS sequence"
        run(
            f"CREATE TABLE sequence_ids AS SELECT user{sequence}{unnamed}, CAST(row_number() OVER"
            f" (ORDER BY user{sequence}) - 1 AS INTEGER) AS seq"
            f" FROM (SELECT DISTINCT user{sequence} FROM staged WHERE reason = 0)"
        )
        own_columns, joined = [], ""
        for name, kind in _ITEM_COLUMNS.items():
            own_columns.append(name if name in self._has else f"NULL::{kind} AS {name}")
            joined += f" LEFT JOIN ({_most_frequent(name)}) USING (item)" if name in self._has else ""
        run(
            f"CREATE TABLE item_ids AS SELECT item, {', '.join(own_columns)},"
            " CAST(row_number() OVER (ORDER BY item) - 1 AS INTEGER) AS number"
            f" FROM (SELECT DISTINCT item FROM staged WHERE reason = 0){joined}"
        )
        own = {"rank": "rank", "feedback": "code", "reward": "(reward + 0.0)::FLOAT AS reward", "is_test": "is_test"}
        columns = {"seq": "seq", "item": "number AS item", "time": "time", "row": "row"}
        columns |= {("code" if name == "feedback" else name): own[name] for name in own if name in self._has}
        run(
            f"CREATE VIEW events AS SELECT {', '.join(columns.values())} FROM staged"
            f" JOIN sequence_ids USING (user{sequence}) JOIN item_ids USING (item)"
            f" {'JOIN codes USING (feedback)' if 'feedback' in self._has else ''} WHERE reason = 0"
        )
        return tuple(columns)

    def _title_conflicts(self) -> int:
        if "title" not in self._has:
            return 0
        conflicts: int = self._engine.scalar(
            "SELECT count(*) FROM (SELECT item FROM staged WHERE reason = 0 AND title <> ''"
            " GROUP BY item HAVING min(title) <> max(title))"
        )
        return conflicts

    def sort_events(self, staged: Staged, config: PrepareConfig, folder: Path) -> SortedEvents:
        """Write the events without duplicates to disk, sorted by sequence and time."""
        self._progress("sorting", 0, 0)

        def present(*names: str) -> str:
            return ", ".join(name for name in names if name in staged.columns)

        ties = ("row",) if config.ties == "file" else ("item", "code", "reward")
        order = present("time", "rank", *ties)
        first = ""
        if config.dedup != "none":
            rest = ("time", "rank", "reward") if config.dedup == "exact" else ()
            same = present("seq", "item", "code", *rest)
            first = f" QUALIFY row_number() OVER (PARTITION BY {same} ORDER BY {order}) = 1"
        sorted_events = SortedEvents(folder, staged.columns)
        sorted_events.fill(
            self._engine.stream(f"SELECT {sorted_events.selected} FROM events{first} ORDER BY seq, {order}")
        )
        self._engine.run("DROP VIEW events")
        self._engine.run("DROP TABLE staged")
        return sorted_events


def _slab(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`first` and the batches after it, about `_SLAB` rows in total."""
    rows = first.num_rows
    yield first
    while rows < _SLAB:
        batch = next(batches, None)
        if batch is None:
            return
        rows += batch.num_rows
        yield batch


def _select(reader: Reader, fields: Fields, has: tuple[str, ...], base: int, where: str) -> str:
    """SQL that turns the columns of a reader into those of `staged`."""

    def text(name: str) -> str:
        return reader.sql_column(name).text

    time = fields.time_rule.sql(reader.sql_column(fields.time)) if fields.time else f"row + {base}"
    columns = {"user": text(fields.user), "item": text(fields.item), "time": time, "row": f"row + {base}"}
    for name in has:
        if name == "reward" and fields.reward is not None:
            columns[name] = number_sql(fields.reward, reader.sql_column)
        elif name == "feedback" and not isinstance(fields.feedback, str) and fields.feedback is not None:
            columns[name] = text_sql(fields.feedback, reader.sql_column)
        elif name == "price":
            columns[name] = reader.sql_column(getattr(fields, name)).number
        elif name == "title":
            columns[name] = f"coalesce(trim({text(getattr(fields, name))}), '')"
        elif name in {"rank", "is_test"}:
            columns[name] = reader.sql_column(getattr(fields, name)).integer + (" = 1" if name == "is_test" else "")
        else:
            columns[name] = f"coalesce({text(getattr(fields, name))}, '')"
    left_out = "false"
    if fields.left_out is not None:
        left_out = f"trim({text(fields.left_out[0])}) = {literal(fields.left_out[1])}"
    malformed_id = " OR ".join(f"strlen({name}) > {_LONGEST_ID}" for name in ("user", "item"))
    if reader.may_join_lines:
        malformed_id += " OR contains(user, chr(10)) OR contains(item, chr(10))"
    checks = {
        Reason.MALFORMED_ROW: "malformed",
        Reason.BLANK_USER: _blank("user"),
        Reason.BLANK_ITEM: _blank("item"),
        Reason.DROPPED_BY_SOURCE: "left_out",
        Reason.DROPPED_BY_WHERE: "is_wanted IS NOT true",
        Reason.MALFORMED_ID: malformed_id,
        Reason.BAD_TIME: "time IS NULL",
        Reason.BAD_REWARD: f"reward IS NULL OR abs(reward) > {GREATEST_REWARD}" if "reward" in has else "false",
    }
    cases = " ".join(f"WHEN {test} THEN {_CODES[reason]}" for reason, test in checks.items())
    written = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    optional = "".join(f", {name}" for name in has)
    return (
        f"SELECT user, item, time, row, CASE {cases} ELSE 0 END{optional} FROM (SELECT {written},"
        f" {reader.malformed} AS malformed, {left_out} AS left_out, {where} AS is_wanted FROM {reader.relation})"
    )


def _most_frequent(name: str) -> str:
    """SQL of a table (item, `name`): the most frequent known value of each item; of equally frequent ones the least."""
    is_known = f"{name} >= 0" if name == "price" else f"{name} <> ''"
    return (
        f"SELECT item, first({name} ORDER BY times DESC, {name}) AS {name} FROM (SELECT item, {name}, count(*) AS times"
        f" FROM staged WHERE reason = 0 AND {is_known} GROUP BY item, {name}) GROUP BY item"
    )


def _blank(column: str) -> str:
    """SQL condition: NULL or white space only. The comparison comes first because trimming every row is slow."""
    return f"{column} IS NULL OR ({column} < '!' AND trim({column}, ' \t\n\v\f\r') = '')"


def _message(reason: Reason, fields: Fields, values: dict[str, str], source: Source) -> str:
    """What a bad row holds and what was expected."""
    if reason is Reason.BAD_TIME:
        return f"time {values.get(fields.time or '', '')[:60]!r}, expected {fields.time_rule.expected}"
    if reason is Reason.BAD_FEEDBACK:
        return f"feedback {_shown_feedback(fields.feedback, values)}, expected {source.feedback.expected}"
    if reason is Reason.BAD_REWARD:
        used = ", ".join(f"{name}={value[:40]!r}" for name, value in values.items())
        return f"no finite reward from {used}, expected numbers"
    if reason is Reason.MALFORMED_ID:
        return f"a user or item id with a line break or over {_LONGEST_ID} bytes; an unclosed quote?"
    return "the row cannot be parsed"


def _shown_feedback(feedback: str | Expression | None, values: dict[str, str]) -> str:
    """The feedback column of a row, or the columns that its expression reads."""
    if isinstance(feedback, str):
        return repr(values.get(feedback, "")[:60])
    names = [] if feedback is None else columns_of(feedback)
    return "from " + ", ".join(f"{name}={values.get(name, '')[:40]!r}" for name in names)


def _finite(text: str) -> float | None:
    """`text` as a finite number that fits the store, or None; -0 becomes 0, so that equal values have one name."""
    try:
        number = float("" if "_" in text else text) + 0.0
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) <= GREATEST_REWARD else None
