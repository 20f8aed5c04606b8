"""From events to sequences: duplicates, pauses, rare items and short sequences, and the exact time of the cut."""

from collections.abc import Sequence

from ecoc.data.engine import Engine
from ecoc.data.sources.base import PrepareConfig
from ecoc.data.times import PER_SECOND
from ecoc.errors import InputError
from ecoc.schema import Reason, Statistics, Step, TimeUnit

_BUCKETS = 1 << 16
_FEW = 100_000  # rows; dropping more in place takes memory that cannot spill


class Filters:
    """Works on the table `events` of an engine, noting each step and what it dropped."""

    def __init__(self, engine: Engine, config: PrepareConfig, columns: Sequence[str]) -> None:
        self._engine = engine
        self._config = config
        self._columns = columns
        self.steps: list[Step] = []
        self.dropped: dict[Reason, int] = {}
        keys = ("time", "rank", "row") if config.ties == "file" else ("time", "rank", "item", "code", "reward")
        self.order = self._present(keys)
        """SQL that puts the events of a sequence in order."""

    def _present(self, names: Sequence[str]) -> str:
        return ", ".join(name for name in names if name in self._columns)

    def note(self, name: str) -> Step:
        """Write down how much there is now."""
        counts = self._engine.run("SELECT count(*), count(DISTINCT seq), count(DISTINCT item) FROM events")[0]
        step = Step(name=name, interactions=counts[0], sequences=counts[1], items=counts[2])
        self.steps.append(step)
        return step

    def deduplicate(self) -> None:
        """Drop exact copies, or all but the first event of a sequence, item and feedback."""
        if self._config.dedup == "none":
            return
        keys = ("seq", "item", "code")
        same = self._present(keys if self._config.dedup == "feedback" else (*keys, "time", "rank", "reward"))
        before = self.steps[-1].interactions
        self._engine.run(
            "CREATE OR REPLACE TABLE events AS SELECT * FROM events QUALIFY row_number() OVER"
            f" (PARTITION BY {same} ORDER BY {self.order}) = 1"
        )
        self._lose(Reason.DUPLICATE, before - self.note("deduplicated").interactions)

    def split_at_gaps(self, unit: TimeUnit) -> None:
        """Start a new sequence where a user pauses longer than `session_gap`."""
        seconds = self._config.gap_seconds
        if seconds is None:
            return
        if unit == "order":
            raise InputError("session_gap needs real times; this log has only an order")
        run = self._engine.run
        run(
            "CREATE TABLE gapped AS SELECT *,"
            f" coalesce(time::HUGEINT - lag(time) OVER past > {seconds * PER_SECOND[unit]}, false)"
            f" AS starts FROM events WINDOW past AS (PARTITION BY seq ORDER BY {self.order})"
        )
        run(
            "CREATE OR REPLACE TABLE events AS SELECT * EXCLUDE starts, CAST(count_if(starts) OVER (PARTITION BY seq"
            f" ORDER BY {self.order} ROWS UNBOUNDED PRECEDING) AS INTEGER) AS session FROM gapped"
        )
        run("DROP TABLE gapped")
        run(
            "CREATE TABLE sessions AS SELECT seq, session,"
            " CAST(row_number() OVER (ORDER BY seq, session) - 1 AS INTEGER) AS number"
            " FROM (SELECT DISTINCT seq, session FROM events)"
        )
        run(
            "CREATE OR REPLACE TABLE events AS SELECT number AS seq, events.* EXCLUDE (seq, session)"
            " FROM events JOIN sessions USING (seq, session)"
        )
        run(
            "CREATE OR REPLACE TABLE sequence_ids AS SELECT user, CAST(session AS VARCHAR) AS sequence, number AS seq"
            " FROM sessions JOIN sequence_ids USING (seq)"
        )
        self.note("split at pauses")

    def support_and_length(self) -> None:
        """Drop rare items and short sequences: once each, or until nothing changes."""
        passes = 0
        while True:
            passes += 1
            before = len(self.steps)
            self._drop_below("item", self._config.min_item_support, Reason.RARE_ITEM, f"frequent items, pass {passes}")
            self._drop_below("seq", self._config.min_length, Reason.SHORT_SEQUENCE, f"long sequences, pass {passes}")
            if len(self.steps) == before or self._config.filter == "single-pass":
                return

    def _drop_below(self, column: str, least: int, reason: Reason, step: str) -> None:
        few = f"SELECT {column} FROM events GROUP BY {column} HAVING count(*) < {least}"
        lost = (
            self._engine.one(
                f"SELECT coalesce(sum(n), 0) FROM (SELECT count(*) AS n FROM events"
                f" GROUP BY {column} HAVING n < {least})"
            )
            if least > 1
            else 0
        )
        if not lost:
            return
        if lost > _FEW:
            self._engine.run(
                f"CREATE OR REPLACE TABLE events AS SELECT * FROM events ANTI JOIN ({few}) USING ({column})"
            )
        else:  # marking some rows as gone is cheaper than writing all others again
            self._engine.run(f"DELETE FROM events WHERE {column} IN ({few})")
        self._lose(reason, int(lost))
        self.note(step)

    def _lose(self, reason: Reason, rows: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + rows


def statistics_of_other_rule(engine: Engine, config: PrepareConfig) -> Statistics:
    """What the filter rule that was not chosen would keep, for a comparison with a published table."""
    engine.run("ALTER TABLE events RENAME TO kept_aside")
    engine.run("CREATE TABLE events AS SELECT seq, item FROM kept_aside")
    other = "single-pass" if config.filter == "k-core" else "k-core"
    filters = Filters(engine, config.model_copy(update={"filter": other}), ("seq", "item"))
    filters.note("before")
    filters.support_and_length()
    result = statistics(engine)
    engine.run("DROP TABLE events")
    engine.run("ALTER TABLE kept_aside RENAME TO events")
    return result


def statistics(engine: Engine) -> Statistics:
    """Users, items and interactions of `events`."""
    users, items, interactions = engine.run(
        "SELECT count(DISTINCT user), count(DISTINCT item), count(*) FROM"
        " (SELECT seq, item FROM events) JOIN (SELECT seq, user FROM sequence_ids) USING (seq)"
    )[0]
    return Statistics(users=users, items=items, interactions=interactions)


def time_at(engine: Engine, position: int) -> int:
    """The time at `position` (from 0) of all events in time order, exactly, without sorting them.

    Times are counted in buckets, and the bucket that holds the position is divided again until it is a single time.
    """
    low, high = engine.run("SELECT min(time), max(time) FROM events")[0]
    wide = "::HUGEINT" if high - low >= 2**63 else ""
    while low < high:
        width = -(-(high - low + 1) // _BUCKETS)
        counts = engine.run(
            f"SELECT (time - ({low}){wide}) // {width} AS bucket, count(*) FROM events"
            f" WHERE time BETWEEN {low} AND {high}"
            " GROUP BY bucket ORDER BY bucket"
        )
        for bucket, count in counts:
            if position < count:
                low, high = low + int(bucket) * width, min(high, low + (int(bucket) + 1) * width - 1)
                break
            position -= count
    return int(low)
