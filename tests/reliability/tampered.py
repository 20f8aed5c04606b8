"""A dataset, a run and a bundle to tamper with, and what every command must do with the result.

Who tampers makes the checksums fit again wherever a file holds them: a checksum protects from damage, not from intent.
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from forked import Done, Forks

import ecoc
from ecoc.storage.atomic import json_bytes

REFUSED = (2, 3)
WRITING = ("resume", "again")
SECONDS = 20.0
SPARE_MEMORY = 300 << 20
MODULES = (
    *("pandas", "_strptime", "secrets", "uvloop", "ecoc.encoders.sasrec", "ecoc.encoders.dhcn", "ecoc.data.describe"),
    *("ecoc.evaluation.compare", "ecoc.reporting.write", "ecoc.reporting.plot", "ecoc.reporting.bundle"),
    *("ecoc.serving.export", "ecoc.serving.run", "ecoc.serving.supervisor"),
)
"""What the commands import: loaded once, before the forks; a child without the rights of root may not load them."""
RAW_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

Tamper = Callable[[Path], object]
Json = dict[str, Any]

# Executed in the child before the command: notes in a file what a command has no business to do.
WATCH = """
import os, sys
log, own, secret = {log!r}, {own!r} + "/", {secret!r} + "/"
log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
STARTS = ("os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.system", "subprocess.Popen")
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def is_outside(path):
    if not isinstance(path, (str, bytes)):
        return False
    return not (os.path.abspath(os.fsdecode(path)) + "/").startswith((own, "/dev/null/"))

def watch(event, values):
    alarm = event in (*STARTS, "socket.connect", "pickle.find_class")
    alarm = alarm or (event in CHANGES and any(map(is_outside, values)))
    if event == "open" and isinstance(values[0], (str, bytes)):
        alarm = alarm or (values[2] & WRITES and is_outside(values[0]))
        is_refused = values[2] & os.O_NOFOLLOW and os.path.islink(values[0])
        alarm = alarm or (not is_refused and os.path.realpath(os.fsdecode(values[0])).startswith(secret))
    if alarm:
        os.write(log, (event + " " + ascii(values)[:300] + chr(10)).encode())

