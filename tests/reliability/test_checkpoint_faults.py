"""Promises 2 and 3: a checkpoint is whole or absent, whatever fails while it is saved; a full disk destroys nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import Done, Forks, Job, forking, outcome
from safetensors import SafetensorError
from safetensors.torch import load_file

import ecoc
from ecoc.storage.checkpoint import load_checkpoint, load_latest

MUST_REPORT = ("openat", "write", "fsync", "rename")
OTHERS = ("close", "lseek", "newfstatat", "getdents64", "unlink")
SETTINGS = ["encoder.dim=8", "encoder.length=10", "train.batch=16", "train.max_steps=6", "train.log_every=1"]
SETTINGS += ["train.validate_every=4", "train.validation_cases=100", "train.checkpoint_seconds=0.001"]
SAVED = 77  # exit code of a child whose save claimed success

# At the save of a step the child does `what`.
AT_STEP = """
import ctypes, os, resource, signal
from ecoc.training.loop import Loop
ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)  # anyone may trace this process
save = Loop.save
def save_with_fault(self):
    if self.state.step == {step}:
        {what}
    else:
        save(self)
Loop.save = save_with_fault
"""
DIE = AT_STEP.format(step=3, what="os._exit(1)")
BEGIN = AT_STEP.format(step=1, what=f"os._exit({SAVED})") + "os.kill(os.getpid(), signal.SIGSTOP)"
PAUSE = AT_STEP.format(step=3, what=f"os.kill(os.getpid(), signal.SIGSTOP); save(self); os._exit({SAVED})")
SMALL_FILES = AT_STEP.format(step=3, what="resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)); save(self)")
# The broken variants that the tests must catch, each with a system call whose failure shows it.
UNHEEDED_FLUSH = """
import os
fsync = os.fsync
def careless(descriptor):
    try:
        fsync(descriptor)
    except OSError:
        pass
os.fsync = careless
"""
OLD_ONES_FIRST = """
from ecoc.training import loop
save_checkpoint = loop.save_checkpoint
def eager(folder, *rest):
    for path in folder.glob("step-*"):
        path.unlink()
    return save_checkpoint(folder, *rest)
loop.save_checkpoint = eager
"""
NAMED_BEFORE_WRITTEN = """
import os
from hashlib import sha256
import ecoc.storage.atomic, ecoc.storage.checkpoint
def write_named(path, pieces):
    content = b"".join(bytes(piece) for piece in pieces)
    try:
        with ecoc.storage.atomic.partial_path(path).open("wb") as stream:
            stream.write(content[:8])
            stream.flush()
            os.rename(ecoc.storage.atomic.partial_path(path), path)
            stream.write(content[8:])
    except OSError as error:
        raise ecoc.storage.checkpoint.ResourceError(f"{path}: {error}") from error
    return sha256(content).hexdigest()
