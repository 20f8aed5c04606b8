"""The log of a built-in world (`world:default`, `world:satiation:large`), generated while it is read."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pydantic import Field

from ecoc.data.bad_rows import BadRows
from ecoc.data.readers import Batches, Reader, numbered
from ecoc.data.sources.base import Feedback, Fields, PrepareConfig, Source
from ecoc.data.sql_columns import SqlColumn
from ecoc.data.times import Epoch
from ecoc.errors import InputError
from ecoc.world import FEEDBACK, REWARDS, Market, item_table, log_batches, parse_world

_GATHER = 1 << 17  # rows per batch; the world generates smaller blocks


class WorldConfig(PrepareConfig):
    """Settings: the size of the world; another `seed` gives another world of the same kind."""

    events: int | None = Field(
        None, ge=1, le=2_000_000_000, description="number of events, instead of that of the named size"
    )
    catalogue: int | None = Field(None, ge=2, description="number of items, instead of that of the named size")


class World(Source):
    """A marketplace with a known truth; all impressions are logged, and an ignored item has reward 0."""

    Config = WorldConfig
    feedback = Feedback(dict(zip(FEEDBACK, REWARDS, strict=True)))

    def __init__(self, config: WorldConfig, paths: list[str]) -> None:
        super().__init__(config, paths)
        if len(paths) != 1:
            raise InputError(f"give one world at a time; there are {len(paths)}: {', '.join(paths)}")
        market = parse_world(paths[0], seed=config.seed, events=config.events, items=config.catalogue)
        self._market = Market(market)
        self.identity = {"world": market.model_dump(mode="json")}

    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        yield (
            Generated(self.paths[0], self._market),
            Fields("user", "item", "time", Epoch("s"), feedback="feedback"),
        )

    def items(self, bad: BadRows) -> pa.Table:
        return item_table(self._market)

    @property
    def size(self) -> int:
        return self._market.config.sessions * self._market.config.steps

    @property
    def table_size(self) -> int:
        return 80 * self.size


class Generated(Reader):
    """Reads a log that is generated, not stored in a file."""

    def __init__(self, name: str, market: Market) -> None:
        super().__init__(Path(name), ["user", "item", "time", "feedback"])
        self.selected = self.columns
        self._market = market
        self._rows = 0

    def sql_column(self, name: str) -> SqlColumn:
        return SqlColumn(name, "integer" if name == "time" else "text")

    def batches(self) -> Batches:
        """Generate the log and join its blocks into larger batches."""
        self._rows = 0
        gathered: list[pa.RecordBatch] = []
        for batch in log_batches(self._market):
            gathered.append(batch)
            if sum(part.num_rows for part in gathered) >= _GATHER:
                yield self._joined(gathered)
                gathered = []
        if gathered:
            yield self._joined(gathered)

    def _joined(self, parts: list[pa.RecordBatch]) -> pa.RecordBatch:
        batch = numbered(pa.concat_batches(parts), self._rows)
        self._rows += batch.num_rows
        return batch

    @property
    def bytes_read(self) -> int:
        return self._rows
