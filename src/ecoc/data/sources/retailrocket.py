"""RetailRocket: `events.csv` (views, carts, transactions; times in milliseconds) and categories of the items."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pydantic import Field

from ecoc.data.bad_rows import BadRows
from ecoc.data.delimited import Delimited
from ecoc.data.lookups import latest_property
from ecoc.data.readers import Reader
from ecoc.data.sources.base import Feedback, Fields, PrepareConfig, Source, find_beside, find_file
from ecoc.data.times import Epoch

_LOG = "events.csv"
_PROPERTIES = ("item_properties_part1.csv", "item_properties_part2.csv")


class RetailRocketConfig(PrepareConfig):
    """Settings: exact copies of a row are dropped."""

    dedup: Literal["none", "exact", "feedback"] = Field("exact", description="exact copies are dropped")


class RetailRocket(Source):
    """RetailRocket log: view 1, add to cart 2, transaction 3."""

    Config = RetailRocketConfig
    feedback = Feedback(
        rewards={"view": 1.0, "addtocart": 2.0, "transaction": 3.0},
        expected="event view, addtocart or transaction",
    )

    def __init__(self, config: RetailRocketConfig, paths: list[str]) -> None:
        super().__init__(config, [str(find_file(Path(p), [_LOG], what=f"the file {_LOG}")) for p in paths])

    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        fields = Fields("visitorid", "itemid", "timestamp", Epoch("ms"), feedback="event")
        for path in self.paths:
            reader = Delimited(Path(path), bad, separator=",", encoding=self.config.encoding)
            reader.select(list(fields.parts.values()))
            yield reader, fields

    def items(self, bad: BadRows) -> pa.Table | None:
        paths = (find_beside(Path(self.paths[0]), [name]) for name in _PROPERTIES)
        readers = [Delimited(path, bad, separator=",") for path in paths if path is not None]
        return latest_property(readers, item="itemid", name="categoryid", part="category") if readers else None
