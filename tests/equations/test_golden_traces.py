"""The first steps of every method, as they were when last looked at: any change of a loss, however small, shows.

golden_traces.json holds the loss of each step and its parts. Everything a trace depends on is written out here, so
other defaults change nothing. `TrainStep` takes the steps, as in the loop, with a change of phase after step 10; in
float64, so that another processor's rounding does not show.

A trace that differs on purpose is recorded anew, and the difference is to be read before it is committed:

    ECOC_UPDATE_GOLDEN=1 pytest tests/equations/test_golden_traces.py && git diff tests/equations/golden_traces.json
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders import ENCODERS
from ecoc.methods import METHODS, Method
from ecoc.methods.build import build_method
from ecoc.runs.config import RunConfig, TrainConfig
from ecoc.training.step import TrainStep

GOLDEN = Path(__file__).with_name("golden_traces.json")
IS_UPDATE = bool(os.environ.get("ECOC_UPDATE_GOLDEN"))
NEAR = 1e-5
STEPS, SWITCH = 20, 10
ROWS, LENGTH, ITEMS, KINDS = 6, 8, 15, 2
TRAIN: dict[str, Any] = {"lr": 0.01, "schedule": "constant", "warmup": 0, "clip": 5.0, "ema": 0.0}
TRAIN |= {"beta1": 0.9, "beta2": 0.98, "weight_decay": 0.0}
ENCODER: dict[str, Any] = {
    "name": "sasrec",
    "dim": 8,
    "length": LENGTH,
    "dropout": 0.1,
    "scale": True,
    "init": 0.05,
    "feedback": False,
    "blocks": 1,
    "heads": 2,
    "inner": 16,
}
ECOC: dict[str, Any] = {
    "name": "ecoc",
    "loss": "full",
    "in_batch": True,
    "n2": None,
    "alpha": 0.1,
    "beta": 1.0,
    "gamma": 0.95,
    "tau": 0.02,
    "tau_warmup": True,
    "trace": 0.8,
    "dc": 0.0,
    "critic": "tower",
    "critic_grad": 1.0,
    "heads": None,
    "hidden": 16,
    "dueling": True,
    "clip": "q",
    "backup": "expected",
    "next_from": "target",
    "entropy": 0.0,
    "xi": "all",
    "n1": 500,
    "explorers": 256,
    "pool": 256,
    "index_from": 100_000,
    "index_every": 500,
    "candidates": 20_000,
    "reg": "weighted",
    "dc_q": "least",
    "distil": 0.0,
    "control": 0.0,
    "decay_actor": True,
    "optimise": "together",
    "rank_by": "blend",
    "w": 10.0,
    "m": 20,
    "guard": 0.5,
}
PAPER = {"critic": "shared", "dc": 1.0, "alpha": 5.0, "gamma": 0.5, "trace": 0.0, "dueling": False}
PAPER |= {"loss": "bpr", "n2": 10, "xi": "gumbel", "n1": 6, "backup": "sample", "rank_by": "policy"}
SDAC: dict[str, Any] = {"gamma": 0.5, "tau": 0.005, "estimator": "exact", "q_scale": True}
CASES: dict[str, dict[str, Any]] = {
    "supervised": {"name": "supervised", "loss": "full", "in_batch": True, "n2": None},
    "ecoc": ECOC,
    "ecoc, paper": {**ECOC, **PAPER},
    "sqn": {"name": "sqn", "gamma": 0.5},
    "sa2c": {
        "name": "sa2c",
        "gamma": 0.5,
        "negatives": 4,
        "warmup": SWITCH / STEPS,
        "weight": 1.0,
        "clip_low": -1.0,  # what a network knows after ten steps is not often above 0
        "clip_high": 10.0,
        "smooth": 0.5,
        "lr_drop": 0.2,
    },
    "sdac_sr": {"name": "sdac_sr", **SDAC, "eta": 0.1, "lam": 1.0},
    "sdac_dc": {"name": "sdac_dc", **SDAC, "lam": 1.0, "warmup": SWITCH / STEPS},
    "prl": {"name": "prl", "kappa": 2.0},
    "neural_lcb": {"name": "neural_lcb", "beta_lcb": 0.1, "lam0": 0.1, "lam": 1e-4, "negatives": 10, "hidden": 12},
}
PARTS = {
    "supervised": {"bc"},
    "ecoc": {"bc", "td", "reg"},
    "ecoc, paper": {"bc", "td", "reg", "dc"},
    "sqn": {"bc", "td"},
    "sa2c": {"bc", "td"},
    "sdac_sr": {"bc", "td", "pi"},
    "sdac_dc": {"bc", "td", "pi", "behaviour"},
    "prl": {"bc"},
    "neural_lcb": {"fit", "negative", "decay"},
}

Trace = list[dict[str, float]]


def sessions() -> TrainSequences:
    random = np.random.default_rng(7)
    items = random.integers(1, ITEMS + 1, 20 * LENGTH)
    return TrainSequences(
        items, np.arange(0, len(items) + 1, LENGTH), random.uniform(-0.2, 1, len(items)).astype(np.float32)
    )


def batch_of(step: int) -> Batch:
    """Rows of different lengths: sequences and an episode that end, windows cut off, a first target left out."""
    random = np.random.default_rng([11, step])
    size = np.array([LENGTH, LENGTH, LENGTH - 1, 5, 2, 1])
    inside = np.arange(LENGTH) < size[:, None]
    events = random.integers(1, ITEMS + 1, (ROWS, LENGTH + 1))
    wanted = inside & ~((np.arange(ROWS) == 1)[:, None] & (np.arange(LENGTH) == 0))
    is_last = np.arange(LENGTH) == size[:, None] - 1
    done = wanted & is_last & (np.arange(ROWS) % 2 == 0)[:, None]
    done[0, 3] = True
    reward = np.where(wanted, random.uniform(-0.2, 1, inside.shape), 0)
    returns = np.cumsum(reward[:, ::-1], 1)[:, ::-1]
    before = np.arange(LENGTH) + random.integers(1, 4, (ROWS, 1))
    history = History(
        torch.from_numpy(np.where(inside, events[:, :-1], PAD)),
        torch.from_numpy(np.where(inside, random.integers(1, KINDS + 1, inside.shape), 0)),
        torch.from_numpy(np.arange(ROWS) + 1),
    )
    return Batch(
        history,
        torch.from_numpy(np.where(wanted, events[:, 1:], PAD)),
        torch.from_numpy(reward),
        torch.from_numpy(done.astype(np.float64)),
        torch.from_numpy(np.where(wanted, before, 0)),
        torch.from_numpy(np.where(wanted, returns, 0.0)),
    )


def make(case: str) -> Method:
    config = RunConfig.build({"encoder": ENCODER, "method": CASES[case]})
    torch.manual_seed(0)
    method = build_method(config, Dims(ITEMS, ROWS, KINDS))
    method.fit_statistics(sessions())
    method.double()
    for lagged in method.lagged.values():
        lagged.copy.double()
    return method.train()


def trace(case: str) -> Trace:
    """Loss and parts of each step."""
    method = make(case)
    train_step = TrainStep(method, TrainConfig.build(TRAIN), steps=STEPS, sparse=False)
    steps = []
    for step in range(STEPS):
        torch.manual_seed(1000 + step)
        result = train_step(batch_of(step), step)
        steps.append({"total": result.loss, **result.parts})
    return steps


def recorded() -> dict[str, Trace]:
    content: dict[str, Trace] = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    return content


def record(case: str, found: Trace) -> None:
    """Put a trace into the file, a step a line."""
    content = {**recorded(), case: [{name: float(f"{value:.9g}") for name, value in step.items()} for step in found]}
    blocks = [
        f"  {json.dumps(name)}: [\n" + ",\n".join(f"    {json.dumps(step)}" for step in content[name]) + "\n  ]"
        for name in CASES
        if name in content
    ]
    GOLDEN.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def differences(found: Trace, expected: Trace) -> list[str]:
    """What of a trace is not as recorded, first step first."""
    if len(found) != len(expected):
        return [f"{len(found)} steps, recorded were {len(expected)}"]
    wrong = []
    for step, (one, two) in enumerate(zip(found, expected, strict=True)):
        if one.keys() != two.keys():
            wrong.append(f"step {step}: parts {sorted(one)}, recorded were {sorted(two)}")
            continue
        wrong += [
            f"step {step}: {name} {one[name]:.9g}, recorded was {two[name]:.9g}"
            for name in two
            if one[name] != pytest.approx(two[name], rel=NEAR, abs=NEAR / 10)
        ]
    return wrong


@pytest.mark.parametrize("case", CASES)
def test_the_first_steps_are_as_recorded(case: str) -> None:
    found = trace(case)
    assert {name for step in found for name in step} == PARTS[case] | {"total"}
    if IS_UPDATE:
        record(case, found)
    assert differences(found, recorded()[case]) == []


@pytest.mark.parametrize("case", CASES)
def test_no_default_is_left_to_change_a_trace(case: str) -> None:
    """A new setting is named here with the value that changes nothing."""
    values = dict(CASES[case])
    assert set(values) - {"name"} == set(METHODS[values["name"]].Config.model_fields)
    assert set(ENCODER) - {"name"} == set(ENCODERS[ENCODER["name"]].Config.model_fields)


def test_every_trained_method_has_a_trace() -> None:
    assert {values["name"] for values in CASES.values()} == {name for name in METHODS if METHODS[name].is_trained}
    assert list(recorded()) == list(CASES)
    for case, steps in recorded().items():
        assert len(steps) == STEPS
        assert any(abs(step[part]) > 1e-3 for step in steps for part in PARTS[case] if part in step)


def test_a_small_change_would_be_noticed() -> None:
    """The broken variants: one number off by a little, a part missing, a step missing."""
    expected = recorded()["ecoc"]
    nudged = [dict(step) for step in expected]
    nudged[12]["td"] *= 1 + 5 * NEAR
    assert len(differences(nudged, expected)) == 1
    assert len(differences([*expected[:5], {"total": 1.0}, *expected[6:]], expected)) == 1
    assert differences(expected[:-1], expected)
    assert differences(expected, expected) == []
