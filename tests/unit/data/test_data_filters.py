import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from data_case import engine_with, prepare_file, write_log
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ecoc
from ecoc.data.bad_rows import BadRows
from ecoc.data.filters import Filters, split_at_gaps, time_at
from ecoc.data.schema import PreparationStep, RewardMap
from ecoc.data.sorted_events import SortedEvents, sums_of
from ecoc.data.sources.base import PrepareConfig
from ecoc.data.sources.movielens import MovieLens
from ecoc.data.stage import Stage, Staged
from ecoc.data.times import PER_SECOND
from ecoc.errors import InputError

Event = tuple[int, int, int, int, float]  # sequence, item, time, feedback code, reward
COLUMNS = ("seq", "item", "time", "row", "code", "reward")
ITEMS = 8
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 5), st.integers(0, 7), st.integers(0, 12), st.integers(0, 2), st.sampled_from([0.0, 1.0, 2.5])
    ),
    min_size=1,
    max_size=60,
)


def sorted_events_of(events: Sequence[Event], folder: str, batch: int = 7) -> SortedEvents:
    """Events in file order as a sorted_events, filled in small batches so that sequences cross them."""
    sorted_events = SortedEvents(Path(folder), COLUMNS)
    ordered = [event for _, event in in_file_order(events)]
    names = ("seq", "items", "times", "feedback", "rewards")
    table = pa.table(dict(zip(names, map(list, zip(*ordered, strict=True)), strict=True)))
    sorted_events.fill(table.to_batches(max_chunksize=batch))
    return sorted_events


def everything(sorted_events: SortedEvents, name: str) -> list[Any]:
    return [value for _, events in sorted_events.chunks() for value in sorted_events.read(name, events).tolist()]


def filtered(events: Sequence[Event], rule: str, **options: Any) -> tuple[list[int], Filters]:
    """The positions in `events` that support and length leave, and the filters."""
    with TemporaryDirectory() as folder:
        filters = Filters(sorted_events_of(events, folder), PrepareConfig(**options), ITEMS)
        filters.support_and_length(rule)
        places = [number for number, _ in in_file_order(events)]
        return sorted(place for place, kept in zip(places, filters.keep, strict=True) if kept), filters


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
    left, filters = filtered(events, rule, min_item_support=support, min_length=length)
    expected, lost = naive_support(events, support, length, repeat=rule == "k-core")
    assert left == expected
    assert {str(reason): count for reason, count in filters.dropped.items()} == lost
    if filters.steps:
        assert filters.steps[-1].interactions == len(expected)
        assert filters.steps[-1].sequences == len({events[k][0] for k in expected})
        assert filters.steps[-1].items == len({events[k][1] for k in expected})
    users = sorted({event[0] for event in events})
    assert filters.lengths.tolist() == [sum(events[k][0] == user for k in expected) for user in users]


