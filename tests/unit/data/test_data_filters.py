from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from data_case import engine_with, prepare_file, write_log
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ecoc.data.filters import Filters, statistics_of_other_rule, time_at
from ecoc.data.sources.base import PrepareConfig
from ecoc.errors import InputError
from ecoc.schema import Reason

Event = tuple[int, int, int, int, float]  # sequence, item, time, feedback code, reward
COLUMNS = ("seq", "item", "time", "row", "code", "reward")
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 5), st.integers(0, 7), st.integers(0, 12), st.integers(0, 2), st.sampled_from([0.0, 1.0, 2.5])
    ),
    min_size=1,
    max_size=60,
)


def filtered(
    events: Sequence[Event], steps: Sequence[str], unit: Any = "s", **options: Any
) -> tuple[list[Any], Filters]:
    """Run filter steps over events; returns the rows left, in sequence order, and the filters."""
    parts = list(zip(*events, strict=True))
    types = ("INTEGER", "INTEGER", "BIGINT", "UTINYINT", "FLOAT")
    names = ("seq", "item", "time", "code", "reward")
    columns: dict[str, tuple[str, Sequence[Any]]] = {
        name: (kind, list(part)) for name, kind, part in zip(names, types, parts, strict=True)
    }
    columns["row"] = ("BIGINT", list(range(len(events))))
    engine = engine_with("events", columns)
    try:
        users = sorted({event[0] for event in events})
        engine.run("CREATE TABLE sequence_ids (user VARCHAR, sequence VARCHAR, seq INTEGER)")
        engine.run("INSERT INTO sequence_ids VALUES " + ", ".join(f"('u{user}', '', {user})" for user in users))
        filters = Filters(engine, PrepareConfig(**options), COLUMNS)
        filters.note("read")
        for step in steps:
            getattr(filters, step)(*([unit] if step == "split_at_gaps" else []))
        rows = engine.run(
            f"SELECT user, sequence, item, time, code, reward, row FROM events JOIN sequence_ids USING (seq)"
            f" ORDER BY seq, {filters.order}"
        )
        return rows, filters
    finally:
        engine.close()


def in_file_order(events: Sequence[Event]) -> list[tuple[int, Event]]:
    return sorted(enumerate(events), key=lambda entry: (entry[1][0], entry[1][2], entry[0]))


def naive_support(
    events: Sequence[Event], support: int, length: int, *, repeat: bool
) -> tuple[list[int], Counter[str]]:
    left, lost = list(range(len(events))), Counter[str]()
    while True:
        before = len(left)
        items = Counter(events[k][1] for k in left)
        frequent = [k for k in left if items[events[k][1]] >= support]
        lengths = Counter(events[k][0] for k in frequent)
        left = [k for k in frequent if lengths[events[k][0]] >= length]
        lost["rare_item"] += before - len(frequent)
        lost["short_sequence"] += len(frequent) - len(left)
        if len(left) == before or not repeat:
            return left, +lost


@pytest.mark.parametrize("rule", ["k-core", "single-pass"])
@settings(max_examples=25, deadline=None)
@given(EVENTS, st.integers(1, 5), st.integers(1, 5))
def test_support_and_length_are_those_of_a_naive_loop(
    rule: str, events: list[Event], support: int, length: int
) -> None:
    rows, filters = filtered(events, ["support_and_length"], min_item_support=support, min_length=length, filter=rule)
    expected, lost = naive_support(events, support, length, repeat=rule == "k-core")
    assert sorted(row[-1] for row in rows) == expected
    assert {str(reason): count for reason, count in filters.dropped.items()} == lost
    assert filters.steps[-1].interactions == len(expected)
    assert filters.steps[-1].sequences == len({events[k][0] for k in expected})
    assert filters.steps[-1].items == len({events[k][1] for k in expected})


