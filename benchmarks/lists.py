"""Exact lists from a large catalogue, as a ratio to one blocked pass that only computes the scores.

python benchmarks/lists.py [--items 1000000] [--width 64]
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ecoc.policies import ranking
from ecoc.policies.ranking import Query

BLOCK = 8192


class Catalogue:
    """Random item vectors, scored by inner product."""

    def __init__(self, items: int, width: int) -> None:
        self.items = items
        self.matrix = torch.randn(items + 1, width)

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        return query.vector @ self.matrix[first:last].T


def milliseconds(work: Callable[[], object], repeats: int = 9) -> float:
    """Least processor time of a call."""
    taken = []
    for _ in range(repeats):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return min(taken) * 1000


def one_pass(catalogue: Catalogue, query: Query) -> None:
    """Score all items, and keep nothing."""
    for first in range(1, catalogue.items + 1, BLOCK):
        catalogue.scores(query, first, min(first + BLOCK, catalogue.items + 1))


def main() -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    catalogue = Catalogue(options.items, options.width)
    print("batch  one pass ms  list of 20 ms  ratio")
    for batch in (1, 16):
        query, exclude = Query(torch.randn(batch, options.width)), torch.randint(1, options.items, (batch, 50))
        with torch.inference_mode():
            alone = milliseconds(partial(one_pass, catalogue, query))
            listed = milliseconds(partial(ranking.topk, catalogue, query, 20, exclude=exclude))
        print(f"{batch:5}  {alone:11.1f}  {listed:13.1f}  {listed / alone:5.2f}")


if __name__ == "__main__":
    main()
