"""The arrays of a dataset: mapped into memory, after every value has been checked once.

The check is one pass over all bytes: checksum and range of every value. A stamp in the folder says that the files, as
they are now, have passed it, so that a large dataset opens at once. The stamp names size, inode, and times of
modification and of change of each file. No program can set the last of them: a copied or edited file has no stamp.
"""

import hashlib
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ecoc.data.schema import ARRAYS, FILES, GREATEST_REWARD, ITEMS, MANIFEST, SEQUENCES, STAMP, Counts, Manifest
from ecoc.errors import ArtifactError, EcocError
from ecoc.storage.atomic import json_bytes, write_whole
from ecoc.storage.trusted import LARGEST_FILE, load_json, map_table, open_regular

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 1 << 21
"""Values read at a time."""
_CHECKS = 1  # number of the checks that a stamp vouches for; a stricter check gets the next one
_LARGEST_STAMP = 64 << 10
_CLOCK_TICK = 20_000_000  # nanoseconds; two changes within one tick of the kernel's clock have the same time
_MOST_FEEDBACK = 256
_AGAIN = "prepare again"

Arrays = Mapping[str, NDArray[Any]]


def open_arrays(folder: Path, manifest: Manifest, *, verify: bool) -> Arrays:
    """Map the arrays of a dataset; every file is checked, unless a stamp vouches for it and `verify` is off."""
    if set(manifest.files) != FILES:
        raise ArtifactError(f"{folder / MANIFEST}: lists other files than a prepared dataset has; {_AGAIN}")
    if manifest.checksum != manifest.computed_checksum():
        raise ArtifactError(f"{folder / MANIFEST}: changed since it was written; {_AGAIN}")
    _check_counts(folder / MANIFEST, manifest)
    with ExitStack() as stack:
        streams = {name: stack.enter_context(_open(folder, name, manifest.files[name].bytes)) for name in sorted(FILES)}
        arrays = {name: _map_array(streams[f"{name}.npy"], folder, name, manifest.counts) for name in ARRAYS}
        stamp = _stamp_of(manifest, {name: os.fstat(stream.fileno()) for name, stream in streams.items()})
        if verify or not _is_stamped(folder, stamp):
            _check_files(folder, manifest, streams, arrays)
            if stamp != _stamp_of(manifest, {name: os.fstat(stream.fileno()) for name, stream in streams.items()}):
                raise ArtifactError(f"{folder}: changes while it is read; try again")
            with suppress(EcocError, OSError):  # a folder that is read-only is checked at every opening
                _write_stamp(folder, stamp)
    return arrays


def map_arrays(folder: Path, counts: Counts) -> Arrays:
    """Map arrays whose values are known to be right."""
    with ExitStack() as stack:
        paths = {name: folder / f"{name}.npy" for name in ARRAYS}
        files = {name: stack.enter_context(open_regular(path, largest=LARGEST_FILE)) for name, path in paths.items()}
        return {name: _map_array(stream, folder, name, counts) for name, stream in files.items()}


def write_stamp(folder: Path, manifest: Manifest) -> None:
    """Vouch for files that were just written and hashed."""
    _write_stamp(folder, _stamp_of(manifest, {name: (folder / name).stat() for name in FILES}))


