"""Speed and quality of supervised training, as ratios measured in one run. One thread; seconds are process CPU seconds.

    ecoc prepare ml-1m --format movielens --split leave-one-out --validation 0 -o ml
    PEERS_DATA=SPLIT python benchmarks/train.py peers ml --python PEER_PYTHON --scripts FOLDER  # beside RePlay
    python benchmarks/train.py prefix ml       # all positions at once against one sample per prefix
    python benchmarks/train.py windows ml      # random, tile and prefix windows: quality and cost at equal time
    python benchmarks/train.py growth          # step time and memory at 10k, 100k and 1M items
    python benchmarks/train.py evaluate        # full ranking of 200k cases x 100k items against the bare product

PEER_PYTHON is an interpreter with RePlay installed. SPLIT is a folder with train.csv and test.csv of the same
leave-one-out split. FOLDER holds the script run_replay.py, which reads the environment variables PEERS_DATA,
PEERS_BUDGET and PEERS_BATCH and prints a JSON line with targets_per_s, hr10 and ndcg10.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ecoc
from ecoc.data.loader import Windows, dims_of, open_train_sequences
from ecoc.data.sequences import Dataset
from ecoc.methods.build import build_method
from ecoc.runs.config import RunConfig
from ecoc.training.step import TrainStep

_CALIBRATION = 60  # steps timed to plan a budget
_REPEATS = 3
_PLANNED = 100_000  # steps that the learning rate is planned for


def step_seconds(data: Dataset, values: Mapping[str, Any], steps: int, sparse: bool = False) -> tuple[float, float]:
    """CPU seconds a step and targets a step, the best of a few stretches after a warm-up."""
    config = RunConfig.build(values)
    torch.manual_seed(0)
    method = build_method(config, dims_of(data))
    method.fit_statistics(open_train_sequences(data))
    windows = Windows(
        data,
        config.encoder.length,
        batch=config.train.batch or 0,
        targets=config.train.batch_targets,
        mode=config.train.windows,
        min_history=1,
        seed=0,
        returns=method.needs_returns,
    )
    train_step = TrainStep(method, config.train, steps=_PLANNED, sparse=sparse)
    best, counted, number = np.inf, 0, 0
    for stretch in range(_REPEATS + 1):
        started, targets = time.process_time(), 0
        for _ in range(steps if stretch else 3):
            targets += train_step(windows[number], number).transitions
            number += 1
        spent = (time.process_time() - started) / steps
        if stretch and spent < best:
            best, counted = spent, targets
    return best, counted / steps


def budgeted(data: Dataset, seconds: float, values: Mapping[str, Any], seed: int = 0) -> dict[str, float]:
    """Train for about so many CPU seconds, the schedule planned for them, and rank the test targets."""
    pace, _ = step_seconds(data, values, _CALIBRATION)
    with tempfile.TemporaryDirectory() as folder:
        steps = max(1, int(seconds / pace))
        train = {"max_steps": steps, "threads": 1, "seed": seed, "checkpoint_seconds": 1e9, "log_every": 1000}
        settings = {**values, "train": {**values.get("train", {}), **train}}
        started = time.process_time()
        run = ecoc.train(data, Path(folder) / "run", config=settings)
        spent = time.process_time() - started
        found = ecoc.evaluate(run.path, data, untrained=False)
        return {
            "seconds": spent,
            "steps": steps,
            "targets": run.result.transitions,
            "hr@10": found.metrics["hr@10"],
            "ndcg@10": found.metrics["ndcg@10"],
        }


def peers(arguments: argparse.Namespace) -> None:
    """RePlay and ours in turn, then our quality after 20 and 90 seconds; needs the environment variable PEERS_DATA."""
    split = os.environ.get("PEERS_DATA")
    if split is None or not all((Path(split) / name).is_file() for name in ("train.csv", "test.csv")):
        sys.exit(f"peers: PEERS_DATA is {split!r}; set it to a folder with train.csv and test.csv of the split of DATA")
    data = ecoc.open_data(arguments.data)
    sampled, full = {"method": {"loss": "sampled"}}, {"method": {"loss": "full"}}
    environment = os.environ | {
        "PEERS_BATCH": "32",
        "PEERS_BUDGET": str(arguments.budget),
        "PEERS_MARKS": "1000000",
        "PEERS_THREADS": "1",
    }
    rates: dict[str, list[float]] = {"peer": [], "sampled": [], "full": []}
    quality: dict[str, Any] = {}
    for _ in range(arguments.rounds):
        command = [arguments.python, str(Path(arguments.scripts) / "run_replay.py")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        quality = json.loads(done.stdout.strip().splitlines()[-1])
        rates["peer"].append(quality["targets_per_s"])
        for name, values in (("sampled", sampled), ("full", full)):
            seconds, targets = step_seconds(data, values, 100)
            rates[name].append(targets / seconds)
    peer = float(np.median(rates["peer"]))
    print(f"{'SASRec d 64, length 50':<34}{'targets/core-second':>20}{'ratio':>8}   all rounds")
    for name, label in (
        ("peer", "RePlay, full softmax, batch 32"),
        ("sampled", "ecoc, shared negatives"),
        ("full", "ecoc, full softmax"),
    ):
        rate = float(np.median(rates[name]))
        print(f"{label:<34}{rate:>20,.0f}{rate / peer:>8.2f}   {', '.join(f'{value:,.0f}' for value in rates[name])}")
    print(f"\n{'time to quality':<34}{'core-seconds':>14}{'HR@10':>9}{'NDCG@10':>9}")
    print(f"{'RePlay':<34}{arguments.budget:>14.0f}{quality['hr10']:>9.4f}{quality['ndcg10']:>9.4f}")
    for seconds in (15, 80):  # training alone; start-up and saving come on top
        found = budgeted(data, seconds, {})
        print(f"{'ecoc':<34}{found['seconds']:>14.1f}{found['hr@10']:>9.4f}{found['ndcg@10']:>9.4f}", flush=True)


def prefix(arguments: argparse.Namespace) -> None:
    """The same encoder and loss, all positions of a window or one row per prefix of 256."""
    data = ecoc.open_data(arguments.data)
    print(f"{'encoder':<12}{'all positions':>16}{'one per prefix':>16}{'ratio':>8}   microseconds of CPU a target")
    for encoder, steps in (("sasrec", 60), ("nextitnet", 30), ("srgnn", 30)):
        at_once, targets = step_seconds(data, {"encoder": {"name": encoder}}, steps)
        alone, rows = step_seconds(
            data, {"encoder": {"name": encoder}, "train": {"windows": "prefix", "batch": 256}}, max(3, steps // 10)
        )
        fast, slow = 1e6 * at_once / targets, 1e6 * alone / rows
        print(f"{encoder:<12}{fast:>16.1f}{slow:>16.1f}{slow / fast:>8.1f}", flush=True)


def windows(arguments: argparse.Namespace) -> None:
    """Quality after the same time."""
    data = ecoc.open_data(arguments.data)
    print(f"{'windows':<10}{'core-seconds':>14}{'us/target':>11}{'targets':>12}{'HR@10':>9}{'NDCG@10':>9}")
    for mode in ("random", "tile", "prefix"):
        found = budgeted(data, arguments.budget, {"train": {"windows": mode}})
        cost = 1e6 * found["seconds"] / found["targets"]
        print(
            f"{mode:<10}{found['seconds']:>14.1f}{cost:>11.1f}{found['targets']:>12,.0f}{found['hr@10']:>9.4f}"
            f"{found['ndcg@10']:>9.4f}",
            flush=True,
        )


_GROWTH = """
import json, resource, sys
import ecoc
run = ecoc.train(sys.argv[1], sys.argv[2], config={"train": {"max_steps": int(sys.argv[3]), "batch": 256, "threads": 1,
    "validation_cases": 1000, "log_every": 1000}})
