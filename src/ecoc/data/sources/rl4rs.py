"""RL4RS: one row per slate of nine items, and `item_info.csv` with the prices, which are the rewards.

Two layouts: the benchmark's own ('@'-separated, with times) and that of the cup (CSV: row_id, exposed_items, labels).
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from ecoc.data.bad_rows import BadRows
from ecoc.data.delimited import Delimited
from ecoc.data.expression import LogColumn
from ecoc.data.lookups import read_lookup
from ecoc.data.readers import Batches, Reader
from ecoc.data.schema import Statistics
from ecoc.data.sources.base import Feedback, Fields, PrepareConfig, Source, check_exists, find_beside
from ecoc.data.sources.slates import SlateReader
from ecoc.data.sql_columns import SqlColumn
from ecoc.data.times import Epoch, RowOrder
from ecoc.errors import InputError

_LOGS = ("rl4rs_dataset_a_sl.csv", "rl4rs_dataset_a_rl.csv")
_PRICES = ("item_info.csv", "item_info_381.csv")
_BENCHMARK = ["timestamp", "session_id", "sequence_id", "exposed_items", "user_feedback"]
_CUP = ["row_id", "row_id", "row_id", "exposed_items", "labels"]  # one slate per row; no time
_SLATE = 9
_LOCKED = "locked"
_FIRST_TEST = 6  # session_id mod 10: 0..5 train, 6..9 test


class RL4RSConfig(PrepareConfig):
    """Settings: slates of any length are kept, and split by the rule of the benchmark."""

    min_length: int = Field(1, ge=1, description="sequences with fewer events are dropped")
    split: str = Field("source", description="source: session_id mod 10 up to 5 is train, the rest test")
    items: str | None = Field(None, description="the price table, if it is not beside the log")
    drop_locked: bool = Field(
        False,
        description="drop items not on offer: the row of three before theirs was not sold out",
    )


class RL4RS(Source):
    """RL4RS: a sequence is a slate of nine exposed items; the reward is the price if bought, else 0."""

    Config = RL4RSConfig
    config: RL4RSConfig
    reference = Statistics(users=149_414, items=283, interactions=15_473_844)

    def __init__(self, config: RL4RSConfig, paths: list[str]) -> None:
        super().__init__(config, [str(path) for given in paths for path in _logs(Path(given))])
        self.config = config
        labels = {"0": "ignore", "1": "buy", **({_LOCKED: "locked"} if config.drop_locked else {})}
        dropped = frozenset({"locked"} if config.drop_locked else ())
        self.feedback = Feedback(labels=labels, dropped=dropped, expected="feedback 0 or 1")

    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        prices = self.items(BadRows(skip=bad.skip))
        timed = Fields(
            "session_id",
            "item",
            "timestamp",
            Epoch("s"),
            feedback="bought",
            reward=LogColumn("reward"),
            sequence="sequence",
            rank="position",
            is_test="is_test",
        )
        for path in map(Path, self.paths):
            rows = Delimited(path, bad, separator="@", quoting=False)
            is_cup = len(rows.columns) == 1
            if is_cup:
                rows = Delimited(path, bad, separator=",")
            slates = Slates(rows, _CUP if is_cup else _BENCHMARK, prices, bad, drop_locked=self.config.drop_locked)
            yield slates, replace(timed, time=None, time_rule=RowOrder()) if is_cup else timed

    def items(self, bad: BadRows) -> pa.Table:
        path = find_beside(Path(self.paths[0]), _PRICES) if self.config.items is None else Path(self.config.items)
        if path is None:
            folder = Path(self.paths[0]).parent
            raise InputError(f"{folder}: no {_PRICES[0]} beside the log; name the price table with --items")
        check_exists(path, "the price table")
        reader = Delimited(path, bad, separator=" ", quoting=False)
        if len(reader.columns) == 1:
            reader = Delimited(path, bad, separator=",")
        return read_lookup(reader, item="item_id", price="price", category="location")


class Slates(SlateReader):
    """One row per exposed item, from one row per slate."""

    def __init__(self, rows: Delimited, names: list[str], prices: pa.Table, bad: BadRows, *, drop_locked: bool) -> None:
        columns = ["session_id", "sequence", "timestamp", "item", "bought", "position", "is_test", "reward"]
        super().__init__(rows, bad, raw=names, columns=columns)
        self._names = [f"c{rows.selected.index(name)}" for name in names]
        self._feedback = names[-1]
        self._drop_locked = drop_locked
        self._prices = prices
        self._label = rows.path.name.split(".")[0].removeprefix("rl4rs_dataset_a_")  # a sequence is never in two files

    def sql_column(self, name: str) -> SqlColumn:
        kinds = {"position": "integer", "is_test": "integer", "reward": "number"}
        return SqlColumn(name, kinds.get(name, "text"))  # type: ignore[arg-type]

    def batches(self) -> Batches:
        """Stream exposed items; a slate without exactly nine items and nine answers is one bad row."""
        for batch in self._rows.batches():
            _, session, _, *lists = (batch.column(name) for name in self._names)
            items, answers = (pc.split_pattern(column, ",") for column in lists)
            lengths = pc.list_value_length(items)
            whole = pc.and_(pc.equal(lengths, _SLATE), pc.equal(pc.list_value_length(answers), _SLATE))
            whole = pc.and_(whole, pc.match_substring_regex(session, r"^\d{1,18}$"))
            self._reject(batch, whole, "not a slate of nine items, nine answers and a numeric session")
            yield self._exploded(batch.filter(whole), items.filter(whole), answers.filter(whole))

    def _exploded(self, batch: pa.RecordBatch, items: pa.Array, answers: pa.Array) -> pa.RecordBatch:
        repeat = pa.array(np.repeat(np.arange(batch.num_rows), _SLATE))
        moment, session, sequence = (batch.column(name).take(repeat) for name in self._names[:3])
        item, bought = pc.list_flatten(items), pc.utf8_trim_whitespace(pc.list_flatten(answers))
        price = self._prices.column("price").combine_chunks().take(pc.index_in(item, self._prices.column("item")))
        last_digit = pc.cast(session, pa.int64()).to_numpy() % 10
        return pa.record_batch(
            {
                "session_id": session,
                "sequence": pc.binary_join_element_wise(self._label, sequence, moment, ":"),
                "timestamp": moment,
                "item": item,
                "bought": _with_locked(bought) if self._drop_locked else bought,
                "position": np.tile(np.arange(_SLATE), batch.num_rows),
                "is_test": (last_digit >= _FIRST_TEST).astype(np.int64),
                "reward": pc.if_else(pc.equal(bought, "1"), price, pc.multiply(price, 0.0)),
                "row": batch.column("row").take(repeat),
            }
        )

    def values_at(self, row: int) -> dict[str, str]:
        values = self._rows.values_at(row)
        return {**values, "bought": values.get(self._feedback, "")}


def _with_locked(bought: pa.Array) -> pa.Array:
    """Answers of slates; those of rows that were not on offer are `_LOCKED`. A row opens when the last is sold."""
    is_sold = pc.equal(bought, "1").to_numpy(zero_copy_only=False).reshape(-1, 3, 3).all(2)  # [slates, rows]
    is_open = np.column_stack([np.ones(len(is_sold), np.bool_), is_sold[:, 0], is_sold[:, 0] & is_sold[:, 1]])
    return pc.if_else(pa.array(np.repeat(is_open.reshape(-1), 3)), bought, _LOCKED)


def _logs(path: Path) -> list[Path]:
    check_exists(path, f"{_LOGS[0]} or its folder")
    if not path.is_dir():
        return [path]
    files = [
        file for name in _LOGS for file in (path / name, path / f"{name}.gz", path / f"{name}.zst") if file.is_file()
    ]
    if not files:
        raise InputError(f"{path}: the folder has no {' or '.join(_LOGS)}; give the folder of the RL4RS-A logs")
    return files
