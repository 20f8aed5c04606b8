"""A bundle made by someone else runs nothing and is not believed."""

import io
import json
import pickle
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tampered import (
    DEEP,
    DIGITS,
    EMPTY_OBJECTS,
    MANY_TENSORS,
    Attempts,
    Json,
    Pickled,
    Tamper,
    change_tensors,
    device,
    edit,
    endless,
    fifo,
    first_of,
    items_table,
    link_out,
    move_end,
    put,
    put_number,
    repeated_titles,
    set_floats,
    sha,
    tensor_file,
    with_column,
)

RECORD, POLICY, CRITIC, MATRIX = "bundle.json", "policy.safetensors", "critic.safetensors", "matrix.safetensors"
COUNTS = "counts.safetensors"
NOT_A_BUNDLE = r"bundle\.json: not the description of a bundle"


@pytest.fixture
def bundle(attempts: Attempts, tmp_path: Path) -> Path:
    """A copy to attack with."""
    return attempts.folder("bundle", tmp_path)


def resign(bundle: Path) -> None:
    """Make sizes and checksums fit."""
    content = json.loads((bundle / RECORD).read_bytes())
    for name in content["files"]:
        content["files"][name] = {"bytes": (bundle / name).stat().st_size, "sha256": sha(bundle / name)}
    put(bundle / RECORD, json.dumps(content).encode())


def record(change: Callable[[Json], object]) -> Tamper:
    return lambda bundle: edit(bundle / RECORD, change)


def number(*keys: str, text: str) -> Tamper:
    return lambda bundle: put_number(bundle / RECORD, keys, text)


def whole_file(name: str, content: bytes | Callable[[Path], bytes]) -> Tamper:
    def tamper(bundle: Path) -> None:
        put(bundle / name, content if isinstance(content, bytes) else content(bundle))
        resign(bundle)

    return tamper


def tensors(name: str, change: Callable[[Json, bytearray], object]) -> Tamper:
    def tamper(bundle: Path) -> None:
        change_tensors(bundle / name, change)
        resign(bundle)

    return tamper


def items(change: Any, **options: Any) -> Tamper:
    def tamper(bundle: Path) -> None:
        items_table(bundle, change, **options)
        resign(bundle)

    return tamper


def listed(name: str) -> Tamper:
    """A further file in the list."""
    return record(lambda it: it["files"].update({name: {"bytes": 1, "sha256": "0" * 64}}))


def duplicate_key(bundle: Path) -> None:
    """One key twice: another reader of the file may believe the first of them."""
    text = (bundle / RECORD).read_text()
    put(bundle / RECORD, text.replace('"dims"', '"dims": {"items": 7}, "dims"', 1).encode())


