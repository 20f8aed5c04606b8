"""A tampered run is refused in one line, by every command that reads the tampered file."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from run_folder_case import remake
from tampered import (
    DEEP,
    DIGITS,
    EMPTY_OBJECTS,
    MANY_TENSORS,
    Attempts,
    Json,
    Tamper,
    change_tensors,
    device,
    edit,
    endless,
    fifo,
    file_instead,
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

import ecoc


@pytest.fixture
def run(attempts: Attempts, tmp_path: Path) -> Path:
    """A copy to tamper with."""
    return attempts.folder("run", tmp_path)


BEST, STATE, COUNTS = "checkpoints/best.safetensors", "checkpoints/best.json", "checkpoints/counts.safetensors"


def resign(run: Path) -> None:
    """Make the checksums of weights, counts and items fit."""
    for name in ("best", "counts"):
        file = run / "checkpoints" / f"{name}.safetensors"
        if file.is_file():
            edit(file.with_suffix(".json"), lambda it, file=file: it.update(sha256=sha(file)))  # type: ignore[misc]
    sums = {"weights_sha256": sha(run / BEST), "items_sha256": sha(run / "items.parquet")}
    edit(run / "result.json", lambda it: (it.update(sums), it["counts"].update(sha256=sha(run / COUNTS))))


def on(file: str, tamper: Callable[[Path], object]) -> Tamper:
    return lambda run: tamper(run / file)


def weights(change: Callable[[Json, bytearray], object], file: str = BEST) -> Tamper:
    def tamper(run: Path) -> None:
        change_tensors(run / file, change)
        resign(run)

    return tamper


def whole_file(file: str, content: bytes) -> Tamper:
    def tamper(run: Path) -> None:
        put(run / file, content)
        resign(run)

    return tamper


def items(change: Any, **options: Any) -> Tamper:
    def tamper(run: Path) -> None:
        items_table(run, change, **options)
        resign(run)

    return tamper


def dims(number: str) -> Tamper:
    return lambda run: put_number(run / "result.json", ("dims", "items"), number)


def config(old: str, new: str) -> Tamper:
    def tamper(run: Path) -> None:
        text = (run / "config.toml").read_text()
        assert old in text
        (run / "config.toml").write_text(text.replace(old, new, 1))

    return tamper


def unfinished(tamper: Tamper) -> Tamper:
    def unfinish(run: Path) -> None:
        (run / "result.json").unlink()
        tamper(run)

    return unfinish


def damaged_checkpoints(run: Path) -> None:
    for path in (run / "checkpoints").glob("step-*.safetensors"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        put(path, bytes(content))


def every_step(change: Callable[[Path], object]) -> Tamper:
    return lambda run: [change(path) for path in sorted((run / "checkpoints").glob("step-*.json"))]


def folder_elsewhere(name: str, *, empty: bool = False) -> Tamper:
    """A folder of the run becomes a link to the same folder of a sound run, or to an empty one."""

    def tamper(run: Path) -> None:
        shutil.rmtree(run / name)
        target = run.parent.parent / "outside" / ("empty" if empty else f"run/{name}")
        target.mkdir(exist_ok=True)
        (run / name).symlink_to(target)

    return tamper


def half_begun(tamper: Tamper) -> Tamper:
    """What a process leaves that dies at the very beginning, except for one file."""

    def begun(run: Path) -> None:
        for path in list(run.iterdir()):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in ("data.sha256", "metrics.jsonl"):
                path.unlink()
        (run / "checkpoints").mkdir()
        tamper(run)

    return begun


def long_history(header: Json, data: bytearray) -> None:
    """Followers that are no items."""
    begin, end = header["followers"]["data_offsets"]
    data[begin:end] = np.full((end - begin) // 4, 2**31 - 1, np.int32).tobytes()


def three_costs(run: Path) -> None:
    remake(run / "checkpoints", "best", lambda it: it.update(cost=torch.zeros(3)))
    resign(run)


def renamed(old: str, new: str) -> Callable[[Json, bytearray], object]:
    return lambda header, data: header.update({new: header.pop(old)})


EVERY = ("recommend", "evaluate", "export", "serve")
LOADING = ("recommend",)
READING = ("info", "recommend")
TAMPERED: dict[str, tuple[Tamper, tuple[str, ...], str]] = {
    "weights in a FIFO": (on(BEST, fifo), (*EVERY, "verify"), r"best\.safetensors: a FIFO"),
    "weights that never end": (on(BEST, endless), (*LOADING, "verify"), "leads out of its folder"),
    "weights that are a device": (on(BEST, device), ("recommend", "verify"), "a device|leads out of its folder"),
    "weights elsewhere": (on(BEST, link_out), (*LOADING, "verify"), "leads out of its folder"),
    "a header of 10^6 tensors": (whole_file(BEST, MANY_TENSORS), EVERY, "a header of|values"),
    "a header of 10^5 tensors": (
        whole_file(BEST, tensor_file(MANY_TENSORS[8:3_000_000].rpartition(b",")[0] + b"}")),
        ("recommend", "export"),
        "more than 200,000 values|at most 10,000 tensors",
    ),
    "a header of 2^63 bytes": (whole_file(BEST, b"\xff" * 7 + b"\x7f{}"), ("recommend",), "a header of"),
    "a weight that is no number": (weights(set_floats("table", np.nan)), LOADING, "'table' holds a number that is not"),
    "a weight of 3e38": (
        weights(set_floats("table", 3e38)),
        EVERY,
        "'table' holds a number that is not finite or too",
    ),
    "a tensor with an escape in its name": (
        weights(renamed("table", "ta\x1b]0;owned\x07ble")),
        (*LOADING, "evaluate"),
        r"a tensor is called 'ta\\x1b\]0;owned\\x07ble'",
    ),
    "a tensor with a line feed in its name": (weights(renamed("table", "a\nb")), ("recommend",), r"called 'a\\x0ab'"),
    "a tensor with a right-to-left name": (
        weights(renamed("table", "a\u202eb")),
        ("recommend",),
        r"called 'a\\u202eb'",
    ),
    "tensors that overlap": (weights(move_end(-4)), ("recommend",), "does not fit its shape, its neighbours"),
    "tensors with a gap": (weights(move_end(4)), ("recommend",), "does not fit its shape, its neighbours"),
    "a tensor of 2^62 values": (
        weights(lambda header, data: first_of(header).update(shape=[2**31, 2**31])),
        ("recommend",),
        "does not fit its shape",
    ),
    "costs of 3 items": (three_costs, LOADING, r"tensor 'cost' is torch\.float32 \[3\], expected"),
    "a state in a FIFO": (on(STATE, fifo), EVERY, r"best\.json: a FIFO"),
    "a state that never ends": (on(STATE, endless), LOADING, "leads out of its folder"),
    "a state elsewhere": (on(STATE, link_out), LOADING, "leads out of its folder"),
    "a state of 60 MB": (lambda run: put(run / STATE, EMPTY_OBJECTS), ("recommend", "serve"), "more than the limit"),
    "a state of ff fe": (lambda run: put(run / STATE, b"\xff\xfe"), ("recommend",), "not UTF-8"),
    "a deep state": (lambda run: put(run / STATE, DEEP), ("recommend",), "more than 64 levels"),
    "a state of 5,000 digits": (
        lambda run: put_number(run / STATE, ("step",), DIGITS),
        ("recommend", "evaluate"),
        "more than 20 digits",
    ),
    "a result in a FIFO": (on("result.json", fifo), (*READING, "report"), r"result\.json: a FIFO"),
    "a result that never ends": (on("result.json", endless), (*EVERY, "report"), "leads out of its folder"),
    "a result elsewhere": (on("result.json", link_out), (*READING, "report"), "leads out of its folder"),
    "a result of 60 MB": (
        lambda run: put(run / "result.json", EMPTY_OBJECTS),
        ("info", "recommend", "report"),
        "more than the limit",
    ),
    "a deep result": (lambda run: put(run / "result.json", DEEP), ("info", "report", "serve"), "more than 64 levels"),
    "infinitely many items": (dims("Infinity"), READING, "Infinity is not a number"),
    "no number of items": (dims("NaN"), READING, "NaN is not a number"),
    "1e999 items": (dims("1e999"), ("info", "recommend"), "not finite"),
    "-1 items": (dims("-1"), LOADING, r"not a table of -1 items|expected at most|dims"),
    "10^12 items": (dims("1000000000000"), LOADING, "not a table of 1000000000000 items"),
    "items of 5,000 digits": (dims(DIGITS), READING, "more than 20 digits"),
    "half an item": (dims("1.5"), READING, "'dims.items' is missing or wrong"),
    "a reward unit of 1e999": (
        lambda run: put_number(run / "result.json", ("reward_unit",), "1e999"),
        ("info", "recommend"),
        "not finite",
    ),
    "a reward unit of 1e300": (
        lambda run: put_number(run / "result.json", ("reward_unit",), "1e300"),
        ("recommend", "export", "serve"),
        "reward_unit",
    ),
    "a reward unit of 0": (
        lambda run: put_number(run / "result.json", ("reward_unit",), "0"),
        ("recommend", "export"),
        "reward_unit",
    ),
    "counts of weight 1e300": (
        lambda run: edit(run / "result.json", lambda it: it["counts"].update(weight=1e300)),
        READING,
        r"'counts.weight' is missing or wrong",
    ),
    "counts in a FIFO": (on(COUNTS, fifo), (*LOADING, "verify"), r"counts\.safetensors: a FIFO"),
    "counts of items that are none": (weights(long_history, COUNTS), EVERY, "name an item that does not exist"),
    "counts that are no number": (weights(set_floats("shares", np.nan), COUNTS), LOADING, "not in 0..1"),
    "settings in a FIFO": (on("config.toml", fifo), (*READING, "report"), r"config\.toml: a FIFO"),
    "settings that never end": (on("config.toml", endless), (*READING, "report"), "leads out of its folder"),
    "settings elsewhere": (on("config.toml", link_out), (*EVERY, "report"), "leads out of its folder"),
    "settings of 2 MB": (
        lambda run: put(run / "config.toml", b"# " + b"x" * (2 << 20)),
        ("info", "recommend"),
        "more than the limit",
    ),
    "deep settings": (
        lambda run: put(run / "config.toml", b"a = " + b"[" * 100_000),
        ("info", "recommend"),
        "not valid",
    ),
    "settings of 5,000 digits": (config("dim = 8", f"dim = {DIGITS}"), ("info", "recommend"), r"config\.toml: "),
    "a width of 10^12": (config("dim = 8", "dim = 1000000000000"), READING, r"config\.toml: .*dim"),
    "an encoder that is a module": (config('"sasrec"', '"os:system"'), READING, "unknown encoder 'os:system'"),
    "a method that is a module": (config('"ecoc"', '"antigravity"'), READING, "unknown method 'antigravity'"),
    "an encoder with an escape": (config('"sasrec"', '"sas\\u001b[2Jrec"'), READING, r"unknown encoder 'sas\\x1b"),
    "metrics in a FIFO": (on("metrics.jsonl", fifo), ("report",), r"metrics\.jsonl: a FIFO"),
    "metrics that never end": (on("metrics.jsonl", endless), ("report",), "leads out of its folder"),
    "metrics elsewhere": (on("metrics.jsonl", link_out), ("report",), "leads out of its folder"),
    "metrics of 60 MB of {}": (
        lambda run: put(run / "metrics.jsonl", b"{}\n" * 20_000_000),
        ("report",),
        "more than 1,000,000 lines",
    ),
    "five metrics of 10^6 {}": (
        lambda run: put(run / "metrics.jsonl", (b'{"a":[' + b"{}," * 999_000 + b"{}]}\n") * 5),
        ("report",),
        r"metrics\.jsonl: ",
    ),
    "deep metrics": (lambda run: put(run / "metrics.jsonl", DEEP + b"\n"), ("report",), "no line of it is a line of"),
    "an id that is null": (
        items(with_column("item", lambda it: pa.array([None, *it["item"].to_pylist()[1:]], pa.string()))),
        LOADING,
        r"items\.parquet: not a table of",
    ),
    "ids that are structures": (
        items(with_column("item", lambda it: pa.array([{"a": "b"}] * len(it)))),
        LOADING,
        "its columns are not",
    ),
    "titles of gigabytes": (
        items(lambda it: repeated_titles(it, 20_000_000), store_schema=False),
        EVERY,
        "far more memory",
    ),
    "fewer items": (items(lambda it: it.slice(1)), LOADING, r"items\.parquet: not a table of"),
    "items in a FIFO": (on("items.parquet", fifo), (*LOADING, "verify"), r"items\.parquet: a FIFO"),
    "items elsewhere": (on("items.parquet", link_out), (*LOADING, "verify"), "leads out of its folder"),
    "a choice in a FIFO": (lambda run: os.mkfifo(run / "acting.json"), LOADING, r"acting\.json: a FIFO"),
    "a choice of 1e300": (
        lambda run: put(run / "acting.json", acting(run, 1e300)),
        LOADING,
        r"acting\.json: not readable \(not a way to rank",
    ),
    "a choice of text": (
        lambda run: put(run / "acting.json", acting(run, "x")),
        LOADING,
        r"acting\.json: not readable",
    ),
    "checkpoints elsewhere": (folder_elsewhere("checkpoints"), (*EVERY, "info", "verify"), "checkpoints: a link"),
    "evaluations elsewhere": (folder_elsewhere("evaluations"), ("evaluate",), "evaluations: a link"),
    "evaluations that are a file": (
        on("evaluations", file_instead),
        ("evaluate",),
        "expected a folder",
    ),
    "a report in a FIFO": (lambda run: os.mkfifo(run / "report.json"), ("report",), r"report\.json: a FIFO"),
    "a report of 60 MB": (lambda run: put(run / "report.json", EMPTY_OBJECTS), ("report",), "more than the limit"),
    "a deep report": (lambda run: put(run / "report.json", DEEP), ("report",), "more than 64 levels"),
    "all checkpoints damaged": (unfinished(damaged_checkpoints), ("resume",), "no checkpoint is left to resume from"),
    "all checkpoints in FIFOs": (
        unfinished(every_step(fifo)),
        ("resume", "info"),
        r"step-\d+\.json: a FIFO.*no checkpoint is left",
    ),
    "all checkpoints never end": (unfinished(every_step(endless)), ("resume", "info"), "no checkpoint is left"),
    "a fingerprint of ff fe": (
        unfinished(lambda run: put(run / "data.sha256", b"\xff\xfe")),
        ("resume",),
        r"data\.sha256: not a readable checksum",
    ),
    "a fingerprint in a FIFO": (unfinished(on("data.sha256", fifo)), ("resume",), "not a readable checksum"),
    "metrics in a FIFO at the resume": (unfinished(on("metrics.jsonl", fifo)), ("resume",), "expected a regular file"),
    "metrics elsewhere at the resume": (
        unfinished(on("metrics.jsonl", link_out)),
        ("resume",),
        "expected a regular file",
    ),
    "a log elsewhere at the resume": (unfinished(on("log.txt", link_out)), ("resume",), "expected a regular file"),
    "checkpoints elsewhere at the beginning": (
        half_begun(folder_elsewhere("checkpoints", empty=True)),
        ("again",),
        "checkpoints: a link",
    ),
    "metrics elsewhere at the beginning": (half_begun(on("metrics.jsonl", link_out)), ("again",), "expected a regular"),
}


def acting(run: Path, w: object) -> bytes:
    sha256 = json.loads((run / "result.json").read_bytes())["weights_sha256"]
    return json.dumps({"rank_by": "blend", "w": w, "weights_sha256": sha256, "evidence": None}).encode()


def test_the_sound_run_passes_every_command(attempts: Attempts, run: Path) -> None:
    """So that what the tests below see comes from the tampering."""
    for command in ("info", "verify", "recommend", "evaluate", "report", "export"):
        done, alarms = attempts.run(command, run, seconds=60)
        assert (done.code, done.stderr, alarms) == (0, "", []), command
    (run / "result.json").unlink()
    done, alarms = attempts.run("resume", run, seconds=60)
    assert (done.code, done.stderr, alarms) == (0, "", [])


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_run_is_refused(attempts: Attempts, run: Path, name: str) -> None:
    tamper, commands, says = TAMPERED[name]
    tamper(run)
    assert [problem for command in commands for problem in attempts.problems(command, run, says)] == []


# ------------------------------------------------------------------------------------- statistics that index others

FEW_STEPS: Json = {
    "encoder": {"dim": 8, "length": 10},
    "train": {"max_steps": 2, "validation_cases": 10, "counts": "off", "threads": 1},
}


@pytest.fixture(scope="module")
def other_runs(attempts: Attempts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs whose weights hold places in other tensors: of counted followers, and of the sessions of a hypergraph."""
    folder = tmp_path_factory.mktemp("others")
    ecoc.train(attempts.originals.data, folder / "markov", method="markov", config=FEW_STEPS)
    ecoc.train(attempts.originals.data, folder / "dhcn", encoder="dhcn", config=FEW_STEPS)
    return folder


