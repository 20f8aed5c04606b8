"""Metrics of your own: the share of targets among the first k, and how little a user must look.

`python examples/own_metric.py` checks them with the contract suite, then evaluates a small model by them.
"""

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ecoc
from ecoc.metrics import METRICS
from ecoc.testing import check_metric


class InFirst:
    """1 if the true next item is among the first k, else 0; written `in_first@3`."""

    def __init__(self, k: int) -> None:
        self.name, self.k = f"in_first@{k}", k

    def __call__(self, ranks: NDArray[np.float64], /) -> NDArray[np.float64]:
        """Rank of the true item per case, 1 is best -> value per case."""
        return (ranks <= self.k).astype(np.float64)


class Closeness:
    """1 for the first rank, falling with the logarithm of the rank: how little a user must look. Larger is better."""

    name = "closeness"

    def __call__(self, ranks: NDArray[np.float64], /) -> NDArray[np.float64]:
        """An item that cannot be ranked has rank infinity and counts 0."""
        return 1 / (1 + np.log(ranks))


def main(folder: Path) -> None:
    """Check the metrics, register them for this process, evaluate a small model by them."""
    for metric in (InFirst(3), Closeness()):
        check_metric(metric)
    METRICS.register("in_first", InFirst)
    METRICS.register("closeness", Closeness)
    data = ecoc.prepare("world:small", folder / "data", format="world", events=5_000)
    run = ecoc.train(data, folder / "run", config={"train": {"max_epochs": 2}})
    print(ecoc.evaluate(run.model, data, metrics=["ndcg@10", "in_first@3", "closeness"]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
