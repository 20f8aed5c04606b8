"""ItemVocab: item id of the log <-> index 1..n, with title, price, category and training count."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ecoc.batch import PAD
from ecoc.errors import ArtifactError, InputError, did_you_mean
from ecoc.storage.trusted import LARGEST_FILE, read_table

_COLUMNS = {
    "index": pa.int32(),
    "item": pa.string(),
    "title": pa.string(),
    "price": pa.float64(),
    "category": pa.string(),
    "train_count": pa.int64(),
}
_REQUIRED = ("index", "item", "train_count")


@dataclass(frozen=True)
class Item:
    """What a dataset holds about one item."""

    index: int
    id: str
    title: str | None
    price: float | None
    category: str | None
    train_count: int


class ItemVocab:
    """The items of a dataset; index 0 is padding."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table.combine_chunks()
        self._ids = self._table.column("item").combine_chunks()

    @classmethod
    def open(cls, path: Path, *, items: int, sha256: str | None) -> "ItemVocab":
        """Read `items.parquet`, which has `items` rows and, if it is known, this checksum."""
        try:
            table = read_table(path, columns=_COLUMNS, most_rows=max(items, 0), largest=LARGEST_FILE, sha256=sha256)
        except ArtifactError as error:
            raise ArtifactError(f"{error}; make it again") from None
        index, counts = table.column("index"), table.column("train_count")
        is_sound = len(table) == items and not any(table.column(name).null_count for name in _REQUIRED)
        if not (
            is_sound
            and np.array_equal(index.to_numpy(), np.arange(1, items + 1))
            and (not items or pc.min(counts).as_py() >= 0)
        ):
            raise ArtifactError(f"{path}: not a table of {items} items in the order of their indices; make it again")
        if pc.count_distinct(table.column("item")).as_py() != items:
            raise ArtifactError(f"{path}: an id appears twice; make it again")
        return cls(table)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, item: str) -> bool:
        return self.find(item) is not None

    def find(self, item: str) -> int | None:
        """Index of an id of the log, or None if it is not in the vocabulary."""
        return self._places.get(item)

    def indices(self, items: list[str]) -> np.ndarray:
        """Indices of many ids of the log; unknown ones are PAD."""
        return np.array([self._places.get(item, PAD) for item in items], np.int32)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {item: place for place, item in enumerate(self._ids.to_pylist(), 1)}

    def ids(self, indices: np.ndarray) -> list[str]:
        """Ids of the log for indices 1..n."""
        if len(indices) and (indices.min() <= PAD or indices.max() > len(self)):
            raise InputError(f"item indices run from 1 to {len(self)}; found {indices.min()} to {indices.max()}")
        ids: list[str] = self._ids.take(pa.array(indices.astype(np.int64) - 1)).to_pylist()
        return ids

    @property
    def events(self) -> int:
        """Training events of all items."""
        return int(pc.sum(self._table.column("train_count")).as_py() or 0)

    def all_ids(self) -> list[str]:
        """Ids of the log in the order of their indices, from 1."""
        ids: list[str] = self._ids.to_pylist()
        return ids

    def all_titles(self) -> list[str | None]:
        """Titles in the order of their indices, from 1; None where there is none."""
        titles: list[str | None] = self._table.column("title").to_pylist()
        return titles

    def popularity(self) -> np.ndarray:
        """Share of the training events of each index, 0 for padding; [n + 1] float32."""
        counts = self._table.column("train_count").to_numpy().astype(np.float64)
        return np.concatenate([[0.0], counts / max(counts.sum(), 1.0)]).astype(np.float32)

    def item(self, item: str) -> Item:
        """What is known about one item, by its id in the log."""
        index = self.find(item)
        if index is None:
            near = did_you_mean(item, self._ids.slice(0, 10_000).to_pylist())
            raise InputError(f"no item '{item}' in the vocabulary of {len(self)} items; {near}")
        return self.at(index)

    def at(self, index: int) -> Item:
        """The item with index 1..n."""
        if not PAD < index <= len(self):
            raise InputError(f"item indices run from 1 to {len(self)}; found {index}")
        row = self._table.slice(index - 1, 1).to_pylist()[0]
        return Item(row["index"], row["item"], row["title"], row["price"], row["category"], row["train_count"])
