"""Open a prepared dataset: memory-mapped arrays for training, and sequences with the ids of the log."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from ecoc.arguments import StrPath, as_choice, as_count, as_flag, as_id, as_path
from ecoc.data.baskets import Baskets, baskets_of
from ecoc.data.schema import FILES, FORMAT, FORMAT_VERSION, ITEMS, MANIFEST, PROVENANCE, STAMP, Counts, Manifest
from ecoc.data.store import Arrays, chunks, open_arrays, sequence_ids
from ecoc.data.times import PER_SECOND
from ecoc.errors import ArtifactError, InputError
from ecoc.storage.trusted import is_there, load_json

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ecoc.data.vocab import Item, ItemVocab

_LARGEST_MANIFEST = 8 << 20
_SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Sequence:
    """Events of a user in time order, with the ids of the log: first `train_length` training events, then test."""

    user: str
    name: str
    items: list[str]
    feedback: list[str]
    rewards: NDArray[np.float32]
    times: NDArray[np.int64]
    train_length: int
    is_validation: bool

    def __len__(self) -> int:
        return len(self.items)


class Dataset:
    """A prepared dataset. Arrays are read-only memory maps, so opening one copies nothing.

    For training: `items feedback rewards times` (one entry per event), `offsets` (sequence k is events
    `offsets[k]:offsets[k + 1]`), `train_lengths` and `is_validation`. For inspection: iteration, `sequence`, `user`,
    `item`, `statistics`.
    """

    items: NDArray[np.int32]
    feedback: NDArray[np.uint8]
    rewards: NDArray[np.float32]
    times: NDArray[np.int64]
    offsets: NDArray[np.int64]
    train_lengths: NDArray[np.int64]
    is_validation: NDArray[np.bool_]

    def __init__(self, path: Path, manifest: Manifest, arrays: Arrays) -> None:
        self.path = path
        self.manifest = manifest
        for name, array in arrays.items():
            setattr(self, name, array)

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"Dataset('{self.path}', {counts.interactions} events, {counts.sequences} sequences, {counts.items} items)"
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Sequence]:
        return (self.sequence(k) for k in range(len(self)))

    @property
    def counts(self) -> Counts:
        """Sizes of the dataset."""
        return self.manifest.counts

    @property
    def checksum(self) -> str:
        """SHA-256 that covers the whole dataset."""
        return self.manifest.checksum

    @cached_property
    def vocab(self) -> "ItemVocab":
        """Item id of the log <-> index."""
        from ecoc.data.vocab import ItemVocab

        return ItemVocab.open(self.path / ITEMS, items=self.counts.items, sha256=self.manifest.files[ITEMS].sha256)

    @cached_property
    def users(self) -> NDArray[np.int64]:
        """Number of the user of each sequence; a user's sequences share it."""
        if self.counts.users == len(self):
            return np.arange(len(self))
        return self._sequence_ids.user_numbers()

    @cached_property
    def baskets(self) -> Baskets | None:
        """The baskets of all events, if the dataset was prepared with them."""
        if not self.manifest.settings.get("baskets"):
            return None
        return baskets_of(np.asarray(self.times), np.asarray(self.offsets))

    def history_end(self, events: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first event that is not in the history of each event: itself, or the first event of its basket."""
        return events if self.baskets is None else self.baskets.first[events]

    def item(self, item: str) -> "Item":
        """What is known about an item, by its id in the log."""
        return self.vocab.item(as_id(item, "item"))

    def sequence(self, number: int) -> Sequence:
        """Sequence `number`, with the ids of the log."""
        number = as_count(number, "number", most=len(self) - 1)
        events = slice(int(self.offsets[number]), int(self.offsets[number + 1]))
        user, name = self._sequence_ids[number]
        names = self.manifest.feedback.names
        return Sequence(
            user=user,
            name=name,
            items=self.vocab.ids(self.items[events]),
            feedback=[names[code] for code in self.feedback[events]],
            rewards=self.rewards[events],
            times=self.times[events],
            train_length=int(self.train_lengths[number]),
            is_validation=bool(self.is_validation[number]),
        )

    def user(self, user: str) -> list[Sequence]:
        """The sequences of a user, by id in the log; users are sorted, so this is a binary search."""
        user, ids = as_id(user, "user"), self._sequence_ids
        first = bisect_left(range(len(ids)), user.encode(), key=lambda k: ids[k][0].encode())
        sequences = []
        while first < len(ids) and ids[first][0] == user:
            sequences.append(self.sequence(first))
            first += 1
        if not sequences:
            raise InputError(f"no user '{user:.60}' among the {self.counts.users} users of {self.path}")
        return sequences

    def to_table(self, split: str | None = None) -> "pa.Table":
        """Events as an Arrow table, in order of sequence and time: of one split, or all with a column `split`.

        Columns: user, sequence, item, feedback, reward, time (UTC timestamps; whole numbers where the log has only an
        order) and, without `split`, the split train, validation or test.
        """
        import pyarrow as pa

        if split is not None:
            as_choice(split, "split", _SPLITS)
        lengths = np.diff(self.offsets)
        train = np.repeat(self.train_lengths, lengths) > np.arange(len(self.items)) - np.repeat(
            self.offsets[:-1], lengths
        )
        codes = np.where(train, np.repeat(self.is_validation, lengths), 2).astype(np.int8)
        chosen = np.flatnonzero(codes == _SPLITS.index(split)) if split is not None else np.arange(len(self.items))
        owners = pa.array(np.repeat(np.arange(len(self)), lengths)[chosen])
        unit = self.manifest.time_unit
        times = pa.array(self.times[chosen])
        columns = {
            "user": self._sequence_ids.users.take(owners),
            "sequence": self._sequence_ids.names.take(owners),
            "item": pa.array(self.vocab.ids(self.items[chosen]), pa.string()),
            "feedback": pa.array(self.manifest.feedback.names, pa.string()).take(pa.array(self.feedback[chosen])),
            "reward": pa.array(self.rewards[chosen]),
            "time": times if unit == "order" else times.cast(pa.timestamp(unit, "UTC")),
        }
        if split is None:
            columns["split"] = pa.array(_SPLITS, pa.string()).take(pa.array(codes))
        return pa.table(columns)

    def to_frame(self, split: str | None = None) -> "pd.DataFrame":
        """`to_table` as a pandas frame."""
        from ecoc.result import as_pandas

        return as_pandas(self.to_table(split))

    def statistics(self) -> dict[str, Any]:
        """Statistics of lengths, item popularity, rewards, feedback and times."""
        names = self.manifest.feedback.names
        feedback = np.zeros(len(names), dtype=np.int64)
        popularity = np.zeros(self.counts.items + 1, dtype=np.int64)
        total, negative, rewards, times = 0.0, 0, [], []
        for codes in chunks(self.feedback):
            feedback += np.bincount(codes, minlength=len(names))
        for items in chunks(self.items):
            popularity += np.bincount(items, minlength=len(popularity))
        for reward in chunks(self.rewards):
            total += float(reward.sum(dtype=np.float64))
            negative += int(np.count_nonzero(reward < 0))
            rewards += [float(reward.min()), float(reward.max())]
        for time in chunks(self.times):
            times += [int(time.min()), int(time.max())]
        return {
            "sequence_length": _quantiles(np.diff(self.offsets)),
            "events_per_item": _quantiles(popularity[1:]),
            "reward": {
                "mean": total / self.counts.interactions,
                "min": min(rewards),
                "max": max(rewards),
                "negative": negative,
            },
            "feedback": {name: int(count) for name, count in zip(names, feedback, strict=True)},
            "first_time": self.readable_time(min(times)),
            "last_time": self.readable_time(max(times)),
        }

    def readable_time(self, value: int) -> str:
        """A stored time as ISO text, or the plain number if only the order is known."""
        unit = self.manifest.time_unit
        if unit == "order":
            return str(value)
        try:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value * 10**6 // PER_SECOND[unit])
        except OverflowError:
            return str(value)
        return moment.isoformat().replace("+00:00", "Z")

    def verify(self) -> None:
        """Read every file once, and check its checksum and values; a difference raises ArtifactError."""
        open_arrays(self.path, self.manifest, verify=True)

    @cached_property
    def _sequence_ids(self) -> "_SequenceIds":
        return _SequenceIds(sequence_ids(self.path, self.manifest))


class _SequenceIds:
    """User and name of each sequence, memory-mapped."""

    def __init__(self, table: "pa.Table") -> None:
        self.users, self.names = table.column("user"), table.column("sequence")

    def __len__(self) -> int:
        return len(self.users)

    def user_numbers(self) -> NDArray[np.int64]:
        codes: NDArray[np.int64] = self.users.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        return codes

    def __getitem__(self, number: int) -> tuple[str, str]:
        return self.users[number].as_py(), self.names[number].as_py()


def open_data(path: StrPath, *, verify: bool = False) -> Dataset:
    """Open a prepared dataset. Every file is checked once; with `verify` again, even if it has not changed since."""
    folder, verify = as_path(path, "path"), as_flag(verify, "verify")
    manifest = _open_manifest(folder)
    return Dataset(folder, manifest, open_arrays(folder, manifest, verify=verify))


def is_dataset(folder: Path) -> bool:
    """Whether a folder is a prepared dataset, possibly incomplete, and holds nothing else."""
    if any(entry.name not in FILES | {MANIFEST, PROVENANCE, STAMP} for entry in folder.iterdir()):
        return False
    try:
        content = load_json(folder / MANIFEST, largest=_LARGEST_MANIFEST, remedy="")
    except ArtifactError:
        return False
    return content.get("format") == FORMAT


def _open_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give a prepared dataset")
    if not is_there(path):
        raise InputError(f"{folder}: no {MANIFEST} in it, so it is not a prepared dataset; make one with ecoc prepare")
    content = load_json(path, largest=_LARGEST_MANIFEST, remedy="prepare again")
    if content.get("format") != FORMAT:
        raise ArtifactError(f"{path}: not the manifest of a prepared dataset; prepare again")
    if content.get("version") != FORMAT_VERSION:
        raise ArtifactError(
            f"{path}: format version {content.get('version')!r}, this ecoc reads {FORMAT_VERSION}; prepare again"
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise ArtifactError(f"{path}: {where}: {error.errors()[0]['msg']}; prepare again") from None


def _quantiles(values: NDArray[Any]) -> dict[str, float]:
    marks = {"min": 0.0, "median": 0.5, "p90": 0.9, "max": 1.0}
    result = {name: float(np.quantile(values, mark)) for name, mark in marks.items()}
    return {"mean": float(values.mean()), **result}
