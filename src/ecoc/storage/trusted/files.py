"""Regular files of limited size, inside their folder."""

import errno
import hashlib
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter
from pathlib import Path

from ecoc.errors import ArtifactError, EcocError, InputError

LARGEST_FILE = 1 << 40
"""Bytes of an array or of a tensor file: far above what fits a machine."""


def open_regular(path: Path, *, largest: int, folder: Path | None = None) -> BufferedReader:
    """Open a regular file of at most `largest` bytes; a link that leads out of `folder` is refused.

    `folder` is the one that holds the file, unless another is given. A FIFO is opened without waiting for its writer,
    and then refused.
    """
    root, real = os.path.realpath(path.parent if folder is None else folder), os.path.realpath(path)
    if not real.startswith(root.rstrip("/") + "/"):
        raise ArtifactError(f"{path}: a link that leads out of its folder; put the file itself there")
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ArtifactError(f"{path}: {_kind(status.st_mode)}, expected a regular file")
        if status.st_size > largest:
            raise ArtifactError(f"{path}: {status.st_size:,} bytes, more than the limit of {largest:,}")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def open_to_append(path: Path) -> BufferedWriter:
    """Open a regular file at its end, and make it if it is not there; what is no regular file is refused, as a link is.

    Other failures stay an OSError: they are about the disk.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # a link, a FIFO or socket, a folder
            raise ArtifactError(f"{path}: expected a regular file; remove it") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArtifactError(f"{path}: expected a regular file; remove it")
    return os.fdopen(descriptor, "ab")


def is_there(path: Path) -> bool:
    """Whether a name is taken, also by a FIFO or a broken link, which `is_file` would take for nothing."""
    try:
        path.lstat()
    except PermissionError as error:
        raise _unreadable(path, error) from None
    except OSError:
        return False
    return True


def own_folder(path: Path) -> Path:
    """The path of a folder inside another, which may be absent. A link is refused: files would be written elsewhere."""
    if path.is_symlink():
        raise ArtifactError(f"{path}: a link; put the folder itself there")
    if is_there(path) and not path.is_dir():
        raise ArtifactError(f"{path}: expected a folder; remove it")
    return path


def _unreadable(path: Path, error: OSError) -> EcocError:
    """What cannot be read is damaged; what may not be read is not."""
    if isinstance(error, PermissionError):
        return InputError(f"{path}: permission denied; make it readable")
    is_missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
    return ArtifactError(f"{path}: {'missing' if is_missing else f'not readable ({error.strerror or error})'}")


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return next((name for is_kind, name in kinds if is_kind(mode)), "a device")


def read_bytes(path: Path, *, largest: int, folder: Path | None = None) -> bytes:
    """The content of a file."""
    with open_regular(path, largest=largest, folder=folder) as stream:
        size = os.fstat(stream.fileno()).st_size
        try:
            content = stream.read(size + 1)
        except OSError as error:
            raise _unreadable(path, error) from None
    if len(content) != size:
        raise ArtifactError(f"{path}: changes while it is read; try again")
    return content


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    with open_regular(path, largest=LARGEST_FILE) as stream:
        try:
            return hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise _unreadable(path, error) from None


@contextmanager
def mapped_file(path: Path, sha256: str | None, largest: int) -> Iterator[mmap.mmap]:
    """The content of a file as a private map, compared with its checksum; failures inside the block are its own."""
    with open_regular(path, largest=largest) as stream:
        if not os.fstat(stream.fileno()).st_size:
            raise ArtifactError(f"{path}: empty")
        content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    compare_digest(path, hashlib.sha256(content).hexdigest(), sha256)
    yield content


def compare_digest(path: Path, digest: str, expected: str | None) -> None:
    """Refuse a file whose SHA-256 is not the expected one, if one is expected."""
    if expected is not None and digest != expected:
        raise ArtifactError(f"{path}: its checksum differs from the recorded one; it was changed or damaged")
