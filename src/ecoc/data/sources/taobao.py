"""Taobao user behaviour: `UserBehavior.csv`, no header; page views, carts, favourites, purchases; times in seconds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from ecoc.data.bad_rows import BadRows
from ecoc.data.delimited import Delimited
from ecoc.data.readers import Reader
from ecoc.data.sources.base import Feedback, Fields, PrepareConfig, Source, find_file
from ecoc.data.times import Epoch

_LOG = "UserBehavior.csv"
_COLUMNS = ("user_id", "item_id", "category_id", "behavior_type", "timestamp")


class TaobaoConfig(PrepareConfig):
    """Settings: exact copies of a row, which the raw log has, are dropped."""

    dedup: Literal["none", "exact", "feedback"] = Field("exact", description="exact copies are dropped")


class Taobao(Source):
    """Taobao log: page view 1, cart and favourite 2, purchase 3, as for Tmall."""

    Config = TaobaoConfig
    feedback = Feedback(
        rewards={"click": 1.0, "cart": 2.0, "favourite": 2.0, "buy": 3.0},
        labels={"pv": "click", "cart": "cart", "fav": "favourite", "buy": "buy"},
        expected="behaviour pv, cart, fav or buy",
    )

    def __init__(self, config: TaobaoConfig, paths: list[str]) -> None:
        super().__init__(config, [str(find_file(Path(p), [_LOG], what=f"the file {_LOG}")) for p in paths])

    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        fields = Fields("user_id", "item_id", "timestamp", Epoch("s"), feedback="behavior_type", category="category_id")
        for path in self.paths:
            reader = Delimited(
                Path(path), bad, separator=",", header=False, names=_COLUMNS, encoding=self.config.encoding
            )
            reader.select(list(fields.parts.values()))
            yield reader, fields
