"""The report of a run shows everything that is known about it."""

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
    last = next(section for section in run_sections(run.path) if "part 2" in section.title)
    assert last.caveats[-1] == "3 older results of this kind are kept in the run and not shown."


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
    assert any("simulation.json: not readable" in text for text in training.caveats)
    assert [section.id for section in others] == ["ranking", "comparison", "weight", "normtest"]


def test_a_run_that_trained_again_does_not_show_what_was_said_of_other_weights(tmp_path: Path) -> None:
    folder = known_run(tmp_path / "ecoc")
    make_run(folder, result={**RESULT, "weights_sha256": "other"})
    assert [section.id for section in run_sections(folder)] == ["ecoc"]
