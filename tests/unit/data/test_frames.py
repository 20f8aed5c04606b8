"""Frames of pandas and polars and Arrow tables: prepared as the same rows in a Parquet file, and given back."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ecoc
from ecoc.errors import InputError

COLUMNS: dict[str, Any] = {"user": "user", "item": "item", "time": "ts", "threads": 1}
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def rows(count: int = 200) -> dict[str, list[Any]]:
    draw = np.random.default_rng(0)
    return {
        "user": [f"u{k}" for k in draw.integers(12, size=count)],
        "item": draw.integers(15, size=count).tolist(),
        "ts": [START + dt.timedelta(seconds=int(k)) for k in draw.permutation(count)],
        "event": draw.choice(["click", "buy"], count).tolist(),
        "amount": draw.random(count).round(3).tolist(),
    }


def both(frame: Any, table: pa.Table, folder: Path, **options: Any) -> tuple[ecoc.Dataset, ecoc.Dataset]:
    """Prepared from the frame, and from a Parquet file of the same rows."""
    pa.parquet.write_table(table, folder / "log.parquet")
    chosen = {**COLUMNS, **options}
    from_frame = ecoc.prepare(frame, folder / "frame", overwrite=True, **chosen)
    return from_frame, ecoc.prepare(folder / "log.parquet", folder / "file", overwrite=True, **chosen)


MAKERS: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "pandas with an index": lambda content: pd.DataFrame(content).set_axis([f"x{k}" for k in range(200)]),
    "pandas with an index named as a column": lambda content: pd.DataFrame(content).set_index("item", drop=False),
    "pandas with categories": lambda content: pd.DataFrame(content).astype(dict.fromkeys(["user", "item"], "category")),
    "pandas with objects": lambda content: pd.DataFrame(content).astype({"user": object, "item": object}),
    "pandas with Arrow types": lambda content: pd.DataFrame(content).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame,
    "polars with categories": lambda content: pl.DataFrame(content).with_columns(pl.col("user").cast(pl.Categorical)),
    "Arrow table": pa.table,
    "Arrow record batch": pa.record_batch,
    "Arrow reader": lambda content: pa.RecordBatchReader.from_batches(
        pa.table(content).schema, pa.table(content).to_batches(max_chunksize=17)
    ),
    "many chunks": lambda content: pa.concat_tables([pa.table(content).slice(k, 20) for k in range(0, 200, 20)]),
    "interchange protocol": lambda content: _OnlyInterchange(pa.table({**content, "ts": list(range(200))})),
}


class _OnlyInterchange:
    """A frame that offers nothing but the interchange protocol."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __dataframe__(self, **options: Any) -> Any:
        return self._table.__dataframe__(**options)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_frame_gives_the_dataset_of_the_same_rows_in_a_file(kind: str, tmp_path: Path) -> None:
    content = rows()
    frame = MAKERS[kind](content)
    if kind == "interchange protocol":
        content["ts"] = list(range(200))
    options = {"feedback": "event", "reward": {"click": 1, "buy": 3}, "category": "event"}
    from_frame, from_file = both(frame, pa.table(content), tmp_path, **options)
    assert from_frame.checksum == from_file.checksum
    assert from_frame.manifest == from_file.manifest
    assert from_frame.counts.interactions > 100


IDS = {
    "text": st.sampled_from(["a", "b", "ü", "17", "two words", " c"]),
    "integer": st.integers(0, 5),
    "float": st.sampled_from([0.0, 1.0, 2.0, 2.5]),
    "large integer": st.integers(2**53, 2**53 + 5),
}
TIMES = {
    "timestamp": st.integers(0, 50).map(lambda k: START.replace(tzinfo=None) + dt.timedelta(seconds=k)),
    "zoned": st.integers(0, 50).map(lambda k: START + dt.timedelta(seconds=k)),
    "integer": st.integers(1_600_000_000, 1_600_000_050),
    "iso": st.integers(0, 50).map(lambda k: (START + dt.timedelta(seconds=k)).isoformat()),
    "order": st.integers(0, 50),
}


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), user=st.sampled_from([*IDS]), item=st.sampled_from([*IDS]), time=st.sampled_from([*TIMES]))
def test_any_columns_give_the_dataset_of_the_same_rows_in_a_file(
    data: st.DataObject, user: str, item: str, time: str, tmp_path: Path
) -> None:
    maker = data.draw(st.sampled_from([pd.DataFrame, pl.DataFrame, pa.table]))
    count = data.draw(st.integers(12, 40))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return data.draw(st.lists(values, min_size=count, max_size=count))

    content = {
        "user": column(IDS[user] | st.none()),
        "item": column(IDS[item] | st.none()),
        "ts": column(TIMES[time]),
        "amount": column(st.floats(-5, 5, width=32)),
    }
    frame = maker(content)  # with gaps, pandas makes whole numbers floats: the file is that of the frame
    write(frame, tmp_path / "log.parquet")
    options: dict[str, Any] = {**COLUMNS, "overwrite": True, "reward_column": "amount * 2", "split": "per-user:0.8"}
    options |= {"validation": 0, "min_length": 1}
    try:
        expected = ecoc.prepare(tmp_path / "log.parquet", tmp_path / "file", **options)
    except InputError as error:
        with pytest.raises(InputError) as refused:
            ecoc.prepare(frame, tmp_path / "frame", **options)
        assert str(refused.value).partition(": ")[2] == str(error).partition(": ")[2]
        return
    assert ecoc.prepare(frame, tmp_path / "frame", **options).checksum == expected.checksum


