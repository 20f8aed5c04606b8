"""Rank metrics of single test cases: HR, MRR and NDCG with one true item per case."""

import numpy as np
from numpy.typing import NDArray

KS = (5, 10, 20)
NAMES = tuple(f"{kind}@{k}" for kind in ("hr", "mrr", "ndcg") for k in KS)


def metrics(ranks: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Value of each metric, in the order of `NAMES`, for each case.

    `ranks` are mid-ranks of the true item, at least 1: tied with another item it may be 5.5, which is outside the
    first five. A true item that cannot be ranked at all has rank infinity and scores zero.
    """
    gains = {"hr": np.ones_like(ranks), "mrr": 1 / ranks, "ndcg": 1 / np.log2(ranks + 1)}
    return {f"{kind}@{k}": np.where(ranks <= k, gain, 0.0) for kind, gain in gains.items() for k in KS}


def means(ranks: NDArray[np.float64]) -> dict[str, float]:
    """Mean of each metric over cases."""
    return {name: float(values.mean()) for name, values in metrics(ranks).items()}