print(json.dumps(run.result.values()))
"""


def growth(arguments: argparse.Namespace) -> None:
    """Real training runs on logs with ever more items: the same steps, batch 256, sampled loss."""
    import pyarrow as pa
    import pyarrow.parquet

    print(f"{'items':>10}{'ms a step':>12}{'ratio':>8}{'peak RSS MB':>13}{'allowed MB':>12}")
    first = 0.0
    for items in (10_000, 100_000, 1_000_000):
        with tempfile.TemporaryDirectory() as folder:
            random = np.random.default_rng(0)
            users, length = 60_000, 40
            popular = (items * random.random(users * length) ** 2).astype(np.int64)
            popular[:items] = np.arange(items)  # each at least once
            random.shuffle(popular)
            table = pa.table(
                {"user": np.repeat(np.arange(users), length), "item": popular, "time": np.arange(users * length)}
            )
            pa.parquet.write_table(table, Path(folder) / "log.parquet")
            data = ecoc.prepare(
                Path(folder) / "log.parquet",
                Path(folder) / "data",
                user="user",
                item="item",
                time="time",
                split="leave-one-out",
            )
            command = [sys.executable, "-c", _GROWTH, str(data.path), str(Path(folder) / "run"), str(arguments.steps)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            result = json.loads(done.stdout.strip().splitlines()[-1])
        parts = result["parts"]
        step = sum(parts[name] for name in ("batch", "encode", "loss", "backward", "optimise", "log")) / result["steps"]
        first = first or step
        allowed = result["items"] * 64 * 4 * 6 / 2**20 + 1536
        print(
            f"{result['items']:>10,}{1000 * step:>12.2f}{step / first:>8.2f}{result['peak_rss_bytes'] / 2**20:>13,.0f}"
            f"{allowed:>12,.0f}",
            flush=True,
        )


_EVALUATE = """
import json, resource, sys, time
import numpy as np, torch
import ecoc
from ecoc.data.loader import dims_of, open_cases
from ecoc.evaluation.ranks import rank_cases
from ecoc.model import build_method
from ecoc.runs.config import RunConfig

