"""A log of any size for benchmarks: skewed users and items, users interleaved in time order, text ids."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

CHUNK = 2_000_000
NAMES = ("click", "favourite", "buy")
COLUMNS = ["--user", "user_id", "--item", "item_id", "--time", "ts", "--feedback", "event"]
REWARD = "click=1,favourite=2,buy=3"


def tables(events: int, users: int, items: int, seed: int = 0) -> Iterator[pa.Table]:
    """The log in chunks; times grow from chunk to chunk and inside a chunk."""
    rng = np.random.default_rng(seed)
    item_ids = pa.array([f"i{number:07d}" for number in range(items)])
    start = 1_500_000_000
    for first in range(0, events, CHUNK):
        count = min(CHUNK, events - first)
        user = (np.minimum(rng.pareto(1.2, count) * users / 250, users - 1).astype(np.int64) * 7919) % users
        item = np.minimum(rng.pareto(1.0, count) * items / 160, items - 1).astype(np.int64)
        seconds = np.sort(rng.integers(start, start + count // 10 + 1, count))
        start = int(seconds[-1]) + 1
        yield pa.table(
            {
                "user_id": pc.binary_join_element_wise("u", pc.cast(pa.array(user), pa.string()), ""),
                "item_id": item_ids.take(pa.array(item)),
                "ts": seconds,
                "event": pa.array(NAMES).take(pa.array(rng.choice(3, count, p=[0.8, 0.1, 0.1]))),
            }
        )


def write_parquet(path: Path, events: int, users: int, items: int) -> None:
    """Write the log as one Parquet file, a chunk at a time."""
    writer = None
    for table in tables(events, users, items):
        writer = writer or pa.parquet.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=1 << 20)
    if writer is not None:
        writer.close()


def write_csv(path: Path, events: int, users: int, items: int) -> None:
    """Write the same log as CSV."""
    with path.open("wb") as stream:
        for number, table in enumerate(tables(events, users, items)):
            pa.csv.write_csv(table, stream, pa.csv.WriteOptions(include_header=number == 0, quoting_style="none"))
