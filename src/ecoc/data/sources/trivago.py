"""trivago, RecSys Challenge 2019: actions of hotel-search sessions; a click-out carries the hotels shown and prices."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ecoc.data.bad_rows import BadRows
from ecoc.data.delimited import Delimited
from ecoc.data.readers import Batches, Reader
from ecoc.data.sources.base import Feedback, Fields, PrepareConfig, Source, find_file
from ecoc.data.sources.slates import SlateReader
from ecoc.data.sql_columns import SqlColumn
from ecoc.data.times import Epoch

_LOGS = ("train.csv", "sessions_100k.csv")
_RAW = ("user_id", "session_id", "timestamp", "step", "action_type", "reference", "city", "impressions", "prices")
_CLICK, _REFUSED = "clickout item", "refused"
_LOOKS = (
    "interaction item image",
    "interaction item info",
    "interaction item rating",
    "interaction item deals",
    "search for item",
)
_NO_ITEM = ("change of sort order", "filter selection", "search for destination", "search for poi")
_MOST_SHOWN = 1000  # hotels in a list; the service shows 25


class Trivago(Source):
    """A sequence is a session. Every hotel of a click-out's list is an event: clicked 3, refused 0; a look is 1."""

    feedback = Feedback(
        rewards={"refused": 0.0, "look": 1.0, "clickout": 3.0},
        labels={_REFUSED: "refused", _CLICK: "clickout", **dict.fromkeys(_LOOKS, "look")},
        expected=f"action_type {', '.join((_CLICK, *_LOOKS, *_NO_ITEM))}",
    )

    def __init__(self, config: PrepareConfig, paths: list[str]) -> None:
        what = "the session log"
        super().__init__(config, [str(find_file(Path(path), _LOGS, what=what)) for path in paths])

    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        fields = Fields(
            "user_id",
            "item",
            "timestamp",
            Epoch("s"),
            feedback="action",
            sequence="session_id",
            rank="place",
            price="price",
            category="city",
            left_out=("has_item", "0"),
        )
        for path in self.paths:
            yield Impressions(Delimited(Path(path), bad, separator=",", encoding=self.config.encoding), bad), fields


class Impressions(SlateReader):
    """One row per hotel that was shown, clicked or looked at, from one row per action."""

    def __init__(self, rows: Delimited, bad: BadRows) -> None:
        names = ["user_id", "session_id", "timestamp", "step", "action", "item", "city", "price", "has_item", "place"]
        super().__init__(rows, bad, raw=_RAW, columns=names)

    def sql_column(self, name: str) -> SqlColumn:
        if name == "place":  # of an event in its session: by step, then by place in the list
            return SqlColumn(f"({SqlColumn('step').integer} * {_MOST_SHOWN + 1} + place)", "integer")
        return SqlColumn(name)

    def batches(self) -> Batches:
        """Stream events; a click-out whose lists of hotels and prices differ in length is one bad row."""
        for batch in self._rows.batches():
            columns = {name: batch.column(f"c{place}") for place, name in enumerate(_RAW)}
            shown, prices = (_split(columns[name]) for name in ("impressions", "prices"))
            counts = pc.list_value_length(shown)
            whole = pc.and_(pc.equal(counts, pc.list_value_length(prices)), pc.less_equal(counts, _MOST_SHOWN))
            self._reject(batch, whole, f"not as many prices as impressions, or more than {_MOST_SHOWN}")
            whole_columns = {name: column.filter(whole) for name, column in columns.items()}
            row = batch.column("row").filter(whole)
            yield _events(whole_columns, row, shown.filter(whole), prices.filter(whole))

    def values_at(self, row: int) -> dict[str, str]:
        values = self._rows.values_at(row)
        return {**values, "action": values.get("action_type", ""), "item": values.get("reference", "")}


def _split(column: pa.Array) -> pa.ListArray:
    """Texts joined by `|` as lists; an empty text is an empty list."""
    lists = pc.split_pattern(column, "|")
    lengths = np.where(pc.equal(column, "").to_numpy(zero_copy_only=False), 0, pc.list_value_length(lists).to_numpy())
    is_real = np.repeat(lengths > 0, pc.list_value_length(lists).to_numpy())
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pc.list_flatten(lists).filter(pa.array(is_real)))


def _events(columns: dict[str, pa.Array], row: pa.Array, shown: pa.ListArray, prices: pa.ListArray) -> pa.RecordBatch:
    """The hotels of each list, and each action itself unless it is a click on a hotel of its list."""
    counts = pc.list_value_length(shown).to_numpy()
    actions = np.arange(len(counts))
    of_shown = np.repeat(actions, counts)
    place = np.arange(len(of_shown)) - np.repeat(np.cumsum(counts) - counts, counts)
    items = pc.list_flatten(shown)
    is_named = pc.equal(items, columns["reference"].take(pa.array(of_shown))).to_numpy(zero_copy_only=False)
    first = np.full(len(counts), -1)  # place of the action's own hotel in its list
    first[of_shown[is_named][::-1]] = place[is_named][::-1]
    is_click = pc.equal(columns["action_type"], _CLICK).to_numpy(zero_copy_only=False)
    own = np.flatnonzero(~is_click | (first < 0))
    is_chosen = is_click[of_shown] & (place == first[of_shown])
    action = np.concatenate([of_shown, own])
    order = np.lexsort((np.concatenate([place, counts[own]]), action))
    taken = pa.array(action[order])
    kinds = pa.concat_arrays(
        [
            pc.if_else(pa.array(is_chosen), _CLICK, _REFUSED).cast(pa.string()),
            columns["action_type"].take(pa.array(own)).cast(pa.string()),
        ]
    )
    no_price = pa.nulls(len(own), pa.string())
    items = pa.concat_arrays([items.cast(pa.string()), columns["reference"].take(pa.array(own)).cast(pa.string())])
    place_in_order = pa.array(order)
    kind = kinds.take(place_in_order)
    return pa.record_batch(
        {
            **{name: columns[name].take(taken) for name in ("user_id", "session_id", "timestamp", "step", "city")},
            "action": kind,
            "item": items.take(place_in_order),
            "price": pa.concat_arrays([pc.list_flatten(prices).cast(pa.string()), no_price]).take(place_in_order),
            "has_item": pc.if_else(pc.is_in(kind, pa.array(_NO_ITEM)), "0", "1"),
            "place": np.concatenate([place, counts[own]])[order],
            "row": row.take(taken),
        }
    )