def chunks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Copies of the parts of a mapped array; the pages that were read are given back, so they do not add up."""
    for first in range(0, len(array), CHUNK):
        yield np.array(array[first : first + CHUNK])
        if isinstance(array, np.memmap):
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def array_header(name: str, length: int) -> bytes:
    """The `.npy` header of an array of the store."""
    stream = BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": ARRAYS[name], "fortran_order": False, "shape": (length,)})
    return stream.getvalue()


def sequence_ids(folder: Path, manifest: Manifest) -> "pa.Table":
    """`sequences.arrow`: user and name of each sequence."""
    import pyarrow as pa

    columns = {"user": pa.string(), "sequence": pa.string()}
    record, rows = manifest.files[SEQUENCES], manifest.counts.sequences
    try:
        table = map_table(folder / SEQUENCES, columns=columns, rows=rows, largest=record.bytes, sha256=record.sha256)
    except ArtifactError as error:
        raise ArtifactError(f"{error}; {_AGAIN}") from None
    if any(column.null_count for column in table.columns):
        raise ArtifactError(f"{folder / SEQUENCES}: a user or a name is missing; {_AGAIN}")
    return table


def _open(folder: Path, name: str, size: int) -> BufferedReader:
    try:
        stream = open_regular(folder / name, largest=LARGEST_FILE, folder=folder)
    except ArtifactError as error:
        raise ArtifactError(f"{error}; {_AGAIN}") from None
    present = os.fstat(stream.fileno()).st_size
    if present != size:
        stream.close()
        raise ArtifactError(f"{folder / name}: {present} bytes, the manifest says {size}; {_AGAIN}")
    return stream


def _map_array(stream: BufferedReader, folder: Path, name: str, counts: Counts) -> NDArray[Any]:
    """Map an array; its header must equal, byte for byte, the one that its name and the counts require."""
    count, dtype = _length(name, counts), np.dtype(ARRAYS[name])
    header = array_header(name, count)
    if stream.read(len(header)) != header or os.fstat(stream.fileno()).st_size != len(header) + count * dtype.itemsize:
        path = folder / f"{name}.npy"
        raise ArtifactError(f"{path}: expected an array of {count} {dtype}, as the manifest says; {_AGAIN}")
    return np.memmap(stream, dtype, "r", offset=len(header), shape=(count,))


def _length(name: str, counts: Counts) -> int:
    per_sequence = {"offsets": counts.sequences + 1, "train_lengths": counts.sequences}
    return {**per_sequence, "is_validation": counts.sequences}.get(name, counts.interactions)


# --------------------------------------------------------------------------------------------------------------- stamp


def _stamp_of(manifest: Manifest, files: Mapping[str, os.stat_result]) -> dict[str, Any]:
    times = {name: [it.st_size, it.st_mtime_ns, it.st_ctime_ns, it.st_ino] for name, it in sorted(files.items())}
    return {"checks": _CHECKS, "checksum": manifest.checksum, "files": times}


def _is_stamped(folder: Path, stamp: dict[str, Any]) -> bool:
    path = folder / STAMP
    try:
        if load_json(path, largest=_LARGEST_STAMP, remedy="") != stamp:
            return False
        newest: int = max(times[2] for times in stamp["files"].values())
        return newest + _CLOCK_TICK < path.lstat().st_ctime_ns  # a later change would show in the times
    except (EcocError, OSError):
        return False


def _write_stamp(folder: Path, stamp: dict[str, Any]) -> None:
    write_whole(folder / STAMP, [json_bytes(stamp)])


# --------------------------------------------------------------------------------------------------------------- check


def _check_counts(path: Path, manifest: Manifest) -> None:
    counts, feedback = manifest.counts, manifest.feedback
    is_sound = (
        all(value >= 0 for value in counts.model_dump().values())
        and 1 <= counts.users <= counts.sequences <= counts.interactions
        and 1 <= counts.items <= counts.interactions
        and counts.interactions == counts.train + counts.validation + counts.test
        and counts.test_targets <= counts.test
        and 1 <= len(feedback.names) == len(set(feedback.names)) <= _MOST_FEEDBACK
        and (feedback.rewards is None or len(feedback.rewards) == len(feedback.names))
    )
    if not is_sound:
        raise ArtifactError(f"{path}: its counts or feedback contradict one another; {_AGAIN}")


def _check_files(
    folder: Path, manifest: Manifest, streams: Mapping[str, BufferedReader], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Compare every file with its checksum, and every value with what it may be."""
    for name, stream in streams.items():
        problem, digest = _read_through(name.removesuffix(".npy"), stream, manifest)
        if digest != manifest.files[name].sha256:
            raise ArtifactError(f"{folder / name}: its checksum differs from the manifest's; {_AGAIN}")
        if problem:
            raise ArtifactError(f"{folder / name}: {problem}; {_AGAIN}")
    _check_sequences(folder, manifest, arrays)
    _check_order(folder, arrays)
    _check_ids(folder, manifest)


def _read_through(name: str, stream: BufferedReader, manifest: Manifest) -> tuple[str | None, str]:
    """What is wrong with the values of a file, if it is an array, and its SHA-256."""
    digest, problem = hashlib.sha256(), None
    is_array = name in ARRAYS
    dtype = np.dtype(ARRAYS[name] if is_array else "|u1")
    stream.seek(0)
    if is_array:
        digest.update(stream.read(len(array_header(name, _length(name, manifest.counts)))))
    while content := stream.read(CHUNK * dtype.itemsize):
        digest.update(content)
        if is_array and problem is None:
            problem = _problem(name, np.frombuffer(content, dtype), manifest)
    return problem, digest.hexdigest()


