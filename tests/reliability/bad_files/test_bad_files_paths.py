"""What is not a readable file: folders, pipes, devices, files nobody may read; those that may hang run apart."""

import os
import socket
import subprocess
from pathlib import Path

import pytest
from bad_case import LOG, check_accepted, check_refused, run_here, run_process
from good_logs import csv_lines, file, joined

GOOD = joined(csv_lines())
YELP = ("--format", "yelp", "--min-length", "1")


@pytest.mark.parametrize("options", [LOG, YELP], ids=["log", "yelp"])
def test_a_pipe_without_a_writer_does_not_hang(options: tuple[str, ...], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    try:
        answer = run_process(pipe, tmp_path / "work", options, timeout=15)
    except subprocess.TimeoutExpired:
        pytest.fail("the command waits for a writer that never comes")
    check_refused(answer, f"{pipe}: ", "not a (regular|plain) file")


def test_standard_input_is_refused_rather_than_half_read(tmp_path: Path) -> None:
    """A pipe can be read once, a log is read several times: rows would vanish without a word."""
    answer = run_process(Path("/dev/stdin"), tmp_path / "work", LOG, stdin=None, input=GOOD)
    check_refused(answer, "/dev/stdin: ", "not a (regular|plain) file")


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero"])
def test_a_device_is_refused_at_once(path: str, tmp_path: Path) -> None:
    check_refused(run_process(Path(path), tmp_path / "work", LOG), path, "file|empty|longer|NUL")
    for number, options in enumerate([(*LOG, "--bad-rows", "skip"), YELP]):
        check_refused(run_here(Path(path), tmp_path / f"work{number}", options), path, "file|empty|longer|NUL")


def test_a_socket_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        check_refused(run_here(path, tmp_path / "work", LOG), f"{path}: ", "file")


@pytest.mark.parametrize("options", [LOG, YELP, ("--format", "rl4rs")], ids=["log", "yelp", "rl4rs"])
def test_a_missing_file_is_named(options: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "nothing.csv"
    check_refused(run_here(path, tmp_path / "work", options), f"{path}: ", "no such file or folder; give")


@pytest.mark.parametrize("options", [LOG, YELP, ("--format", "rl4rs")], ids=["log", "yelp", "rl4rs"])
def test_a_name_too_long_for_the_system_is_named(options: tuple[str, ...], tmp_path: Path) -> None:
    check_refused(run_here(tmp_path / ("n" * 300), tmp_path / "work", options), str(tmp_path), "[Nn]o such|too long")


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    check_refused(run_here(folder, tmp_path / "work", LOG), f"{folder}: ", "the folder has no log files")


def test_a_folder_of_other_files_is_named(tmp_path: Path) -> None:
    file("logs/picture.png", b"x")(tmp_path)
    file("logs/.hidden.csv", GOOD)(tmp_path)
    (tmp_path / "logs" / "folder.csv").mkdir()
    check_refused(
        run_here(tmp_path / "logs", tmp_path / "work", LOG), f"{tmp_path / 'logs'}: ", "the folder has no log files"
    )


@pytest.mark.parametrize("options", [LOG, YELP, ("--format", "taobao")], ids=["log", "yelp", "taobao"])
def test_a_file_that_opens_but_cannot_be_read_is_the_users_to_fix(options: tuple[str, ...], tmp_path: Path) -> None:
    """`/proc/self/mem` opens for everybody, also for root, and fails at the first byte read."""
    check_refused(run_here(Path("/proc/self/mem"), tmp_path / "work", options), "/proc/self/mem: ", "readable")


def test_a_file_nobody_may_read_is_named(tmp_path: Path) -> None:
    """Root may read everything, so the kernel's answer is played."""
    path = file("log.csv", GOOD)(tmp_path)
    opened = Path.open

    def refusing(self: Path, *arguments: object, **settings: object) -> object:
        if self == path:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(self, *arguments, **settings)  # type: ignore[call-overload]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", refusing)
        check_refused(run_here(path, tmp_path / "work", LOG), f"{path}: ", "Permission denied; give a readable file")


def test_a_path_with_spaces_quotes_and_other_letters_is_read(tmp_path: Path) -> None:
    path = file('it\'s a "log" – 日志 ; DROP TABLE x;.csv', GOOD)(tmp_path)
    check_accepted(run_process(path, tmp_path / "work", LOG), {})
