"""The normalisation test beside a loop of `scipy.stats.spearmanr`: milliseconds of one thread for each sample.

    OMP_NUM_THREADS=1 python benchmarks/normtest.py --items 50000

Item vectors have isotropic directions and log-normal norms. Both take turns, so what else the machine does slows both.
Prints a Markdown row.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from ecoc.evaluation.norm_ranks import Table
from ecoc.evaluation.norm_test import differences
from ecoc.progress import no_progress

Singles = NDArray[np.float32]


def by_scipy(vectors: Singles, norms: Singles, p: Singles) -> tuple[float, float]:
    """Both correlations of one sample as docs/equations.md §5 defines them."""
    x = vectors @ p
    z = norms * np.linalg.norm(p) * np.sign(x)
    return float(spearmanr(x, x / norms).statistic), float(spearmanr(x, z).statistic)


def seconds(work: Callable[[], object]) -> float:
    """Processor time of a call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Measure, print."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--log-sd", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    spread = np.exp(arguments.log_sd * rng.standard_normal((arguments.items, 1)))
    vectors = (rng.standard_normal((arguments.items, arguments.dim)) * spread).astype(np.float32)
    queries = torch.from_numpy(rng.standard_normal((80, arguments.dim), np.float32))
    queries = torch.nn.functional.normalize(queries, dim=1)
    table, norms = Table(torch.from_numpy(vectors)), np.linalg.norm(vectors, axis=1).astype(np.float32)
    slow, fast = [], []
    for turn in range(arguments.rounds):
        slow.append(seconds(lambda turn=turn: by_scipy(vectors, norms, queries[turn].numpy())))  # type: ignore[misc]
        fast.append(seconds(lambda: differences(table, queries, no_progress, "")) / len(queries))
    reference = np.array([by_scipy(vectors, norms, p.numpy()) for p in queries[:10]]).T
    error = np.abs(table.correlations(table.scores(queries[:10])) - reference).max()
    ours, theirs = 1000 * float(np.median(fast)), 1000 * float(np.median(slow))
    print("| items | d | scipy, ms a sample | ecoc, ms a sample | ratio | largest difference of a correlation |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(f"| {arguments.items:,} | {arguments.dim} | {theirs:.2f} | {ours:.3f} | {theirs / ours:.1f} | {error:.1e} |")


if __name__ == "__main__":
    main()
