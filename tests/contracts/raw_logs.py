"""The user's own log in every container the `log` source reads, and a built-in world."""

import csv
import gzip
import io
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from raw_formats import (
    write_movielens_100k,
    write_movielens_csv,
    write_movielens_dat,
    write_retailrocket,
    write_rl4rs,
    write_taobao,
    write_tmall,
    write_trivago,
    write_yelp,
)
from raw_rows import Case, Facts, Row, Writer, draws

from ecoc.world import Market, item_table, log_batches, parse_world

_COLUMNS = ("who", "what, really", "when", "action", "shelf")
_OPTIONS: dict[str, object] = {
    "user": "who",
    "item": "what, really",
    "time": "when",
    "feedback": "action",
    "reward": "click=1,save=2.5,buy=-3,view=drop",
    "category": "shelf",
    "min_item_support": 3,
    "min_length": 4,
}
_REWARDS = {"click": 1.0, "save": 2.5, "buy": -3.0}

Record = tuple[str | None, str | None, int | None, str, str]


def _records() -> list[tuple[Record, Row | None]]:
    names = ("click", "save", "buy")
    found: list[tuple[Record, Row | None]] = []
    for draw in draws(8, 300, users=16, items=22, actions=3, ticks=60):
        user, item, name = f"Zoë {draw.user}", f'a "{draw.item}", b', names[draw.action]
        time = 1_500_000_000_000_000 + int(draw.when * 60)
        found.append(((user, item, time, name, f"s{draw.item % 3}"), Row(user, item, name, _REWARDS[name], time)))
    faults: list[Record] = [
        (None, "x", 1_500_000_000_000_000, "click", ""),
        ("  ", "x", 1_500_000_000_000_000, "click", ""),
        ("u", None, 1_500_000_000_000_000, "click", ""),
        ("u", "x", None, "click", ""),
        ("u", "x", 1_500_000_000_000_000, "clack", ""),
        ("u", "x", 1_500_000_000_000_000, "view", ""),
    ]
    for number, fault in enumerate(faults):
        found.insert(7 + 11 * number, (fault, None))
    return found


def _delimited(records: list[Record], separator: str) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=separator)
    writer.writerow(_COLUMNS)
    writer.writerows(["" if value is None else value for value in record] for record in records)
    return buffer.getvalue().encode()


def _container(folder: Path, kind: str, packing: str, records: list[Record]) -> Path:
    ending = {"plain": "", "gzip": ".gz", "zstd": ".zst"}[packing]
    if kind == "parquet":  # compressed inside, as Parquet files are
        path = folder / "log.parquet"
        columns = dict(zip(_COLUMNS, (list(column) for column in zip(*records, strict=True)), strict=True))
        pq.write_table(
            pa.table(columns), path, compression="none" if packing == "plain" else packing, row_group_size=50
        )
        return path
    if kind == "jsonl":
        lines = (json.dumps(dict(zip(_COLUMNS, record, strict=True))) for record in records)
        content = "\n".join(lines).encode()
    else:
        content = _delimited(records, "," if kind == "csv" else "\t")
    if packing == "gzip":
        content = gzip.compress(content)
    elif packing == "zstd":
        content = pa.compress(content, "zstd", asbytes=True)
    path = folder / f"log.{kind}{ending}"
    path.write_bytes(content)
    return path


def _log_writer(kind: str, packing: str) -> Writer:
    def write(folder: Path, shuffle: random.Random | None) -> Case:
        pairs = _records()
        if shuffle is not None:
            shuffle.shuffle(pairs)
        path = _container(folder, kind, packing, [record for record, _ in pairs])
        rows = [row for _, row in pairs if row is not None]
        facts = {str(record[1]): Facts(category=record[4]) for record, row in pairs if row is not None}
        dropped = {"blank_user": 2, "blank_item": 1, "bad_time": 1, "bad_feedback": 1, "dropped_feedback": 1}
        names = ("click", "save", "buy")
        return Case(path, rows, names, "us", dropped, facts, _OPTIONS, min_item_support=3, min_length=4)

    return write


def write_world(folder: Path, shuffle: random.Random | None) -> Case:
    market = Market(parse_world("world:small", events=1500))
    rewards = {"ignore": 0.0, "click": 1.0, "favourite": 2.0, "buy": 3.0}
    rows = [
        Row(record["user"], record["item"], record["feedback"], rewards[record["feedback"]], record["time"])
        for batch in log_batches(market)
        for record in batch.to_pylist()
    ]
    facts = {row["item"]: Facts(row["title"], row["price"], row["category"]) for row in item_table(market).to_pylist()}
    return Case("world:small", rows, tuple(rewards), "s", {}, facts, {"events": 1500})


WRITERS: dict[str, dict[str, Writer]] = {
    "log": {
        f"{kind} {packing}": _log_writer(kind, packing)
        for kind in ("csv", "tsv", "parquet", "jsonl")
        for packing in ("plain", "gzip", "zstd")
    },
    "yelp": {"json": write_yelp},
    "tmall": {"csv": write_tmall},
    "rl4rs": {"slates": write_rl4rs},
    "movielens": {"dat": write_movielens_dat, "100k": write_movielens_100k, "csv": write_movielens_csv},
    "retailrocket": {"csv": write_retailrocket},
    "taobao": {"csv": write_taobao},
    "trivago": {"csv": write_trivago},
    "world": {"small": write_world},
}
"""Source -> variants of its raw format. A source without a line here fails the contract tests."""

UNSHUFFLED = {"world"}
"""Sources whose rows nobody can put in another order."""