def last_number(name: str, value: int) -> Callable[[Json, bytearray], object]:
    """Overwrite the last whole number of a tensor."""

    def change(header: Json, data: bytearray) -> None:
        kind = np.dtype({"I32": np.int32, "I64": np.int64}[header[name]["dtype"]])
        end = header[name]["data_offsets"][1]
        data[end - kind.itemsize : end] = np.array(value, kind).tobytes()

    return change


def shorter(name: str) -> Callable[[Json, bytearray], object]:
    """Take the last number of the last tensor away."""

    def change(header: Json, data: bytearray) -> None:
        (length,), (begin, end) = header[name]["shape"], header[name]["data_offsets"]
        assert end == len(data)
        size = (end - begin) // length
        header[name].update(shape=[length - 1], data_offsets=[begin, end - size])
        del data[-size:]

    return change


STATISTICS: dict[str, tuple[str, Callable[[Json, bytearray], object], str]] = {
    "followers that are no items": ("markov", last_number("followers", 2**40), "contradict one another"),
    "followers below 0": ("markov", last_number("followers", -1), "contradict one another"),
    "followers beyond the end": ("markov", last_number("starts", 2**40), "contradict one another"),
    "fewer times than followers": ("markov", shorter("times"), "contradict one another"),
    "sessions of items that are none": ("dhcn", last_number("encoder.members", 2**31 - 1), "contradict one another"),
    "sessions of items below 0": ("dhcn", last_number("encoder.members", -7), "contradict one another"),
    "sessions beyond the end": ("dhcn", last_number("encoder.offsets", 2**31 - 1), "contradict one another"),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_places_in_other_tensors_are_checked(attempts: Attempts, other_runs: Path, tmp_path: Path, name: str) -> None:
    kind, change, says = STATISTICS[name]
    run = Path(shutil.copytree(other_runs / kind, tmp_path / "own" / "run"))
    change_tensors(run / BEST, change)
    edit(run / STATE, lambda it: it.update(sha256=sha(run / BEST)))
    edit(run / "result.json", lambda it: it.update(weights_sha256=sha(run / BEST)))
    assert attempts.problems("recommend", run, says) == []
