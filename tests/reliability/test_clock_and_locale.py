"""Clock, time zone and language of the machine do not change a prepared dataset."""

import json
import os
from pathlib import Path

import pytest

from conftest import Command

SHIM = """
import datetime, time
_offset = {offset}
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _offset
time.time_ns = lambda: _time_ns() + _offset * 10**9
"""
LOG = "user,item,when\n" + "".join(
    f"u{k % 7},İI{k % 5}ı,2023-0{k % 9 + 1}-1{k % 10} 0{k % 10}:30:00{'+02:00' if k % 2 else ''}\n" for k in range(200)
)


def prepared_with(run: Command, folder: Path, changes: dict[str, str]) -> str:
    folder.mkdir()
    (folder / "log.csv").write_text(LOG, encoding="utf-8")
    options = ["--user", "user", "--item", "item", "--time", "when", "--json", "--quiet"]
    done = run("prepare", "log.csv", "-o", "out", *options, env={**os.environ, **changes}, cwd=folder)
    assert done.returncode == 0, done.stderr
    checksum: str = json.loads(done.stdout)["checksum"]
    return checksum


@pytest.fixture
def usual(run_ecoc: Command, tmp_path: Path) -> str:
    return prepared_with(run_ecoc, tmp_path / "usual", {})


@pytest.mark.parametrize(
    "changes",
    [
        {"TZ": "Pacific/Kiritimati"},
        {"TZ": "America/Anchorage"},
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"},
        {"PYTHONHASHSEED": "1"},
    ],
)
def test_time_zone_and_language_do_not_matter(
    run_ecoc: Command, tmp_path: Path, usual: str, changes: dict[str, str]
) -> None:
    assert prepared_with(run_ecoc, tmp_path / "changed", changes) == usual


@pytest.mark.parametrize("year", [1999, 2038])
def test_the_clock_does_not_matter(run_ecoc: Command, tmp_path: Path, usual: str, year: int) -> None:
    faketime = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if faketime:
        changes = {"LD_PRELOAD": str(faketime[0]), "FAKETIME": f"@{year}-01-19 03:14:00"}
    else:  # without Debian's faketime, at least Python's own clock
        shim = tmp_path / "shim"
        shim.mkdir()
        (shim / "sitecustomize.py").write_text(SHIM.format(offset=(year - 2026) * 31_557_600))
        changes = {"PYTHONPATH": str(shim)}
    assert prepared_with(run_ecoc, tmp_path / "changed", changes) == usual


def test_an_unlike_clock_would_be_noticed(run_ecoc: Command, tmp_path: Path, usual: str) -> None:
    """The broken variant: a tool that read local times would give another checksum; here the log itself is moved."""
    moved = LOG.replace("+02:00", "+03:00")
    (tmp_path / "log.csv").write_text(moved, encoding="utf-8")
    options = ["--user", "user", "--item", "item", "--time", "when", "--json", "--quiet"]
    assert json.loads(run_ecoc("prepare", "log.csv", "-o", "out", *options).stdout)["checksum"] != usual
