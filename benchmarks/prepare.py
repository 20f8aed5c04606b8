"""Speed of prepare: events per second from Parquet and CSV, against pandas in the same run, and the time to open.

    python benchmarks/prepare.py [--events 10000000] [--repeats 3]

Everything runs as its own process, one after the other, taking turns; the best of the repeats counts, with start-up.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from events import COLUMNS, REWARD, write_csv, write_parquet

HERE = Path(__file__).parent
ECOC = Path(sys.executable).parent / "ecoc"
PEAK = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
PEAK += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"


def timed(command: list[str]) -> tuple[float, float]:
    """Seconds and peak memory in GB of a command."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", PEAK, *command], check=True, capture_output=True, text=True)
    return time.perf_counter() - started, int(done.stdout) / 1e6


def opening(data: Path) -> float:
    """Seconds to open a dataset and read one number from each array, in a fresh process, imports not counted."""
    script = (
        "import sys, time, ecoc.data.sequences as s; t = time.perf_counter(); d = s.open_data(sys.argv[1]);"
        "x = [getattr(d, n)[-1] for n in ('items', 'feedback', 'rewards', 'times', 'offsets')];"
        "print(time.perf_counter() - t)"
    )
    return float(
        subprocess.run([sys.executable, "-c", script, data], check=True, capture_output=True, text=True).stdout
    )


def main() -> None:
    """Run and print a table and one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    size = options.events, max(1000, options.events // 20), 50_000
    with tempfile.TemporaryDirectory(prefix="ecoc-bench-") as folder:
        logs = {"parquet": Path(folder) / "log.parquet", "csv": Path(folder) / "log.csv"}
        write_parquet(logs["parquet"], *size)
        write_csv(logs["csv"], *size)
        best: dict[tuple[str, str], tuple[float, float]] = {}
        for _ in range(options.repeats):
            for kind, log in logs.items():
                data, lists = Path(folder) / f"data-{kind}", Path(folder) / "lists"
                commands = {
                    "ecoc": [str(ECOC), "prepare", str(log), "-o", str(data), "-q", *COLUMNS, "--reward", REWARD],
                    "pandas": [sys.executable, str(HERE / "pandas_prepare.py"), str(log), str(lists)],
                }
                for tool, command in commands.items():
                    shutil.rmtree(data if tool == "ecoc" else lists, ignore_errors=True)
                    best[tool, kind] = min(best.get((tool, kind), (1e9, 0.0)), timed(command))
        opened = opening(Path(folder) / "data-parquet")
    print(f"{size[0]:,} events, {size[1]:,} users, {size[2]:,} items\n")
    print(f"{'':10}{'seconds':>10}{'events/s':>14}{'peak GB':>10}{'ratio to pandas':>18}")
    result: dict[str, float] = {"open_seconds": opened}
    for (tool, kind), (seconds, peak) in sorted(best.items()):
        ratio = best["pandas", kind][0] / seconds
        result[f"{tool}_{kind}_events_per_second"] = size[0] / seconds
        result[f"{tool}_{kind}_ratio"] = ratio
        print(f"{tool + ' ' + kind:16}{seconds:>4.1f}{size[0] / seconds:>14,.0f}{peak:>10.2f}{ratio:>18.1f}")
    print(f"\nopen_data: {opened * 1000:.1f} ms")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
