"""What a run warns of by its diagnostics: in words, once, in log.txt."""

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import TRAINED, prepare, train, write_walks

import ecoc
from ecoc.batch import Dims, TrainSequences
from ecoc.data.sequences import Dataset
from ecoc.methods import METHODS, Method
from ecoc.methods.build import build_method
from ecoc.runs.config import RunConfig
from ecoc.runs.folder import Run

EXPLODING = {"lr": 1.0, "clip": 0.0, "warmup": 0, "schedule": "constant", "max_steps": 30, "log_every": 1}
CASES: dict[str, tuple[dict[str, Any], str]] = {  # method -> settings and words of the warning that must come of them
    "ecoc": ({}, "Q is"),
    "sdac_sr": ({}, "the critics value"),
    "sa2c": ({"clip_low": 5.0}, "of the advantages lie outside 5..10"),
}
FINE = {"q/logged": 0.4, "q/explored": 0.3, "q/policy": 0.5, "support": 9.0, "states": 500.0, "distinct": 25.0}
ALARMING: list[tuple[str, dict[str, float], str]] = [
    ("ecoc", {"q/logged": 41.0}, "q"),
    ("ecoc", {"q/explored": -41.0}, "q"),
    ("ecoc", {"q/policy": 41.0}, "q"),
    ("ecoc", {"support": 1.4}, "xi"),
    ("ecoc", {"distinct": 5.0}, "lists"),
    ("sa2c", {"advantage_clipped": 0.95}, "advantage"),
    ("sdac_sr", {"q/policy": 3.0}, "overestimate"),
    ("sdac_dc", {"q/policy": 3.0}, "overestimate"),
]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("warnings")
    log = write_walks(folder / "log.csv")
    return prepare(log, folder / "data", reward="click=1,buy=3", split="per-user:0.8", validation=0.2)


def build(name: str, **settings: Any) -> Method:
    """Of 30 items, having seen rewards of at most 1."""
    config = RunConfig.build(
        {"encoder": {"name": "sasrec", "dim": 8, "length": 6}, "method": {"name": name, **settings}}
    )
    method = build_method(config, Dims(30, 4, 2))
    items = np.arange(40) % 30 + 1
    method.fit_statistics(TrainSequences(items, np.array([0, 20, 40]), np.linspace(-1, 1, 40, dtype=np.float32)))
    return method


def warnings(run: Path) -> list[str]:
    return [line for line in (run / "log.txt").read_text().splitlines() if line.startswith("warning: ")]


@pytest.mark.parametrize("name", TRAINED)
def test_usual_numbers_give_no_warning(name: str) -> None:
    assert build(name).warnings(FINE) == {}
    assert build(name).warnings({}) == {}


@pytest.mark.parametrize(("name", "seen", "warning"), ALARMING)
def test_each_warning_says_what_to_do(name: str, seen: dict[str, float], warning: str) -> None:
    settings = {"gamma": 0.95} if name == "ecoc" else {}
    found = build(name, **settings).warnings({**FINE, **seen})
    assert list(found) == [warning]
    assert "\n" not in found[warning]


def test_the_bound_of_q_follows_rewards_and_discount() -> None:
    """More than twice the largest reward over 1 - gamma; without discount there is none."""
    near, far = {**FINE, "q/policy": 39.9}, {**FINE, "q/policy": 40.1}
    assert build("ecoc", gamma=0.95).warnings(near) == {}
    assert list(build("ecoc", gamma=0.95).warnings(far)) == ["q"]
    assert list(build("ecoc", gamma=0.5).warnings({**FINE, "q/policy": 4.1})) == ["q"]
    assert build("ecoc", gamma=1.0).warnings({**FINE, "q/policy": 1e9}) == {}


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_goes_wrong_warns_once(data: Dataset, tmp_path: Path, name: str) -> None:
    settings, words = CASES[name]
    run = train(data, tmp_path / "run", name, train=EXPLODING, method=settings)
    said = warnings(run.path)
    assert sum(words in line for line in said) == 1, said
    kinds = Counter(line.split(": ", 2)[2][:12] for line in said)
    assert set(kinds.values()) == {1}


@pytest.mark.parametrize("name", TRAINED)
def test_a_warning_of_every_line_is_given_once_and_to_the_caller_too(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    seen: list[dict[str, float]] = []

    def warn(self: Method, found: dict[str, float]) -> dict[str, str]:
        seen.append(found)
        return {"always": "all is lost"} | ({"later": "even more"} if len(seen) > 2 else {})

    monkeypatch.setattr(METHODS[name], "warnings", warn)
    settings = {"encoder": {"dim": 8, "length": 6}, "train": {"max_steps": 6, "log_every": 1}}
    run = ecoc.train(data, tmp_path / "run", method=name, config=settings)
    assert len(seen) == 6
    expected = ["step 1: all is lost", "step 3: even more"]
    assert warnings(run.path) == [f"warning: {text}" for text in expected]
    assert [(name, text) for name, level, text in caplog.record_tuples if level == logging.WARNING] == [
        ("ecoc.training", text) for text in expected
    ]


def test_a_resumed_run_does_not_warn_again(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(self: Method, found: dict[str, float]) -> dict[str, str]:
        if is_to_stop and len(steps) == 3:
            raise RuntimeError("stop here")
        steps.append(1)
        return {"always": "all is lost"}

    monkeypatch.setattr(METHODS["ecoc"], "warnings", warn)
    steps: list[int] = []
    plan = {"max_steps": 6, "log_every": 1, "validate_every": 1, "patience": 0}
    is_to_stop = True
    with pytest.raises(RuntimeError, match="stop here"):
        train(data, tmp_path / "run", "ecoc", train=plan)
    is_to_stop = False
    ecoc.train(data, tmp_path / "run", resume=True)
    assert Run(tmp_path / "run").result.steps == 6
    assert warnings(tmp_path / "run") == ["warning: step 1: all is lost"]
