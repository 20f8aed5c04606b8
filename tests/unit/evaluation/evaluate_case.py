"""Datasets, runs on them and what was kept of judging them, for the tests of `ecoc.evaluate` and `ecoc.compare`."""

import csv
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.evaluation.metrics import NAMES
from ecoc.evaluation.results import Comparison

LENGTH, ITEMS = 6, 30
Row = tuple[str, str, int]


def prepared(path: Path, rows: Sequence[Row], **options: Any) -> Dataset:
    log = path.with_suffix(".csv")
    with log.open("w", newline="") as stream:
        csv.writer(stream).writerows([("user", "item", "ts"), *rows])
    return ecoc.prepare(log, path, user="user", item="item", time="ts", threads=1, **options)


def random_rows(users: int, items: int, rows: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    chosen = np.append(np.arange(items), rng.geometric(0.1, rows - items) % items)
    owners = rng.geometric(2 / users, rows) % users  # some come often, some twice
    return [
        (f"u{user}", f"i{item}", 1_600_000_000 + k)
        for k, (user, item) in enumerate(zip(owners.tolist(), chosen.tolist(), strict=True))
    ]


def trained(data: Dataset, path: Path, name: str, **train: Any) -> Path:
    encoder = {"length": LENGTH} | ({"dim": 8} if name == "sasrec" else {})
    settings = {"encoder": encoder, "train": {"max_steps": 10, "threads": 1, **train}}
    ecoc.train(data, path, method="supervised" if name == "sasrec" else name, config=settings)
    return path


@cache
def judged_runs(folder: Path) -> Path:
    """Datasets and runs, made once in a folder and not yet judged; tests copy what they change."""
    path = folder / "judged"
    path.mkdir()
    data = prepared(path / "data", random_rows(40, ITEMS, 600, seed=0), validation=0.2)
    trained(data, path / "sasrec", "sasrec")
    trained(data, path / "other", "sasrec", seed=1)
    trained(data, path / "later", "sasrec", min_history=3)
    trained(data, path / "markov", "markov")
    trained(data, path / "popular", "popular")
    foreign = prepared(path / "foreign_data", random_rows(40, ITEMS, 600, seed=1))
    trained(foreign, path / "foreign", "markov")
    tiny = prepared(path / "tiny_data", random_rows(15, 8, 150, seed=2))
    trained(tiny, path / "tiny", "markov")
    return path


def fresh_copies(made: Path, folder: Path) -> Path:
    """Of all runs."""
    for name in ("sasrec", "other", "later", "markov", "popular", "foreign", "tiny"):
        shutil.copytree(made / name, folder / name)
    return folder


def kept(run: Path, name: str = "test") -> dict[str, Tensor]:
    return dict(load_file(run / "evaluations" / f"{name}.safetensors"))


def slow_means(ranks: NDArray[np.float64]) -> dict[str, float]:
    sums = dict.fromkeys(NAMES, 0.0)
    for rank in ranks.tolist():
        for k in (5, 10, 20):
            if rank <= k:
                sums[f"hr@{k}"] += 1
                sums[f"mrr@{k}"] += 1 / rank
                sums[f"ndcg@{k}"] += 1 / np.log2(rank + 1)
    return {name: value / len(ranks) for name, value in sums.items()}


def by_name(found: Comparison) -> dict[str, dict[str, float]]:
    return {run.name: run.metrics for run in found.runs}
