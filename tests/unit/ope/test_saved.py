"""What was computed about a run is kept in its folder, read back, and left out once it is stale."""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from simulate_case import SMALL, hasty, simulated_runs

import ecoc
from ecoc.errors import ArtifactError, InputError
from ecoc.evaluation.results import EvaluationResult
from ecoc.ope import evaluator as evaluator_module
from ecoc.ope.saved import saved_results
from ecoc.reporting.sections.run import run_sections
from ecoc.runs import saved as saved_module
from ecoc.runs.folder import Run
from ecoc.runs.saved import COMPARISON, EVALUATION, NORM_TEST, SIMULATION, load_results, save_result

FILES = (EVALUATION, COMPARISON, SIMULATION, NORM_TEST)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True, scope="module")
def few_steps() -> Iterator[None]:
    with hasty():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_runs(tmp_path_factory.getbasetemp())


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    for name in ("ecoc", "supervised", "retrained"):
        shutil.copytree(made / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def read_only(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing is refused as in a read-only folder; root may write all_states, so permissions are no help."""
    plain_open, plain_mkdir = os.open, Path.mkdir

    def refuse(path: Path) -> PermissionError:
        return PermissionError(errno.EACCES, "Permission denied", str(path))

    def open_(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise refuse(path)
        return plain_open(path, flags, *args, **options)

    def mkdir(self: Path, *args: Any, **options: Any) -> None:
        if not self.is_dir():
            raise refuse(self)
        plain_mkdir(self, *args, **options)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr("os.access", lambda path, mode: False)


def test_everything_that_was_computed_is_read_back(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator_module, "simulator_warnings", lambda _: [])
    both = [runs / "supervised", runs / "ecoc"]
    evaluations = [ecoc.evaluate(runs / "ecoc", max_cases=40), ecoc.evaluate(runs / "ecoc", exclude_seen=True)]
    comparison = ecoc.compare(both, max_cases=40)
    simulation = ecoc.simulate(both, config=SMALL)
    norm_test = ecoc.normtest([runs / "ecoc"], samples=50, repeats=2)
    choice = ecoc.choose_weight(runs / "ecoc", weights=(2.0,), config=SMALL)
    saved = saved_results(Run(runs / "ecoc"))
    assert saved.evaluations == evaluations
    assert saved.comparisons == [comparison]
    assert saved.simulations == [simulation]
    assert saved.norm_tests == [norm_test]
    assert saved.weight_choice == choice
    assert saved.problems == []
    other = saved_results(Run(runs / "supervised"))
    assert (other.comparisons, other.simulations) == ([comparison], [simulation])
    assert (other.evaluations, other.norm_tests, other.weight_choice) == ([], [], None)
    entry = next(iter(json.loads((runs / "ecoc" / EVALUATION).read_text())["results"].values()))
    result = Run(runs / "ecoc").result
    assert result.data is not None
    assert (entry["weights_sha256"], entry["data_sha256"]) == (result.weights_sha256, result.data.checksum)


def test_a_run_without_results_has_none(runs: Path) -> None:
    saved = saved_results(Run(runs / "ecoc"))
    assert set(map(str, saved.model_dump().values())) == {"[]", "None"}


def test_the_newest_of_each_key_is_kept(runs: Path) -> None:
    ecoc.evaluate(runs / "ecoc", max_cases=30, untrained=False)
    ecoc.evaluate(runs / "ecoc", max_cases=30, untrained=False, rank_by="policy")
    newest = ecoc.evaluate(runs / "ecoc", max_cases=30, metrics=["hr@3"])
    modes = [(one.ranking_mode, sorted(one.metrics)[0]) for one in saved_results(Run(runs / "ecoc")).evaluations]
    assert modes == [("policy", "hr@10"), ("blend-w10", "hr@3")]
    assert saved_results(Run(runs / "ecoc")).evaluations[-1] == newest


def test_results_of_other_weights_or_data_are_not_shown_and_dropped_at_the_next_save(runs: Path) -> None:
    ecoc.evaluate(runs / "ecoc", max_cases=30, untrained=False)
    shutil.copy(runs / "ecoc" / EVALUATION, runs / "retrained" / EVALUATION)
    assert saved_results(Run(runs / "retrained")).evaluations == []
    ecoc.evaluate(runs / "retrained", max_cases=30, untrained=False, rank_by="policy")
    assert len(json.loads((runs / "retrained" / EVALUATION).read_text())["results"]) == 1
    path = runs / "ecoc" / EVALUATION
    content = json.loads(path.read_text())
    next(iter(content["results"].values()))["data_sha256"] = "0" * 64
    path.write_text(json.dumps(content))
    assert saved_results(Run(runs / "ecoc")).evaluations == []


@pytest.mark.parametrize("away", [False, True])
def test_a_comparison_is_not_shown_after_another_of_its_runs_was_trained_again(runs: Path, away: bool) -> None:
    ecoc.compare([runs / "ecoc", runs / "supervised"], max_cases=30, untrained=False)
    place = Path(shutil.move(runs, runs.with_name("moved"))) if away else runs
    assert all(len(saved_results(Run(place / name)).comparisons) == 1 for name in ("ecoc", "supervised"))
    shutil.copy(place / "retrained" / "result.json", place / "supervised" / "result.json")
    assert saved_results(Run(place / "ecoc")).comparisons == []
    assert saved_results(Run(place / "supervised")).comparisons == []
    shutil.rmtree(place / "supervised")
    assert len(saved_results(Run(place / "ecoc")).comparisons) == 1


def test_a_choice_without_a_trusted_weight_is_kept_until_a_weight_is_chosen(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(runs / "ecoc")
    reasons = ["the log is too small"]
    monkeypatch.setattr(evaluator_module, "simulator_warnings", lambda quality: reasons)
    undecided = ecoc.choose_weight(run.path, config=SMALL, weights=[1.0])
    assert undecided.w is None
    assert saved_results(run).weight_choice == undecided
    assert run.chosen_ranking() is None
    [section] = [section for section in run_sections(run.path) if section.id == "weight"]
    assert section.text == ["Not chosen, the run ranks as before: the log is too small."]
    reasons.clear()
    chosen = ecoc.choose_weight(run.path, config=SMALL, weights=[1.0])
    assert chosen.w is not None
    kept = saved_results(run).weight_choice
    assert kept is not None
    assert kept.w == chosen.w


def test_nothing_is_written_unless_it_is_to_be_saved(runs: Path) -> None:
    before = sorted(runs.rglob("*"))
    ecoc.evaluate(runs / "ecoc", max_cases=30, untrained=False, save=False)
    ecoc.compare([runs / "ecoc"], max_cases=30, save=False)
    ecoc.normtest([runs / "ecoc"], samples=20, repeats=1, save=False)
    assert sorted(runs.rglob("*")) == before


@pytest.mark.parametrize("broken", ["", "{", "[]", "null", "[" * 100_000, '{"results": {"a": {}}}', "wrong result"])
@pytest.mark.parametrize("file", FILES)
def test_a_broken_file_is_an_artifact_error_or_a_plain_line(runs: Path, file: str, broken: str) -> None:
    run = Run(runs / "ecoc")
    text = broken
    if broken == "wrong result":
        result = run.result
        assert result.data is not None
        belongs = {"weights_sha256": result.weights_sha256, "data_sha256": result.data.checksum}
        text = json.dumps({"results": {"key": {**belongs, "result": {"run": 3}}}})
    (run.path / file).write_text(text)
    with pytest.raises(ArtifactError, match=rf"{file}: (not readable|holds no JSON object).*remove it"):
        saved_results(run)
    [problem] = saved_results(run, strict=False).problems
    assert file in problem
    assert "\n" not in problem


def test_a_file_that_is_too_large_is_not_read(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ecoc.evaluate(runs / "ecoc", max_cases=30, untrained=False)
    monkeypatch.setattr(saved_module, "_LARGEST", 100)
    with pytest.raises(ArtifactError, match="more than the limit of 100"):
        saved_results(Run(runs / "ecoc"))


def test_a_broken_file_does_not_stop_a_new_result(runs: Path) -> None:
    (runs / "ecoc" / EVALUATION).write_text("{")
    result = ecoc.evaluate(runs / "ecoc", max_cases=30, untrained=False)
    assert saved_results(Run(runs / "ecoc")).evaluations == [result]


def test_a_file_keeps_so_many_keys_and_no_more(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_module, "_MOST_ENTRIES", 3)
    run = Run(runs / "ecoc")
    result = ecoc.evaluate(run.path, max_cases=30, untrained=False, save=False)
    for number in range(5):
        save_result(run, EVALUATION, f"key {number}", result.model_copy(update={"split": f"split {number}"}))
    assert [one.split for one in load_results(run, EVALUATION, EvaluationResult)] == ["split 2", "split 3", "split 4"]


def test_an_unreadable_choice_of_w_is_a_problem_too(runs: Path) -> None:
    run = Run(runs / "ecoc")
    chosen = {"rank_by": "blend", "w": 3.0, "weights_sha256": run.result.weights_sha256}
    (run.path / "acting.json").write_text(json.dumps(chosen | {"evidence": {}}))
    assert saved_results(run).weight_choice is None
    (run.path / "acting.json").write_text(json.dumps(chosen | {"evidence": {"w": 3}}))
    with pytest.raises(ArtifactError, match="evidence is not readable"):
        saved_results(run)
    assert "acting.json" in saved_results(run, strict=False).problems[0]


@pytest.mark.usefixtures("read_only")
def test_in_a_read_only_folder_results_are_computed_and_the_note_says_that_nothing_was_saved(runs: Path) -> None:
    note = f"not saved: {runs / 'ecoc'} is read-only"
    assert ecoc.evaluate(runs / "ecoc", max_cases=30, untrained=False).notes == [note]
    assert ecoc.compare([runs / "ecoc"], max_cases=30, untrained=False).notes == [note]
    assert ecoc.simulate([runs / "ecoc"], config=SMALL).notes[-1] == note
    assert ecoc.normtest([runs / "ecoc"], samples=20, repeats=1).notes == [note]
    assert not any((runs / "ecoc" / file).exists() for file in FILES)


@pytest.mark.usefixtures("read_only")
def test_a_weight_is_not_chosen_in_a_read_only_folder(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecoc.ope.choose_weight.data_of", lambda *_: pytest.fail("work has begun"))
    with pytest.raises(InputError, match="ecoc: the folder is read-only, so nothing can be saved in it"):
        ecoc.choose_weight(runs / "ecoc", config=SMALL)


def test_a_full_disk_is_no_read_only_folder(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_open = os.open

    def full(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_WRONLY:
            raise OSError(errno.ENOSPC, "No space left on device")
        return plain_open(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(ecoc.ResourceError, match="No space left"):
        ecoc.evaluate(runs / "ecoc", max_cases=30, untrained=False)
