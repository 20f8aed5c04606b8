"""Tmall (IJCAI-15): `user_log_format1.csv`; times are days (mmdd), so events of one day keep the order of the file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from ecoc.data.bad_rows import BadRows
from ecoc.data.delimited import Delimited
from ecoc.data.readers import Reader
from ecoc.data.schema import Statistics
from ecoc.data.sources.base import Feedback, Fields, PrepareConfig, Source, find_file
from ecoc.data.times import MonthDay

_LOG = "user_log_format1.csv"
_YEAR = 2014  # the contest was in 2015; the campaign in the data is that of 2014


class TmallConfig(PrepareConfig):
    """Settings: the filters of the paper; repeats of one action of a user on an item are dropped."""

    min_item_support: int = Field(20, ge=1, description="items with fewer events are dropped")
    min_length: int = Field(10, ge=1, description="sequences with fewer events are dropped")
    dedup: Literal["none", "exact", "feedback"] = Field(
        "feedback", description="feedback: the first row per user, item and action is kept"
    )
    drop_1111: bool = Field(False, description="drop the campaign day, 11 November")
    drop_cart: bool = Field(False, description="drop add-to-cart rows, which the paper does not mention")


class Tmall(Source):
    """Tmall log: click 1, favourite 2, purchase 3; add-to-cart counts as 2."""

    Config = TmallConfig
    reference = Statistics(users=238_242, items=113_183, interactions=9_795_393)

    def __init__(self, config: TmallConfig, paths: list[str]) -> None:
        super().__init__(config, [str(find_file(Path(p), [_LOG], what=f"the file {_LOG}")) for p in paths])
        self._drop_1111 = config.drop_1111
        self.feedback = Feedback(
            rewards={"click": 1.0, "cart": 2.0, "favourite": 2.0, "buy": 3.0},
            labels={"0": "click", "1": "cart", "2": "buy", "3": "favourite"},
            dropped=frozenset({"cart"} if config.drop_cart else ()),
            expected="action_type 0 (click), 1 (cart), 2 (buy) or 3 (favourite)",
        )

    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        fields = Fields(
            "user_id",
            "item_id",
            "time_stamp",
            MonthDay(_YEAR),
            feedback="action_type",
            category="cat_id",
            left_out=("time_stamp", "1111") if self._drop_1111 else None,
        )
        for path in self.paths:
            reader = Delimited(Path(path), bad, separator=",", encoding=self.config.encoding)
            reader.select(list(fields.parts.values()))
            yield reader, fields
