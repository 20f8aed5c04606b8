import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_case import all_times, prepare_file, prepare_text, write_log
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoc.data.engine import Engine
from ecoc.data.sql_columns import SqlColumn
from ecoc.data.times import MonthDay, rule_for, unit_of
from ecoc.errors import InputError


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ((1, 2, 3), "order"),
        ((9_999_999, 0), "order"),
        ((10_000_000, 0), "s"),
        ((1_500_000_000, 1), "s"),
        ((99_999_999_999,), "s"),
        ((100_000_000_000,), "ms"),
        ((1_500_000_000_000, 1_500_000_000), "ms"),
        ((1_500_000_000_000_000, 3), "us"),
        ((1_500_000_000_000_000_000, 3), "ns"),
        ((-1_500_000_000_000, 3), "ms"),
    ],
)
def test_the_unit_of_epoch_integers_follows_from_the_largest(times: tuple[int, ...], unit: str, tmp_path: Path) -> None:
    rows = [("u", f"i{k}", value) for k, value in enumerate(times)]
    rows += [("v", f"i{k}", value) for k, value in enumerate(times)]
    data = prepare_file(write_log(tmp_path / "log.csv", rows), tmp_path / "out", split="leave-one-out", min_length=1)
    assert data.manifest.time_unit == unit
    assert unit_of(max(times, key=abs)) == unit


@pytest.mark.parametrize("first", [1_500_000_000, 1_500_000_000_000_000, 1_500_000_000_000_000_000])
def test_events_one_tick_apart_keep_their_order_though_float32_would_scramble_them(first: int, tmp_path: Path) -> None:
    ticks = [(37 * k) % 101 for k in range(101)]  # every tick once, in no order
    rows = [("u", f"i{tick:03}", first + tick) for tick in ticks]
    order = [f"i{tick:03}" for tick in range(101)]
    as_float32 = sorted(rows, key=lambda row: float(np.float32(row[2])))
    assert [item for _, item, _ in as_float32] != order, "float32 would have kept this order: the test shows nothing"
    rows += [("v", item, first) for item in order * 2]  # so that every item is in training
    data = prepare_file(write_log(tmp_path / "log.csv", rows), tmp_path / "out", split="leave-one-out", ties="item")
    (sequence,) = data.user("u")
    assert sequence.items == order
    assert np.array_equal(sequence.times, first + np.arange(101))


def test_order_survives_in_every_container(tmp_path: Path) -> None:
    first = 1_500_000_000_000_000
    rows = [("u", "late", first + 1), ("u", "early", first), ("v", "late", 0), ("v", "early", 1), ("v", "early", 2)]
    columns = {name: list(column) for name, column in zip("uit", zip(*rows, strict=True), strict=True)}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    lines = "".join(f'{{"u": "{user}", "i": "{item}", "t": {when}}}\n' for user, item, when in rows)
    (tmp_path / "log.jsonl").write_text(lines)
    write_log(tmp_path / "log.csv", rows)
    for kind in ("csv", "parquet", "jsonl"):
        data = prepare_file(tmp_path / f"log.{kind}", tmp_path / kind, split="per-user:0.8", ties="item")
        assert data.user("u")[0].items[0] == "early", kind
        assert int(data.user("u")[0].times[0]) == first


