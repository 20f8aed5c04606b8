"""Folders that version 0.1 wrote still open, act, resume and report as they did."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ecoc
from ecoc.cli import app

FOLDERS = Path(__file__).parent.parent / "fixtures" / "version_0_1"
HISTORY = {"supervised": "i0003,i0017", "ecoc": "i0003:buy,i0017"}


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A copy that may be written to."""
    return Path(shutil.copytree(FOLDERS, tmp_path / "folders"))


def answer(*words: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*map(str, words), "--json", "--quiet"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def recorded(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDERS / f"{name}.json").read_text())
    return content


def lists(content: dict[str, Any]) -> list[tuple[str, str]]:
    return [(row["item"], row["title"]) for row in content["results"][0]["items"]]


def test_a_dataset_opens_and_every_file_matches_its_checksum(folders: Path) -> None:
    content = answer("info", folders / "data", "--verify")
    assert content["counts"]["interactions"] == 2000
    assert content["checksum"] == json.loads((FOLDERS / "data" / "manifest.json").read_text())["checksum"]


@pytest.mark.parametrize("run", HISTORY)
def test_a_run_recommends_what_it_recommended(folders: Path, run: str) -> None:
    if run == "ecoc":
        (folders / run / "acting.json").unlink()
    now, before = answer("recommend", folders / run, "--history", HISTORY[run], "-k", 5), recorded(f"{run}-recommend")
    assert lists(now) == lists(before)
    for new, old in zip(now["results"][0]["items"], before["results"][0]["items"], strict=True):
        assert new["score"] == pytest.approx(old["score"], rel=1e-5)
        assert (new["value"] is None) == (old["value"] is None)
        assert new["value"] == (None if old["value"] is None else pytest.approx(old["value"], rel=1e-5))


def test_the_weight_that_was_chosen_for_a_run_is_used(folders: Path) -> None:
    assert ecoc.load(folders / "ecoc").policy.ranking_mode == "blend-w3"
    now = answer("recommend", folders / "ecoc", "--history", HISTORY["ecoc"], "-k", 5)
    assert lists(now) == lists(recorded("ecoc-chosen-recommend")) != lists(recorded("ecoc-recommend"))


def test_runs_are_evaluated_as_they_were(folders: Path) -> None:
    now = answer("evaluate", folders / "supervised", "--data", folders / "data")
    before = recorded("supervised-evaluate")
    assert now["cases"] == before["cases"]
    assert now["metrics"] == pytest.approx(before["metrics"], abs=1e-6)


def test_ranks_that_were_kept_are_read_and_not_computed_again(folders: Path) -> None:
    ranks = folders / "supervised" / "evaluations" / "test.safetensors"
    written = ranks.stat().st_mtime_ns
    answer("compare", folders / "supervised", folders / "ecoc", "--data", folders / "data", "--no-untrained")
    assert ranks.stat().st_mtime_ns == written


def test_a_stopped_run_is_resumed_to_its_end(folders: Path) -> None:
    stopped = folders / "stopped"
    before = [json.loads(line) for line in (stopped / "metrics.jsonl").read_text().splitlines()]
    content = answer("train", folders / "data", "-o", stopped, "--resume")
    assert content["steps"] == 40
    now = [json.loads(line) for line in (stopped / "metrics.jsonl").read_text().splitlines()]
    assert now[: len(before)] == before
    assert content["validation"] == pytest.approx(answer("info", folders / "ecoc")["validation"], rel=1e-3), (
        "the uninterrupted run with the same settings"
    )


def test_a_report_of_an_experiment_is_drawn_again(folders: Path) -> None:
    content = answer("report", folders / "experiment")
    assert content["sections"] == 1
    assert content["tables"]
    assert "ecoc" in (folders / "experiment" / "report.html").read_text().lower()


def test_the_jobs_of_an_experiment_are_found_again(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecoc.__version__", "0.1.0")  # another version computes every job again, on purpose
    out = folders / "experiment"
    (out / "plan.json").write_text('{"plans": {}}')
    before = {path: path.stat().st_mtime_ns for path in out.glob("cells/**/*.json")}
    words = ["--seeds", 1, "--steps", 10, "--max-cases", 100, "--encoders", "gru4rec"]
    content = answer("reproduce", "ablation", folders / "data", "-o", out, *words)
    assert {row["status"] for row in content["cells"]} == {"done"}
    unchanged = {path: stamp for path, stamp in before.items() if "ecoc-paper" not in str(path.relative_to(out))}
    assert len(unchanged) == 10
    assert {path: path.stat().st_mtime_ns for path in unchanged} == unchanged
    trained = {path.parts[-3] for path in out.glob("runs/*/*/*/seed-0")}
    assert trained
    assert all("paper" in name for name in trained), "only rows of preset paper, whose settings have changed"
