"""From events to sequences: duplicates, pauses, rare items and short sequences, and the exact time of the cut."""

from ecoc.data.engine import Engine
from ecoc.data.sources.base import PrepareConfig
from ecoc.data.times import PER_SECOND
from ecoc.errors import InputError
from ecoc.schema import Reason, Statistics, Step, TimeUnit

_BUCKETS = 1 << 16


class Filters:
    """Works on the table `events` of an engine, noting each step and what it dropped."""

    def __init__(self, engine: Engine, config: PrepareConfig) -> None:
        self._engine = engine
        self._config = config
        self.steps: list[Step] = []
        self.dropped: dict[Reason, int] = {}
        self.order = "rank, row" if config.ties == "file" else "rank, item, code, reward"

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
        same = "seq, item, code" if self._config.dedup == "feedback" else "seq, item, code, time, rank, reward"
        self._keep(
            Reason.DUPLICATE,
            "SELECT * FROM events QUALIFY row_number() OVER"
            f" (PARTITION BY {same} ORDER BY time, {self.order}) = 1",
        )
        self.note("deduplicated")

    def split_at_gaps(self, unit: TimeUnit) -> None:
        """Start a new sequence where a user pauses longer than `session_gap`."""
        seconds = self._config.gap_seconds
        if seconds is None:
            return
        if unit == "order":
            raise InputError("session_gap needs real times; this log has only an order")
        run = self._engine.run
        run(
            f"CREATE TABLE gapped AS SELECT *, coalesce(time - lag(time) OVER past > {seconds * PER_SECOND[unit]}, false)"
            f" AS starts FROM events WINDOW past AS (PARTITION BY seq ORDER BY time, {self.order})"
        )
        run(
            "CREATE OR REPLACE TABLE events AS SELECT * EXCLUDE starts, CAST(count_if(starts) OVER (PARTITION BY seq"
            f" ORDER BY time, {self.order} ROWS UNBOUNDED PRECEDING) AS INTEGER) AS session FROM gapped"
        )
        run("DROP TABLE gapped")
        run(
            "CREATE TABLE sessions AS SELECT seq, session, CAST(row_number() OVER (ORDER BY seq, session) - 1 AS INTEGER)"
            " AS number FROM (SELECT DISTINCT seq, session FROM events)"
        )
        run(
            "CREATE OR REPLACE TABLE events AS SELECT number AS seq, item, time, rank, code, reward, is_test, row"
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
        if least > 1 and self._engine.one(f"SELECT count(*) FROM ({few})"):
            self._keep(reason, f"SELECT * FROM events ANTI JOIN ({few}) USING ({column})")
            self.note(step)

    def _keep(self, reason: Reason, sql: str) -> None:
        before = self._engine.one("SELECT count(*) FROM events")
        self._engine.run(f"CREATE OR REPLACE TABLE events AS {sql}")
        lost = before - self._engine.one("SELECT count(*) FROM events")
        self.dropped[reason] = self.dropped.get(reason, 0) + lost


def statistics_of_other_rule(engine: Engine, config: PrepareConfig) -> Statistics:
    """What the filter rule that was not chosen would keep, for a comparison with a published table."""
    engine.run("ALTER TABLE events RENAME TO kept_aside")
    engine.run("CREATE TABLE events AS SELECT seq, item FROM kept_aside")
    other = "single-pass" if config.filter == "k-core" else "k-core"
    filters = Filters(engine, config.model_copy(update={"filter": other}))
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
    while low < high:
        width = -(-(high - low + 1) // _BUCKETS)
        counts = engine.run(
            f"SELECT (time - ({low})::HUGEINT) // {width} AS bucket, count(*) FROM events WHERE time BETWEEN {low} AND {high}"
            " GROUP BY bucket ORDER BY bucket"
        )
        for bucket, count in counts:
            if position < count:
                low, high = low + int(bucket) * width, min(high, low + (int(bucket) + 1) * width - 1)
                break
            position -= count
    return int(low)