def write(frame: Any, path: Path) -> None:
    if isinstance(frame, pd.DataFrame):
        frame.to_parquet(path, index=False)
    elif isinstance(frame, pl.DataFrame):
        frame.write_parquet(path)
    else:
        pa.parquet.write_table(frame, path)


def test_columns_that_are_not_used_may_hold_anything(tmp_path: Path) -> None:
    frame = pd.DataFrame({**rows(), "odd": [1, "a"] * 100})
    from_frame, from_file = both(frame, pa.table(rows()), tmp_path)
    assert from_frame.checksum == from_file.checksum


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "lazy frame": (lambda: pl.DataFrame(rows()).lazy(), r"LazyFrame holds no rows yet; pass its collect\(\)"),
    "mixed ids": (lambda: pd.DataFrame({**rows(), "user": [1, "a"] * 100}), "column 'user' mixes types"),
    "no such column": (lambda: pd.DataFrame({**rows()}).rename(columns={"user": "usr"}), "no column 'user'; did you"),
    "twice": (lambda: pd.concat([pd.DataFrame(rows())] * 2, axis=1), "column 'user' occurs more than once"),
    "lists": (lambda: pl.DataFrame({**rows(), "user": [["a"]] * 200}), "column 'user' holds large_list"),
    "no rows": (lambda: pd.DataFrame(rows()).head(0), "no rows"),
    "series": (lambda: pl.Series("user", ["a"]), r"polars\.Series is not a table"),
    "bad time": (
        lambda: pd.DataFrame({**rows(), "ts": ["2024-01-01", "soon"] * 100}),
        "pandas.DataFrame:2: time 'soon'",
    ),
    "a dictionary": (rows, "source: expected a path"),
    "several frames": (lambda: [pd.DataFrame(rows())], "source: expected a path"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_frame_that_cannot_be_read_is_refused_in_a_line(kind: str, tmp_path: Path) -> None:
    make, message = WRONG[kind]
    with pytest.raises(InputError, match=message) as refused:
        ecoc.prepare(make(), tmp_path / "out", **COLUMNS)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_another_format_takes_no_frame(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="format yelp: a frame is prepared with format log"):
        ecoc.prepare(pd.DataFrame(rows()), tmp_path / "out", format="yelp")


@pytest.mark.parametrize("times", ["stamps", "order"])
def test_a_dataset_gives_its_events_back(times: str, tmp_path: Path) -> None:
    content = rows()
    if times == "order":
        content["ts"] = list(range(200))
    data = ecoc.prepare(
        pd.DataFrame(content), tmp_path / "data", feedback="event", reward="click=1,buy=3", validation=0.3, **COLUMNS
    )
    frame = data.to_frame()
    assert list(frame.columns) == ["user", "sequence", "item", "feedback", "reward", "time", "split"]
    expected = [
        (sequence.user, sequence.name, item, name, float(reward), int(time), split)
        for sequence in data
        for place, (item, name, reward, time) in enumerate(
            zip(sequence.items, sequence.feedback, sequence.rewards, sequence.times, strict=True)
        )
        for split in ["test" if place >= sequence.train_length else "validation" if sequence.is_validation else "train"]
    ]
    ticks = frame["time"] if times == "order" else frame["time"].dt.as_unit("us").astype("int64")
    assert list(frame.assign(time=ticks).itertuples(index=False, name=None)) == expected
    if times == "stamps":
        assert frame["time"].min() >= START
    counts = frame["split"].value_counts().to_dict()
    assert counts == {name: getattr(data.counts, name) for name in ("train", "validation", "test")}
    for name, count in counts.items():
        part = data.to_frame(name)
        assert len(part) == count
        assert part.equals(frame[frame["split"] == name].drop(columns="split").reset_index(drop=True))
    assert data.to_table().num_rows == data.counts.interactions
    with pytest.raises(InputError, match="split: unknown value 'tset'; did you mean 'test'"):
        data.to_frame("tset")


def test_events_given_back_are_prepared_to_the_same_events(tmp_path: Path) -> None:
    data = ecoc.prepare(pd.DataFrame(rows()), tmp_path / "data", feedback="event", reward="click=1,buy=3", **COLUMNS)
    again = ecoc.prepare(
        data.to_table(), tmp_path / "again", user="user", item="item", time="time", feedback="feedback",
        reward="click=1,buy=3", threads=1,
    )  # fmt: skip
    assert again.to_frame().equals(data.to_frame())
