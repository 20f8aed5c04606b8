"""Every example runs as a user runs it: scripts, notebooks, and a package that extends ecoc from outside."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))
PRINTED = {  # what each script must have said
    "own_encoder.py": ["ndcg@10"],
    "own_log.py": ["ndcg@10", "i21"],
    "own_method.py": ["ndcg@10"],
    "own_metric.py": ["in_first@3", "closeness"],
    "own_source.py": ["ann ['song-1', 'song-2', 'song-3']", "bob ['song-3', 'song-1', 'song-2']"],
}
VISITS = "visitor,page,at,bought\n" + "".join(
    f"v{user},p{(3 * user + step) % 11},{1_700_000_000 + 60 * step + user},{'yes' if step % 4 == 3 else 'no'}\n"
    for user in range(30)
    for step in range(8)
)


CONTRACTS = """
from ecoc.data.sources import SOURCES
from ecoc.encoders import ENCODERS
from ecoc.methods import METHODS
from ecoc.metrics import METRICS
from ecoc.testing import check_encoder, check_method, check_metric, check_source

check_encoder(ENCODERS["running_mean"])
check_method(METHODS["smoothed"])
check_source(SOURCES["visits"], "visits.csv")
check_metric(METRICS["reciprocal_rank"]())
"""


def run_script(*arguments: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_script_is_run_here() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(PRINTED)
    assert len(NOTEBOOKS) == 2


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_a_script_runs_and_prints_its_result(name: str, tmp_path: Path) -> None:
    printed = run_script(EXAMPLES / name, cwd=tmp_path)
    assert [text for text in PRINTED[name] if text not in printed] == []
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


def test_your_own_log_takes_forty_lines_and_any_file(tmp_path: Path) -> None:
    script = EXAMPLES / "own_log.py"
    assert len(script.read_text().splitlines()) <= 40
    rows = [f"u{user},i{(user + step) % 25},{step},view" for user in range(40) for step in range(6)]
    (tmp_path / "mine.csv").write_text("\n".join(["user,item,time,event", *rows]) + "\n")
    assert "ndcg@10" in run_script(script, "mine.csv", cwd=tmp_path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs_and_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    printed = [str(output) for cell in code for output in cell.outputs]
    assert any("ndcg@10" in text for text in printed)
    assert not any("stderr" in text for text in printed), "a notebook warns of nothing"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example package, copied out of the repository, is installed."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(EXAMPLES / "plugin", folder / "package")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-compile"]
    subprocess.run([*command, "--target", folder / "installed", folder / "package"], check=True, capture_output=True)
    (folder / "visits.csv").write_text(VISITS)
    return folder


def run_with(plugin: Path, *arguments: object) -> str:
    search = os.pathsep.join(filter(None, [str(plugin / "installed"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        list(map(str, arguments)),
        cwd=plugin,
        env=os.environ | {"PYTHONPATH": search, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_brings_only_its_own_files(plugin: Path) -> None:
    assert {path.name for path in (plugin / "installed").iterdir()} == {"ecoc_example", "ecoc_example-0.1.0.dist-info"}


def test_help_lists_what_the_package_adds(plugin: Path, ecoc_command: Path) -> None:
    added = {"train": ["running_mean", "smoothed"], "prepare": ["visits"], "evaluate": ["reciprocal_rank"]}
    for command, names in added.items():
        text = run_with(plugin, ecoc_command, command, "--help")
        assert [name for name in names if name not in text] == []


def test_the_package_passes_the_contract_suite(plugin: Path) -> None:
    run_with(plugin, sys.executable, "-c", CONTRACTS)


def test_the_package_is_used_from_the_command_line(plugin: Path, ecoc_command: Path) -> None:
    run_with(plugin, ecoc_command, "prepare", "visits.csv", "-o", "data", "--format", "visits", "--quiet")
    chosen = ("--encoder", "running_mean", "--method", "smoothed", "--set", "train.max_epochs=1")
    run_with(plugin, ecoc_command, "train", "data", "-o", "run", *chosen, "--quiet")
    answer = json.loads(run_with(plugin, ecoc_command, "evaluate", "run", "--metric", "reciprocal_rank", "--json"))
    assert list(answer["metrics"]) == ["reciprocal_rank"]
