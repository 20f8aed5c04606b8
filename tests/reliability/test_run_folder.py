"""Promise 30 and what else can be wrong with a run folder: held by another, foreign, broken, moved. Always one line."""

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from forked import Done, Forks, forking, outcome
from safetensors.torch import load_file, save_file

import ecoc

SETTINGS = ["encoder.dim=8", "encoder.length=10", "train.batch=16", "train.max_steps=12", "train.log_every=1"]
SETTINGS += ["train.validate_every=3", "train.validation_cases=100"]
UNREADABLE = (2, 3)
Break = Callable[[Path], object]

# The process dies at the save of step 9, so that its run can be resumed.
DIES = """
import os
from ecoc.training.loop import Loop
save = Loop.save
def dying_save(self):
    if self.state.step == 9:
        os._exit(9)
    save(self)
Loop.save = dying_save
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with forking() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def data(folder: Path) -> Path:
    return ecoc.prepare("world:small", folder / "data", format="world", events=4_000).path


@pytest.fixture(scope="module")
def other_data(folder: Path) -> Path:
    """Another dataset with as many items, under other names."""
    rows = [f"u{k % 90},other{k * 7 % 200},{k}" for k in range(4_000)]
    (folder / "log.csv").write_text("user,item,time\n" + "\n".join(rows))
    return ecoc.prepare(folder / "log.csv", folder / "other", user="user", item="item", time="time").path


@pytest.fixture(scope="module")
def finished(forks: Forks, data: Path, folder: Path) -> Path:
    assert forks.run(*words(data, folder / "finished")).code == 0
    return folder / "finished"


@pytest.fixture(scope="module")
def unfinished(forks: Forks, data: Path, folder: Path) -> Path:
    """With checkpoints of steps 3 and 6."""
    run = folder / "unfinished"
    assert forks.run(*words(data, run), before=DIES).code == 9
    assert [path.stem[-1] for path in sorted((run / "checkpoints").glob("step-*.json"))] == ["3", "6"]
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, to break."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def begun(unfinished: Path, tmp_path: Path) -> Path:
    """A copy of an unfinished run, to break."""
    return shutil.copytree(unfinished, tmp_path / "begun")


def words(data: Path, run: object, *more: object) -> list[object]:
    pairs = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["train", data, "-o", run, "--threads", 1, "--quiet", *pairs, *more]


def content(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def is_told(done: Done, codes: tuple[int, ...]) -> bool:
    """An exit code of these and one line that is not about the inside of ecoc."""
    lines = done.stderr.splitlines()
    return done.code in codes and len(lines) == 1 and "internal error" not in lines[0] and lines[0].strip() != ""


# ------------------------------------------------------------------------------------ who may write a run folder


def test_of_two_trainings_of_one_folder_the_second_is_told_the_pid_of_the_first(
    forks: Forks, data: Path, tmp_path: Path
) -> None:
    run, held = tmp_path / "run", tmp_path / ".run.lock"
    first = forks.start(*words(data, run))
    deadline = time.monotonic() + 30
    while not (held.exists() and held.read_text() == str(first.pid) and (run / "config.toml").exists()):
        assert time.monotonic() < deadline, "the first never took the lock"
        time.sleep(0.001)
    first.send(signal.SIGSTOP)  # so that it is still at work when the second comes
    for more in ([], ["--resume"]):
        second = forks.run(*words(data, run, *more))
        assert is_told(second, (2,)), second
        assert f"process {first.pid} is writing it" in second.stderr
    first.send(signal.SIGCONT)
    assert first.wait().code == 0
    assert not held.exists()
    assert forks.run("info", run, "--verify").code == 0


def test_the_lock_of_a_dead_process_is_taken_over(forks: Forks, data: Path, begun: Path, finished: Path) -> None:
    lock = begun.parent / ".begun.lock"
    lock.write_text("999999")
    assert forks.run(*words(data, begun, "--resume")).code == 0
    assert not lock.exists()
    assert outcome(begun) == outcome(finished)


@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_a_folder_with_other_files_is_left_alone(forks: Forks, data: Path, tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").write_bytes(b"smile")
    done = forks.run(*words(data, tmp_path / "photos", *more))
    assert is_told(done, (2,)), done
    assert content(tmp_path / "photos") == {"me.jpg": b"smile"}


@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_a_file_in_the_way_is_an_input_error(forks: Forks, data: Path, tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "file").write_text("mine")
    for target in (tmp_path / "file", tmp_path / "file" / "run"):
        done = forks.run(*words(data, target, *more))
        assert is_told(done, (2,)), done
    assert (tmp_path / "file").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_told(forks: Forks, data: Path) -> None:
    for target in ("/proc/run", "/proc/self/run", "/dev/null/run", f"/tmp/{'x' * 300}"):
        done = forks.run(*words(data, target))
        assert is_told(done, (2, 5)), done


def test_the_folder_one_is_in_can_be_the_run(forks: Forks, data: Path, tmp_path: Path, finished: Path) -> None:
    (tmp_path / "here").mkdir()
    done = forks.run(*words(data, "."), before=f"import os; os.chdir({str(tmp_path / 'here')!r})")
    assert done.code == 0, done.stderr
    assert outcome(tmp_path / "here") == outcome(finished)


def test_a_run_is_not_overwritten(forks: Forks, data: Path, run: Path) -> None:
    before = content(run)
    done = forks.run(*words(data, run))
    assert is_told(done, (2,)), done
    assert "--resume" in done.stderr
    assert content(run) == before


def test_a_finished_run_is_left_as_it_is(forks: Forks, data: Path, run: Path) -> None:
    before = content(run)
    done = forks.run(*words(data, run, "--resume", "--json"))
    assert done.code == 0
    assert json.loads(done.stdout)["steps"] == 12
    assert content(run) == before


# ------------------------------------------------------------------------------------------------------ resuming


@pytest.mark.parametrize(
    "more",
    [
        ["--set", "train.lr=0.5"],
        ["--set", "encoder.dim=16"],
        ["--seed", "5"],
        ["--encoder", "gru4rec"],
        ["--method", "popular"],
        ["--set", "train.max_steps=13"],
    ],
)
def test_other_settings_than_it_began_with_are_refused(
    forks: Forks, data: Path, begun: Path, run: Path, more: list[str]
) -> None:
    for place in (begun, run):
        before = content(place)
        done = forks.run(*words(data, place, "--resume", *more))
        assert is_told(done, (2,)), done
        assert str(place) in done.stderr
        assert content(place) == before


def test_other_data_than_it_began_with_is_refused(forks: Forks, other_data: Path, begun: Path, run: Path) -> None:
    for place in (begun, run):
        before = content(place)
        done = forks.run("train", other_data, "-o", place, "--resume", "--quiet")
        assert is_told(done, (2,)), done
        assert str(other_data) in done.stderr
        assert content(place) == before


def test_another_number_of_threads_may_be_asked_for(forks: Forks, data: Path, begun: Path) -> None:
    done = forks.run("train", data, "-o", begun, "--resume", "--quiet", "--threads", 2)
    assert done.code == 0, done.stderr


def remake(folder: Path, name: str, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors of a checkpoint and make its checksum fit again, as one who means harm would."""
    tensors = load_file(folder / f"{name}.safetensors")
    change(tensors)
    save_file(tensors, folder / f"{name}.safetensors")
    refit(folder, name)


