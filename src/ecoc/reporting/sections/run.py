"""Everything that is known about a run, as sections."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ecoc.ope.saved import saved_results
from ecoc.reporting.document import Section
from ecoc.reporting.sections.comparison import comparison_section
from ecoc.reporting.sections.norm_test import norm_test_section
from ecoc.reporting.sections.ranking import ranking_section
from ecoc.reporting.sections.simulation import simulation_section
from ecoc.reporting.sections.training import training_section
from ecoc.reporting.sections.weight_choice import weight_section
from ecoc.runs.folder import RESULT, Run

_MOST = 5  # results of one kind, the newest first

R = TypeVar("R")


def run_sections(path: Path) -> list[Section]:
    """How the run trained, then the results of evaluate, compare, simulate, choose_weight and normtest kept in it."""
    training = training_section(path)
    if not (path / RESULT).is_file():
        return [training]
    saved = saved_results(Run(path), strict=False)
    return [
        training.model_copy(update={"caveats": [*training.caveats, *saved.problems]}),
        *_newest(saved.evaluations, ranking_section),
        *_newest(saved.comparisons, comparison_section),
        *_newest(saved.simulations, simulation_section),
        *_newest([] if saved.weight_choice is None else [saved.weight_choice], weight_section),
        *_newest(saved.norm_tests, norm_test_section),
    ]


def _newest(results: Sequence[R], section: Callable[[R], Section]) -> list[Section]:
    sections = [section(result) for result in results[: -_MOST - 1 : -1]]
    left_out = len(results) - len(sections)
    if left_out:
        note = f"{left_out} older results of this kind are kept in the run and not shown."
        sections[-1] = sections[-1].model_copy(update={"caveats": [*sections[-1].caveats, note]})
    return sections
