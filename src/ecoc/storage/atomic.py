"""Files and folders that are complete or absent: written aside, flushed, renamed into place; folders under a lock."""

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

from ecoc.errors import InputError, ResourceError

_MOST_BYTES = 1 << 60
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: str) -> int:
    """`4GB`, `512MiB` or a plain number as bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if match is None or match[2] == "i":
        raise InputError(f"{text!r} is not a size; expected e.g. 4GB or 512MB")
    size = float(match[1]) * _UNITS[match[2]]
    if size > _MOST_BYTES:
        raise InputError(f"{text[:40]!r} is too large; expected e.g. 4GB or 512MB")
    return int(size)


@contextmanager
def new_folder(target: Path, *, overwrite: bool, is_ours: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield an empty scratch folder beside `target`; on success it becomes `target`, on any failure it vanishes.

    A target that is not empty is refused, unless `overwrite` and `is_ours(target)`: files that ecoc did not write are
    never removed. A lock excludes a second writer of the same target; it ends with its process.
    """
    target = target.absolute()
    _check_target(target, overwrite=overwrite, is_ours=is_ours)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{target.parent}: {error.strerror}; choose another output folder") from None
    with lock(target):
        _clean_up(target)
        scratch = target.parent / f".{target.name}.partial-{os.getpid()}"
        try:
            scratch.mkdir()
            yield scratch
            _flush(scratch)
            _check_target(target, overwrite=overwrite, is_ours=is_ours)
            _replace(scratch, target)
        except OSError as error:
            raise ResourceError(f"{scratch}: {error.strerror or error}; free space or choose another folder") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _clean_up(target: Path) -> None:
    """Remove what a killed process left; restore the old folder if its replacement never arrived."""
    for old in target.parent.glob(f".{escape(target.name)}.old-*"):
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(target)
    for leftover in target.parent.glob(f".{escape(target.name)}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _check_target(target: Path, *, overwrite: bool, is_ours: Callable[[Path], bool]) -> None:
    if target.is_symlink():  # a folder would take its place, and what it leads to would stay as it was
        raise InputError(f"{target}: a link; give the folder itself as output")
    if not target.exists():
        return
    if not target.is_dir():
        raise InputError(f"{target}: a file is in the way; choose another output folder")
    if not any(target.iterdir()):
        return
    if not overwrite:
        raise InputError(f"{target}: the folder exists and is not empty; choose another or pass --overwrite")
    if not is_ours(target):
        raise InputError(f"{target}: holds files that ecoc did not write; --overwrite will not remove them")


@contextmanager
def lock(target: Path) -> Iterator[None]:
    """Hold the lock file beside `target`; the error of a second writer names the process that holds it."""
    path = target.parent / f".{target.name}.lock"
    try:
        opened = open(path, "a+", opener=_no_link)  # noqa: SIM115 - closed below
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; choose a folder where files can be made") from None
    with opened as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_current = path.exists() and os.fstat(stream.fileno()).st_ino == path.stat().st_ino
        except OSError:
            is_current = False
        if not is_current:  # held by another process, or just given up by one
            stream.seek(0)
            holder = stream.read().strip() or "(unknown)"
            raise InputError(f"{target}: process {holder} is writing it now; wait for it or choose another folder")
        stream.seek(0)
        stream.truncate()
        stream.write(str(os.getpid()))
        stream.flush()
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()


def _no_link(path: str, flags: int) -> int:
    """Open for writing, but no link, which could lead to a file of someone else, and no FIFO, which would wait."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _flush(folder: Path) -> None:
    """Flush every file to disk before the rename that declares the folder complete."""
    for path in [*folder.rglob("*"), folder]:
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(scratch: Path, target: Path) -> None:
    old = None
    if target.exists():
        old = target.parent / f".{target.name}.old-{os.getpid()}"
        target.rename(old)
    scratch.rename(target)
    _sync(target.parent)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def json_bytes(value: Any) -> bytes:
    """JSON as every file holds it: stable order, indented, one trailing newline."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def write_whole(path: Path, pieces: Iterable[bytes | memoryview]) -> str:
    """Write aside, flush, rename; return the SHA-256. On failure the old file stays and no new one appears."""
    with cleaned([path]):
        digest = write_aside(path, pieces)
        put_in_place(path)
    return digest


def partial_path(path: Path) -> Path:
    """Temporary path at which a file is written first; each process has its own."""
    return path.with_name(f"{path.name}.{os.getpid()}.partial")


def remove_abandoned(folder: Path, name: str = "*") -> None:
    """Remove temporary files, of all names or of one pattern, unless the process that writes them is alive."""
    for path in folder.glob(f"{name}.partial"):
        process = path.stem.rpartition(".")[2]
        if not (process.isdecimal() and Path("/proc", process).exists()):
            with suppress(OSError):
                path.unlink(missing_ok=True)


@contextmanager
def cleaned(paths: Iterable[Path]) -> Iterator[None]:
    """Remove the temporary files of `paths` at the end, after success and after failure."""
    try:
        yield
    finally:
        for path in paths:
            with suppress(OSError):
                partial_path(path).unlink(missing_ok=True)


def write_aside(path: Path, pieces: Iterable[bytes | memoryview]) -> str:
    """Write and flush under the temporary name; return the SHA-256."""
    digest, size = hashlib.sha256(), 0
    remove_abandoned(path.parent, f"{escape(path.name)}*")
    try:
        with open(partial_path(path), "wb", opener=_no_link) as stream:
            for piece in pieces:
                size += len(piece)
                digest.update(piece)
                stream.write(piece)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise _no_room(path, error, size) from error
    return digest.hexdigest()


def put_in_place(path: Path) -> None:
    """Rename a flushed file to its final name and flush the folder."""
    try:
        partial_path(path).replace(path)
        _sync(path.parent)
    except OSError as error:
        raise _no_room(path, error, 0) from error


def _no_room(path: Path, error: OSError, size: int) -> ResourceError:
    needed = f"at least {size:,} bytes are needed: " if size else ""
    return ResourceError(f"{path}: {error.strerror or error}; {needed}free space, then repeat it (train: --resume)")
