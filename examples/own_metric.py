"""Metrics of your own: the share of targets among the first k, and how deep a user must look.

`python examples/own_metric.py` trains a small model and evaluates it by these metrics.
"""

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ecoc
from ecoc.metrics import METRICS


class InFirst:
    """1 if the true next item is among the first k, else 0; written `in_first@3`."""

    def __init__(self, k: int) -> None:
        self.name, self.k = f"in_first@{k}", k

    def __call__(self, ranks: NDArray[np.float64], /) -> NDArray[np.float64]:
        """Rank of the true item per case, 1 is best -> value per case."""
        return (ranks <= self.k).astype(np.float64)


class Depth:
    """Logarithm of the rank: how deep a user must look. Smaller is better."""

    name = "log_rank"

    def __call__(self, ranks: NDArray[np.float64], /) -> NDArray[np.float64]:
        """An item that cannot be ranked has rank infinity; it counts as rank 1,000,000."""
        return np.log(np.minimum(ranks, 1e6))


def main(folder: Path) -> None:
    """Register the metrics for this process, train a small model, evaluate it by them."""
    METRICS.register("in_first", InFirst)
    METRICS.register("log_rank", Depth)
    data = ecoc.prepare("world:small", folder / "data", format="world", events=5_000)
    run = ecoc.train(data, folder / "run", config={"train": {"max_epochs": 2}})
    print(ecoc.evaluate(run.path, data, metrics=["ndcg@10", "in_first@3", "log_rank"]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
