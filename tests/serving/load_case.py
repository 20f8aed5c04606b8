"""Load on a real server, for the tests of serving: benchmarks/load.py as a process, and what it found."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from server_case import Server

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TOKEN = "a-token-of-the-tests"
DROPPED, NOT_CONNECTED = 0, -1
_TICKS = os.sysconf("SC_CLK_TCK")


@cache
def bundle_folder(base: Path, items: int, seed: int) -> Path:
    """Folder with `bundle`, a model of items `item-0`, `item-1`, …, and `policy.jsonl` and `blend.jsonl`, requests."""
    path = base / f"bundle-{items}-{seed}"
    options = ["--folder", str(path), "--items", str(items), "--seed", str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(BENCHMARKS / "serve.py"), "bundle", *options], check=True, env=environment)
    return path


class Outcome:
    """What became of the requests of a load."""

    def __init__(self, values: Any) -> None:
        self.sent: NDArray[np.float64] = np.array(values["sent"])
        self.seconds: NDArray[np.float64] = np.array(values["seconds"])
        self.status: NDArray[np.int64] = np.array(values["status"])
        self.without_retry_after: int = values["without_retry_after"]
        self.answers: dict[str, list[tuple[str, list[str]]]] = values["answers"]
        self.examples: dict[str, str] = values["examples"]
        by_processor, by_clock = np.array(values["speeds"]).T
        self.slow = max(1.0, 1 / by_processor.min()), max(1.0, 1 / by_clock.min())

    @property
    def counts(self) -> dict[int, int]:
        """Number of requests by status."""
        return dict(Counter(self.status.tolist()))

    def after(self, moment: float) -> NDArray[np.bool_]:
        """Which requests were sent after a moment."""
        return self.sent >= moment

    def quantile(self, share: float, where: NDArray[np.bool_] | None = None) -> float:
        """Seconds within which a share of the good answers came."""
        is_good = self.status == 200
        return float(np.quantile(self.seconds[is_good if where is None else is_good & where], share))

    def rate(self, first: float, last: float) -> float:
        """Good answers per second between two moments."""
        ended = self.sent + self.seconds
        return float(((self.status == 200) & (ended >= first) & (ended < last)).sum() / (last - first))


class Load:
    """A load that runs."""

    def __init__(self, server: Server, bodies: Path, out: Path, *options: str, clients: int, seconds: float) -> None:
        self._out = out
        arguments = [sys.executable, str(BENCHMARKS / "load.py"), server.address.removeprefix("http://"), str(bodies)]
        arguments += ["--clients", str(clients), "--seconds", str(seconds), "--out", str(out), "--token", TOKEN]
        self.process = subprocess.Popen([*arguments, *options], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"started\n"

    def end(self, *, early: bool = False) -> Outcome:
        """Wait until it ends, or end it."""
        if early:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(300) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()
        return Outcome(json.loads(self._out.read_text()))


@contextmanager
def loaded(server: Server, bodies: Path, out: Path, *options: str, clients: int) -> Iterator[list[Outcome]]:
    """Load for the time of a block; the list then holds the outcome."""
    load = Load(server, bodies, out, *options, clients=clients, seconds=600)
    result: list[Outcome] = []
    try:
        yield result
        result.append(load.end(early=True))
    finally:
        load.process.kill()
        load.process.wait()
        if load.process.stdout is not None:
            load.process.stdout.close()


def run_load(server: Server, bodies: Path, out: Path, *options: str, clients: int, seconds: float) -> Outcome:
    """Load for some seconds."""
    return Load(server, bodies, out, *options, clients=clients, seconds=seconds).end()


def cpu_seconds(process: int) -> float:
    """Processor time that a process has used, user and system."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def descriptors(process: int) -> int:
    """Number of open descriptors of a process."""
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def threads(process: int) -> int:
    """Number of threads of a process."""
    return len(list(Path(f"/proc/{process}/task").iterdir()))


def resident_mb(process: int) -> float:
    """Memory of a process in RAM, without pages of files."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no RssAnon")


def metric(server: Server, name: str) -> float:
    """A figure of /metrics, by its name with labels."""
    with server.client(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        lines = client.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name)


def wait_until(is_true: Any, seconds: float) -> float:
    """Seconds until a condition held; fails if it never did."""
    started = time.monotonic()
    while not is_true():
        assert time.monotonic() - started < seconds, "it did not happen in time"
        time.sleep(0.02)
    return time.monotonic() - started
