"""Preparation in plain Python loops."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from raw_rows import Case, Row

from ecoc.testing.sources import Event


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
