"""The command line declares options once, and its help lists what the registries hold, without importing torch."""

import re
import subprocess
import sys
from typing import get_args

import pytest
from typer.testing import CliRunner

from ecoc.cli import app
from ecoc.experiment import EXPERIMENTS
from ecoc.policies.base import RankBy
from ecoc.registry import BUILT_IN
from ecoc.runs.presets import presets

COMMANDS = [command.name for command in app.registered_commands if command.name]


def help_of(name: str) -> str:
    result = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.stdout).split())


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("train", [*BUILT_IN["encoder"], *BUILT_IN["method"], *presets()]),
        ("prepare", list(BUILT_IN["source"])),
        ("evaluate", [*BUILT_IN["metric"], *get_args(RankBy)]),
        ("compare", list(BUILT_IN["metric"])),
        ("reproduce", list(EXPERIMENTS)),
    ],
)
def test_help_lists_what_there_is(command: str, names: list[str]) -> None:
    text = help_of(command)
    assert [name for name in names if name not in text] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_the_common_options_once(command: str) -> None:
    text = help_of(command)
    for option in ("--json", "--quiet", "--debug"):
        assert len(re.findall(rf"{option} ", text)) == 1


def test_help_of_no_command_imports_torch_or_numpy() -> None:
    script = (
        "import sys; from typer.testing import CliRunner; from ecoc.cli import app\n"
        f"for name in {COMMANDS!r}: assert CliRunner().invoke(app, [name, '--help']).exit_code == 0\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"torch", "numpy", "duckdb", "pyarrow"}.isdisjoint(done.stdout.split())