@settings(max_examples=15, deadline=None)
@given(EVENTS, st.integers(1, 4), st.integers(1, 4), st.sampled_from(["k-core", "single-pass"]))
def test_the_other_rule_is_counted_without_touching_the_events(
    events: list[Event], support: int, length: int, rule: str
) -> None:
    columns: dict[str, tuple[str, Sequence[Any]]] = {
        "seq": ("INTEGER", [event[0] for event in events]),
        "item": ("INTEGER", [event[1] for event in events]),
    }
    engine = engine_with("events", columns)
    try:
        engine.run(
            "CREATE TABLE sequence_ids AS SELECT DISTINCT 'u' || (seq // 2) AS user, '' AS sequence, seq FROM events"
        )
        options: dict[str, Any] = {"min_item_support": support, "min_length": length, "filter": rule}
        found = statistics_of_other_rule(engine, PrepareConfig(**options))
        expected, _ = naive_support(events, support, length, repeat=rule != "k-core")
        assert found.interactions == len(expected)
        assert found.items == len({events[k][1] for k in expected})
        assert found.users == len({events[k][0] // 2 for k in expected})
        assert engine.one("SELECT count(*) FROM events") == len(events)
    finally:
        engine.close()


@pytest.mark.parametrize("ties", ["file", "item"])
@pytest.mark.parametrize("dedup", ["none", "exact", "feedback"])
@settings(max_examples=12, deadline=None)
@given(EVENTS)
def test_duplicates_are_those_of_a_naive_loop(dedup: str, ties: str, events: list[Event]) -> None:
    rows, filters = filtered(events, ["deduplicate"], dedup=dedup, ties=ties)
    order = list(enumerate(events))
    order.sort(
        key=lambda entry: (entry[1][0], entry[1][2], *((entry[0],) if ties == "file" else entry[1][1:2] + entry[1][3:]))
    )
    seen, expected = set[Any](), []
    for number, (user, item, when, code, reward) in order:
        key = {"none": number, "exact": (user, item, when, code, reward), "feedback": (user, item, code)}[dedup]
        if key not in seen:
            seen.add(key)
            expected.append((f"u{user}", item, when, code, reward, number))
    found = [(user, item, when, code, reward, row) for user, _, item, when, code, reward, row in rows]
    compared = 6 if ties == "file" else 5  # by item, which of two equal rows stays is all the same
    assert [row[:compared] for row in found] == [row[:compared] for row in expected]
    assert sum(filters.dropped.values()) == len(events) - len(expected)
    assert set(filters.dropped) <= {Reason.DUPLICATE}


@pytest.mark.parametrize(("gap", "seconds"), [("1s", 1), ("3 sec", 3), ("1min", 60), ("2h", 7200), ("1d", 86_400)])
@pytest.mark.parametrize(("unit", "ticks"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)])
@settings(max_examples=2, deadline=None)
@given(events=EVENTS, jitter=st.integers(-1, 1))
def test_pauses_split_as_a_naive_loop_does(
    gap: str, seconds: int, unit: str, ticks: int, events: list[Event], jitter: int
) -> None:
    scale = max(1, seconds * ticks // 3)
    moved = [
        (user, item, when * scale + jitter * (when % 2), code, reward) for user, item, when, code, reward in events
    ]
    rows, _ = filtered(moved, ["split_at_gaps"], unit, session_gap=gap)
    expected: dict[int, tuple[str, str]] = {}
    last: dict[int, int] = {}
    session: defaultdict[int, int] = defaultdict(int)
    for number, (user, _, when, _, _) in in_file_order(moved):
        if user in last and when - last[user] > seconds * ticks:
            session[user] += 1
        last[user] = when
        expected[number] = f"u{user}", str(session[user])
    assert {row[-1]: (row[0], row[1]) for row in rows} == expected


def test_sequences_split_at_pauses_are_found_by_user(tmp_path: Path) -> None:
    rows = [
        ("a", "x", 10_000_000),
        ("a", "y", 10_000_060),
        ("a", "x", 10_000_121),
        ("b", "x", 10_000_000),
        ("b", "y", 10_000_001),
    ]
    data = prepare_file(
        write_log(tmp_path / "log.csv", rows), tmp_path / "out", session_gap="1min", min_length=1, split="per-user:0.99"
    )
    assert [(part.user, part.name, part.items) for part in data.user("a")] == [("a", "0", ["x"]), ("a", "1", ["x"])]
    assert data.counts.users == 2
    assert data.counts.sequences == 3


def test_pauses_need_real_times(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", [("a", "x", 1), ("a", "y", 2)])
    with pytest.raises(InputError, match="session_gap needs real times"):
        prepare_file(log, tmp_path / "out", session_gap="1min")


def test_pauses_between_the_extremes_of_time_do_not_overflow(tmp_path: Path) -> None:
    rows = [("a", "x", -(2**63) + 1), ("a", "x", 2**63 - 1)]
    log = write_log(tmp_path / "log.csv", rows)
    data = prepare_file(log, tmp_path / "out", session_gap="1d", min_length=1, split="leave-one-out")
    assert data.counts.sequences == 2


LONGS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.lists(LONGS | st.integers(-5, 5) | st.integers(1_500_000_000, 1_500_000_100), min_size=1, max_size=80)


@settings(max_examples=60, deadline=None)
@given(TIMES, st.data())
@example([-(2**63), 2**63 - 1], None)
@example([2**63 - 1] * 3 + [2**63 - 2], None)
@example([-(2**63)] * 2, None)
def test_the_time_at_a_position_is_that_of_sorted_times(times: list[int], data: st.DataObject | None) -> None:
    positions = range(len(times)) if data is None else [data.draw(st.integers(0, len(times) - 1))]
    engine = engine_with("events", {"time": ("BIGINT", times)})
    try:
        for position in positions:
            assert time_at(engine, position) == sorted(times)[position]
    finally:
        engine.close()


@pytest.mark.parametrize("step", [1, 3, 10**9, 2**46 + 1])
def test_the_time_at_a_position_is_exact_among_more_times_than_buckets(step: int) -> None:
    times = [((k * 7919) % 70_001 - 35_000) * step for k in range(70_001)]
    engine = engine_with("events", {"time": ("BIGINT", times)})
    try:
        ordered = sorted(times)
        for position in (0, 1, 14_000, 35_000, 56_000, 69_999, 70_000):
            assert time_at(engine, position) == ordered[position]
    finally:
        engine.close()
