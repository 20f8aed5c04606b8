"""ECoC through the loop: two towers train the actor to the same bits as supervised training does."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from slow_ecoc import SETTINGS
from torch import Tensor

import ecoc
from ecoc.storage.checkpoint import Checkpoint, load_latest

TAU = 0.03
TRAIN: dict[str, Any] = {
    "batch": 16,
    "max_steps": 15,
    "validate_every": 10,
    "validation_cases": 50,
    "log_every": 5,
    "warmup": 3,
    "clip": 0.02,  # small: every step is clipped
    "weight_decay": 1e-3,
    "reward_scale": "max",
    "threads": 1,
    "seed": 4,
}
COMMON: dict[str, Any] = {"loss": "full", "in_batch": True, "n2": None}
ECOC: dict[str, Any] = SETTINGS | {
    "alpha": 0.1,
    "beta": 1.0,
    "gamma": 0.95,
    "tau": TAU,
    "trace": 0.8,
    "hidden": 16,
    "n1": 20,
    "explorers": 64,
    "pool": 32,
    "w": 10.0,
    "guard": 0.5,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ecoc.prepare("world:small", tmp_path_factory.mktemp("world") / "data", format="world", events=3_000).path


def trained(data: Path, out: Path, method: str, encoder: str, settings: dict[str, Any], **train: object) -> Checkpoint:
    sections = {
        "encoder": {"dim": 8, "length": 10, "dropout": 0.2},
        "method": settings,
        "train": TRAIN | train,
    }
    ecoc.train(data, out, method=method, encoder=encoder, config=sections)
    found = load_latest(out / "checkpoints")
    assert found is not None
    return found


def actor(found: Checkpoint, prefix: str) -> dict[str, Tensor]:
    """Tensors of the behaviour tower, by name."""
    names = {name[len(prefix) :]: tensor for name, tensor in found.tensors.items() if name.startswith(prefix)}
    return {name: tensor for name, tensor in names.items() if name.startswith(("table", "encoder."))}


CASES = [
    ("gru4rec", {}, {}),
    ("sasrec", {"xi": "gumbel", "next_from": "online"}, {}),
    ("gru4rec", {"loss": "sampled", "n2": 20, "xi": "pool", "next_from": "online"}, {"table": "sparse"}),
    ("bert4rec", {"xi": "cdf", "backup": "sample"}, {}),
    ("gru4rec", {"control": 0.5}, {}),
    ("bert4rec", {"loss": "bpr"}, {}),
]


@pytest.mark.parametrize(("encoder", "settings", "train"), CASES)
def test_the_behaviour_tower_is_the_supervised_model_to_the_last_bit(
    data: Path, tmp_path: Path, encoder: str, settings: dict[str, Any], train: dict[str, Any]
) -> None:
    imitation = COMMON | {name: value for name, value in settings.items() if name in COMMON}
    one = trained(data, tmp_path / "ecoc", "ecoc", encoder, ECOC | settings, **train)
    other = trained(data, tmp_path / "supervised", "supervised", encoder, imitation, ema=TAU, **train)
    assert one.state["step"] == other.state["step"] == 15
    for mine, theirs in (("method/policy.", "method/policy."), ("targets/policy/", "targets/ema/")):
        found, expected = actor(one, mine), actor(other, theirs)
        assert found.keys() == expected.keys()
        assert len(found) > 2
        for name, tensor in expected.items():
            assert torch.equal(found[name], tensor), f"{theirs}{name}"
    online, lagged = actor(one, "method/policy."), actor(one, "targets/policy/")
    assert not torch.equal(online["table"], lagged["table"])


@pytest.mark.parametrize("change", [{"critic": "shared"}, {"distil": 1.0}, {"beta": 0.5}])
def test_other_settings_make_another_actor(data: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    """Or the test above would show nothing."""
    one = trained(data, tmp_path / "ecoc", "ecoc", "gru4rec", ECOC | change, max_steps=2)
    other = trained(data, tmp_path / "supervised", "supervised", "gru4rec", COMMON, ema=TAU, max_steps=2)
    assert not torch.equal(actor(one, "method/policy.")["table"], actor(other, "method/policy.")["table"])


SPARSE = {"loss": "sampled", "xi": "pool"}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"critic": "shared", "dc": 1.0},
        {"critic": "separate"},
        {"control": 1.0},
        {"distil": 1.0},
    ],
)
def test_touched_rows_suffice_for_every_loss(data: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    found = trained(data, tmp_path / "run", "ecoc", "gru4rec", ECOC | SPARSE | change, max_steps=3, table="sparse")
    assert all(tensor.isfinite().all() for tensor in found.tensors.values() if tensor.is_floating_point())


def test_the_critic_learns(data: Path, tmp_path: Path) -> None:
    """On rewards that say nothing of items, L_TD falls to about the variance of what is to come."""
    trained(
        data, tmp_path / "run", "ecoc", "gru4rec", ECOC | {"gamma": 0.0, "alpha": 0.0}, max_steps=150, lr=0.01, clip=5.0
    )
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    losses = [float(line["loss/td"]) for line in lines if "loss/td" in line]
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
