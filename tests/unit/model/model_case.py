"""Runs of every kind on one log, and histories to ask them about, for the tests of `ecoc.model`."""

import csv
import random
from functools import cache
from pathlib import Path

import numpy as np

import ecoc
from ecoc.model import Event, Model, load

LENGTH = 6
ODD = ["17", "a:b", "x:buy", "two words", "naïve", "i0:view"]
ITEMS = [f"i{k}" for k in range(24)] + ODD
FEEDBACK = ["view", "cart", "buy"]
NAMES = ("sasrec", "srgnn", "popular", "recent", "markov")
VECTORS = ("sasrec", "srgnn")


@cache
def folder_of_runs(base: Path) -> Path:
    """A prepared dataset and a run of every kind, made once in a folder."""
    path = base / "models"
    path.mkdir()
    rng = np.random.default_rng(3)
    chosen = np.concatenate([np.arange(len(ITEMS)), rng.zipf(1.4, 700) % len(ITEMS)])  # every item before the split
    with (path / "log.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["user", "item", "ts", "event"])
        for time, item in enumerate(chosen.tolist()):
            writer.writerow([f"u{rng.integers(40)}", ITEMS[item], 1_600_000_000 + time, FEEDBACK[rng.integers(3)]])
    with (path / "items.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["item", "title"], *([item, f"The {item}"] for item in ITEMS[1:])])
    data = ecoc.prepare(
        path / "log.csv",
        path / "data",
        user="user",
        item="item",
        time="ts",
        feedback="event",
        reward={"view": 1, "cart": 2, "buy": 3},
        items=str(path / "items.csv"),
        threads=1,
    )
    assert data.counts.items == len(ITEMS)
    train = {"max_steps": 12, "threads": 1}
    for name in VECTORS:
        encoder = {"dim": 8, "length": LENGTH, "feedback": True}
        ecoc.train(data, path / name, encoder=name, config={"encoder": encoder, "train": train})
    for name in ("popular", "recent", "markov"):
        ecoc.train(data, path / name, method=name, config={"encoder": {"length": LENGTH}, "train": train})
    return path


def loaded(folder: Path) -> dict[str, Model]:
    return {name: load(folder / name) for name in NAMES}


def parts(event: Event) -> tuple[str, str | None]:
    return (event[0], event[1]) if isinstance(event, tuple) else (event, None)


def some_histories(count: int, seed: int = 0) -> list[list[Event]]:
    """Histories of 0 to 3 * LENGTH events: known and unknown items, with and without feedback, repeats."""
    rng = random.Random(seed)
    result: list[list[Event]] = [[], ["nowhere"], ["nowhere", "gone", "nowhere"], list(ITEMS), [*ITEMS, *ITEMS]]
    while len(result) < count:
        history: list[Event] = []
        for _ in range(rng.randrange(3 * LENGTH)):
            item = rng.choice([*ITEMS, "nowhere", "gone"])
            history.append((item, rng.choice(FEEDBACK)) if rng.random() < 0.5 else item)
        result.append(history)
    rng.shuffle(result)
    return result