torch.set_num_threads(1)
data = ecoc.open_data(sys.argv[1])
policy = build_method(RunConfig.build({"encoder": {"name": "sasrec", "length": 20}}), dims_of(data)).policy
cases = open_cases(data, "test", min_history=1, most=int(sys.argv[2]), seed=0)
query, table = torch.randn(512, 64), torch.randn(policy.items, 64)
out = torch.empty(512, 1024)
bare = ranked = 0.0
for rows in np.array_split(np.arange(len(cases)), 20):  # in turn, so that both meet the same neighbours
    started = time.process_time()
    for _ in range(-(-len(rows) // 512)):
        for first in range(0, policy.items - 1023, 1024):
            torch.mm(query, table[first : first + 1024].T, out=out)
    middle = time.process_time()
    rank_cases(policy, data, cases.part(rows))
    bare, ranked = bare + middle - started, ranked + time.process_time() - middle
print(json.dumps({"cases": len(cases), "items": policy.items, "bare": bare, "seconds": ranked,
                  "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def evaluate(arguments: argparse.Namespace) -> None:
    """Full ranking against the bare blocked product of the same size."""
    import pyarrow as pa
    import pyarrow.parquet

    with tempfile.TemporaryDirectory() as folder:
        random = np.random.default_rng(0)
        users, length, items = 50_000, 20, 100_000
        chosen = random.integers(0, items, users * length)
        chosen[:items] = np.arange(items)
        table = pa.table({"user": np.tile(np.arange(users), length), "item": chosen, "time": np.arange(users * length)})
        pa.parquet.write_table(table, Path(folder) / "log.parquet")
        data = ecoc.prepare(Path(folder) / "log.parquet", Path(folder) / "data", user="user", item="item", time="time")
        command = [sys.executable, "-c", _EVALUATE, str(data.path), str(arguments.cases)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.strip().splitlines()[-1])
    print(
        f"{found['cases']:,} cases x {found['items']:,} items, d 64: {found['seconds']:.1f} core-seconds, bare product "
        f"{found['bare']:.1f}, ratio {found['seconds'] / found['bare']:.2f}, peak RSS {found['peak']:,.0f} MB"
    )


def main() -> None:
    """Choose a part."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("peers")
    one.add_argument("data")
    one.add_argument("--python", required=True)
    one.add_argument("--scripts", required=True)
    one.add_argument("--budget", type=float, default=90)
    one.add_argument("--rounds", type=int, default=1)
    one.set_defaults(work=peers)
    for name, work in (("prefix", prefix), ("windows", windows)):
        one = parts.add_parser(name)
        one.add_argument("data")
        one.add_argument("--budget", type=float, default=40)
        one.set_defaults(work=work)
    one = parts.add_parser("growth")
    one.add_argument("--steps", type=int, default=30)
    one.set_defaults(work=growth)
    one = parts.add_parser("evaluate")
    one.add_argument("--cases", type=int, default=200_000)
    one.set_defaults(work=evaluate)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
