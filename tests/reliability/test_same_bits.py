"""Promise 5: the same seed gives the same bits; another number of threads gives the same metrics but for rounding."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from forked import Forks, forking, outcome

import ecoc
from ecoc.encoders import ENCODERS

NEAR = 1e-5
SETTINGS = ["encoder.dim=16", "encoder.length=12", "train.batch=16", "train.max_steps=50", "train.log_every=10"]
SETTINGS += ["train.validate_every=25", "train.validation_cases=200", "train.ema=0.01"]
UNSEEDED = """
from ecoc.training import loop
import itertools, os
count = itertools.count(os.getpid())
loop.step_seed = lambda seed, step: next(count)
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with forking(PYTHONHASHSEED="1") as found:
        yield found


@pytest.fixture(scope="module")
def others() -> Iterator[Forks]:
    """Another process, in which sets have another order."""
    with forking(PYTHONHASHSEED="2") as found:
        yield found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ecoc.prepare("world:small", tmp_path_factory.mktemp("world") / "data", format="world", events=4_000).path


def train(forks: Forks, data: Path, run: Path, encoder: str, *more: object, before: str = "") -> dict[str, Any]:
    pairs = [word for setting in SETTINGS for word in ("--set", setting)]
    words = ["train", data, "-o", run, "--encoder", encoder, "--quiet", *pairs, *more]
    done = forks.run(*words, before=before)
    assert done.code == 0, done.stderr
    return outcome(run)


@pytest.fixture(scope="module")
def one_thread(forks: Forks, data: Path) -> Callable[[str], dict[str, Any]]:
    """What an encoder's run on one thread ends with."""
    return cache(lambda encoder: train(forks, data, data.parent / encoder, encoder, "--threads", 1))


@pytest.mark.parametrize("encoder", list(ENCODERS))
def test_two_runs_end_with_the_same_bits(
    one_thread: Callable[[str], dict[str, Any]], others: Forks, data: Path, tmp_path: Path, encoder: str
) -> None:
    first = one_thread(encoder)
    assert first["result"]["steps"] == 50
    assert train(others, data, tmp_path / "second", encoder, "--threads", 1) == first


@pytest.mark.parametrize("encoder", list(ENCODERS))
def test_two_threads_give_the_metrics_of_one(
    one_thread: Callable[[str], dict[str, Any]], forks: Forks, data: Path, tmp_path: Path, encoder: str
) -> None:
    one = one_thread(encoder)
    two = train(forks, data, tmp_path / "two", encoder, "--threads", 2)
    is_same = one["tensors"] == two["tensors"]
    metrics = one["result"]["validation"]
    difference = max(abs(metrics[name] - two["result"]["validation"][name]) for name in metrics)
    losses = [(a["loss"], b["loss"]) for a, b in zip(one["metrics"], two["metrics"], strict=True) if "loss" in a]
    drift = max(abs(a - b) / abs(a) for a, b in losses)
    print(f"{encoder}: 1 and 2 threads: same bits: {is_same}; metrics {difference:.1e}, loss {drift:.1e} apart")
    assert difference <= NEAR
    assert drift <= NEAR


def test_other_seeds_and_unseeded_steps_would_be_noticed(
    one_thread: Callable[[str], dict[str, Any]], forks: Forks, data: Path, tmp_path: Path
) -> None:
    """The broken variant: what a step draws does not depend on the seed."""
    usual = one_thread("sasrec")
    other = train(forks, data, tmp_path / "other", "sasrec", "--threads", 1, "--seed", 1)
    broken = train(forks, data, tmp_path / "broken", "sasrec", "--threads", 1, before=UNSEEDED)
    assert usual["tensors"]["best.safetensors"] != other["tensors"]["best.safetensors"]
    assert usual["tensors"]["best.safetensors"] != broken["tensors"]["best.safetensors"]
