"""An interrupted prepare leaves nothing that looks finished, and the next one works."""

import json
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ecoc
from ecoc.errors import ArtifactError, InputError

OPTIONS = ["--user", "user", "--item", "item", "--time", "ts", "--feedback", "event", "--reward", "view=1,cart=2,buy=3"]
SEED = 20240815


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, write_log: Callable[..., Path]) -> Path:
    return write_log(tmp_path_factory.mktemp("log") / "log.csv", rows=150_000, users=10_000, items=2_000)


@pytest.fixture
def start(ecoc_command: Path, log: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `ecoc prepare` into tmp_path/out without waiting for it."""
    running = []

    def begin(*more: str) -> subprocess.Popen[str]:
        # a shell starts what runs in its background deaf to SIGINT, and children inherit that
        command = [
            "env",
            "--default-signal=INT",
            str(ecoc_command),
            "prepare",
            str(log),
            "-o",
            str(tmp_path / "out"),
            *OPTIONS,
            *more,
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def beside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came to this"
        time.sleep(0.005)


def looks_finished(folder: Path) -> bool:
    """Whether a reader would take the folder for a whole dataset."""
    try:
        ecoc.open_data(folder, verify=True)
    except (InputError, ArtifactError):
        return False
    return True


def test_killed_at_any_moment_it_is_whole_or_absent_and_can_be_run_again(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    began = time.monotonic()
    assert start().wait(60) == 0
    whole = time.monotonic() - began
    checksum = ecoc.open_data(tmp_path / "out").checksum
    moments = random.Random(SEED)
    print("seed", SEED)
    for _ in range(6):
        process = start("--overwrite")
        time.sleep(moments.uniform(0.2, 1.0) * whole)
        process.kill()
        process.communicate()
        assert ecoc.open_data(tmp_path / "out", verify=True).checksum == checksum, (
            "the old dataset stays until replaced"
        )
    assert start("--overwrite").wait(60) == 0
    assert ecoc.open_data(tmp_path / "out", verify=True).checksum == checksum
    assert beside(tmp_path) == ["out"], "leftovers of killed runs are gone"


def test_killed_while_first_writing_there_is_no_output_folder(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = start()
    wait_for(lambda: any(tmp_path.glob(".out.partial-*")))
    process.kill()
    process.communicate()
    assert not (tmp_path / "out").exists()
    assert not any(looks_finished(path) for path in tmp_path.iterdir() if path.is_dir())


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_with_its_exit_code_and_leaves_nothing(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    process = start()
    wait_for(lambda: any(tmp_path.glob(".out.partial-*/scratch")))
    process.send_signal(sent)
    _, said = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in said
    assert beside(tmp_path) == []


def test_of_two_writers_of_one_folder_the_second_is_told_the_pid_of_the_first(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    first = start()
    wait_for(lambda: (tmp_path / ".out.lock").exists() and (tmp_path / ".out.lock").read_text() == str(first.pid))
    first.send_signal(signal.SIGSTOP)  # so that it is still at work when the second comes
    second = start()
    _, said = second.communicate(timeout=30)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert f"process {first.pid} is writing it" in said
    assert first.wait(60) == 0
    assert looks_finished(tmp_path / "out")


def test_the_lock_and_leftovers_of_a_dead_process_are_taken_over(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / ".out.lock").write_text("999999")
    (tmp_path / ".out.partial-999999").mkdir()
    assert start().wait(60) == 0
    assert beside(tmp_path) == ["out"]


def test_a_full_disk_is_exit_5_and_leaves_nothing(ecoc_command: Path, log: Path, tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    done = subprocess.run(
        [str(ecoc_command), "prepare", str(log), "-o", str(tmp_path / "out"), "--quiet", *OPTIONS],
        preexec_fn=small_files,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert "Traceback" not in done.stderr
    assert str(tmp_path) in done.stderr
    assert beside(tmp_path) == []


def test_a_writer_that_wrote_in_place_would_be_caught(tmp_path: Path, log: Path) -> None:
    """The broken variant: manifest first, arrays after. Cut off half-way it must not pass for a dataset."""
    data = ecoc.prepare(
        log, tmp_path / "out", user="user", item="item", time="ts", feedback="event", reward="view=1,cart=2,buy=3"
    )
    assert looks_finished(data.path)
    times = data.path / "times.npy"
    times.write_bytes(times.read_bytes()[:-8])
    assert not looks_finished(data.path)
    manifest = data.path / "manifest.json"
    content = json.loads(manifest.read_bytes())
    content["files"]["times.npy"]["bytes"] -= 8
    manifest.write_text(json.dumps(content))
    assert not looks_finished(data.path)
