"""Commands in surroundings that are against them: streams that are closed, folders that may not be read or written."""

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import Done
from tampered import Attempts, words_of

NOBODY = 65534
# Executed in the child before the command: it gives up the rights of root, for which no permission is denied.
AS_NOBODY = f"""
import os
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
"""


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that everyone may enter, as the folders of pytest are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def copied(attempts: Attempts, kind: str, place: Path) -> Path:
    folder = Path(shutil.copytree(getattr(attempts.originals, kind), place / kind))
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def is_one_line(done: Done, code: int, text: str) -> bool:
    return done.code == code and done.stderr.count("\n") == 1 and text in done.stderr and "Traceback" not in done.stderr


# ------------------------------------------------------------------------------------------------------- permissions

UNREADABLE = {
    "an array": ("data", "items.npy", ("info", "train")),
    "a manifest": ("data", "manifest.json", ("info", "train")),
    "weights": ("run", "checkpoints/best.safetensors", ("recommend", "verify")),
    "a state": ("run", "checkpoints/best.json", ("recommend",)),
    "a result": ("run", "result.json", ("info", "recommend", "report")),
    "settings": ("run", "config.toml", ("info", "recommend")),
    "items": ("run", "items.parquet", ("recommend",)),
    "metrics": ("run", "metrics.jsonl", ("report",)),
    "a bundle's record": ("bundle", "bundle.json", ("recommend",)),
    "a bundle's weights": ("bundle", "policy.safetensors", ("recommend", "serve")),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_may_not_be_read_says_permission_denied(attempts: Attempts, open_place: Path, name: str) -> None:
    kind, file, commands = UNREADABLE[name]
    folder = copied(attempts, kind, open_place)
    (folder / file).chmod(0)
    for command in commands:
        done = attempts.forks.run(*words_of(command, folder, attempts.originals), before=AS_NOBODY)
        assert is_one_line(done, 2, "permission denied"), (command, done)
        assert file in done.stderr


def test_a_folder_that_may_not_be_entered_says_permission_denied(attempts: Attempts, open_place: Path) -> None:
    for kind, command in (("data", "info"), ("run", "recommend"), ("bundle", "recommend")):
        folder = copied(attempts, kind, open_place)
        folder.chmod(0)
        done = attempts.forks.run(*words_of(command, folder, attempts.originals), before=AS_NOBODY)
        assert is_one_line(done, 2, "permission denied"), (kind, done)
        folder.chmod(0o755)


def test_a_read_only_run_is_evaluated_and_said_to_be_unsaved(attempts: Attempts, open_place: Path) -> None:
    data, run = (copied(attempts, kind, open_place) for kind in ("data", "run"))
    for folder in (run, run / "evaluations"):
        folder.chmod(0o555)
    before = (run / "evaluation.json").read_bytes()
    words = ["evaluate", run, "--data", data, "--max-cases", 40, "--no-untrained"]
    done = attempts.forks.run(*words, "--quiet", before=AS_NOBODY)
    assert done.code == 0, done
    assert done.stderr == ""
    assert f"not saved: {run} is read-only" in done.stdout
    assert "--" not in done.stdout.split("not saved")[1]  # no flag that the command does not have
    assert (run / "evaluation.json").read_bytes() == before


def test_choosing_a_weight_for_a_read_only_run_fails_before_the_work(attempts: Attempts, open_place: Path) -> None:
    data, run = (copied(attempts, kind, open_place) for kind in ("data", "run"))
    run.chmod(0o555)
    words = ["simulate", run, "--data", data, "--choose-w"]
    done = attempts.forks.run(*words, before=AS_NOBODY)
    assert is_one_line(done, 2, "read-only"), done  # one line: no progress of work came before it


def test_a_folder_that_may_not_be_written_is_refused_before_the_work(attempts: Attempts, open_place: Path) -> None:
    data = copied(attempts, "data", open_place)
    for words in (
        ["train", data, "-o", open_place / "out", "--set", "train.max_steps=2"],
        ["export", attempts.originals.run, "-o", open_place / "out"],
    ):
        if words[0] == "export":
            words[1] = copied(attempts, "run", open_place)
        done = attempts.forks.run(*words, "--quiet", before=AS_NOBODY)
        assert done.code == 2, done
        assert done.stderr.count("\n") == 1


# ---------------------------------------------------------------------------------------------------------- outputs


@pytest.mark.parametrize("command", ["train", "export", "prepare"])
@pytest.mark.parametrize("target", ["a folder", "nothing"])
def test_an_output_that_is_a_link_is_not_replaced(
    attempts: Attempts, tmp_path: Path, command: str, target: str
) -> None:
    out, real = tmp_path / "out", tmp_path / "real"
    if target == "a folder":
        real.mkdir()
        (real / "mine.txt").write_text("mine")
    out.symlink_to(real)
    words: dict[str, list[object]] = {
        "train": ["train", attempts.originals.data, "-o", out, "--overwrite"],
        "export": ["export", attempts.originals.run, "-o", out, "--overwrite"],
        "prepare": ["prepare", "world:small", "-o", out, "--overwrite", "--events", 2000],
    }
    done = attempts.forks.run(*words[command], "--quiet")
    assert done.code == 2, done
    assert done.stderr.count("\n") == 1
    assert out.is_symlink()
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("out", "real")] == []
    assert not real.exists() or [path.name for path in real.iterdir()] == ["mine.txt"]