@pytest.mark.parametrize(("rule", "other"), [("k-core", "single-pass"), ("single-pass", "k-core")])
def test_the_other_rule_is_counted_beside_the_papers_table(rule: str, other: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = list(zip((rng.zipf(1.5, 800) % 60).tolist(), (rng.zipf(1.5, 800) % 50).tolist(), strict=True))
    log = tmp_path / "yelp_academic_dataset_review.json"
    with log.open("w") as stream:
        for user, item in pairs:
            row = {"user_id": f"u{user}", "business_id": f"b{item}", "stars": 4.0, "date": "2020-01-01 00:00:00"}
            stream.write(json.dumps(row) + "\n")
    options: dict[str, Any] = {"format": "yelp", "dedup": "none", "min_item_support": 4, "min_length": 5}
    data = ecoc.prepare(log, tmp_path / "out", filter=rule, split="leave-one-out", **options)
    events = [(user, item, 0, 0, 0.0) for user, item in pairs]
    expected, _ = naive_support(events, 4, 5, repeat=other == "k-core")
    found = data.manifest.alternative
    assert found is not None
    assert found.interactions == len(expected)
    assert found.users == len({events[k][0] for k in expected})
    assert found.items == len({events[k][1] for k in expected})


@pytest.mark.parametrize("ties", ["file", "item"])
@pytest.mark.parametrize("dedup", ["none", "exact", "feedback"])
@settings(max_examples=12, deadline=None)
@given(EVENTS)
def test_duplicates_are_those_of_a_naive_loop(dedup: str, ties: str, events: list[Event]) -> None:
    parts = list(zip(*events, strict=True))
    types = ("INTEGER", "INTEGER", "BIGINT", "UTINYINT", "FLOAT")
    columns: dict[str, tuple[str, Sequence[Any]]] = {
        name: (kind, list(part))
        for name, kind, part in zip(("seq", "item", "time", "code", "reward"), types, parts, strict=True)
    }
    columns["row"] = ("BIGINT", list(range(len(events))))
    engine = engine_with("staged", columns)
    engine.run("CREATE VIEW events AS SELECT * FROM staged")
    config = PrepareConfig(dedup=dedup, ties=ties)
    staged = Staged(
        PreparationStep(name="read", interactions=1, sequences=1, items=1), COLUMNS, 1, {}, RewardMap(names=("a",)), "s"
    )
    with TemporaryDirectory() as folder:
        source = MovieLens(config, [__file__])
        sorted_events = Stage(engine, source, BadRows(skip=False), lambda *_: None).sort_events(
            staged, config, Path(folder)
        )
        owners = np.repeat(sorted_events.owners, sorted_events.lengths).tolist()
        found = list(
            zip(owners, *(everything(sorted_events, n) for n in ("items", "times", "feedback", "rewards")), strict=True)
        )
    engine.close()
    order = list(enumerate(events))
    order.sort(
        key=lambda entry: (entry[1][0], entry[1][2], *((entry[0],) if ties == "file" else entry[1][1:2] + entry[1][3:]))
    )
    seen, expected = set[Any](), []
    for number, (user, item, when, code, reward) in order:
        key = {"none": number, "exact": (user, item, when, code, reward), "feedback": (user, item, code)}[dedup]
        if key not in seen:
            seen.add(key)
            expected.append((user, item, when, code, reward))
    assert found == expected


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
    assert PrepareConfig(session_gap=gap).gap_seconds == seconds
    with TemporaryDirectory() as folder:
        sorted_events = sorted_events_of(moved, folder)
        names = split_at_gaps(sorted_events, seconds * PER_SECOND[unit])  # type: ignore[index]
        parts = (np.repeat(values, sorted_events.lengths).tolist() for values in (sorted_events.owners, names))
        found = list(zip(*parts, strict=True))
    expected = []
    last: dict[int, int] = {}
    session: defaultdict[int, int] = defaultdict(int)
    for _, (user, _, when, _, _) in in_file_order(moved):
        if user in last and when - last[user] > seconds * ticks:
            session[user] += 1
        last[user] = when
        expected.append((user, session[user]))
    assert found == expected


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
    with TemporaryDirectory() as folder:
        sorted_events = sorted_events_of([(0, 0, when, 0, 0.0) for when in times], folder)
        for position in positions:
            assert time_at(sorted_events, np.ones(len(times), dtype=np.bool_), position) == sorted(times)[position]


@pytest.mark.parametrize("step", [1, 3, 10**9, 2**46 + 1])
def test_the_time_at_a_position_is_exact_among_more_times_than_buckets(step: int) -> None:
    times = [((k * 7919) % 70_001 - 35_000) * step for k in range(70_001)]
    keep = np.arange(len(times)) % 3 > 0
    with TemporaryDirectory() as folder:
        sorted_events = sorted_events_of([(0, 0, when, 0, 0.0) for when in times], folder, batch=50_000)
        ordered = sorted(times)
        kept = [when for when, stays in zip(ordered, keep, strict=True) if stays]
        for position in (0, 1, 14_000, 35_000, 46_666):
            assert time_at(sorted_events, np.ones(len(times), dtype=np.bool_), position) == ordered[position]
            assert time_at(sorted_events, keep, position) == kept[position]


@given(st.lists(st.lists(st.booleans(), max_size=4), max_size=9))
def test_sums_of_stretches_are_those_of_a_loop(stretches: list[list[bool]]) -> None:
    flags = np.array([flag for stretch in stretches for flag in stretch], dtype=np.bool_)
    lengths = np.array([len(stretch) for stretch in stretches], dtype=np.int64)
    assert sums_of(flags, lengths).tolist() == [sum(stretch) for stretch in stretches]
