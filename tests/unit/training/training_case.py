"""A small dataset and settings with which a training takes a moment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ecoc
from ecoc.data.sequences import Dataset

CONFIG: dict[str, Any] = {
    "encoder": {"dim": 8, "length": 6},
    "train": {"batch": 8, "max_steps": 12, "validate_every": 4, "log_every": 2, "patience": 0, "warmup": 2},
}


def small_data(folder: Path, write_log: Callable[..., Path]) -> Dataset:
    log = write_log(folder / "log.csv")
    columns: dict[str, Any] = {"user": "user", "item": "item", "time": "ts", "feedback": "event"}
    return ecoc.prepare(log, folder / "data", threads=1, reward={"view": 0, "cart": 1, "buy": 3}, **columns)


def config(**train: Any) -> dict[str, Any]:
    return {**CONFIG, "train": {**CONFIG["train"], **train}}
