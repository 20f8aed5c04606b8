"""Promise 7: a number that is not finite stops a training at once, with its origin named, and never reaches a file."""

import json
import math
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from forked import Forks, forking, outcome
from safetensors.torch import load_file

import ecoc
from ecoc.storage.checkpoint import load_latest

SETTINGS = ["encoder.dim=8", "encoder.length=10", "train.batch=16", "train.max_steps=20", "train.log_every=1"]
SETTINGS += ["train.validate_every=5", "train.validation_cases=100"]
DIVERGING = ["train.lr=10", "train.clip=0", "train.warmup=0", "train.schedule=constant", "train.max_steps=300"]
DIVERGING += ["train.patience=0", "encoder.dim=16", "encoder.length=20", "train.batch=32"]
STEP = 8

# In step 8, its batch's loss is changed by `what`; `steps` counts from 1.
AT_LOSS = """
import dataclasses, math, torch
from ecoc.methods import Loss
from ecoc.methods.supervised import Supervised
loss = Supervised.loss
steps = 0
def faulty_loss(self, batch):
    global steps
    steps += 1
    if steps != {step}:
        return loss(self, batch)
    {what}
Supervised.loss = faulty_loss
"""
IN_LOSS = """
    total = loss(self, batch).total
    return Loss(total * math.{number}, {{"other": total, "bc": total * math.{number}}})
"""
IN_PART = "total = loss(self, batch).total; return Loss(total, {'other': total, 'bc': total * math.nan})"
IN_GRADIENT = "self.policy.table.register_hook(lambda gradient: gradient * math.{number}); return loss(self, batch)"
IN_INPUT = """
    embed = self.policy.encoder.embed
    def faulty_embed(items, history):
        found = embed(items, history)
        return found + torch.where(torch.arange(len(found)) == 3, math.{number}, 0.0)[:, None, None]
    self.policy.encoder.embed = faulty_embed
    return loss(self, batch)
"""
FAULTS = {
    "nan in the loss": (IN_LOSS.format(number="nan"), "loss part 'bc'"),
    "inf in the loss": (IN_LOSS.format(number="inf"), "loss part 'bc'"),
    "nan in a part only": (IN_PART, "loss part 'bc'"),
    "nan in the gradient": (IN_GRADIENT.format(number="nan"), "the gradient"),
    "inf in the gradient": (IN_GRADIENT.format(number="inf"), "the gradient"),
    "nan in the input": (IN_INPUT.format(number="nan"), "loss part 'bc'"),
    "inf in the input": (IN_INPUT.format(number="inf"), "loss part 'bc'"),
}
# The weights are spoilt by the update of a step right before a validation, with a finite loss and gradient.
IN_UPDATE = """
import torch
from ecoc.training.optimiser import Optimiser
step = Optimiser.step
count = 0
def faulty_step(self, lr, clip):
    global count
    count += 1
    norm = step(self, lr, clip)
    if count == 10:
        with torch.no_grad():
            next(iter(self._dense.values()))[2] = torch.nan
    return norm
Optimiser.step = faulty_step
"""
UNGUARDED = """
import ecoc.training.step
ecoc.training.step.require_finite = lambda step, values: None
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with forking() as found:
        yield found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ecoc.prepare("world:small", tmp_path_factory.mktemp("world") / "data", format="world", events=4_000).path


def words(data: Path, run: Path, settings: list[str], *more: str) -> list[object]:
    pairs = [word for setting in settings for word in ("--set", setting)]
    return ["train", data, "-o", run, "--threads", 1, "--quiet", *pairs, *more]


def refuse(token: str) -> NoReturn:
    raise ValueError(token)


def not_finite(run: Path) -> list[str]:
    """Every place in a run folder where a number is not finite."""
    found = []
    for path in sorted(run.rglob("*")):
        if path.suffix == ".safetensors":
            tensors = load_file(path)
            found += [f"{path.name}: {name}" for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
        elif path.suffix in (".json", ".jsonl"):
            for text in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
                try:
                    json.loads(text, parse_constant=refuse)
                except ValueError as error:
                    found.append(f"{path.name}: {error}")
    return found


def check_told(said: str, run: Path, step: int, what: str) -> None:
    """One line that names the step, what was not finite, and a checkpoint that is there and is finite."""
    match = re.fullmatch(r"(.*): step (\d+): (.*) is not finite; the last finite checkpoint is (\S+); .*\n", said)
    assert match, said
    assert match[1] == str(run)
    assert int(match[2]) == step
    assert match[3] == what
    latest = load_latest(run / "checkpoints")
    assert latest is not None
    assert latest.state["step"] < step
    assert match[4].endswith(f"/checkpoints/step-{latest.state['step']:012d}")


@pytest.mark.parametrize("name", FAULTS)
def test_a_number_that_is_not_finite_stops_the_run_and_a_resumed_one_ends_as_if_it_had_not_been(
    forks: Forks, data: Path, tmp_path: Path, name: str
) -> None:
    fault, what = FAULTS[name]
    run = tmp_path / "run"
    done = forks.run(*words(data, run, SETTINGS), before=AT_LOSS.format(step=STEP, what=fault))
    assert not_finite(run) == []
    assert done.code == 4, done.stderr
    check_told(done.stderr, run, STEP, what)
    assert len((run / "metrics.jsonl").read_text().splitlines()) == STEP, "a line a step before it and a validation"
    assert forks.run(*words(data, run, SETTINGS, "--resume")).code == 0
    assert forks.run(*words(data, tmp_path / "undisturbed", SETTINGS)).code == 0
    assert outcome(run) == outcome(tmp_path / "undisturbed")


def test_in_the_first_step_it_says_that_there_is_no_checkpoint(forks: Forks, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fault = AT_LOSS.format(step=1, what=IN_LOSS.format(number="nan"))
    done = forks.run(*words(data, run, SETTINGS), before=fault)
    assert done.code == 4, done.stderr
    assert "step 1: loss part 'bc' is not finite; no checkpoint was made yet" in done.stderr
    assert not_finite(run) == []
    assert list(run.rglob("*.safetensors")) == []


@pytest.mark.parametrize("more", [[], ["train.ema=0.1"], ["method.loss=sampled", "train.table=sparse"]])
def test_weights_spoilt_by_an_update_are_never_saved(forks: Forks, data: Path, tmp_path: Path, more: list[str]) -> None:
    run = tmp_path / "run"
    done = forks.run(*words(data, run, [*SETTINGS, *more]), before=IN_UPDATE)
    assert not_finite(run) == []
    assert done.code == 4, done.stderr
    assert re.search(r"\bstep[ -]0*1[01]\b", done.stderr), "it names the step"
    assert str(run / "checkpoints" / "step-000000000005") in done.stderr, "and the last finite checkpoint"


def test_a_training_that_really_diverges_is_exit_4(ecoc_command: Path, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [str(ecoc_command), *map(str, words(data, run, [*SETTINGS, *DIVERGING]))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 4, done.stderr
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = max(line["step"] for line in lines)
    assert 5 < last < 300, "it went on for a while"
    assert max(line["norm"] for line in lines if "norm" in line) > 1e6
    check_told(done.stderr, run, last + 1, "the gradient")
    assert not_finite(run) == []
    assert not (run / "result.json").exists()


@pytest.mark.parametrize("content", ['{"loss": NaN}\n', '{"loss": -Infinity}\n'])
def test_a_journal_with_such_a_number_would_be_found(tmp_path: Path, content: str) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"loss": 1.0}\n' + content)
    assert len(not_finite(tmp_path)) == 1


def test_a_loop_without_guard_would_be_caught(forks: Forks, data: Path, tmp_path: Path) -> None:
    """The broken variant: such a number goes into the journal."""
    run = tmp_path / "run"
    fault = AT_LOSS.format(step=STEP, what=IN_LOSS.format(number="nan"))
    done = forks.run(*words(data, run, SETTINGS), before=fault + UNGUARDED)
    assert not_finite(run) != []
    assert f"step {STEP}" not in done.stderr
    assert math.isnan(json.loads((run / "metrics.jsonl").read_text().splitlines()[STEP])["loss"])
