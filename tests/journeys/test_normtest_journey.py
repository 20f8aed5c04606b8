"""`ecoc normtest` through the real command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ecoc

ECOC = Path(sys.executable).parent / "ecoc"


def run(folder: Path, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [str(ECOC), "normtest", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared world and three runs on it."""
    folder = tmp_path_factory.mktemp("normtest")
    data = ecoc.prepare("world:small", folder / "market", threads=1)
    settings = {"train": {"max_steps": 5, "threads": 1, "validation_cases": 50}}
    ecoc.train(data, folder / "sasrec", config=settings)
    ecoc.train(data, folder / "gru4rec", encoder="gru4rec", config=settings)
    ecoc.train(data, folder / "popular", method="popular")
    return folder


def test_the_answer_keeps_the_contract_and_equals_python(journey: Path) -> None:
    flags = ("--samples", 400, "--repeats", 3, "--seed", 2, "--max-items", 150, "--threads", 1)
    done = run(journey, "sasrec", "gru4rec", *flags, "--json")
    assert done.stdout.count("\n") == 1
    found = json.loads(done.stdout)
    assert [row["encoder"] for row in found["rows"]] == ["sasrec", "gru4rec"]
    for row in found["rows"]:
        assert {"mean", "std", "t", "p", "n", "repeats", "clipped", "dropped"} <= set(row)
        assert (row["n"], row["repeats"], row["items"]) == (400, 3, 150)
    assert len(found["controls"]) == 4
    assert found["control"]["norms"] == "trained"
    assert all(set(entry) == {"k", "cosine", "count"} for entry in found["cosine_by_rank"])

    from ecoc.evaluation.norm_test import normtest

    same = normtest([journey / "sasrec"], samples=400, repeats=3, seed=2, max_items=150)
    assert found["rows"][0]["mean"] == pytest.approx(same.rows[0].mean, abs=1e-5)


def test_the_page_tells_the_test_its_controls_and_the_cosines(journey: Path) -> None:
    page = run(journey, "sasrec", "--samples", 4000, "--repeats", 1, "--quiet").stdout
    for part in ("effect", "clipped", "dropped", "random directions, its own norms", "random vectors", "cosine"):
        assert part in page
    assert "with replacement" in page
    assert "the paper" not in page  # has no such dataset


def test_mistakes_are_one_line(journey: Path) -> None:
    assert "method popular" in run(journey, "popular", code=2).stderr
    run(journey, "sasrec", "--samples", 1, code=2)
    assert run(journey, "--help").stdout.count("--max-items") == 1
