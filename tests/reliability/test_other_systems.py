"""On a system other than Linux, the first import says so, and the command says it in one line."""

import subprocess
import sys

import pytest

LINE = "ecoc runs on Linux only; this system is {}"


def import_on(platform: str, *, program: str) -> subprocess.CompletedProcess[str]:
    script = f"import pathlib, sys; sys.platform = {platform!r}; sys.argv = [{program!r}]; from ecoc.cli import main"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("platform", "program"), [("darwin", "/usr/local/bin/ecoc"), ("win32", "ecoc.exe"), ("freebsd14", "ecoc")]
)
def test_the_command_prints_one_line(platform: str, program: str) -> None:
    done = import_on(platform, program=program)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", LINE.format(platform) + "\n")


def test_a_program_that_imports_ecoc_can_catch_it() -> None:
    done = import_on("darwin", program="notebook.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ImportError: " + LINE.format("darwin")


def test_linux_is_not_refused() -> None:
    assert import_on("linux", program="ecoc").returncode == 0
