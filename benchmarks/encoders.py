"""Every encoder on one dataset: the same time to train, the best weights by validation, full ranking of the test split.

    ecoc prepare ml-1m --format movielens --split leave-one-out -o ml
    python benchmarks/encoders.py ml -o runs --seconds 90 --seeds 3 --main sasrec,nextitnet,srgnn

One thread and CPU seconds; the schedule of each run is planned for the budget from its own measured pace. Encoders of
`--main` are trained with every seed, the others once. A run that is there is not trained again. Prints Markdown.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ecoc
from ecoc.encoders import ENCODERS
from train import step_seconds

_COLUMNS = ("hr@5", "hr@10", "hr@20", "mrr@10", "ndcg@5", "ndcg@10", "ndcg@20")
_VALIDATIONS = 8


def trained(data: Any, folder: Path, encoder: str, seed: int, seconds: float) -> dict[str, Any]:
    """Train within the budget, or find what an earlier call did."""
    path = folder / f"{encoder}-{seed}"
    kept = path / "benchmark.json"
    if kept.is_file():
        return dict(json.loads(kept.read_text()))
    values = {"encoder": {"name": encoder}}
    pace, targets = step_seconds(data, values, 10)
    steps = max(1, int(seconds / pace))
    train = {
        "max_steps": steps,
        "validate_every": -(-steps // _VALIDATIONS),
        "validation_cases": 2000,
        "patience": 0,
        "threads": 1,
        "seed": seed,
        "checkpoint_seconds": 1e9,
    }
    started = time.process_time()
    ecoc.train(data, path, config={**values, "train": train})
    spent = time.process_time() - started
    found = ecoc.evaluate(path, data, untrained=False)
    result = ecoc.load(path).run.result
    facts = {
        "metrics": found.metrics,
        "intervals": found.intervals,
        "coverage@10": found.coverage,
        "targets": result.transitions,
        "microseconds": 1e6 * pace / targets,
        "parameters": result.parameters,
        "seconds": spent,
    }
    kept.write_text(json.dumps(facts))
    return facts


def row(name: str, runs: list[dict[str, Any]]) -> str:
    """A line of the table: the mean over seeds, and their standard deviation for the chosen metric."""
    values = {column: np.array([run["metrics"][column] for run in runs]) for column in _COLUMNS}
    cells = []
    for column in _COLUMNS:
        spread = f" ± {values[column].std(ddof=1):.4f}" if len(runs) > 1 and column in {"hr@10", "ndcg@10"} else ""
        cells.append(f"{values[column].mean():.4f}{spread}")
    cost = f"{np.mean([run['microseconds'] for run in runs]):.1f}" if "microseconds" in runs[0] else ""
    size = f"{runs[0]['parameters']:,}" if "parameters" in runs[0] else ""
    coverage = f"{np.mean([run['coverage@10'] for run in runs]):.2f}"
    return f"| {name} | {len(runs)} | " + " | ".join(cells) + f" | {coverage} | {cost} | {size} |"


def main() -> None:
    """Train, judge, print."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--main", default="sasrec,nextitnet,srgnn")
    parser.add_argument("--encoders", default=",".join(ENCODERS))
    arguments = parser.parse_args()
    data = ecoc.open_data(arguments.data)
    arguments.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, Any]]] = {}
    for encoder in arguments.encoders.split(","):
        seeds = arguments.seeds if encoder in arguments.main.split(",") else 1
        found[encoder] = [trained(data, arguments.out, encoder, seed, arguments.seconds) for seed in range(seeds)]
        print(row(encoder, found[encoder]), flush=True)
    print("\n| | runs | " + " | ".join(_COLUMNS) + " | coverage@10 | µs/target | parameters |")
    print("|" + " --- |" * (len(_COLUMNS) + 5))
    order = sorted(found, key=lambda name: -float(np.mean([run["metrics"]["ndcg@10"] for run in found[name]])))
    for encoder in order:
        print(row(encoder, found[encoder]))
    first = arguments.out / f"{next(iter(found))}-0"
    for one in ecoc.evaluate(first, data).untrained:
        print(row(one.name, [one.model_dump()]))


if __name__ == "__main__":
    main()