def refit(folder: Path, name: str) -> None:
    state = json.loads((folder / f"{name}.json").read_bytes())
    state["sha256"] = sha256((folder / f"{name}.safetensors").read_bytes()).hexdigest()
    (folder / f"{name}.json").write_text(json.dumps(state))


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    found = json.loads(path.read_bytes())
    change(found)
    path.write_text(json.dumps(found))


LATEST = "step-000000000006"
BROKEN_STATES: dict[str, Break] = {
    "foreign counter": lambda run: edit(run / "checkpoints" / f"{LATEST}.json", lambda it: it.update(foreign=1)),
    "counter that is text": lambda run: edit(run / "checkpoints" / f"{LATEST}.json", lambda it: it.update(step="x")),
    "missing weight": lambda run: remake(
        run / "checkpoints", LATEST, lambda it: it.pop("method/policy.encoder.positions")
    ),
    "foreign weight": lambda run: remake(run / "checkpoints", LATEST, lambda it: it.update(foreign=torch.ones(2))),
    "weight of another shape": lambda run: remake(
        run / "checkpoints", LATEST, lambda it: it.update({"method/policy.table": torch.ones(2)})
    ),
    "moment of another shape": lambda run: remake(
        run / "checkpoints", LATEST, lambda it: it.update({"optimiser/policy.table.exp_avg": torch.ones(2)})
    ),
    "no moments": lambda run: remake(run / "checkpoints", LATEST, lambda it: it.pop("optimiser/steps")),
    "fingerprint gone": lambda run: (run / "data.sha256").unlink(),
    "config is not TOML": lambda run: (run / "config.toml").write_text("["),
    "config with an unknown key": lambda run: (run / "config.toml").write_text("[train]\nfoo = 1\n"),
}


@pytest.mark.parametrize("name", BROKEN_STATES)
def test_a_state_that_does_not_fit_is_told(forks: Forks, data: Path, begun: Path, name: str) -> None:
    BROKEN_STATES[name](begun)
    done = forks.run("train", data, "-o", begun, "--resume", "--quiet")
    assert is_told(done, UNREADABLE), done
    assert str(begun) in done.stderr


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.with_suffix(".safetensors").write_bytes(b""),
        lambda path: path.with_suffix(".safetensors").unlink(),
        lambda path: path.write_text("{"),
        lambda path: path.write_text("[]"),
    ],
)
def test_a_damaged_checkpoint_costs_steps_and_nothing_else(
    forks: Forks, data: Path, begun: Path, finished: Path, damage: Break
) -> None:
    damage(begun / "checkpoints" / f"{LATEST}.json")
    done = forks.run(*words(data, begun, "--resume"))
    assert done.code == 0, done.stderr
    assert outcome(begun) == outcome(finished)


# ------------------------------------------------------------------------------------------------ broken artefacts


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
    "result gone": (lambda run: (run / "result.json").unlink(), tuple(COMMANDS)),
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


# -------------------------------------------------------------------------------------------------- moved data


def test_a_run_whose_dataset_was_moved_says_how_to_name_it(
    forks: Forks, data: Path, other_data: Path, run: Path, tmp_path: Path
) -> None:
    edit(run / "result.json", lambda it: it["data"].update(path=str(tmp_path / "moved away")))
    done = forks.run("evaluate", run, "--quiet")
    assert is_told(done, (2,)), done
    assert "--data" in done.stderr
    assert forks.run("evaluate", run, "--quiet", "--no-untrained", "--data", data).code == 0
    assert forks.run("recommend", run).code == 0, "recommending needs no dataset"
    other = forks.run("evaluate", run, "--quiet", "--data", other_data)
    assert is_told(other, (2,)), other
    assert str(other_data) in other.stderr
