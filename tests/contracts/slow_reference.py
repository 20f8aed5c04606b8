"""Preparation in plain Python loops, and what a prepared folder holds, read from its files without ecoc."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from raw_rows import Case, Row

Event = tuple[str, str, float, int]
"""Item, feedback, reward as stored, time."""


@dataclass(frozen=True)
class Reference:
    """What a right preparation comes to."""

    sequences: dict[tuple[str, str], tuple[list[Event], int]]  # (user, name) -> events and how many are training
    dropped: dict[str, int]
    cut: int | None


def slow_prepare(case: Case, ties: str = "file") -> Reference:
    numbered = list(enumerate(case.rows))
    codes = {name: code for code, name in enumerate(case.feedback)}

    def by_file(entry: tuple[int, Row]) -> tuple[Any, ...]:
        return entry[1].time, entry[1].rank, entry[0]

    def by_item(entry: tuple[int, Row]) -> tuple[Any, ...]:
        row = entry[1]
        return row.time, row.rank, row.item.encode(), codes[row.feedback], row.reward

    numbered.sort(key=by_file if ties == "file" else by_item)
    rows = [row for _, row in numbered]
    dropped: Counter[str] = Counter(case.dropped)
    kept = _deduplicated(rows, case.dedup)
    dropped["duplicate"] = len(rows) - len(kept)
    kept = _supported(kept, case, dropped)
    sequences: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in kept:
        sequences[row.user, row.sequence].append(row)
    is_train, cut = _split(kept, case.split)
    vocabulary = {row.item for row in kept if is_train(row)}
    result: dict[tuple[str, str], tuple[list[Event], int]] = {}
    for key, events in sorted(sequences.items(), key=lambda pair: (pair[0][0].encode(), pair[0][1].encode())):
        known = [row for row in events if row.item in vocabulary]
        dropped["unseen_in_train"] += len(events) - len(known)
        if known:
            stored = [(row.item, row.feedback, float(np.float32(row.reward)), row.time) for row in known]
            result[key] = stored, sum(map(is_train, known))
    return Reference(result, {reason: count for reason, count in dropped.items() if count}, cut)


def _deduplicated(rows: Sequence[Row], dedup: str) -> list[Row]:
    keys: dict[str, Callable[[int, Row], tuple[Any, ...]]] = {
        "none": lambda number, row: (number,),
        "exact": lambda number, row: (row,),
        "feedback": lambda number, row: (row.user, row.sequence, row.item, row.feedback),
    }
    seen: set[tuple[Any, ...]] = set()
    kept = []
    for number, row in enumerate(rows):
        key = keys[dedup](number, row)
        if key not in seen:
            seen.add(key)
            kept.append(row)
    return kept


def _supported(rows: list[Row], case: Case, dropped: Counter[str]) -> list[Row]:
    while True:
        before = len(rows)
        support = Counter(row.item for row in rows)
        frequent = [row for row in rows if support[row.item] >= case.min_item_support]
        lengths = Counter((row.user, row.sequence) for row in frequent)
        rows = [row for row in frequent if lengths[row.user, row.sequence] >= case.min_length]
        dropped["rare_item"] += before - len(frequent)
        dropped["short_sequence"] += len(frequent) - len(rows)
        if len(rows) == before:
            return rows


def _split(rows: Sequence[Row], split: str) -> tuple[Callable[[Row], bool], int | None]:
    if split == "source":
        return (lambda row: not row.is_test), None
    times = sorted(row.time for row in rows)
    cut = times[int(Fraction(split.removeprefix("time:")) * len(times))]
    return (lambda row: row.time < cut), cut


@dataclass(frozen=True)
class Files:
    """A prepared folder as it lies on disk."""

    manifest: dict[str, Any]
    arrays: dict[str, np.ndarray[Any, Any]]
    items: list[dict[str, Any]]
    names: list[tuple[str, str]]

    @property
    def is_train(self) -> np.ndarray[Any, Any]:
        """Of each event: whether it is in the training part of its sequence."""
        offsets, train = self.arrays["offsets"], self.arrays["train_lengths"]
        result = np.zeros(len(self.arrays["items"]), dtype=bool)
        for start, length in zip(offsets[:-1], train, strict=True):
            result[start : start + length] = True
        return result

    def sequences(self) -> dict[tuple[str, str], tuple[list[Event], int]]:
        """The same shape as a reference's."""
        arrays, names = self.arrays, self.manifest["feedback"]["names"]
        result: dict[tuple[str, str], tuple[list[Event], int]] = {}
        for number, key in enumerate(self.names):
            events = range(arrays["offsets"][number], arrays["offsets"][number + 1])
            stored = [
                (
                    self.items[arrays["items"][k] - 1]["item"],
                    names[arrays["feedback"][k]],
                    float(arrays["rewards"][k]),
                    int(arrays["times"][k]),
                )
                for k in events
            ]
            result[key] = stored, int(arrays["train_lengths"][number])
        return result


_ARRAYS = ("items", "feedback", "rewards", "times", "offsets", "train_lengths", "is_validation")


def read_files(folder: Path) -> Files:
    with pa.OSFile(str(folder / "sequences.arrow")) as stream:
        names = pa.ipc.open_file(stream).read_all().to_pylist()
    return Files(
        json.loads((folder / "manifest.json").read_bytes()),
        {name: np.load(folder / f"{name}.npy") for name in _ARRAYS},
        pq.read_table(folder / "items.parquet").to_pylist(),
        [(row["user"], row["sequence"]) for row in names],
    )


def leaks(files: Files) -> list[str]:
    """Every way in which test data could have reached training, found in the files; none is right."""
    arrays, is_train, found = files.arrays, files.is_train, []
    lengths = np.diff(arrays["offsets"])
    if len(set(files.names)) != len(files.names) or len(files.names) != len(lengths):
        found.append("a sequence occurs twice")
    if arrays["offsets"][0] or (lengths <= 0).any() or arrays["offsets"][-1] != len(arrays["items"]):
        found.append("the sequences do not divide the events among them")
    if ((arrays["train_lengths"] < 0) | (arrays["train_lengths"] > lengths)).any():
        found.append("a training part is longer than its sequence")
    if (arrays["train_lengths"][arrays["is_validation"]] < 2).any():
        found.append("a validation sequence has nothing to predict")
    vocabulary = set(range(1, len(files.items) + 1))
    if [row["index"] for row in files.items] != sorted(vocabulary):
        found.append("items are not numbered 1..n")
    if set(arrays["items"][is_train].tolist()) != vocabulary:
        found.append("the vocabulary is not the items of the training parts")
    if not set(arrays["items"][~is_train].tolist()) <= vocabulary:
        found.append("a test item is outside the vocabulary")
    cut = files.manifest["cut"]
    if cut is not None and (arrays["times"][~is_train] < cut).any():
        found.append("a test time lies before the cut")
    if cut is not None and (arrays["times"][is_train] >= cut).any():
        found.append("a training time does not lie before the cut")
    learnt = is_train & ~np.repeat(arrays["is_validation"], np.maximum(lengths, 0))[: len(is_train)]
    counts = np.bincount(arrays["items"][learnt], minlength=len(vocabulary) + 1)[1:]
    if [row["train_count"] for row in files.items] != counts[: len(vocabulary)].tolist():
        found.append("train_count counts something else than what is learnt from")
    return found
