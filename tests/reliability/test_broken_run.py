"""A run with a broken, foreign or forged file: every command that needs the file says so in one line."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from forked import Forks, forking
from run_folder_case import UNREADABLE, Break, edit, finished_run, is_told, prepared_other, refit, remake


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with forking() as found:
        yield found


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


@pytest.fixture(scope="module")
def other_data(base: Path) -> Path:
    return prepared_other(base)


@pytest.fixture(scope="module")
def finished(forks: Forks, base: Path) -> Path:
    return finished_run(forks, base)


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, to break."""
    return shutil.copytree(finished, tmp_path / "run")


def best(run: Path) -> Path:
    return run / "checkpoints" / "best.safetensors"


def flip(path: Path) -> None:
    found = bytearray(path.read_bytes())
    found[len(found) // 2] ^= 1
    path.write_bytes(bytes(found))


def weights_become_a_folder(run: Path) -> None:
    best(run).unlink()
    best(run).mkdir()


def forge(run: Path, found: bytes) -> None:
    best(run).write_bytes(found)
    refit(run / "checkpoints", "best")


def header(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


def spoil(tensors: dict[str, torch.Tensor], number: float) -> None:
    tensors["table"][5, 2] = number


def fewer_items(run: Path) -> None:
    pq.write_table(pq.read_table(run / "items.parquet").slice(0, 50), run / "items.parquet")


def set_config(run: Path, old: str, new: str) -> None:
    text = (run / "config.toml").read_text()
    assert old in text
    (run / "config.toml").write_text(text.replace(old, new))


RECOMMEND, EVALUATE, INFO, VERIFY = "recommend", "evaluate", "info", "info --verify"
COMMANDS: dict[str, Callable[[Path], list[object]]] = {
    RECOMMEND: lambda run: ["recommend", run, "--json"],
    EVALUATE: lambda run: ["evaluate", run, "--max-cases", 50, "--no-untrained", "--quiet"],
    INFO: lambda run: ["info", run],
    VERIFY: lambda run: ["info", run, "--verify"],
}
MODEL = (RECOMMEND, EVALUATE)
# What is broken, and the commands that must not succeed with it; the others may.
BROKEN: dict[str, tuple[Break, tuple[str, ...]]] = {
    "weights cut off": (lambda run: best(run).write_bytes(best(run).read_bytes()[:-9]), (*MODEL, VERIFY)),
    "weights with a flipped bit": (lambda run: flip(best(run)), (*MODEL, VERIFY)),
    "weights empty": (lambda run: best(run).write_bytes(b""), (*MODEL, VERIFY)),
    "weights gone": (lambda run: best(run).unlink(), (*MODEL, VERIFY)),
    "weights are a folder": (weights_become_a_folder, (*MODEL, VERIFY)),
    "weights empty, checksum forged": (lambda run: forge(run, b""), (*MODEL, VERIFY)),
    "weights are a pickle": (lambda run: forge(run, b"\x80\x04\x95" + bytes(90)), (*MODEL, VERIFY)),
    "header of 2^60 bytes": (lambda run: forge(run, (1 << 60).to_bytes(8, "little") + b"{}"), (*MODEL, VERIFY)),
    "header is no JSON": (lambda run: forge(run, header(b"}{" * 8)), (*MODEL, VERIFY)),
    "header too deep": (lambda run: forge(run, header(b"[" * 100_000)), (*MODEL, VERIFY)),
    "tensor beyond the file": (
        lambda run: forge(run, header(b'{"table":{"dtype":"F32","shape":[999],"data_offsets":[0,3996]}}')),
        (*MODEL, VERIFY),
    ),
    "foreign tensor": (
        lambda run: remake(run / "checkpoints", "best", lambda it: it.update(__proto__=torch.ones(1))),
        (*MODEL, VERIFY),
    ),
    "missing tensor": (lambda run: remake(run / "checkpoints", "best", lambda it: it.pop("table")), (*MODEL, VERIFY)),
    "tensor of another shape": (
        lambda run: remake(run / "checkpoints", "best", lambda it: it.update(table=torch.ones(7, 8))),
        (*MODEL, VERIFY),
    ),
    "tensor of another type": (
        lambda run: remake(run / "checkpoints", "best", lambda it: it.update(table=it["table"].double())),
        (*MODEL, VERIFY),
    ),
    "NaN weights": (lambda run: remake(run / "checkpoints", "best", lambda it: spoil(it, float("nan"))), MODEL),
    "infinite weights": (lambda run: remake(run / "checkpoints", "best", lambda it: spoil(it, float("inf"))), MODEL),
    "best.json gone": (lambda run: (run / "checkpoints" / "best.json").unlink(), MODEL),
    "best.json cut off": (lambda run: (run / "checkpoints" / "best.json").write_text('{"step": 4'), MODEL),
    "best.json is a list": (lambda run: (run / "checkpoints" / "best.json").write_text("[1]"), MODEL),
    "best.json without checksum": (lambda run: (run / "checkpoints" / "best.json").write_text("{}"), MODEL),
    "result is garbage": (lambda run: (run / "result.json").write_bytes(b"\xff\x00garbage"), tuple(COMMANDS)),
    "result is empty": (lambda run: (run / "result.json").write_text(""), tuple(COMMANDS)),
    "result is a list": (lambda run: (run / "result.json").write_text("[]"), tuple(COMMANDS)),
    "result has nothing": (lambda run: (run / "result.json").write_text("{}"), tuple(COMMANDS)),
    "result too deep": (lambda run: (run / "result.json").write_text("[" * 100_000), tuple(COMMANDS)),
    "result gone": (lambda run: (run / "result.json").unlink(), MODEL),  # unfinished then, which info describes
    "result of text": (
        lambda run: edit(run / "result.json", lambda it: it.update(dict.fromkeys(it, "text"))),
        tuple(COMMANDS),
    ),
    "result of nulls": (
        lambda run: edit(run / "result.json", lambda it: it.update(dict.fromkeys(it))),
        tuple(COMMANDS),
    ),
    "result with only sizes": (
        lambda run: edit(run / "result.json", lambda it: [it.pop(key) for key in set(it) - {"dims", "feedback"}]),
        (EVALUATE, INFO, VERIFY),
    ),
    "result with huge sizes": (
        lambda run: edit(run / "result.json", lambda it: it["dims"].update(items=10**18)),
        MODEL,
    ),
    "result with negative sizes": (
        lambda run: edit(run / "result.json", lambda it: it["dims"].update(items=-1)),
        MODEL,
    ),
    "result without data": (lambda run: edit(run / "result.json", lambda it: it.pop("data")), (EVALUATE,)),
    "items gone": (lambda run: (run / "items.parquet").unlink(), MODEL),
    "items empty": (lambda run: (run / "items.parquet").write_bytes(b""), MODEL),
    "items are garbage": (lambda run: (run / "items.parquet").write_bytes(b"PAR1" + bytes(50) + b"PAR1"), MODEL),
    "items with a flipped bit": (lambda run: flip(run / "items.parquet"), ()),
    "items fewer": (fewer_items, MODEL),
    "config gone": (lambda run: (run / "config.toml").unlink(), tuple(COMMANDS)),
    "config cut off": (lambda run: (run / "config.toml").write_text('[encoder]\nname = "sas'), tuple(COMMANDS)),
    "config is binary": (lambda run: (run / "config.toml").write_bytes(b"\xff\xfe\x00"), tuple(COMMANDS)),
    "config of an unknown encoder": (lambda run: set_config(run, '"sasrec"', '"sasrek"'), tuple(COMMANDS)),
    "config names code": (lambda run: set_config(run, '"sasrec"', '"os.system"'), tuple(COMMANDS)),
    "config names a module": (lambda run: set_config(run, '"supervised"', '"subprocess:run"'), tuple(COMMANDS)),
    "config of another encoder": (
        lambda run: (run / "config.toml").write_text('[encoder]\nname = "caser"\ndim = 8\nlength = 10\n'),
        MODEL,
    ),
    "config of another width": (lambda run: set_config(run, "dim = 8", "dim = 16"), MODEL),
    "config of no width": (lambda run: set_config(run, "dim = 8", "dim = -8"), tuple(COMMANDS)),
    "config with a foreign section": (
        lambda run: (run / "config.toml").write_text("[plugins]\nload = 'x'\n"),
        tuple(COMMANDS),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_run_is_told_in_one_line(forks: Forks, run: Path, name: str) -> None:
    damage, refusing = BROKEN[name]
    damage(run)
    wrong = {}
    for command, make in COMMANDS.items():
        done = forks.run(*make(run))
        codes = UNREADABLE if command in refusing else (0, *UNREADABLE)
        if not (done.code == 0 and 0 in codes) and not is_told(done, codes):
            wrong[command] = (done.code, done.stdout[:200], done.stderr)
    assert wrong == {}


def test_items_of_another_dataset_are_noticed(forks: Forks, run: Path, other_data: Path) -> None:
    """As many items under other names: every recommendation would be wrong, and nothing else would tell."""
    assert len(pq.read_table(other_data / "items.parquet")) == len(pq.read_table(run / "items.parquet"))
    shutil.copyfile(other_data / "items.parquet", run / "items.parquet")
    for command in (*MODEL, VERIFY):
        done = forks.run(*COMMANDS[command](run))
        assert is_told(done, UNREADABLE), (command, done)


def test_the_whole_run_passes_every_command(forks: Forks, run: Path) -> None:
    """So that what the tests above see comes from what they broke."""
    for make in COMMANDS.values():
        done = forks.run(*make(run))
        assert done.code == 0, done.stderr


KEPT = "test-max-50-seed-0"
BROKEN_RANKS: dict[str, Break] = {
    "cut off": lambda folder: (folder / f"{KEPT}.safetensors").write_bytes(b"x"),
    "empty JSON": lambda folder: (folder / f"{KEPT}.json").write_text("{}"),
    "a list": lambda folder: (folder / f"{KEPT}.json").write_text("[]"),
    "state without keys": lambda folder: edit(
        folder / f"{KEPT}.json", lambda it: [it.pop(key) for key in ("weights", "data", "lists")]
    ),
    "lists of text": lambda folder: edit(folder / f"{KEPT}.json", lambda it: it.update(lists="x")),
    "no ranks": lambda folder: remake(folder, KEPT, lambda it: it.pop("rank")),
    "no events": lambda folder: remake(folder, KEPT, lambda it: it.pop("event")),
    "fewer ranks": lambda folder: remake(folder, KEPT, lambda it: it.update(rank=it["rank"][:3].clone())),
}


@pytest.mark.parametrize("name", BROKEN_RANKS)
def test_broken_ranks_of_an_earlier_evaluation_are_made_again_or_told(forks: Forks, run: Path, name: str) -> None:
    assert forks.run(*COMMANDS[EVALUATE](run)).code == 0
    compare = ["compare", run, run, "--max-cases", 50, "--no-untrained", "--quiet", "--json"]
    expected = json.loads(forks.run(*compare).stdout)
    BROKEN_RANKS[name](run / "evaluations")
    done = forks.run(*compare)
    if done.code == 0:
        assert json.loads(done.stdout) == expected
    else:
        assert is_told(done, UNREADABLE), done