sys.addaudithook(watch)
"""


@dataclass(frozen=True)
class Originals:
    """Sound folders, which tests copy."""

    data: Path
    run: Path
    bundle: Path


@cache
def originals(base: Path) -> Originals:
    """A dataset, a run with critic, counts, checkpoints and an evaluation, and its bundle; made once in a folder."""
    folder = base / "tampered"
    data = ecoc.prepare("world:small", folder / "data", events=2000, threads=1)
    settings: Json = {
        "encoder": {"dim": 8, "length": 10},
        "train": {"max_steps": 9, "validate_every": 3, "validation_cases": 50, "counts": 0.5, "threads": 1},
    }
    run = ecoc.train(data, folder / "run", method="ecoc", config=settings)
    ecoc.evaluate(run.path, max_cases=50, untrained=False)
    ecoc.export(run.path, folder / "bundle")
    return Originals(folder / "data", folder / "run", folder / "bundle")


def words_of(command: str, folder: Path, originals: Originals) -> list[object]:
    """A command as the shell would get it; what it may write goes beside the folder."""
    beside = folder.parent
    sets = [
        word for setting in ("encoder.dim=8", "encoder.length=10", "train.max_steps=2") for word in ("--set", setting)
    ]
    words: dict[str, list[object]] = {
        "info": ["info", folder],
        "verify": ["info", folder, "--verify"],
        "train": ["train", folder, "-o", beside / "out", "--threads", 1, *sets],
        "resume": ["train", originals.data, "-o", folder, "--resume"],
        "again": ["train", originals.data, "-o", folder, "--threads", 1, *sets],
        "recommend": ["recommend", folder, "--history", "i0082,i0169", "-k", 3],
        "user": ["recommend", originals.run, "--user", "u0000000", "--data", folder],
        "evaluate": ["evaluate", folder, "--max-cases", 50, "--no-untrained"],
        "compare": ["compare", folder, originals.run, "--max-cases", 50, "--no-untrained", "--json"],
        "report": ["report", folder, "-o", beside / "page"],
        "export": ["export", folder, "-o", beside / "out"],
        "serve": ["serve", folder, "--port", 0],
    }
    return [*words[command], "--quiet"]


@dataclass
class Attempts:
    """Commands in forked children, watched."""

    forks: Forks
    originals: Originals
    _peaks: dict[tuple[str, str], int] = field(default_factory=dict)

    def folder(self, kind: str, place: Path) -> Path:
        """A copy to tamper with, and beside it, outside of all that a command may touch, a sound one."""
        source: Path = getattr(self.originals, kind)
        shutil.copytree(source, place / "outside" / kind)
        return Path(shutil.copytree(source, place / "own" / kind))

    def run(self, command: str, folder: Path, *, before: str = "", seconds: float = SECONDS) -> tuple[Done, list[str]]:
        """What a command does with a folder, and what it did beyond that."""
        own, log = folder.parent, folder.parent.parent / "alarms"
        watch = WATCH.format(log=str(log), own=str(own), secret=str(own.parent / "outside"))
        job = self.forks.start(*words_of(command, folder, self.originals), before=before + watch)
        done = job.wait(seconds)
        alarms = log.read_text().splitlines()
        log.unlink()
        return done, alarms

    def problems(
        self, command: str, folder: Path, says: str, *, before: str = "", seconds: float = SECONDS
    ) -> list[str]:
        """What is wrong with the way in which a command refuses a folder; nothing if all is well."""
        size, tree = size_of(folder), self._names(command, folder)
        done, alarms = self.run(command, folder, before=before, seconds=seconds)
        limit = self._plain_peak(command, folder) + 2 * size + SPARE_MEMORY
        lines = done.stderr.removesuffix("\n").split("\n")
        checks = {
            f"exit code {done.code}": done.code in REFUSED,
            f"standard error is {lines!r:.1000}": len(lines) == 1 and re.search(says, lines[0]) is not None,
            "an internal error": "internal error" not in done.stderr and "Traceback" not in done.stderr,
            "a raw control character": not RAW_CONTROL.search(done.stdout + done.stderr),
            "standard output": done.stdout == "",
            f"peak of {done.peak >> 20} MB, expected at most {limit >> 20} MB": done.peak <= limit,
            f"alarms {alarms}": not alarms,
            f"new files {sorted(self._names(command, folder) - tree)}": self._names(command, folder) == tree,
        }
        return [f"{command}: {problem}" for problem, is_well in checks.items() if not is_well]

    def _names(self, command: str, folder: Path) -> set[str]:
        """What lies in and beside a folder; training into it may leave something there."""
        names = names_in(folder.parent)
        return names - {name for name in names if name.startswith(f"{folder.name}/") and command in WRITING}

    def _plain_peak(self, command: str, folder: Path) -> int:
        """Most memory of the same command on the sound folder."""
        key = (command, folder.name)
        if key not in self._peaks:
            place = self.originals.data.parent / "sound" / "-".join(key)
            shutil.rmtree(place, ignore_errors=True)
            if command == "serve":  # it would serve: loading is what counts
                command = "recommend"
            sound = self.folder(folder.name, place)
            if command == "resume":
                (sound / "result.json").unlink()
            if command == "again":
                shutil.rmtree(sound)
            self._peaks[key] = self.run(command, sound, seconds=60)[0].peak
        return self._peaks[key]


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder; links and devices have none."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# ------------------------------------------------------------------------------------------------ ways to put a file


def put(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def endless(path: Path) -> None:
    """A link to a device that never ends."""
    path.unlink()
    path.symlink_to("/dev/zero")


def device(path: Path) -> None:
    """An endless device itself, where root may make one."""
    path.unlink()
    try:
        os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        path.symlink_to("/dev/zero")


def link_out(path: Path) -> None:
    """A link to the same file of a sound folder elsewhere: nothing but the place is wrong."""
    own = next(parent for parent in path.parents if parent.name == "own")
    path.unlink()
    path.symlink_to(own.parent / "outside" / path.relative_to(own))


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def file_instead(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


def edit(path: Path, change: Callable[[Json], object]) -> None:
    content = json.loads(path.read_bytes())
    change(content)
    path.write_bytes(json_bytes(content))


def put_number(path: Path, keys: tuple[str, ...], number: str) -> None:
    """Write a number as text, also one that JSON does not have."""
    content = json.loads(path.read_bytes())
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = "NUMBER"
    path.write_text(json.dumps(content).replace('"NUMBER"', number))


EMPTY_OBJECTS = b'{"a":[' + b"{}," * 20_000_000 + b"{}]}"
"""60 MB of JSON that would take gigabytes."""
DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
DIGITS = "1" * 5000
"""A number that Python itself refuses to read."""


class Pickled:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


# ----------------------------------------------------------------------------------------------------------- datasets


def resign(folder: Path, change: Callable[[Json], object] = lambda manifest: None) -> None:
    """Change the manifest of a dataset, and make all its sizes and checksums fit."""
    path = folder / "manifest.json"
    content = json.loads(path.read_bytes())
    for name in content["files"]:
        file = folder / name
        if file.is_file():
            content["files"][name] = {"bytes": file.stat().st_size, "sha256": sha256(file.read_bytes()).hexdigest()}
    change(content)
    content.pop("checksum")
    content["checksum"] = sha256(json_bytes(content)).hexdigest()
    path.write_bytes(json_bytes(content))


def array(folder: Path, name: str, change: Callable[[np.ndarray], object]) -> None:
    """Change values of an array of a dataset."""
    path = folder / f"{name}.npy"
    values = np.load(path)
    change(values)
    np.save(path, values)
    resign(folder)


def items_table(folder: Path, change: Callable[[pa.Table], pa.Table], **options: Any) -> None:
    """Write another items.parquet; the caller makes the checksums fit."""
    path = folder / "items.parquet"
    pq.write_table(change(pq.read_table(path)), path, **options)


def with_column(name: str, values: Callable[[pa.Table], Any]) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(table.column_names.index(name), name, values(table))


def repeated_titles(table: pa.Table, length: int) -> pa.Table:
    """The same title for all items: a dictionary holds it once, so the file stays small."""
    titles = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int32), ["t" * length])
    return with_column("title", lambda it: titles)(table)


# ---------------------------------------------------------------------------------------------------- tensor files


def tensor_file(header: bytes, content: bytes = b"") -> bytes:
    return len(header).to_bytes(8, "little") + header + content


def read_tensors(path: Path) -> tuple[Json, bytes]:
    """Header and data of a tensor file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def change_tensors(path: Path, change: Callable[[Json, bytearray], object]) -> None:
    """Change header and data of a tensor file by hand, as no library would write it."""
    header, data = read_tensors(path)
    content = bytearray(data)
    change(header, content)
    put(path, tensor_file(json.dumps(header).encode(), bytes(content)))


def first_of(header: Json) -> Json:
    """The entry of the tensor that comes first in the file."""
    entries: list[Json] = [entry for name, entry in header.items() if name != "__metadata__"]
    return min(entries, key=lambda entry: int(entry["data_offsets"][0]))


def set_floats(name: str, number: float) -> Callable[[Json, bytearray], None]:
    """Overwrite the last value of a tensor of float32."""

    def change(header: Json, data: bytearray) -> None:
        end = header[name]["data_offsets"][1]
        data[end - 4 : end] = np.float32(number).tobytes()

    return change


def move_end(by: int) -> Callable[[Json, bytearray], None]:
    """Move the end of the first tensor, which then overlaps the next or leaves a gap."""

    def change(header: Json, data: bytearray) -> None:
        first_of(header)["data_offsets"][1] += by

    return change


MANY_TENSORS = tensor_file(
    b"{" + b",".join(b'"%x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % k for k in range(1_000_000)) + b"}"
)
"""A header of a million tensors that hold nothing."""


def sha(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