ISO = {
    "2024-05-31": datetime(2024, 5, 31, tzinfo=UTC),
    "2024-05-31 23:59:59": datetime(2024, 5, 31, 23, 59, 59, tzinfo=UTC),
    "2024-05-31T23:59:59.000001": datetime(2024, 5, 31, 23, 59, 59, 1, tzinfo=UTC),
    "2024-05-31T23:59:59Z": datetime(2024, 5, 31, 23, 59, 59, tzinfo=UTC),
    "2024-05-31T23:59:59+02:00": datetime(2024, 5, 31, 21, 59, 59, tzinfo=UTC),
    "2024-05-31T23:59:59-03:30": datetime(2024, 6, 1, 3, 29, 59, tzinfo=UTC),
    "1969-07-20T20:17:40Z": datetime(1969, 7, 20, 20, 17, 40, tzinfo=UTC),
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("time_format", ["auto", "iso"])
def test_iso_dates_honour_their_offset_and_are_utc_without_one(time_format: str, tmp_path: Path) -> None:
    expected = {text: (moment - EPOCH) // timedelta(microseconds=1) for text, moment in ISO.items()}
    assert all_times(tmp_path, list(ISO), time_format=time_format) == expected


@settings(max_examples=40, deadline=None)
@given(st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_iso_of_any_moment_and_offset_is_what_python_reads(moment: datetime, minutes: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    engine = Engine()
    try:
        found = engine.scalar(
            f"SELECT {rule_for('iso', None, []).sql(SqlColumn('?'))}".replace("?", f"'{aware.isoformat()}'")
        )
    finally:
        engine.close()
    assert found == (aware - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize("text", ["2024-02-30", "2024-13-01", "2023-02-29", "2024-05-31T25:00:00", "yesterday", "2024"])
def test_an_impossible_iso_date_is_a_bad_time(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"log.csv:3: time .* expected an ISO date"):
        all_times(tmp_path, ["2024-05-31", text], time_format="iso")


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("%d/%m/%Y", "31/05/2024", 1_717_113_600),
        ("%d/%m/%Y %H:%M", "31/05/2024 10:30", 1_717_151_400),
        ("%Y%m%d%H%M%S", "20240531103001", 1_717_151_401),
        ("%d %b %Y, %I:%M %p", "31 May 2024, 10:30 PM", 1_717_194_600),
        ("%Y-%m-%d %H:%M:%S.%f", "2024-05-31 10:30:00.000001", 1_717_151_400_000_001),
        ("%Y-%m-%d %H:%M:%S %z", "2024-05-31 10:30:00 +0200", 1_717_144_200),
        ("%Y-%m-%d", "1969-12-31", -86_400),
    ],
)
def test_patterns_are_read_as_utc_seconds_or_microseconds(
    pattern: str, text: str, expected: int, tmp_path: Path
) -> None:
    data = prepare_text(
        tmp_path, f'u,i,t\na,1,"{text}"\nb,1,"{text}"\n', split="leave-one-out", min_length=1, time_format=pattern
    )
    assert set(data.times.tolist()) == {expected}
    assert data.manifest.time_unit == ("us" if "%f" in pattern else "s")


@pytest.mark.parametrize("pattern", ["%Q", "%Y-%", "nonsense", "epoch-h"])
def test_a_pattern_nobody_knows_is_refused(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="time"):
        all_times(tmp_path, ["2024-05-31"], time_format=pattern)


def test_a_date_that_is_no_pattern_asks_for_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"log.csv:2: time '31/05/2024' is neither .* --time-format"):
        all_times(tmp_path, ["31/05/2024"])


@pytest.mark.parametrize("time_format", ["auto", "epoch"])
def test_fractional_epochs_are_kept_to_the_microsecond(time_format: str, tmp_path: Path) -> None:
    values = ["1500000000.5", "1500000000.000001", "1500000000", "-0.25", "1.5e9"]
    found = all_times(tmp_path, values, time_format=time_format)
    whole = 1_500_000_000_000_000
    assert list(found.values()) == [whole + 500_000, whole + 1, whole, -250_000, whole]


@pytest.mark.parametrize("value", ["1e400", "nan", "inf", "12:30", "0x10", "1_000", ""])
def test_what_is_no_epoch_is_a_bad_time(value: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"log.csv:3: time"):
        all_times(tmp_path, ["1500000000", value])


@pytest.mark.parametrize(("unit", "value"), [("s", 5), ("ms", 5), ("us", 5), ("ns", 5)])
def test_a_named_unit_is_taken_at_its_word(unit: str, value: int, tmp_path: Path) -> None:
    data = prepare_text(
        tmp_path, f"u,i,t\na,1,{value}\n", split="leave-one-out", min_length=1, time_format=f"epoch-{unit}"
    )
    assert data.manifest.time_unit == unit
    assert data.times.tolist() == [value]


@pytest.mark.parametrize("extreme", [-(2**63), -(2**63) + 1, 2**63 - 1])
def test_the_extremes_of_int64_are_times_like_others(extreme: int, tmp_path: Path) -> None:
    assert all_times(tmp_path, [0, extreme]) == {"0": 0, str(extreme): extreme}


def test_a_number_beyond_int64_is_a_bad_time(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"log.csv:3: time '9223372036854775808'"):
        all_times(tmp_path, [0, 2**63])


@pytest.mark.parametrize(
    ("kind", "ticks", "unit"),
    [
        (pa.timestamp("s"), 10**6, "us"),
        (pa.timestamp("ms"), 10**3, "us"),
        (pa.timestamp("us"), 1, "us"),
        (pa.timestamp("us", "UTC"), 1, "us"),
        (pa.timestamp("us", "+05:30"), 1, "us"),
        (pa.timestamp("ns"), 1, "ns"),
        (pa.timestamp("ns", "UTC"), 1, "ns"),
    ],
    ids=str,
)
def test_parquet_timestamps_keep_every_tick(kind: pa.DataType, ticks: int, unit: str, tmp_path: Path) -> None:
    stamps = pa.array([1_500_000_002, 1_500_000_001, 1_500_000_003], pa.int64())
    table = pa.table({"u": ["a"] * 3, "i": ["x", "y", "x"], "t": stamps.cast(kind)})
    pq.write_table(table, tmp_path / "log.parquet")
    data = prepare_file(tmp_path / "log.parquet", tmp_path / "out", split="leave-one-out")
    assert data.times.tolist() == [1_500_000_001 * ticks, 1_500_000_002 * ticks, 1_500_000_003 * ticks]
    assert data.manifest.time_unit == unit


def test_parquet_float_times_are_seconds_with_a_fraction(tmp_path: Path) -> None:
    table = pa.table({"u": ["a", "a", "a"], "i": ["x", "y", "y"], "t": [1.5e9 + 0.5, 1.5e9, 1.5e9 + 1]})
    pq.write_table(table, tmp_path / "log.parquet")
    data = prepare_file(tmp_path / "log.parquet", tmp_path / "out", split="leave-one-out")
    whole = 1_500_000_000_000_000
    assert data.times.tolist() == [whole, whole + 500_000, whole + 1_000_000]


@pytest.mark.parametrize("day", [101, 131, 228, 430, 1111, 1231])
def test_mmdd_is_the_second_its_day_began(day: int) -> None:
    assert _month_day(str(day)) == int(datetime(2014, day // 100, day % 100, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    "day", ["0", "100", "132", "229", "230", "431", "931", "1131", "1232", "1301", "-511", "5.11", "x"]
)
def test_an_impossible_mmdd_is_no_time(day: str) -> None:
    assert _month_day(day) is None


def _month_day(text: str) -> int | None:
    engine = Engine()
    try:
        found: int | None = engine.scalar(f"SELECT {MonthDay(2014).sql(SqlColumn('t'))} FROM (SELECT '{text}' AS t)")
        return found
    finally:
        engine.close()


@pytest.mark.parametrize("time", [None, "t"])
def test_row_order_is_the_order_of_all_files_one_after_the_other(time: str | None, tmp_path: Path) -> None:
    paths = [
        write_log(tmp_path / "2.csv", [("a", "1", 9), ("a", "2", 8), ("a", "3", 7)]),
        write_log(tmp_path / "1.csv", [("a", "1", 6), ("a", "2", 5), ("a", "3", 4), ("a", "3", 4)]),
    ]
    data = prepare_file(paths, tmp_path / "out", time=time, time_format="order", split="leave-one-out")
    assert data.manifest.time_unit == "order"
    assert data.user("a")[0].items == ["1", "2", "3", "1", "2", "3", "3"]
    assert np.diff(data.times).min() > 0


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/St_Johns"])
def test_the_time_zone_of_the_machine_does_not_matter(zone: str, tmp_path: Path) -> None:
    rows = [("a", "x", "2024-03-31 02:30:00"), ("a", "y", "2024-03-31 02:30:00+01:00"), ("a", "x", "2024-10-27")]
    log = write_log(tmp_path / "log.csv", rows)
    stamps = pa.array([datetime(2024, 3, 31, 2, 30), datetime(2024, 3, 30), datetime(2024, 3, 31)])
    pq.write_table(pa.table({"u": ["a"] * 3, "i": ["x", "y", "x"], "t": stamps}), tmp_path / "log.parquet")
    script = (
        "import sys, ecoc, time\n"
        "for source, out in zip(sys.argv[1::2], sys.argv[2::2]):\n"
        "    data = ecoc.prepare(source, out, user='u', item='i', time='t', split='leave-one-out', threads=1)\n"
        "    print(data.checksum, data.statistics()['last_time'], file=sys.stderr)\n"
        "print(time.timezone)"
    )
    arguments = [str(log), str(tmp_path / zone[:3]), str(tmp_path / "log.parquet"), str(tmp_path / f"{zone[:3]}p")]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) not in {0, time.timezone}, "the zone did not take effect"
    here = [prepare_file(log, tmp_path / "here", validation=0.1, split="leave-one-out")]
    here.append(prepare_file(tmp_path / "log.parquet", tmp_path / "herep", validation=0.1, split="leave-one-out"))
    expected = [f"{data.checksum} {data.statistics()['last_time']}" for data in here]
    assert done.stderr.splitlines() == expected
