"""Events to write raw files from, and what a faithful reader must make of them."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One usable row of a raw file, read as the format's description says."""

    user: str
    item: str
    feedback: str
    reward: float
    time: int
    sequence: str = ""
    rank: int = 0
    is_test: bool = False


@dataclass(frozen=True)
class Facts:
    """What a raw dataset says of an item."""

    title: str | None = None
    price: float | None = None
    category: str | None = None


@dataclass(frozen=True)
class Case:
    """A raw dataset on disk, and the truth about it."""

    source: str | Path | list[Path]
    rows: list[Row]
    feedback: tuple[str, ...]
    time_unit: str
    dropped: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Facts] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)
    min_item_support: int = 1
    min_length: int = 2
    dedup: str = "none"
    split: str = "time:0.8"

    @property
    def rows_in(self) -> int:
        return len(self.rows) + sum(self.dropped.values())


Writer = Callable[[Path, random.Random | None], Case]
"""Writes a raw dataset into a folder; with a generator, the same rows in a shuffled order."""


@dataclass(frozen=True)
class Draw:
    """Numbers behind one row: who, what, which action, and when from 0 to 1."""

    user: int
    item: int
    action: int
    when: float


def draws(seed: int, count: int, *, users: int, items: int, actions: int, ticks: int) -> list[Draw]:
    """Rows in no time order: equal times, exact copies, rare items, short sequences, and an item that comes late."""
    rng = random.Random(seed)
    found: list[Draw] = []
    for _ in range(count):
        when = rng.randrange(ticks) / ticks
        is_late = when > 0.85 and rng.random() < 0.5
        item = items if is_late else int(items * rng.random() ** 1.5)
        found.append(Draw(rng.randrange(users), item, rng.randrange(actions), when))
    rare_items = [Draw(k, items + 1 + k, 0, 0.1) for k in range(3)]
    rare_users = [Draw(users + k, k, 0, 0.5) for k in range(3)]
    return found + rare_items + rare_users + rng.sample(found, count // 20)


def in_order(lines: Sequence[tuple[str, Row | None]], shuffle: random.Random | None) -> list[tuple[str, Row | None]]:
    """The lines of a file with the row each stands for (None for a fault), shuffled if asked for."""
    result = list(lines)
    if shuffle is not None:
        shuffle.shuffle(result)
    return result


def with_faults(
    good: Sequence[tuple[str, Row | None]], faults: Sequence[str], seed: int = 5
) -> list[tuple[str, Row | None]]:
    """Faulty lines spread among good ones, never first."""
    result = list(good)
    rng = random.Random(seed)
    for fault in faults:
        result.insert(rng.randrange(1, len(result)), (fault, None))
    return result


def rows_of(lines: Sequence[tuple[str, Row | None]]) -> list[Row]:
    return [row for _, row in lines if row is not None]
