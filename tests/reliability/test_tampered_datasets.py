"""A tampered dataset is refused in one line, by every command that opens it, before memory is spent on it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tampered import (
    DEEP,
    DIGITS,
    EMPTY_OBJECTS,
    Attempts,
    Json,
    Pickled,
    Tamper,
    array,
    device,
    edit,
    endless,
    fifo,
    folder_instead,
    items_table,
    link_out,
    put,
    put_number,
    repeated_titles,
    resign,
    with_column,
)


@pytest.fixture
def data(attempts: Attempts, tmp_path: Path) -> Path:
    """A copy to tamper with."""
    return attempts.folder("data", tmp_path)


def values(name: str, place: int, value: float) -> Tamper:
    """Set one value of an array."""
    return lambda data: array(data, name, lambda it: it.__setitem__(place, value))


def counts(**changes: int) -> Tamper:
    return lambda data: resign(data, lambda it: it["counts"].update(changes))


def manifest_number(*keys: str, number: str) -> Tamper:
    return lambda data: put_number(data / "manifest.json", keys, number)


def feedback(**changes: Any) -> Tamper:
    return lambda data: resign(data, lambda it: it["feedback"].update(changes))


def items(change: Any, **options: Any) -> Tamper:
    """Another items.parquet, with its checksum in the manifest."""

    def tamper(data: Path) -> None:
        items_table(data, change, **options)
        resign(data)

    return tamper


def sequences(change: Any, **options: Any) -> Tamper:
    """Another sequences.arrow, with its checksum in the manifest."""

    def tamper(data: Path) -> None:
        path = data / "sequences.arrow"
        with pa.memory_map(str(path)) as source:
            table = change(pa.ipc.open_file(source).read_all())
        path.unlink()
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema, **options) as writer:
            writer.write_table(table)
        resign(data)

    return tamper


def replaced(name: str, content: bytes) -> Tamper:
    def tamper(data: Path) -> None:
        put(data / name, content)
        resign(data)

    return tamper


def whole_array(change: Callable[[np.ndarray], np.ndarray]) -> Tamper:
    """Another array of items."""

    def tamper(data: Path) -> None:
        np.save(data / "items.npy", change(np.load(data / "items.npy")))
        resign(data)

    return tamper


def ends_early(data: Path) -> None:
    """The last sequence is shorter by one event, which then belongs to none."""
    for name in ("offsets", "train_lengths"):
        array(data, name, lambda it: it.__setitem__(-1, it[-1] - 1))


def flipped_bit(data: Path) -> None:
    content = bytearray((data / "items.npy").read_bytes())
    content[len(content) // 2] ^= 1
    put(data / "items.npy", bytes(content))


def pickled_array(data: Path) -> None:
    """An array of objects, which numpy would unpickle: the pickle makes a folder beside the dataset."""
    np.save(data / "items.npy", np.array([Pickled(data.parent / "run by a pickle")], object), allow_pickle=True)
    resign(data)


def million_items(data: Path) -> None:
    """Counts that agree with one another, and arrays of other lengths."""
    more: Json = {
        "items": 10**9,
        "interactions": 10**10,
        "train": 10**10,
        "validation": 0,
        "test": 0,
        "test_targets": 0,
    }
    resign(data, lambda it: it["counts"].update(more))


def compressed_rows(data: Path) -> None:
    """Users as long as a book, which zstd makes small."""
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    sequences(lambda it: it.set_column(0, "user", pa.array(["u" * 2_000_000] * len(it))), options=options)(data)


def growing_titles(table: pa.Table) -> pa.Table:
    """Titles that share their beginnings: an encoding of differences stores each in a few bytes."""
    return with_column("title", lambda it: pa.array(["t" * (100_000 - k) for k in range(len(it))]))(table)


DIFFERENCES: Json = {"use_dictionary": False, "column_encoding": {"title": "DELTA_BYTE_ARRAY"}}

FEW_EMPTY_OBJECTS = b'{"a":[' + b"{}," * 2_500_000 + b"{}]}"

OPENING = ("info", "train")
# What was done, the commands that must refuse it, and what the line says.
TAMPERED: dict[str, tuple[Tamper, tuple[str, ...], str]] = {
    "a flipped bit in items": (flipped_bit, (*OPENING, "verify", "user"), r"items\.npy: its checksum differs"),
    "item 10^9": (values("items", 7, 10**9), (*OPENING, "user"), r"items\.npy: values from 1 to 1000000000"),
    "item -3": (values("items", 7, -3), OPENING, r"items\.npy: values from -3"),
    "item 0": (values("items", 7, 0), OPENING, r"items\.npy: values from 0"),
    "offsets fall": (values("offsets", 3, 1), OPENING, r"offsets\.npy: sequences overlap"),
    "offsets repeat": (lambda data: array(data, "offsets", lambda it: it.__setitem__(3, it[2])), OPENING, "overlap"),
    "offsets begin below 0": (values("offsets", 0, -5), OPENING, r"offsets\.npy: sequences overlap"),
    "offsets begin late": (values("offsets", 0, 1), OPENING, r"offsets\.npy: sequences overlap"),
    "offsets pass the end": (values("offsets", -1, 10**9), OPENING, r"offsets\.npy: sequences overlap or leave"),
    "offsets of 2^63": (values("offsets", 5, 2**63 - 1), OPENING, r"offsets\.npy: sequences overlap"),
    "offsets end early": (
        ends_early,
        OPENING,
        r"offsets\.npy: ends at",
    ),
    "feedback 200": (values("feedback", 4, 200), (*OPENING, "user"), r"feedback\.npy: values from 0 to 200"),
    "a reward that is no number": (values("rewards", 4, np.nan), OPENING, r"rewards\.npy: a reward is not a number"),
    "an infinite reward": (values("rewards", 4, -np.inf), OPENING, r"rewards\.npy: a reward is not a number"),
    "a time that falls": (values("times", 1, -(2**62)), OPENING, r"times\.npy: times decrease"),
    "validation neither true nor false": (
        lambda data: array(data, "is_validation", lambda it: it.view(np.uint8).__setitem__(0, 7)),
        OPENING,
        r"is_validation\.npy: values from 0 to 7",
    ),
    "a training part longer than its sequence": (values("train_lengths", 0, 10**9), OPENING, "a part is longer"),
    "a training part of -1": (values("train_lengths", 0, -1), OPENING, r"train_lengths\.npy: a part is longer"),
    "a shorter training part": (
        lambda data: array(data, "train_lengths", lambda it: it.__setitem__(it.argmax(), it.max() - 1)),
        OPENING,
        r"train_lengths\.npy: the manifest counts other parts",
    ),
    "more sequences for validation": (
        lambda data: array(data, "is_validation", lambda it: it.fill(True)),
        OPENING,
        r"the manifest counts other parts",
    ),
    "an array of another type": (
        whole_array(lambda it: it.astype(np.int64)),
        OPENING,
        r"items\.npy: expected an array of \d+ int32",
    ),
    "an array in another order": (
        whole_array(lambda it: np.asfortranarray(it[:, None])),
        OPENING,
        r"items\.npy: expected an array",
    ),
    "a pickled array": (pickled_array, OPENING, r"items\.npy: expected an array"),
    "an array that is a folder": (lambda data: folder_instead(data / "items.npy"), OPENING, "a folder"),
    "an array that is a FIFO": (lambda data: fifo(data / "items.npy"), OPENING, r"items\.npy: a FIFO"),
    "an array that is a device": (
        lambda data: device(data / "rewards.npy"),
        OPENING,
        r"rewards\.npy: a device|out of its",
    ),
    "an array that never ends": (
        lambda data: endless(data / "items.npy"),
        OPENING,
        r"items\.npy: a link that leads out",
    ),
    "an array elsewhere": (lambda data: link_out(data / "items.npy"), OPENING, r"items\.npy: a link that leads out"),
    "items elsewhere": (lambda data: link_out(data / "items.parquet"), OPENING, r"items\.parquet: a link that leads"),
    "sequences in a FIFO": (lambda data: fifo(data / "sequences.arrow"), OPENING, r"sequences\.arrow: a FIFO"),
    "fewer items": (items(lambda it: it.slice(0, len(it) - 1)), OPENING, r"items\.parquet: not a table of"),
    "more items": (items(lambda it: pa.concat_tables([it, it])), OPENING, r"items\.parquet: .* rows, expected at most"),
    "10^9 items": (counts(items=10**9), OPENING, "contradict one another"),
    "10^9 items and 10^10 events": (million_items, OPENING, "expected an array of 10000000000"),
    "-1 items": (counts(items=-1), OPENING, "contradict one another"),
    "infinitely many items": (
        manifest_number("counts", "items", number="Infinity"),
        OPENING,
        "Infinity is not a number",
    ),
    "no number of items": (manifest_number("counts", "items", number="NaN"), OPENING, "NaN is not a number"),
    "1e999 items": (manifest_number("counts", "items", number="1e999"), OPENING, "not finite"),
    "items of 5,000 digits": (manifest_number("counts", "items", number=DIGITS), OPENING, "more than 20 digits"),
    "half an item": (manifest_number("counts", "items", number="1.5"), OPENING, r"counts\.items"),
    "2^63 sequences": (manifest_number("counts", "sequences", number=str(2**63)), OPENING, r"manifest\.json"),
    "an id that is null": (
        items(with_column("item", lambda it: pa.array([None, *it["item"].to_pylist()[1:]], pa.string()))),
        OPENING,
        r"items\.parquet: not a table of",
    ),
    "ids that are structures": (
        items(with_column("item", lambda it: pa.array([{"a": "b"}] * len(it)))),
        OPENING,
        r"items\.parquet: .*its columns are not",
    ),
    "ids that are numbers": (items(with_column("item", lambda it: it["index"])), OPENING, "its columns are not"),
    "ids that appear twice": (
        items(with_column("item", lambda it: pa.array(["same"] * len(it)))),
        OPENING,
        r"items\.parquet: an id appears twice",
    ),
    "ids that are not UTF-8": (
        items(with_column("item", lambda it: pa.array([b"\xff\xfe%d" % k for k in range(len(it))]).view(pa.string()))),
        OPENING,
        r"items\.parquet: not a readable table",
    ),
    "counts below 0": (
        items(with_column("train_count", lambda it: pc.negate(it["train_count"]))),
        OPENING,
        r"items\.parquet: not a table",
    ),
    "indices in another order": (
        items(with_column("index", lambda it: pa.array(it["index"].to_pylist()[::-1], pa.int32()))),
        OPENING,
        r"items\.parquet: not a table",
    ),
    "a title repeated to gigabytes": (
        items(lambda it: repeated_titles(it, 20_000_000), store_schema=False),
        OPENING,
        r"items\.parquet: .*far more memory",
    ),
    "titles of gigabytes by zstd": (
        items(lambda it: repeated_titles(it, 5_000_000), compression="zstd", store_schema=False),
        OPENING,
        r"items\.parquet: .*compressed with ZSTD",
    ),
    "titles of gigabytes by gzip": (
        items(lambda it: repeated_titles(it, 1_000_000), compression="gzip", store_schema=False),
        OPENING,
        r"items\.parquet: .*compressed with GZIP",
    ),
    "titles stored as differences": (
        items(growing_titles, **DIFFERENCES),
        OPENING,
        r"items\.parquet: .*encoded with",
    ),
    "users of gigabytes by zstd": (compressed_rows, (*OPENING, "user"), r"sequences\.arrow: .*other than plain rows"),
    "a user that is null": (
        sequences(lambda it: it.set_column(0, "user", pa.array([None, *it["user"].to_pylist()[1:]], pa.string()))),
        OPENING,
        r"sequences\.arrow: a user or a name is missing",
    ),
    "users in another order": (
        sequences(lambda it: it.take(list(range(len(it)))[::-1])),
        OPENING,
        "users are not sorted",
    ),
    "fewer users": (sequences(lambda it: it.slice(1)), OPENING, r"sequences\.arrow: .*rows or more, expected"),
    "users that are numbers": (
        sequences(lambda it: it.set_column(0, "user", pa.array(range(len(it))))),
        OPENING,
        "its columns are not",
    ),
    "300 kinds of feedback": (feedback(names=[f"f{k}" for k in range(300)], rewards=None), OPENING, "contradict"),
    "a kind of feedback twice": (
        lambda data: resign(data, lambda it: it["feedback"].update(names=[it["feedback"]["names"][0]] * 2)),
        OPENING,
        "contradict",
    ),
    "rewards of other feedback": (feedback(rewards=[1.0] * 77), OPENING, "contradict"),
    "files outside": (
        lambda data: resign(
            data, lambda it: it["files"].update({"../../etc/passwd": {"bytes": 1, "sha256": "0" * 64}})
        ),
        OPENING,
        "lists other files",
    ),
    "a foreign version": (
        lambda data: edit(data / "manifest.json", lambda it: it.update(version=2)),
        OPENING,
        "version 2",
    ),
    "a manifest changed by hand": (
        lambda data: edit(data / "manifest.json", lambda it: it.update(rows_in=1)),
        OPENING,
        "changed since it was written",
    ),
    "a manifest in a FIFO": (lambda data: fifo(data / "manifest.json"), OPENING, r"manifest\.json: a FIFO"),
    "a manifest that never ends": (lambda data: endless(data / "manifest.json"), OPENING, "leads out of its folder"),
    "a manifest that is a device": (lambda data: device(data / "manifest.json"), OPENING, "a device|out of its folder"),
    "a manifest elsewhere": (lambda data: link_out(data / "manifest.json"), OPENING, "leads out of its folder"),
    "60 MB of {}": (lambda data: put(data / "manifest.json", EMPTY_OBJECTS), OPENING, "more than the limit"),
    "7 MB of {}": (lambda data: put(data / "manifest.json", FEW_EMPTY_OBJECTS), OPENING, "more than 1,000,000 values"),
    "a deep manifest": (lambda data: put(data / "manifest.json", DEEP), OPENING, "more than 64 levels"),
    "a manifest of ff fe": (lambda data: put(data / "manifest.json", b"\xff\xfe"), OPENING, "not UTF-8"),
    "a provenance in a FIFO": (lambda data: fifo(data / "provenance.json"), ("info",), r"provenance\.json: a FIFO"),
    "a provenance that never ends": (lambda data: endless(data / "provenance.json"), ("info",), "leads out of"),
    "a provenance elsewhere": (lambda data: link_out(data / "provenance.json"), ("info",), "leads out of its folder"),
    "a provenance of numbers": (
        lambda data: put(data / "provenance.json", b'{"warnings": [1], "bad_rows": 7}'),
        ("info",),
        "not the provenance",
    ),
    "a provenance of 60 MB": (
        lambda data: put(data / "provenance.json", EMPTY_OBJECTS),
        ("info",),
        "more than the limit",
    ),
}


def test_the_sound_dataset_passes_every_command(attempts: Attempts, data: Path) -> None:
    """So that what the tests below see comes from the tampering."""
    for command in ("info", "verify", "train", "user"):
        done, alarms = attempts.run(command, data, seconds=60)
        assert (done.code, done.stderr, alarms) == (0, "", []), command


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_dataset_is_refused(attempts: Attempts, data: Path, name: str) -> None:
    tamper, commands, says = TAMPERED[name]
    tamper(data)
    assert [problem for command in commands for problem in attempts.problems(command, data, says)] == []
