"""`ecoc simulate` through the real command line."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ecoc

ECOC = Path(sys.executable).parent / "ecoc"
PLAIN = [  # half of the items are always bought, the others never: easy to simulate
    f"u{user},i{(item := (user * 7 + step * 3 + step * step) % 10)},{step},{'buy' if item < 5 else 'skip'}\n"
    for user in range(60)
    for step in range(20)
]
FAST = ("--users", 20, "--horizon", 4, "--members", 1, "--threads", 1)


def run(folder: Path, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [str(ECOC), "simulate", *map(str, arguments)]
    env = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small world, a run with a critic and one without, and one on other data."""
    folder = tmp_path_factory.mktemp("simulate")
    train = {"max_steps": 3, "threads": 1, "validation_cases": 20, "validate_every": 3}
    settings = {"encoder": {"dim": 8, "length": 8}, "train": train}
    data = ecoc.prepare("world:small", folder / "market", threads=1, events=600, validation=0.2)
    for method in ("supervised", "ecoc"):
        ecoc.train(data, folder / method, method=method, config=settings)
    other = ecoc.prepare("world:small", folder / "elsewhere", threads=1, events=400, seed=1)
    ecoc.train(other, folder / "foreign", method="popular")
    (folder / "events.csv").write_text("user,item,time,event\n" + "".join(PLAIN))
    plain = ecoc.prepare(
        folder / "events.csv",
        folder / "plain",
        threads=1,
        user="user",
        item="item",
        time="time",
        feedback="event",
        reward={"skip": 0, "buy": 1},
        validation=0.2,
    )
    ecoc.train(plain, folder / "learnt", method="ecoc", config=settings)
    return folder


def test_the_answer_keeps_the_contract(journey: Path) -> None:
    done = run(journey, "supervised", "ecoc", *FAST, "--json")
    assert done.stdout.count("\n") == 1
    found = json.loads(done.stdout)
    assert {"log_loss", "calibration_error", "reward_error"} <= set(found["simulator"])
    names = [row["name"] for row in found["policies"]]
    assert names == ["logged", "random", "popular", "best item", "supervised", "ecoc", "ecoc, cloned policy"]
    for row in found["policies"]:
        assert {"name", "reward", "ratio", "low", "high"} <= set(row)
    for row in found["estimators"]:
        assert {"policy", "estimator", "value", "low", "high", "ess"} <= set(row)
    assert found["policies"][0]["ratio"] == 1
    assert (found["settings"]["users"], found["settings"]["horizon"], found["settings"]["members"]) == (20, 4, 1)
    assert not (journey / "ecoc" / "acting.json").exists(), "nothing was chosen"


def test_a_weight_is_chosen_drawn_and_acted_on(journey: Path, tmp_path: Path) -> None:
    shutil.copytree(journey / "learnt", tmp_path / "ecoc")
    page = run(tmp_path, "ecoc", "--choose-w", *FAST, "--data", journey / "plain", "--quiet").stdout
    kept = json.loads((tmp_path / "ecoc" / "acting.json").read_text())
    assert f"chosen: w = {kept['w']:g}" in page
    assert [point["w"] for point in kept["evidence"]["points"]] == [0, 1, 2, 5, 10, 20, 50]
    assert (tmp_path / "ecoc" / "acting.svg").read_text().startswith("<svg")
    assert ecoc.load(tmp_path / "ecoc").policy.ranking_mode == f"blend-w{kept['w']:g}"


def test_a_log_that_teaches_too_little_lets_nothing_be_chosen(journey: Path) -> None:
    page = run(journey, "ecoc", "--choose-w", *FAST, "--quiet").stdout
    assert "not chosen, the run ranks as before: the simulators" in page
    assert not (journey / "ecoc" / "acting.json").exists()
    assert not (journey / "ecoc" / "acting.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("supervised", "--fit-on", "tests"), "did you mean 'test'"),
        (("ecoc", "supervised", "--choose-w"), "no critic"),
        (("ecoc", "--choose-w", "--fit-on", "log"), "must not see the test split"),
        (("supervised", "foreign"), "trained on other data"),
    ],
)
def test_mistakes_are_one_line(journey: Path, arguments: tuple[str, ...], told: str) -> None:
    done = run(journey, *arguments, *FAST, "--quiet", code=2)
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
    assert not (journey / "ecoc" / "acting.json").exists(), "nothing is written where anything is wrong"


@pytest.mark.parametrize("wrong", [("--users", 0), ("--penalty", -1), ("--mix", 2)])
def test_flags_out_of_range_are_refused(journey: Path, wrong: tuple[object, ...]) -> None:
    done = run(journey, "supervised", *wrong, code=2)
    assert str(wrong[0]) in done.stderr
    assert done.stdout == ""