def _problem(name: str, values: NDArray[Any], manifest: Manifest) -> str | None:
    """What is wrong with some values of an array, each seen by itself."""
    if name == "items":
        return _outside(values, 1, manifest.counts.items)
    if name == "feedback":
        return _outside(values, 0, len(manifest.feedback.names) - 1)
    if name == "rewards" and not np.abs(values).max() <= GREATEST_REWARD:  # also not if one is no number
        return f"a reward is not a number from -{GREATEST_REWARD:g} to {GREATEST_REWARD:g}"
    if name == "is_validation":
        return _outside(values.view(np.uint8), 0, 1)
    return None


def _outside(values: NDArray[Any], least: int, most: int) -> str | None:
    low, high = int(values.min()), int(values.max())
    return None if least <= low and high <= most else f"values from {low} to {high}, expected {least} to {most}"


def _check_sequences(folder: Path, manifest: Manifest, arrays: Arrays) -> None:
    """Sequences follow one another without a gap, and their parts are as long as the manifest counts them."""
    offsets, counts, last = arrays["offsets"], manifest.counts, 0
    train = validation = train_sequences = validation_sequences = test_sequences = 0
    for first in range(0, counts.sequences, CHUNK):
        part = slice(first, first + CHUNK)
        bounds, known = offsets[first : first + CHUNK + 1], arrays["train_lengths"][part]
        held_out = arrays["is_validation"][part]
        if bounds[0] != last or bool((bounds[1:] <= bounds[:-1]).any()) or bounds[-1] > counts.interactions:
            raise ArtifactError(f"{folder / 'offsets.npy'}: sequences overlap or leave the data; {_AGAIN}")
        last, lengths = int(bounds[-1]), np.diff(bounds)
        if bool(((known < 0) | (known > lengths)).any()):
            raise ArtifactError(f"{folder / 'train_lengths.npy'}: a part is longer than its sequence; {_AGAIN}")
        learnt = ~held_out & (known > 0)
        train += int(known[learnt].sum())
        validation += int(known[held_out].sum())
        train_sequences += int(learnt.sum())
        validation_sequences += int(held_out.sum())
        test_sequences += int((lengths > known).sum())
    if last != counts.interactions:
        raise ArtifactError(f"{folder / 'offsets.npy'}: ends at {last}, expected {counts.interactions}; {_AGAIN}")
    counted = (train, validation, train_sequences, validation_sequences, test_sequences)
    if counted != (
        *(counts.train, counts.validation, counts.train_sequences, counts.validation_sequences),
        counts.test_sequences,
    ):
        raise ArtifactError(f"{folder / 'train_lengths.npy'}: the manifest counts other parts; {_AGAIN}")


def _check_order(folder: Path, arrays: Arrays) -> None:
    """Times do not decrease within a sequence."""
    offsets, before, first = arrays["offsets"], None, 0
    for times in chunks(arrays["times"]):
        fallen = np.flatnonzero(times[1:] < times[:-1]) + first + 1
        if before is not None and times[0] < before:
            fallen = np.append(fallen, first)
        if bool((offsets[np.searchsorted(offsets, fallen)] != fallen).any()):
            raise ArtifactError(f"{folder / 'times.npy'}: times decrease within a sequence; {_AGAIN}")
        before, first = times[-1], first + len(times)


def _check_ids(folder: Path, manifest: Manifest) -> None:
    """Items and users are listed as often as the manifest counts them, each once."""
    import pyarrow.compute as pc

    from ecoc.data.vocab import ItemVocab

    counts, record = manifest.counts, manifest.files[ITEMS]
    vocab = ItemVocab.open(folder / ITEMS, items=counts.items, sha256=record.sha256)
    if vocab.events != counts.train:
        raise ArtifactError(f"{folder / ITEMS}: items have other counts; {_AGAIN}")
    users = sequence_ids(folder, manifest).column("user").combine_chunks()
    before, after = users.slice(0, len(users) - 1), users.slice(1)
    is_sorted = pc.all(pc.less_equal(before, after)).as_py() is not False
    if not is_sorted or 1 + (pc.sum(pc.not_equal(before, after)).as_py() or 0) != counts.users:
        raise ArtifactError(f"{folder / SEQUENCES}: users are not sorted, or not {counts.users}; {_AGAIN}")
