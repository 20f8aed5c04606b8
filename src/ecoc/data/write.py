"""Write the store: kept events -> vocabulary and arrays of a prepared dataset, in bounded memory.

The split states how many events of each sequence are training. Their items are the vocabulary. Items are then
renumbered, test events of items outside the vocabulary are dropped, and the final arrays are written.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from ecoc.batch import PAD
from ecoc.data.baskets import first_sizes
from ecoc.data.engine import Engine
from ecoc.data.lookups import SCHEMA as LOOKUP
from ecoc.data.schema import ARRAYS, FILES, ITEMS, SEQUENCES, Counts, FileRecord, RewardMap
from ecoc.data.sorted_events import SortedEvents, offsets_of, sums_of
from ecoc.data.split import Split
from ecoc.data.store import array_header
from ecoc.storage.trusted import file_sha256

_EVENT_ARRAYS = ("items", "feedback", "rewards", "times")


@dataclass(frozen=True)
class Written:
    """Result of writing the store."""

    counts: Counts
    unseen_in_train: int
    files: dict[str, FileRecord]


class StoreWriter:
    """Writes the kept events into `folder`."""

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        sorted_events: SortedEvents,
        keep: NDArray[np.bool_],
        rewards: RewardMap,
        *,
        baskets: bool,
    ) -> None:
        self._engine = engine
        self._folder = folder
        self._sorted_events = sorted_events
        self._keep = keep
        self._rewards = rewards
        self._has_baskets = baskets

    def write(self, split: Split, names: NDArray[np.int64] | None, lookup: pa.Table | None) -> Written:
        """Write vocabulary, arrays, items and sequence ids. `names` are the numbers of sequences split at pauses."""
        item_count = self._engine.scalar("SELECT count(*) FROM item_ids")
        in_train, learnt, everywhere = self._count_items(split, item_count)
        known = np.flatnonzero(in_train)
        by_count = known[np.argsort(-learnt[known], kind="stable")]  # equal counts: in the order of the ids
        index = np.zeros(item_count, dtype=np.int32)  # unseen items map to PAD
        index[by_count] = np.arange(1, len(by_count) + 1, dtype=np.int32)
        unseen = int(everywhere[in_train == 0].sum())
        lengths, without_history = self._write_events(split, index, int(split.lengths.sum()) - unseen)
        kept = lengths > 0
        final = Split(lengths[kept], split.train_lengths[kept], split.is_validation[kept])
        self._write_array("offsets", offsets_of(final.lengths))
        self._write_array("train_lengths", final.train_lengths)
        self._write_array("is_validation", final.is_validation)
        self._write_items(by_count, learnt, lookup)
        users = self._write_sequence_ids(self._sorted_events.owners[kept], None if names is None else names[kept])
        counts = _counts(final, without_history[kept], users, len(by_count))
        return Written(counts, unseen, _records(self._folder))

    def _chunks(self) -> Iterator[tuple[slice, slice, NDArray[np.bool_] | slice]]:
        """Sequences, events, and which of these events are kept (a full slice where none is dropped)."""
        for sequences, events in self._sorted_events.chunks():
            keep = self._keep[events]
            yield sequences, events, slice(None) if keep.all() else keep

    def _count_items(self, split: Split, item_count: int) -> tuple[NDArray[np.int64], ...]:
        """Events per item: before the split, before the split without validation sequences, and in total."""
        in_train, learnt, everywhere = (np.zeros(item_count, dtype=np.int64) for _ in range(3))
        for sequences, events, keep in self._chunks():
            items = self._sorted_events.read("items", events)[keep]
            is_train, is_learnt = _training(split, sequences)
            in_train += np.bincount(items[is_train], minlength=item_count)
            learnt += np.bincount(items[is_learnt], minlength=item_count)
            everywhere += np.bincount(items, minlength=item_count)
        return in_train, learnt, everywhere

    def _write_events(
        self, split: Split, index: NDArray[np.int32], total: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Write the event arrays without unseen items; return the remaining lengths, and the events without a history.

        These are the first event of each sequence, or its first basket.
        """
        reward_of = None if self._rewards.rewards is None else np.array(self._rewards.rewards, dtype=np.float32)
        lengths, without_history = (np.zeros(len(split.lengths), dtype=np.int64) for _ in range(2))
        streams = {name: (self._folder / f"{name}.npy").open("wb") for name in _EVENT_ARRAYS}
        try:
            for name, stream in streams.items():
                stream.write(array_header(name, total))
            for sequences, events, keep in self._chunks():
                items = index[self._sorted_events.read("items", events)[keep]]
                is_known = items != PAD
                lengths[sequences] = sums_of(is_known, split.lengths[sequences])
                feedback = self._sorted_events.read("feedback", events)[keep]
                rewards = (
                    self._sorted_events.read("rewards", events)[keep] if reward_of is None else reward_of[feedback]
                )
                arrays = {"items": items, "feedback": feedback, "rewards": rewards}
                arrays["times"] = self._sorted_events.read("times", events)[keep]
                without_history[sequences] = (
                    first_sizes(arrays["times"][is_known], lengths[sequences])
                    if self._has_baskets
                    else np.minimum(lengths[sequences], 1)
                )
                for name, values in arrays.items():
                    (values if is_known.all() else values[is_known]).tofile(streams[name])
        finally:
            for stream in streams.values():
                stream.close()
        return lengths, without_history

    def _write_array(self, name: str, values: NDArray[Any]) -> None:
        with (self._folder / f"{name}.npy").open("wb") as stream:
            stream.write(array_header(name, len(values)))
            values.astype(ARRAYS[name]).tofile(stream)

    def _write_items(self, order: NDArray[np.int64], counts: NDArray[np.int64], lookup: pa.Table | None) -> None:
        """Write `items.parquet`, in index order."""
        numbers = pa.table(
            {
                "number": order.astype(np.int32),
                "index": np.arange(1, len(order) + 1, dtype=np.int32),
                "train_count": counts[order],
            }
        )
        self._engine.feed(iter(numbers.to_batches()), "CREATE TABLE chosen AS SELECT * FROM raw")
        known = (lookup if lookup is not None else LOOKUP.empty_table()).to_batches()
        self._engine.run("CREATE TABLE known_items (item VARCHAR, title VARCHAR, price DOUBLE, category VARCHAR)")
        self._engine.feed(iter(known), "INSERT INTO known_items SELECT item, title, price, category FROM raw")
        batches = self._engine.stream(
            'SELECT "index", item, coalesce(k.title, i.title) AS title, coalesce(k.price, i.price) AS price,'
            " coalesce(k.category, i.category) AS category, train_count FROM chosen"
            ' JOIN item_ids i USING (number) LEFT JOIN known_items k USING (item) ORDER BY "index"'
        )
        schema = pa.schema([("index", pa.int32()), *LOOKUP, ("train_count", pa.int64())])
        with pa.parquet.ParquetWriter(self._folder / ITEMS, schema) as writer:
            writer.write_table(pa.Table.from_batches([batch.cast(schema) for batch in batches], schema))

    def _write_sequence_ids(self, owners: NDArray[np.int64], names: NDArray[np.int64] | None) -> int:
        """Write `sequences.arrow`: user and name of each sequence; return the number of users."""
        schema = pa.schema([("user", pa.string()), ("sequence", pa.string())])
        users, last, first = 0, None, 0
        with pa.OSFile(str(self._folder / SEQUENCES), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            start = 0
            for batch in self._engine.stream("SELECT user, sequence FROM sequence_ids ORDER BY seq"):
                stop = int(np.searchsorted(owners, first + batch.num_rows))
                rows = batch.cast(schema).take(pa.array(owners[start:stop] - first))
                if names is not None:
                    labels = pa.array(names[start:stop]).cast(pa.string())
                    rows = pa.record_batch([rows.column("user"), labels], schema=schema)
                first, start = first + batch.num_rows, stop
                if rows.num_rows:
                    users += _changes(rows.column("user"), last)
                    last = rows.column("user")[-1].as_py()
                    writer.write_batch(rows)
        return users


def _changes(names: pa.Array, before: str | None) -> int:
    """How often a name differs from the previous one; `before` precedes the first."""
    inside = pc.sum(pc.not_equal(names.slice(1), names.slice(0, len(names) - 1))).as_py() or 0
    return int(inside) + int(names[0].as_py() != before)


def _training(split: Split, sequences: slice) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For the events of `sequences`: which are before the split, and which of those are no validation events."""
    train, lengths = split.train_lengths[sequences], split.lengths[sequences]
    runs = np.column_stack([train, lengths - train]).ravel()  # training events, then test events, of each sequence
    is_learnt = np.column_stack([~split.is_validation[sequences], np.zeros(len(train), dtype=np.bool_)]).ravel()
    is_train = np.tile([True, False], len(train))
    return np.repeat(is_train, runs), np.repeat(is_learnt, runs)


def _counts(split: Split, without_history: NDArray[np.int64], users: int, items: int) -> Counts:
    test = split.lengths - split.train_lengths
    has_train = split.train_lengths > 0
    learnt = has_train & ~split.is_validation
    return Counts(
        interactions=int(split.lengths.sum()),
        users=users,
        sequences=len(split.lengths),
        items=items,
        train=int(split.train_lengths[learnt].sum()),
        validation=int(split.train_lengths[split.is_validation].sum()),
        test=int(test.sum()),
        test_targets=int(test.sum() - np.where(has_train, 0, without_history).sum()),
        train_sequences=int(learnt.sum()),
        validation_sequences=int(split.is_validation.sum()),
        test_sequences=int((test > 0).sum()),
    )


def _records(folder: Path) -> dict[str, FileRecord]:
    names = sorted(FILES)
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter lock
        digests = list(pool.map(lambda name: file_sha256(folder / name), names))
    return {
        name: FileRecord(bytes=(folder / name).stat().st_size, sha256=digest)
        for name, digest in zip(names, digests, strict=True)
    }
