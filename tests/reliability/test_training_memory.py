"""Promise 13: the memory of training is bounded in the catalogue's size; too little of it is exit 5, never a crash."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forked import Done, Forks, forking

import ecoc

ITEMS, DIM = 1_000_000, 64
TABLE = (ITEMS + 1) * DIM * 4
MOST = TABLE * 6 + 3 * 2**29  # item table x 6 + 1.5 GB
SETTINGS = ["train.max_steps=3", "train.batch=256", f"encoder.dim={DIM}", "encoder.length=10"]
SETTINGS += ["train.validation_cases=64", "train.validate_every=2"]
LIMITS = [0, 10, 50, 250, 600, 850, 1100, 1180]  # MB beyond what a process has that did all imports

# The address space may grow by so many MB.
LIMITED = """
import resource
size = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + {limit} * 2**20,) * 2)
"""
DIES_AFTER_A_SAVE = """
import os
from ecoc.training.loop import Loop
save = Loop.save
def last_save(self):
    save(self)
    os._exit(9)
Loop.save = last_save
"""
ALL_SCORES_AT_ONCE = """
from ecoc.policies import ranking
ranking._BLOCK = 1 << 20
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with forking() as found:
        assert found.run("--version").code == 0
        yield found


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """In memory if there is much of it: checkpoints are large, and no process's own memory holds what lies there."""
    memory = Path("/dev/shm")
    is_roomy = memory.is_dir() and shutil.disk_usage(memory).free > 10 * 2**30
    with tempfile.TemporaryDirectory(dir=memory if is_roomy else None) as found:
        yield Path(found)


@pytest.fixture(scope="module")
def data(folder: Path) -> Path:
    """A million items, each in one of the first million events."""
    random = np.random.default_rng(0)
    items = np.concatenate([random.permutation(ITEMS), random.integers(0, ITEMS, ITEMS // 4)])
    events = np.arange(len(items))
    pq.write_table(pa.table({"user": events // 10, "item": items, "time": events}), folder / "log.parquet")
    data = ecoc.prepare(folder / "log.parquet", folder / "data", user="user", item="item", time="time", threads=1)
    assert data.counts.items == ITEMS
    return data.path


@pytest.fixture
def run(folder: Path) -> Iterator[Path]:
    yield folder / "run"
    shutil.rmtree(folder / "run", ignore_errors=True)


def words(data: Path, run: Path, *more: object) -> list[str]:
    pairs = [word for setting in SETTINGS for word in ("--set", setting)]
    return [str(word) for word in ["train", data, "-o", run, "--threads", 1, "--quiet", *pairs, *more]]


def peak(run: Path) -> int:
    result = json.loads((run / "result.json").read_bytes())
    assert result["items"] == ITEMS
    return int(result["peak_rss_bytes"])


def is_told(done: Done) -> bool:
    """Exit 5 and one line with the settings to change."""
    return (
        done.code == 5 and re.fullmatch(r"[^\n]*out of memory[^\n]*\btrain\.batch\b[^\n]*\n", done.stderr) is not None
    )


def test_a_million_items_are_trained_within_the_bound(ecoc_command: Path, data: Path, run: Path) -> None:
    process = subprocess.Popen([str(ecoc_command), *words(data, run)], stderr=subprocess.PIPE, text=True)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stderr is not None
    with process.stderr as stream:
        assert process.returncode == 0, stream.read()
    used = usage.ru_maxrss * 1024
    print(f"peak {used / 2**20:,.0f} MB, table {TABLE / 2**20:,.0f} MB, bound {MOST / 2**20:,.0f} MB")
    assert 3 * TABLE < used <= MOST
    assert 0.95 * used < peak(run) <= used, "what result.json says is true"


@pytest.mark.soak
def test_a_resumed_run_with_averaged_weights_stays_within_the_bound_too(forks: Forks, data: Path, run: Path) -> None:
    averaged = words(data, run, "--set", "train.ema=0.01")
    assert forks.run(*averaged, before=DIES_AFTER_A_SAVE).code == 9
    done = forks.run(*averaged, "--resume")
    assert done.code == 0, done.stderr
    print(f"peak {peak(run) / 2**20:,.0f} MB")
    assert peak(run) <= MOST


def test_too_little_memory_is_exit_5_with_the_settings_to_change(forks: Forks, data: Path, run: Path) -> None:
    wrong, codes = {}, []
    for limit in LIMITS:
        shutil.rmtree(run, ignore_errors=True)
        done = forks.run(*words(data, run), before=LIMITED.format(limit=limit))
        codes.append(done.code)
        if done.code != 0 and not is_told(done):
            wrong[limit] = (done.code, done.stderr)
        assert list(run.rglob("*.partial")) == []
    print("exit codes", dict(zip(LIMITS, codes, strict=True)))
    assert wrong == {}
    assert codes.count(0) <= 2, "the limits are below what is needed"


def test_the_real_command_under_a_limit_is_exit_5(ecoc_command: Path, data: Path, run: Path) -> None:
    limit = 3 * 2**30  # torch alone takes a part of it, tables and moments more than the rest
    done = subprocess.run(
        ["prlimit", f"--as={limit}", str(ecoc_command), *words(data, run, "--set", "encoder.dim=256")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert is_told(Done(done.returncode, done.stdout, done.stderr)), done


@pytest.mark.soak
def test_scores_of_all_items_at_once_would_be_caught(forks: Forks, data: Path, run: Path) -> None:
    """The broken variant."""
    many = ["--set", "train.validation_cases=256", "--set", "train.max_steps=2"]
    done = forks.run(*words(data, run, *many), before=ALL_SCORES_AT_ONCE)
    assert done.code == 0, done.stderr
    assert peak(run) > MOST