ecoc.storage.checkpoint.write_aside = write_named
ecoc.storage.checkpoint.put_in_place = lambda path: None
"""
LITTER = """
import contextlib, ecoc.storage.checkpoint
ecoc.storage.checkpoint.cleaned = contextlib.nullcontext
"""
BROKEN = {"unheeded flush": (UNHEEDED_FLUSH, "fsync"), "old ones first": (OLD_ONES_FIRST, "rename")}
BROKEN |= {"named before written": (NAMED_BEFORE_WRITTEN, "write"), "litter": (LITTER, "write")}


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with forking() as found:
        yield found


@pytest.fixture(scope="module")
def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        pytest.fail("strace is not installed; it is the Debian package 'strace'")
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ecoc.prepare("world:small", tmp_path_factory.mktemp("world") / "data", format="world", events=4_000).path


@pytest.fixture(scope="module")
def stopped(forks: Forks, data: Path) -> Path:
    """A run that was stopped with checkpoints of steps 1 and 2."""
    run = data.parent / "stopped"
    assert forks.run(*words(data, run), before=DIE).code == 1
    assert [path.stem[-1] for path in sorted((run / "checkpoints").glob("*.json"))] == ["1", "2"]
    return run


@pytest.fixture(scope="module")
def expected(forks: Forks, data: Path) -> dict[str, object]:
    """What an undisturbed run ends with."""
    run = data.parent / "undisturbed"
    assert forks.run(*words(data, run)).code == 0
    return outcome(run)


def words(data: Path, run: Path, *more: object) -> list[object]:
    pairs = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["train", data, "-o", run, "--threads", 1, "--quiet", *pairs, *more]


def is_traced(pid: int) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until_paused(job: Job) -> None:
    deadline = time.monotonic() + 60
    while state_of(job.pid) != "T":
        assert time.monotonic() < deadline
        assert state_of(job.pid) != "Z", job.wait().stderr
        time.sleep(0.001)


def is_torn(path: Path) -> bool:
    try:
        load_file(path) if path.suffix == ".safetensors" else json.loads(path.read_bytes())
    except (SafetensorError, ValueError):
        return True
    return False


class Faulty:
    """Saves of one checkpoint, each on a copy of the same run, with a system call that fails."""

    def __init__(self, forks: Forks, data: Path, stopped: Path, strace: str, folder: Path) -> None:
        self.forks, self.data, self.stopped, self.strace = forks, data, stopped, strace
        self.run, self.log = folder / "run", folder / "log"

    def save(self, call: str, fault: str = "", broken: str = "") -> Done:
        """Save with `fault` (as `error=EIO:when=3`) in system call `call`."""
        self.clear()
        shutil.copytree(self.stopped, self.run)
        job = self.forks.start(*words(self.data, self.run, "--resume"), before=broken + PAUSE)
        return self.traced(job, call, fault)

    def begin(self, call: str, fault: str = "") -> Done:
        """A new run up to its first save, with a fault."""
        self.clear()
        return self.traced(self.forks.start(*words(self.data, self.run), before=BEGIN), call, fault)

    def clear(self) -> None:
        shutil.rmtree(self.run, ignore_errors=True)

    def traced(self, job: Job, call: str, fault: str) -> Done:
        """Let a paused job go on under strace."""
        wait_until_paused(job)
        inject = ["-e", f"inject={call}:{fault}"] if fault else []
        command = [self.strace, "-qq", "-p", str(job.pid), "-o", str(self.log), "-e", f"trace={call}", *inject]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            while not is_traced(job.pid) and tracer.poll() is None:
                time.sleep(0.001)
            job.send(signal.SIGCONT)
            done = job.wait()
            assert tracer.stderr is not None
            assert tracer.wait() == 0, tracer.stderr.read()
        return done

    def counts(self) -> Counter[str]:
        """How often an undisturbed save makes each system call."""
        assert self.save(",".join(MUST_REPORT + OTHERS)).code == SAVED
        return self.made()

    def made(self) -> Counter[str]:
        """How often each system call was made."""
        return Counter(re.findall(r"^(\w+)\(", self.log.read_text(), re.MULTILINE))

    def was_hit(self) -> bool:
        return "(INJECTED)" in self.log.read_text()

    def wrong(self, call: str, done: Done) -> list[str]:
        """What of the promise a failed call broke."""
        folder = self.run / "checkpoints"
        found = []
        latest = load_latest(folder)
        step = latest.state["step"] if latest else None
        if done.code not in (5, SAVED):
            found.append(f"exit code {done.code}: {done.stderr}")
        if done.code == SAVED and (step != 3 or call in MUST_REPORT):
            found.append(f"silent success, latest is {step}")
        if step not in (2, 3):
            found.append(f"latest is {step}")
        try:
            load_checkpoint(folder, "step-000000000002")
        except ecoc.ArtifactError as error:
            found.append(f"the previous one is gone: {error}")
        found += [f"left {path.name}" for path in folder.glob("*.partial") if call != "unlink"]
        found += [f"torn {path.name}" for path in folder.iterdir() if path.suffix != ".partial" and is_torn(path)]
        if done.code == 5 and (str(self.run) not in done.stderr or len(done.stderr.splitlines()) != 1):
            found.append(f"says {done.stderr}")
        return found


@pytest.fixture
def faulty(forks: Forks, data: Path, stopped: Path, strace: str, tmp_path: Path) -> Faulty:
    return Faulty(forks, data, stopped, strace, tmp_path)


def test_a_save_whose_any_system_call_fails_is_an_error_and_loses_nothing(faulty: Faulty) -> None:
    counts = faulty.counts()
    print("a save makes", dict(counts))
    assert counts["write"] >= 2
    assert counts["fsync"] >= 4
    assert counts["rename"] == 2
    assert counts.total() > 30
    wrong = {}
    for call, count in counts.items():
        for number in range(1, count + 1):
            done = faulty.save(call, f"error=EIO:when={number}")
            assert faulty.was_hit()
            found = faulty.wrong(call, done)
            if found:
                wrong[f"{call} {number}"] = found
    assert not wrong, "\n".join(f"{place}: {'; '.join(what)}" for place, what in wrong.items())


def test_a_disk_that_fills_up_inside_a_save_is_exit_5_and_tells_the_bytes(faulty: Faulty) -> None:
    wrong = {}
    for number in range(1, faulty.counts()["write"] + 1):
        done = faulty.save("write", f"error=ENOSPC:when={number}")
        found = faulty.wrong("write", done)
        if "No space left on device" not in done.stderr or not re.search(r"[\d,]+ bytes", done.stderr):
            found.append(f"says {done.stderr}")
        if found:
            wrong[number] = found
    assert wrong == {}


def test_killed_at_any_system_call_of_a_save_the_latest_checkpoint_opens(faulty: Faulty) -> None:
    counts = faulty.counts()
    for call in ("write", "fsync", "rename", "unlink"):
        for number in range(1, counts[call] + 1):
            assert faulty.save(call, f"signal=SIGKILL:when={number}").code == -signal.SIGKILL
            latest = load_latest(faulty.run / "checkpoints")
            assert latest is not None
            assert latest.state["step"] in (2, 3)
            load_checkpoint(faulty.run / "checkpoints", "step-000000000002")


def test_killed_at_any_write_before_its_first_checkpoint_a_run_can_be_resumed(
    faulty: Faulty, expected: dict[str, object]
) -> None:
    """A file that was opened and not yet written may be there, such as an empty config.toml."""
    assert faulty.begin("write").code == SAVED
    count = faulty.made()["write"]
    assert count > 4
    failed = {}
    for number in range(1, count + 1):
        assert faulty.begin("write", f"signal=SIGKILL:when={number}").code == -signal.SIGKILL
        done = faulty.forks.run(*words(faulty.data, faulty.run, "--resume"))
        if done.code != 0 or outcome(faulty.run) != expected:
            failed[number] = done.stderr or "ended otherwise"
    assert failed == {}, f"of {count} writes"


@pytest.mark.parametrize("name", BROKEN)
def test_a_careless_writer_would_be_caught(faulty: Faulty, name: str) -> None:
    broken, call = BROKEN[name]
    done = faulty.save(call, "error=EIO:when=2", broken)
    assert faulty.was_hit()
    assert faulty.wrong(call, done) != []
    assert faulty.wrong(call, faulty.save(call, "error=EIO:when=2")) == []


def test_a_file_that_may_not_grow_is_exit_5_and_the_run_can_go_on(
    forks: Forks, data: Path, expected: dict[str, object], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = forks.run(*words(data, run), before=SMALL_FILES)
    check_full(done.code, done.stderr, run)
    assert forks.run(*words(data, run, "--resume")).code == 0
    assert outcome(run) == expected


def check_full(code: int, said: str, run: Path) -> None:
    """A full disk was told well and left the run in order."""
    assert code == 5, said
    assert re.fullmatch(rf"{re.escape(str(run))}/checkpoints/\S+: [\w ]+; at least [\d,]+ bytes are needed: .*\n", said)
    latest = load_latest(run / "checkpoints")
    assert latest is not None
    assert latest.state["step"] >= 1
    assert list(run.rglob("*.partial")) == []
    assert not (run / "result.json").exists()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 8 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if as_root("mount", "-t", "tmpfs", "-o", "size=8m,mode=1777", "tmpfs", disk) != 0:
        pytest.skip("mounting needs root, or sudo without a password; other tests here do without")
    yield disk
    assert as_root("umount", disk) == 0


def as_root(*words: object) -> int:
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    return subprocess.run([*sudo, *map(str, words)], capture_output=True, check=False).returncode


def grow(disk: Path) -> None:
    assert as_root("mount", "-o", "remount,size=64m", disk) == 0


def real(command: Path, arguments: list[object]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(command), *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_full_disk_is_exit_5_and_after_making_room_the_run_ends_as_if_there_had_been(
    ecoc_command: Path, forks: Forks, data: Path, tiny_disk: Path, tmp_path: Path
) -> None:
    large = ["--set", "encoder.dim=256", "--set", "train.keep=100"]  # 3 MB a checkpoint
    undisturbed = forks.run(*words(data, tmp_path / "undisturbed", *large))
    assert undisturbed.code == 0, undisturbed.stderr
    run = tiny_disk / "run"
    done = real(ecoc_command, words(data, run, *large))
    check_full(done.returncode, done.stderr, run)
    assert "No space left on device" in done.stderr
    again = real(ecoc_command, words(data, run, *large, "--resume"))
    check_full(again.returncode, again.stderr, run)
    grow(tiny_disk)
    resumed = real(ecoc_command, words(data, run, *large, "--resume"))
    assert resumed.returncode == 0, resumed.stderr
    assert outcome(run) == outcome(tmp_path / "undisturbed")


def test_a_disk_too_full_to_begin_can_be_begun_on_once_there_is_room(
    forks: Forks, data: Path, tiny_disk: Path, expected: dict[str, object]
) -> None:
    with (tiny_disk / "other").open("wb") as stream:
        stream.write(b"x" * (8 * 2**20 - 4096))
    run = tiny_disk / "run"
    done = forks.run(*words(data, run))
    assert done.code == 5, done.stderr
    assert str(run) in done.stderr
    grow(tiny_disk)
    done = forks.run(*words(data, run))
    assert done.code == 0, done.stderr
    assert outcome(run) == expected
