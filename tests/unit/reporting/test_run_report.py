"""The report of a run shows everything that is known about it."""

import re
from pathlib import Path

import pytest
from results_case import comparison, evaluation, norm_test, simulation, weight_choice
from test_training_section import RESULT, make_run

from ecoc.reporting.sections.run import run_sections
from ecoc.reporting.write import report
from ecoc.runs.folder import Run, save_acting
from ecoc.runs.saved import COMPARISON, EVALUATION, NORM_TEST, SIMULATION, save_result


def known_run(folder: Path) -> Path:
    """A run that was evaluated, compared, simulated, tested, and whose weight was chosen."""
    run = Run(make_run(folder, result={**RESULT, "weights_sha256": "ab12"}))
    save_result(run, EVALUATION, "test", evaluation(str(folder)))
    save_result(run, COMPARISON, "test", comparison("supervised", "ecoc"))
    save_result(run, SIMULATION, "log", simulation(ratios={"random": 0.9, "popular": -0.6, "best item": -0.7}))
    save_result(run, NORM_TEST, "300", norm_test())
    choice = weight_choice(run=str(folder))
    save_acting(run, "blend", 5.0, choice.model_dump(exclude={"picture"}))
    return folder


def test_everything_that_was_computed_is_shown(tmp_path: Path) -> None:
    files = report(known_run(tmp_path / "ecoc"))
    page = Path(files.report).read_text()
    sections = [
        "Run ecoc: ecoc sasrec",
        "Ranking what users did next: ecoc, test split",
        "Comparison of runs on the same cases",
        "Reward that the policies would earn, estimated from the log",
        "Choice of the weight w of the long-term value",
        "Statistical normalisation test",
    ]
    places = [page.index(f"<h2>{title}</h2>") for title in sections]
    assert places == sorted(places)
    assert "[0.0900, 0.1100]" in page, "intervals"
    assert "Not trusted: poor: it was never seen." in page, "trust"
    assert "Chosen: w = 5" in page
    assert files.empty == []


def test_the_newest_results_come_first_and_the_others_are_counted(tmp_path: Path) -> None:
    run = Run(known_run(tmp_path / "ecoc"))
    for number in range(7):
        save_result(run, EVALUATION, f"split {number}", evaluation().model_copy(update={"split": f"part {number}"}))
    titles = [section.title for section in run_sections(run.path) if section.id == "ranking"]
    assert titles == [f"Ranking what users did next: ecoc, part {number} split" for number in (6, 5, 4, 3, 2)]
    training = run_sections(run.path)[0]
    assert training.caveats[-1] == "3 older results of kind evaluation are kept in the run and not shown."


def test_results_of_several_runs_are_shown_once(tmp_path: Path) -> None:
    files = report([known_run(tmp_path / "a"), known_run(tmp_path / "b")])
    page = Path(files.report).read_text()
    for title in ("Comparison of runs", "Reward that the policies", "Statistical normalisation"):
        assert page.count(f"<h2>{title}") == 1
    assert page.count("<h2>Ranking what users did next") == 2


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 1, "results": {"a": {}}}', "\x00"])
def test_a_broken_file_is_named_and_the_rest_is_shown(tmp_path: Path, content: str) -> None:
    folder = known_run(tmp_path / "ecoc")
    (folder / SIMULATION).write_text(content)
    training, *others = run_sections(folder)
    assert any(re.search("simulation.json: (not readable|holds no JSON object)", text) for text in training.caveats)
    assert [section.id for section in others] == ["ranking", "comparison", "weight", "normtest"]


def test_a_result_that_lacks_a_value_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    folder = known_run(tmp_path / "ecoc")
    text = (folder / EVALUATION).read_text()
    (folder / EVALUATION).write_text(text.replace('"popular"', f'"{"W" * 9000}"', 1).replace('"ndcg@20"', '"x"', 1))
    training, *others = run_sections(folder)
    assert any("A saved evaluation cannot be shown" in text for text in training.caveats)
    assert [section.id for section in others] == ["comparison", "simulation", "weight", "normtest"]


def test_long_names_of_runs_are_shortened(tmp_path: Path) -> None:
    name = "W" * 250
    folder = known_run(tmp_path / name)
    save_result(Run(folder), COMPARISON, "long", comparison(name, f"{name}x"))
    assert [section.id for section in run_sections(folder)][1:4] == ["ranking", "comparison", "comparison"]


def test_a_run_that_trained_again_does_not_show_what_was_said_of_other_weights(tmp_path: Path) -> None:
    folder = known_run(tmp_path / "ecoc")
    make_run(folder, result={**RESULT, "weights_sha256": "other"})
    assert [section.id for section in run_sections(folder)] == ["ecoc"]
