"""Speed of `ecoc serve`: 64 clients, 50,000 items, one process with one thread; batching on and off in one run.

    python benchmarks/serve.py                        # makes the bundle in a temporary folder
    python benchmarks/serve.py --folder serve         # keeps it for the next call
    python benchmarks/serve.py bundle --folder serve  # only makes the bundle, and bodies of requests

Clients are one other process (benchmarks/load.py) on loopback. The rate is requests per second of the server's own
processor time, user and system, so that the cost of the clients does not count. The machine's speed is measured beside
each load, by processor time and by the clock; other processes make the second one fall.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import ecoc

ECOC = Path(sys.executable).parent / "ecoc"
LOAD = Path(__file__).parent / "load.py"
_TICKS = os.sysconf("SC_CLK_TCK")
_ITEMS = 50_000
_GOALS = {"policy": 1000, "blend": 900}


def make_bundle(path: Path, *, items: int, dim: int = 64, seed: int = 0) -> None:
    """Write a bundle of a model trained for three steps: its speed is that of one trained to the end."""
    rng = np.random.default_rng(0)
    events = items * 4
    # every item is in the first part of the log, which is the training split
    item = np.concatenate([rng.permutation(items), rng.zipf(1.2, events - items) % items])
    log = pd.DataFrame(
        {
            "user": [f"u{user}" for user in rng.integers(events // 20, size=events)],
            "item": [f"item-{place}" for place in item],
            "time": 1_600_000_000 + np.arange(events),
            "event": rng.choice(["view", "buy"], events),
            "title": [f"The item with the number {place}" for place in item],
        }
    )
    columns: Any = {"user": "user", "item": "item", "time": "time", "title": "title", "feedback": "event"}
    train = {"max_steps": 3, "batch": 32, "threads": 1, "counts": "off", "validation_cases": 20, "seed": seed}
    config = {"encoder": {"dim": dim, "length": 50}, "method": {"guard": 1.0}, "train": train}
    with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
        folder = Path(temporary)
        data = ecoc.prepare(log, folder / "data", **columns, reward={"view": 0, "buy": 1}, threads=1)
        ecoc.train(data, folder / "run", method="ecoc", config=config)
        ecoc.export(folder / "run", path)


def write_bodies(path: Path, items: int, **fields: Any) -> Path:
    """2,000 requests with histories of 1 to 50 events, half of them at most 10."""
    rng = random.Random(0)
    lengths = [min(50, max(1, round(rng.lognormvariate(2.3, 0.8)))) for _ in range(2000)]
    histories = [[f"item-{rng.randrange(items)}" for _ in range(length)] for length in lengths]
    path.write_text("\n".join(json.dumps({"history": history, "k": 10, **fields}) for history in histories))
    return path


@contextmanager
def serving(model: Path, *options: str) -> Iterator[tuple[int, str]]:
    """`ecoc serve` as a process: its id and HOST:PORT."""
    arguments = [str(ECOC), "serve", str(model), "--port", "0", "--no-access-log", "--json", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the server did not start")
        try:
            yield process.pid, json.loads(line)["address"].removeprefix("http://")
        finally:
            process.send_signal(signal.SIGTERM)


def cpu_seconds(process: int) -> float:
    """Processor time that a process has used, user and system."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def measure(model: Path, bodies: Path, out: Path, *, clients: int, seconds: float, options: Sequence[str] = ()) -> Any:
    """Figures of one load on a fresh server, after a warm-up."""
    with serving(model, *options) as (process, address):
        _load(address, bodies, out, clients, min(2.0, seconds))
        before = cpu_seconds(process)
        started = time.monotonic()
        result = _load(address, bodies, out, clients, seconds)
        spent, passed = cpu_seconds(process) - before, time.monotonic() - started
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            text = answer.read().decode()
    batches = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line.startswith("ecoc_batch")}
    good = [second for second, status in zip(result["seconds"], result["status"], strict=True) if status == 200]
    p50, p99 = np.quantile(good, [0.5, 0.99])
    return {
        "requests": len(good),
        "errors": len(result["status"]) - len(good),
        "per_cpu_second": len(good) / spent,
        "per_second": len(good) / passed,
        "p50_ms": 1000 * p50,
        "p99_ms": 1000 * p99,
        "p99/p50": p99 / p50,
        "batch": batches["ecoc_batch_size_sum"] / batches["ecoc_batch_size_count"],
        "speed by CPU": np.mean([speed[0] for speed in result["speeds"]]),
        "by clock": np.mean([speed[1] for speed in result["speeds"]]),
    }


def _load(address: str, bodies: Path, out: Path, clients: int, seconds: float) -> Any:
    options = ["--clients", str(clients), "--seconds", str(seconds), "--out", str(out)]
    subprocess.run([sys.executable, str(LOAD), address, str(bodies), *options], check=True, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())


def speed(folder: Path, seconds: float) -> None:
    """Print the table of speeds beside the goals."""
    model = folder / "bundle"
    if not model.is_dir():
        make_bundle(model, items=_ITEMS)
    out = folder / "load.json"
    rows: dict[str, Any] = {}
    for mode in ("policy", "blend"):
        bodies = write_bodies(folder / f"{mode}.jsonl", _ITEMS, rank_by=mode)
        rows[mode] = measure(model, bodies, out, clients=64, seconds=seconds)
        alone = ("--largest-batch", "1")
        rows[f"{mode}, no batches"] = measure(model, bodies, out, clients=64, seconds=seconds, options=alone)
    rows["policy, one client"] = measure(model, folder / "policy.jsonl", out, clients=1, seconds=seconds)
    names = list(rows["policy"])
    print(" | ".join(["load", *names]))
    for name, row in rows.items():
        print(" | ".join([name, *(f"{row[key]:.4g}" for key in names)]))
    for mode, goal in _GOALS.items():
        row, unbatched = rows[mode], rows[f"{mode}, no batches"]
        ratio = row["per_cpu_second"] / unbatched["per_cpu_second"]
        print(f"{mode}: {row['per_cpu_second']:.0f} requests per CPU-second, goal {goal}")
        print(f"{mode}: {ratio:.1f} times the requests per CPU-second without batches, goal 5")
        print(f"{mode}: p99 is {row['p99/p50']:.1f} times p50, goal at most 5")
    print(f"one client: p99 {rows['policy, one client']['p99_ms']:.1f} ms, goal at most 30")
    print(f"errors: {sum(row['errors'] for row in rows.values())}, goal 0")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["speed", "bundle"], default="speed")
    parser.add_argument("--folder", type=Path, help="where to keep the bundle")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each load")
    parser.add_argument("--items", type=int, default=_ITEMS, help="bundle: number of items")
    parser.add_argument("--dim", type=int, default=64, help="bundle: dimension of the item vectors")
    parser.add_argument("--seed", type=int, default=0, help="bundle: seed of the training")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(exist_ok=True, parents=True)
        if arguments.what == "bundle":
            make_bundle(folder / "bundle", items=arguments.items, dim=arguments.dim, seed=arguments.seed)
            for mode in ("policy", "blend"):
                write_bodies(folder / f"{mode}.jsonl", arguments.items, rank_by=mode)
        else:
            speed(folder, arguments.seconds)


if __name__ == "__main__":
    main()