def test_a_fingerprint_elsewhere_is_not_written_through(attempts: Attempts, tmp_path: Path) -> None:
    """A folder in which training has just begun: its link is replaced by a file, and what it leads to is left alone."""
    run, other = tmp_path / "run", tmp_path / "mine.txt"
    (run / "checkpoints").mkdir(parents=True)
    other.write_text("mine")
    (run / "data.sha256").symlink_to(other)
    done = attempts.forks.run(*words_of("again", run, attempts.originals))
    assert done.code == 0, done
    assert other.read_text() == "mine"
    assert not (run / "data.sha256").is_symlink()


# ---------------------------------------------------------------------------------------------------------- streams

CLOSED = "import os, sys\nos.close({number})\nsys.{name} = None\n"
# A pipe whose reader has gone away.
NO_READER = "import os, sys\nread, write = os.pipe()\nos.close(read)\nos.dup2(write, {number})\n"
NO_READER += "sys.{name} = open({number}, 'w', closefd=False)\n"
GONE = {"closed": CLOSED, "no reader": NO_READER}


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("kind", ["data", "run", "bundle"])
def test_output_that_nobody_reads_is_no_failure(attempts: Attempts, kind: str, gone: str) -> None:
    before = GONE[gone].format(number=1, name="stdout")
    words = words_of("recommend" if kind == "bundle" else "info", getattr(attempts.originals, kind), attempts.originals)
    done = attempts.forks.run(*words, "--json", before=before)
    assert (done.code, done.stderr) == (0, "")


@pytest.mark.parametrize("gone", GONE)
def test_an_error_that_nobody_reads_still_has_its_exit_code(attempts: Attempts, tmp_path: Path, gone: str) -> None:
    before = GONE[gone].format(number=2, name="stderr")
    done = attempts.forks.run("info", tmp_path / "nowhere", before=before)
    assert (done.code, done.stdout) == (2, "")


def test_progress_that_nobody_can_see_does_not_go_to_the_output(attempts: Attempts, tmp_path: Path) -> None:
    words = words_of("train", attempts.originals.data, attempts.originals)[:-1]  # not quiet
    words[3] = tmp_path / "out"
    done = attempts.forks.run(*words, "--json", before=CLOSED.format(number=2, name="stderr"))
    assert (done.code, done.stdout.count("\n")) == (0, 1)
    assert json.loads(done.stdout)["steps"] == 2


@pytest.mark.parametrize("redirection", [">&- 2>&- <&-", "| true"])
def test_the_real_script_with_closed_streams(attempts: Attempts, ecoc_command: Path, redirection: str) -> None:
    """As a shell starts it, with all that the interpreter does at its end."""
    command = f"{shlex.quote(str(ecoc_command))} info {shlex.quote(str(attempts.originals.run))} {redirection}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# ------------------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize("command", ["info", "train", "prepare", "report", "histories"])
def test_a_name_that_is_not_utf_8_is_refused_in_one_line(attempts: Attempts, tmp_path: Path, command: str) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/log\xff\xfe.csv")
    Path(name).write_text("user,item,time\nu,i,1\n")
    run = attempts.originals.run
    words: dict[str, list[object]] = {
        "info": ["info", name],
        "train": ["train", attempts.originals.data, "-o", name],
        "prepare": ["prepare", name, "-o", tmp_path / "out"],
        "report": ["report", run, "-o", name],
        "histories": ["recommend", run, "--histories", name, "-o", tmp_path / "lists.jsonl"],
    }
    done = attempts.forks.run(*words[command], "--quiet")
    assert is_one_line(done, 2, "UTF-8"), done
