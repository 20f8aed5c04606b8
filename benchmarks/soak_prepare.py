"""Bigger than memory is fine: prepare 100 M events within `--memory 1GB`, and the same bytes as without a limit.

    python benchmarks/soak_prepare.py [--events 100000000]

Prints seconds, events per second and peak memory (of the whole process, not only the engine). Exit code 1 if the peak
is above 1.3 GB, or if a 5 M sample prepared in 512 MB differs from the same sample prepared in 8 GB.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from events import COLUMNS, REWARD, write_parquet
from prepare import ECOC, PEAK

LIMIT_GB = 1.3


def run(log: Path, data: Path, memory: str) -> tuple[float, float, str]:
    """Seconds, peak GB and checksum of one preparation."""
    command = [str(ECOC), "prepare", str(log), "-o", str(data), "-q", "--memory", memory, *COLUMNS, "--reward", REWARD]
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", PEAK, *command], check=True, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - started
    checksum = json.loads((data / "manifest.json").read_bytes())["checksum"]
    return seconds, int(done.stdout) * 1024 / 1e9, checksum


def main() -> int:
    """Run both checks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ecoc-soak-") as folder:
        sample = Path(folder) / "sample.parquet"
        write_parquet(sample, 5_000_000, 250_000, 50_000)
        runs = {memory: run(sample, Path(folder) / memory, memory) for memory in ("512MB", "8GB")}
        same = len({checksum for _, _, checksum in runs.values()}) == 1
        for memory, (seconds, peak, checksum) in runs.items():
            print(f"5 M events in {memory}: {seconds:.1f} s, peak {peak:.2f} GB, checksum {checksum[:16]}", flush=True)
        log = Path(folder) / "log.parquet"
        write_parquet(log, options.events, options.events // 20, 200_000)
        seconds, peak, _ = run(log, Path(folder) / "data", "1GB")
    rate = options.events / seconds
    print(f"{options.events:,} events in 1GB: {seconds:.0f} s, {rate:,.0f} events/s, peak {peak:.2f} GB")
    print(f"same bytes with and without a limit: {same}; peak within {LIMIT_GB} GB: {peak <= LIMIT_GB}")
    return 0 if same and peak <= LIMIT_GB else 1


if __name__ == "__main__":
    sys.exit(main())
