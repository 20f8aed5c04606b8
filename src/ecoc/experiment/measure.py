"""One measurement in a separate process, so that its peak memory can be measured: JSON in, JSON out.

echo '{"data": "DATA", "config": {…}}' | python -m ecoc.experiment.measure
echo '{"items": 100000, "windows": 14, "config": {…}}' | python -m ecoc.experiment.measure
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from tempfile import TemporaryFile
from typing import Any

import torch

from ecoc.data.sequences import open_data
from ecoc.errors import EcocError, ResourceError, is_out_of_memory
from ecoc.experiment.results import Measurement
from ecoc.profiling import peak_rss
from ecoc.progress import ProgressCallback
from ecoc.runs.config import RunConfig
from ecoc.training.cost import measure, random_steps, timed
from ecoc.training.opening import SPARSE_FROM

MOST_SECONDS = 20.0  # per step; slower steps are not repeated
MOST_BYTES = 6 << 30
_REPEAT = 0.5  # seconds per repeat
_LONGEST_ERROR = 300
_POLL = 0.05


def run_in_subprocess(order: Mapping[str, Any], progress: ProgressCallback) -> Measurement:
    """Measure in a new process, which is killed if the caller is interrupted. `order` is JSON, as above."""
    with TemporaryFile("w+") as orders, TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        orders.write(json.dumps(dict(order)))
        orders.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", "ecoc.experiment.measure"], stdin=orders, stdout=output, stderr=errors
        )
        try:
            while process.poll() is None:
                progress("measure", 0, 0)  # it may raise, because the time is up
                time.sleep(_POLL)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        errors.seek(0)
        lines, messages = output.read().strip().splitlines(), errors.read().strip().splitlines()
    if process.returncode or not lines:
        why = messages[-1] if messages else f"it ended with code {process.returncode}"
        raise ResourceError(f"the measuring process failed: {why[:_LONGEST_ERROR]}")
    return Measurement.model_validate_json(lines[-1])


def main() -> None:
    """Read an order from standard input, print the measurement."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    order = json.loads(sys.stdin.read())
    before = peak_rss()
    try:
        values = _measured(order)
    except EcocError as error:
        sys.exit(str(error))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        values = {"stopped": f"needs more than {MOST_BYTES >> 30} GB"}
    print(json.dumps({**values, "peak_rss_bytes": peak_rss(), "before_rss_bytes": before}))


def _measured(order: Mapping[str, Any]) -> dict[str, Any]:
    config = RunConfig.build(order["config"])
    if "data" in order:
        return measure(open_data(order["data"]), config, repeat_seconds=_REPEAT).model_dump()
    torch.manual_seed(0)
    items = int(order["items"])
    steps = random_steps(config, items, int(order["windows"]), sparse=items > SPARSE_FROM)
    began = time.perf_counter()
    steps()
    if time.perf_counter() - began > MOST_SECONDS:
        return {"stopped": f"a step takes more than {MOST_SECONDS:.0f} s"}
    return asdict(timed(steps, repeat_seconds=_REPEAT))


if __name__ == "__main__":
    main()
