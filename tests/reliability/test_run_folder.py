"""Promise 30: a run folder held by another, foreign, begun otherwise or away from its data is told in one line."""

import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from forked import Forks, forking, outcome
from run_folder_case import UNREADABLE, Break, edit, finished_run, is_told, prepared, prepared_other, remake, words

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
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


@pytest.fixture(scope="module")
def data(base: Path) -> Path:
    return prepared(base)


@pytest.fixture(scope="module")
def other_data(base: Path) -> Path:
    return prepared_other(base)


@pytest.fixture(scope="module")
def finished(forks: Forks, base: Path) -> Path:
    return finished_run(forks, base)


@pytest.fixture(scope="module")
def unfinished(forks: Forks, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With checkpoints of steps 3 and 6."""
    run = tmp_path_factory.mktemp("begun") / "unfinished"
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


def content(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


# ------------------------------------------------------------------------------------------- who may write a run folder


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


# ------------------------------------------------------------------------------------------------------------- resuming


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


# ----------------------------------------------------------------------------------------------------------- moved data


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
