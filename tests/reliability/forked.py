"""The `ecoc` command in forked children of a process that has torch imported: a start costs no seconds.

Run as a script this is that process: it reads one JSON order a line and forks. Imported, it is the tests' side of it.
A child is a real process with a real exit code; only the interpreter's start and the imports are shared.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

VOLATILE = ("run", "seconds", "transitions_per_second", "peak_rss_bytes", "parts")


@dataclass(frozen=True)
class Done:
    """How a command ended; `code` is negative if a signal ended it, `peak` its most memory in bytes."""

    code: int
    stdout: str
    stderr: str
    peak: int = 0


@dataclass(frozen=True)
class Job:
    """A command at work."""

    forks: "Forks"
    pid: int
    output: Path

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def is_over(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    def wait(self, seconds: float = 100) -> Done:
        ended = self.forks.ask({"wait": self.pid, "seconds": seconds})
        return Done(stdout=self._read("stdout"), stderr=self._read("stderr"), **ended)

    def _read(self, name: str) -> str:
        return (self.output / name).read_bytes().decode()  # `read_text` would make a line feed of a carriage return


class Forks:
    """The process that forks."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process, self._folder, self._count = process, folder, 0

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def start(self, *arguments: object, before: str = "") -> Job:
        """Begin `ecoc ARGUMENTS`; the child executes the Python text `before` first, to break things on purpose."""
        self._count += 1
        output = self._folder / str(self._count)
        output.mkdir()
        for name in ("stdout", "stderr"):
            (output / name).touch()
        words = [str(word) for word in arguments]
        pid = self.ask({"start": words, "output": str(output), "before": before})["pid"]
        return Job(self, pid, output)

    def run(self, *arguments: object, before: str = "") -> Done:
        return self.start(*arguments, before=before).wait()


@contextmanager
def forking(*modules: str, **env: str) -> Iterator[Forks]:
    """A process that forks, with further modules imported; `env` is added to its environment."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        )
        try:
            yield Forks(process, Path(folder))
        finally:
            process.communicate()


def outcome(run: Path) -> dict[str, Any]:
    """Everything a finished run ended with, except times, rates, memory and places.

    When a run was last saved before its end is a matter of time too, so only its newest checkpoint counts.
    """
    result = json.loads((run / "result.json").read_bytes())
    for key in VOLATILE:
        result.pop(key)
    result["data"].pop("path")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best, *_, last = sorted((run / "checkpoints").glob("*.safetensors"))
    return {
        "result": result,
        "metrics": [{key: value for key, value in line.items() if key not in ("seconds", "time")} for line in lines],
        "tensors": {path.name: sha256(path.read_bytes()).hexdigest() for path in (best, last)},
        "files": sorted(path.name for path in run.rglob("*") if path.suffix == ".partial" or "step-" not in path.name),
    }


def serve() -> None:
    """Take orders until there are none."""
    import pyarrow.parquet  # noqa: F401 - all that a command would import
    import torch
    import torch._dynamo  # which the first optimiser imports

    import ecoc.cli
    import ecoc.evaluation.evaluate
    import ecoc.reporting.text
    import ecoc.training.train  # noqa: F401

    for module in sys.argv[1:]:
        import_module(module)
    torch.set_num_threads(1)
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            print(json.dumps(waited(order["wait"], order["seconds"])), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            obey(order)
        print(json.dumps({"pid": pid}), flush=True)


def waited(pid: int, seconds: float) -> dict[str, int]:
    """Exit code and most memory of a child, which is killed if it takes longer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return {"code": os.waitstatus_to_exitcode(status), "peak": usage.ru_maxrss * 1024}
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    _, _, usage = os.wait4(pid, 0)
    return {"code": -999, "peak": usage.ru_maxrss * 1024}


def obey(order: dict[str, Any]) -> None:
    """What the child does: `ecoc` as if it had just been started, with random generators in a state of its own."""
    import numpy as np
    import torch

    code = 1
    try:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{order['output']}/{name}", os.O_WRONLY), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for scramble in (random.seed, np.random.seed, torch.manual_seed):
            scramble(os.getpid())
        sys.argv = ["ecoc", *order["start"]]
        exec(order["before"], {"__name__": "before"})
        from ecoc.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
