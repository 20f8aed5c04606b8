"""One measurement in a process of its own, so that its peak memory is its own: JSON in, JSON out.

echo '{"data": "DATA", "config": {…}}' | python -m ecoc.experiment.measure
echo '{"items": 100000, "windows": 14, "config": {…}}' | python -m ecoc.experiment.measure
"""

import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict
from tempfile import TemporaryFile
from typing import Any

import torch

from ecoc.data.sequences import open_data
from ecoc.errors import EcocError, ResourceError, is_out_of_memory
from ecoc.experiment.cost import measure, synthetic_negatives, timed
from ecoc.profiling import peak_rss
from ecoc.progress import ProgressCallback
from ecoc.runs.config import RunConfig
from ecoc.training.train import SPARSE_FROM

MOST_SECONDS = 20.0  # a step; slower ones are not repeated
MOST_BYTES = 6 << 30
_STRETCH = 0.5  # seconds
_LONGEST_ERROR = 300
_POLL = 0.05


def run_in_subprocess(order: dict[str, Any], watch: ProgressCallback) -> dict[str, Any]:
    """Measure in a new process, which ends when nobody waits for it any more."""
    with TemporaryFile("w+") as orders, TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        orders.write(json.dumps(order))
        orders.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", "ecoc.experiment.measure"], stdin=orders, stdout=output, stderr=errors
        )
        try:
            while process.poll() is None:
                watch("measure", 0, 0)  # whoever watches may have had enough
                time.sleep(_POLL)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        errors.seek(0)
        lines, said = output.read().strip().splitlines(), errors.read().strip().splitlines()
    if process.returncode or not lines:
        why = said[-1] if said else f"it ended with code {process.returncode}"
        raise ResourceError(f"the measuring process failed: {why[:_LONGEST_ERROR]}")
    return dict(json.loads(lines[-1]))


def main() -> None:
    """Obey one order."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    order = json.loads(sys.stdin.read())
    before = peak_rss()
    try:
        found = _obeyed(order)
    except EcocError as error:
        sys.exit(str(error))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        found = {"stopped": f"needs more than {MOST_BYTES >> 30} GB"}
    print(json.dumps({**found, "peak_rss_bytes": peak_rss(), "before_rss_bytes": before}))


def _obeyed(order: dict[str, Any]) -> dict[str, Any]:
    config = RunConfig.build(order["config"])
    if "data" in order:
        return measure(open_data(order["data"]), config, stretch_seconds=_STRETCH).values()
    torch.manual_seed(0)
    items = int(order["items"])
    steps = synthetic_negatives(config, items, int(order["windows"]), sparse=items > SPARSE_FROM)
    began = time.perf_counter()
    steps()
    if time.perf_counter() - began > MOST_SECONDS:
        return {"stopped": f"a step takes more than {MOST_SECONDS:.0f} s"}
    return asdict(timed(steps, stretch_seconds=_STRETCH))


if __name__ == "__main__":
    main()
