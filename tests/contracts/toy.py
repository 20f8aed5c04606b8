"""A toy to train on in a moment: users walk a circle of items, so what comes next can be learned and hardly guessed."""

import csv
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.encoders import ENCODERS
from ecoc.methods import METHODS
from ecoc.runs.folder import Run
from ecoc.testing.methods import SETTINGS

ITEMS, USERS, EVENTS = 30, 60, 16
TRAINED = [name for name in METHODS if METHODS[name].is_trained]
UNTRAINED = [name for name in METHODS if not METHODS[name].is_trained]
PAIRS = [(method, encoder) for method in TRAINED for encoder in (ENCODERS if method != "neural_lcb" else ["sasrec"])]
ENCODER_SETTINGS: dict[str, dict[str, Any]] = {
    "bert4rec": {"blocks": 1, "inner": 32, "mask_ratio": 0.5}  # a cloze test asks little of a step as it is
}
# Pairs that 50 steps do not take above popularity. Only the half of SA2C's copies that a coin chooses learns in a step,
# and once its warm-up ends it clones only what its Q already knows to be worth it.
SLOW: dict[tuple[str, str], dict[str, Any]] = {
    ("sqn", "bert4rec"): {"train": {"max_steps": 150}},
    ("sa2c", "bert4rec"): {"train": {"max_steps": 200, "batch": 48}, "method": {"warmup": 0.8}},
    ("sdac_sr", "bert4rec"): {"train": {"max_steps": 150}},
    ("sdac_dc", "bert4rec"): {"train": {"max_steps": 150}},
    ("sdac_dc", "narm"): {"train": {"max_steps": 150}},
}


def write_walks(path: Path, seed: int = 0) -> Path:
    """Every tenth event strays; every third item is bought when it is met."""
    draw = random.Random(seed)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["user", "item", "ts", "event"])
        for user in range(USERS):
            place = draw.randrange(ITEMS)
            for time in range(EVENTS):
                item = (place + time) % ITEMS if draw.random() < 0.9 else draw.randrange(ITEMS)
                writer.writerow([f"u{user}", f"i{item}", time, "buy" if item % 3 == 0 else "click"])
    return path


def write_random(path: Path, seed: int = 0) -> Path:
    """Sequences of 1..19 random events, each in a stretch of time of its own, with three kinds of feedback."""
    draw = random.Random(seed)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["user", "item", "ts", "event"])
        for user in range(USERS):
            start = draw.randrange(600)
            for time in sorted(draw.sample(range(start, start + 400), draw.randint(1, 19))):
                event = draw.choice(["click", "click", "buy", "refund"])
                writer.writerow([f"u{user}", f"i{draw.randrange(ITEMS)}", time, event])
    return path


def prepare(log: Path, out: Path, **options: Any) -> Dataset:
    columns: dict[str, Any] = {"user": "user", "item": "item", "time": "ts", "feedback": "event"}
    return ecoc.prepare(log, out, threads=1, **columns, **options)


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Sections joined, later layers stronger."""
    result: dict[str, Any] = {}
    for layer in layers:
        for section, values in layer.items():
            result[section] = {**result.get(section, {}), **values}
    return result


def train(data: Dataset, out: Path, method: str, encoder: str = "sasrec", /, **sections: Any) -> Run:
    own = {"encoder": ENCODER_SETTINGS.get(encoder, {})}
    return ecoc.train(data, out, method=method, encoder=encoder, config=merged(SETTINGS, own, sections))


def lines(run: Run) -> list[dict[str, Any]]:
    """Everything in metrics.jsonl; a number that is not finite is an error."""

    def refuse(token: str) -> None:
        raise ValueError(f"{run.path}: {token} in metrics.jsonl")

    text = (run.path / "metrics.jsonl").read_text()
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def steps_of(run: Run) -> Iterator[dict[str, Any]]:
    """The lines of metrics.jsonl that sum up steps."""
    return (line for line in lines(run) if "loss" in line)


def without_times(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in ("seconds", "time")} for line in found]