def zip_of(bundle: Path) -> bytes:
    """A file that is a tensor file from its beginning and an archive from its end, as PyTorch's own format is one."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr("archive/data.pkl", pickle.dumps(Pickled(bundle.parent / "run by a pickle")))
    return (bundle / POLICY).read_bytes() + archive.getvalue()


def foreign_library(bundle: Path) -> None:
    """Code beside the weights, under a name that the settings ask for."""
    (bundle / "evil.py").write_text(f"import os\nos.mkdir({str(bundle.parent / 'run by an import')!r})\n")
    edit(bundle / RECORD, lambda it: it["config"]["encoder"].update(name="evil"))


def last_index(name: str, value: int, dtype: Any) -> Callable[[Json, bytearray], object]:
    def change(header: Json, data: bytearray) -> None:
        end = header[name]["data_offsets"][1]
        data[end - np.dtype(dtype).itemsize : end] = dtype(value).tobytes()

    return change


def other_shape(header: Json, data: bytearray) -> None:
    entry = header["unit"]
    entry["shape"] = entry["shape"][::-1]


def with_gap(header: Json, data: bytearray) -> None:
    """Eight bytes that belong to no tensor, before the first."""
    for entry in header.values():
        entry["data_offsets"] = [place + 8 for place in entry["data_offsets"]]
    data[:0] = bytes(8)


def aliased(header: Json, data: bytearray) -> None:
    """Two tensors in one place."""
    first, *others = sorted(
        (name for name in header if name != "__metadata__"), key=lambda it: header[it]["data_offsets"]
    )
    header[others[0]]["data_offsets"] = header[first]["data_offsets"]


FEW_EMPTY_OBJECTS = b'{"a":[' + b"{}," * 1_300_000 + b"{}]}"
PLACE = "the place of tensor"

ATTACKS: dict[str, tuple[Tamper, str]] = {
    "a pickle as weights": (
        whole_file(POLICY, lambda bundle: pickle.dumps(Pickled(bundle.parent / "run by a pickle"))),
        r"policy\.safetensors: not a readable tensor file",
    ),
    "an archive behind the weights": (whole_file(POLICY, zip_of), "bytes follow the last tensor"),
    "a header of 10^6 tensors": (whole_file(POLICY, MANY_TENSORS), "a header of"),
    "a header of 2^63 bytes": (whole_file(POLICY, b"\xff" * 7 + b"\x7f" + b"{}"), "a header of"),
    "a deep header": (whole_file(POLICY, tensor_file(DEEP)), "more than 64 levels"),
    "a header that is a list": (whole_file(POLICY, tensor_file(b"[1]")), "the header is no object"),
    "tensors in one place": (tensors(POLICY, aliased), PLACE),
    "tensors that overlap": (tensors(POLICY, move_end(-4)), PLACE),
    "a gap between tensors": (tensors(POLICY, move_end(4)), PLACE),
    "a gap before the tensors": (tensors(POLICY, with_gap), PLACE),
    "a tensor larger than its place": (
        tensors(POLICY, lambda header, data: first_of(header).update(shape=[2**31, 2**31])),
        PLACE,
    ),
    "a tensor whose size overflows": (
        tensors(POLICY, lambda header, data: first_of(header).update(shape=[2**62, 4])),
        PLACE,
    ),
    "a tensor of negative size": (
        tensors(POLICY, lambda header, data: first_of(header).update(shape=[-1, -8])),
        "no list of whole numbers",
    ),
    "a tensor of 100 axes": (
        tensors(POLICY, lambda header, data: first_of(header).update(shape=[1] * 100)),
        "no list of whole numbers",
    ),
    "a tensor at negative places": (
        tensors(POLICY, lambda header, data: first_of(header).update(data_offsets=[-8, 0])),
        "no list of whole numbers",
    ),
    "a tensor of another type": (
        tensors(POLICY, lambda header, data: header["table"].update(dtype="I32")),
        r"tensor 'table' is torch\.int32",
    ),
    "a tensor of no type": (
        tensors(POLICY, lambda header, data: header["table"].update(dtype="PICKLE")),
        "no known type",
    ),
    "a tensor with the type of a list": (
        tensors(POLICY, lambda header, data: header["table"].update(dtype=["F32"])),
        "no known type",
    ),
    "a tensor called __class__": (
        tensors(POLICY, lambda header, data: header.update(__class__=header.pop("table"))),
        "tensor '__class__' is foreign",
    ),
    "a tensor called __proto__": (
        tensors(POLICY, lambda header, data: header.update({"encoder.__proto__": header.pop("table")})),
        r"tensor 'encoder\.__proto__' is foreign",
    ),
    "a tensor with an escape in its name": (
        tensors(POLICY, lambda header, data: header.update({"\x1b[2Jtable": header.pop("table")})),
        r"a tensor is called '\\x1b\[2Jtable'",
    ),
    "a tensor that is in two files": (
        tensors(CRITIC, lambda header, data: header.update(table=header.pop(min(header)))),
        "tensor 'table' is in policy.safetensors too",
    ),
    "weights that are no numbers": (tensors(POLICY, set_floats("table", np.nan)), "'table' holds a number that is not"),
    "weights of 3e38": (tensors(POLICY, set_floats("table", 3e38)), "'table' holds a number that is not"),
    "a matrix that is no numbers": (tensors(MATRIX, set_floats("unit", np.inf)), "'unit' holds a number that is not"),
    "a matrix of another shape": (tensors(MATRIX, other_shape), "its tensors do not fit the model"),
    "a matrix of another type": (
        tensors(MATRIX, lambda header, data: header["unit"].update(dtype="I32")),
        "its tensors do not fit the model",
    ),
    "a matrix of another name": (
        tensors(MATRIX, lambda header, data: header.update(other=header.pop("unit"))),
        "its tensors do not fit the model",
    ),
    "weights of another checksum": (
        lambda bundle: put(bundle / POLICY, (bundle / POLICY).read_bytes()[:-1] + b"?"),
        "its checksum differs",
    ),
    "weights that are missing": (lambda bundle: (bundle / POLICY).unlink(), r"policy\.safetensors: missing"),
    "weights in a FIFO": (lambda bundle: fifo(bundle / POLICY), r"policy\.safetensors: a FIFO"),
    "weights that are a device": (lambda bundle: device(bundle / POLICY), "a device|leads out of its folder"),
    "weights that never end": (lambda bundle: endless(bundle / POLICY), "leads out of its folder"),
    "weights elsewhere": (lambda bundle: link_out(bundle / POLICY), "leads out of its folder"),
    "items elsewhere": (lambda bundle: link_out(bundle / "items.parquet"), "leads out of its folder"),
    "a path upwards": (listed("../outside/bundle/policy.safetensors"), "lists a file that no bundle has"),
    "an absolute path": (listed("/etc/passwd"), "lists a file that no bundle has"),
    "a file of no bundle": (listed("setup.py"), "lists a file that no bundle has"),
    "an ONNX file that is missing": (listed("encoder.onnx"), r"encoder\.onnx|of an encoder"),
    "an index that is missing": (listed("items.index"), r"items\.index|of an index"),
    "no weights listed": (record(lambda it: it["files"].pop(POLICY)), f"does not list {POLICY}"),
    "a size of -1": (record(lambda it: it["files"][POLICY].update(bytes=-1)), NOT_A_BUNDLE),
    "a size below the file's": (
        record(lambda it: it["files"][POLICY].update(bytes=100)),
        "bytes, bundle.json says 100",
    ),
    "a checksum of ff fe": (number("files", POLICY, "sha256", text='"\\udcff\\udcfe"'), NOT_A_BUNDLE),
    "60 MB of {}": (lambda bundle: put(bundle / RECORD, EMPTY_OBJECTS), "more than the limit"),
    "4 MB of {}": (lambda bundle: put(bundle / RECORD, FEW_EMPTY_OBJECTS), "more than 1,000,000 values"),
    "deep JSON": (lambda bundle: put(bundle / RECORD, DEEP), "more than 64 levels"),
    "a key twice": (duplicate_key, "a key appears twice"),
    "JSON in UTF-16": (lambda bundle: put(bundle / RECORD, '{"format": 1}'.encode("utf-16")), "not UTF-8"),
    "a record in a FIFO": (lambda bundle: fifo(bundle / RECORD), r"bundle\.json: a FIFO"),
    "a record that never ends": (lambda bundle: endless(bundle / RECORD), "leads out of its folder"),
    "a record elsewhere": (lambda bundle: link_out(bundle / RECORD), "leads out of its folder"),
    "a foreign version": (record(lambda it: it.update(version=2)), "version '2' of the format; this ecoc reads 1"),
    "another format": (record(lambda it: it.update(format="torch")), NOT_A_BUNDLE),
    "a setting called __class__": (
        record(lambda it: it["config"]["encoder"].update(__class__="os")),
        r"unknown option '__class__'",
    ),
    "a section called __proto__": (
        record(lambda it: it["config"].update(__proto__={"a": 1})),
        "unknown section '__proto__'",
    ),
    "an encoder that is a path to code": (
        record(lambda it: it["config"]["encoder"].update(name="subprocess:run")),
        "unknown encoder 'subprocess:run'",
    ),
    "a method that is a path to code": (
        record(lambda it: it["config"]["method"].update(name="os.system")),
        "unknown method 'os.system'",
    ),
    "an encoder beside the weights": (foreign_library, "unknown encoder 'evil'"),
    "an encoder of another width": (
        record(lambda it: it["config"]["encoder"].update(dim=16)),
        "expected torch.float32",
    ),
    "an encoder of 10^12": (record(lambda it: it["config"]["encoder"].update(dim=10**12)), "dim"),
    "an encoder of 4,096 layers": (record(lambda it: it["config"]["encoder"].update(layers=4096)), r"layers|missing"),
    "2^31 items": (record(lambda it: it["dims"].update(items=2**31)), "2147483648 items"),
    "2^31 - 1 items": (record(lambda it: it["dims"].update(items=2**31 - 1)), "not a table of 2147483647 items"),
    "-1 items": (record(lambda it: it["dims"].update(items=-1)), "-1 items"),
    "infinitely many items": (number("dims", "items", text="Infinity"), "Infinity is not a number"),
    "items of 5,000 digits": (number("dims", "items", text=DIGITS), "more than 20 digits"),
    "10^12 users": (record(lambda it: it["dims"].update(users=10**12)), "users|expected"),
    "10^12 kinds of feedback": (record(lambda it: it["dims"].update(feedback=10**12)), "feedback|expected"),
    "counts of items that are none": (
        tensors(COUNTS, last_index("followers", 10**6, np.int32)),
        "name an item that does",
    ),
    "counts of negative items": (tensors(COUNTS, last_index("followers", -1, np.int32)), "name an item that does not"),
    "counts beyond the end": (tensors(COUNTS, last_index("starts", 10**12, np.int64)), "do not fit 200 items"),
    "counts that are no numbers": (tensors(COUNTS, set_floats("shares", np.nan)), "not in 0..1"),
    "counts without a file": (record(lambda it: it["files"].pop(COUNTS)), "not the tensors of a counts term"),
    "counts of weight 1e300": (record(lambda it: it.update(counts_weight=1e300)), "'counts_weight'"),
    "a weight w of 1e300": (record(lambda it: it.update(ranking={"rank_by": "blend", "w": 1e300})), r"'ranking\.w'"),
    "a ranking by code": (
        record(lambda it: it.update(ranking={"rank_by": "__import__", "w": 1})),
        r"'ranking\.rank_by'",
    ),
    "a reward unit of 0": (number("reward_unit", text="0"), "'reward_unit'"),
    "a reward unit of -1": (number("reward_unit", text="-1"), "'reward_unit'"),
    "a reward unit of 1e300": (number("reward_unit", text="1e300"), "'reward_unit'"),
    "an infinite reward unit": (number("reward_unit", text="1e999"), "not finite"),
    "fewer items": (items(lambda it: it.slice(1)), r"items\.parquet: not a table of 200 items"),
    "more items": (items(lambda it: pa.concat_tables([it, it])), r"items\.parquet: .*rows, expected at most 200"),
    "ids that are structures": (
        items(with_column("item", lambda it: pa.array([{"a": "b"}] * len(it)))),
        "its columns are",
    ),
    "ids that appear twice": (items(with_column("item", lambda it: pa.array(["same"] * len(it)))), "appears twice"),
    "titles of gigabytes": (items(lambda it: repeated_titles(it, 20_000_000), store_schema=False), "far more memory"),
    "a name of 1,000 letters": (record(lambda it: it.update(name="n" * 1000)), "'name'"),
    "more feedback than the encoder has": (
        record(lambda it: it["feedback"].extend(["x"] * 9)),
        "13 names of feedback, expected 4",
    ),
    "feedback that is no text": (record(lambda it: it.update(feedback=[{"a": 1}])), r"'feedback\.0'"),
}
SERVED = (
    *("a pickle as weights", "a header of 10^6 tensors", "weights in a FIFO", "deep JSON", "a matrix of another shape"),
    *("titles of gigabytes", "an encoder beside the weights", "a tensor with an escape in its name"),
)
DESCRIBED = ("deep JSON", "4 MB of {}", "a record in a FIFO", "an absolute path", "a foreign version", "-1 items")


def test_the_sound_bundle_recommends(attempts: Attempts, bundle: Path) -> None:
    """So that what the tests below see comes from the attack."""
    done, alarms = attempts.run("recommend", bundle)
    assert (done.code, done.stderr, alarms) == (0, "", [])


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_by_a_bundle_is_refused(attempts: Attempts, bundle: Path, name: str) -> None:
    attack, says = ATTACKS[name]
    attack(bundle)
    commands = ["recommend", *["serve"] * (name in SERVED), *["info"] * (name in DESCRIBED)]
    assert [problem for command in commands for problem in attempts.problems(command, bundle, says)] == []


@pytest.mark.parametrize("name", ["a pickle as weights", "an encoder beside the weights", "weights in a FIFO"])
def test_the_real_command_starts_nothing_and_calls_nobody(bundle: Path, name: str) -> None:
    """As the system sees it: the only program is the command itself, and nothing connects to anywhere."""
    attack, says = ATTACKS[name]
    attack(bundle)
    calls = bundle.parent.parent / "calls"
    strace = [
        "strace",
        "-f",
        "-qq",
        "--seccomp-bpf",
        "-e",
        "trace=execve,execveat,connect,mkdir,mkdirat",
        "-o",
        str(calls),
    ]
    words = ["recommend", str(bundle), "--history", "i0082"]
    done = subprocess.run(
        [*strace, sys.executable, "-m", "ecoc", *words],  # in a path with a space, a shell starts the script
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=bundle,
    )
    assert done.returncode == 3, done
    assert re.fullmatch(f".*{says}.*\n", done.stderr)
    lines = [line.split(maxsplit=1)[1] for line in calls.read_text().splitlines()]
    assert [line for line in lines if not line.endswith("EEXIST (File exists)")][1:] == [], lines
    assert lines[0].startswith("execve(")
