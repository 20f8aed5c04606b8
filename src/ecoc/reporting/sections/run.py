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
from ecoc.storage.trusted import is_there

_MOST = 5  # results of one kind, the newest first

R = TypeVar("R")


def run_sections(path: Path) -> list[Section]:
    """How the run trained, then the results of evaluate, compare, simulate, choose_weight and normtest kept in it."""
    training = training_section(path)
    if not is_there(path / RESULT):
        return [training]
    saved = saved_results(Run(path), strict=False)
    problems = list(saved.problems)
    sections = [
        *_newest("evaluation", saved.evaluations, ranking_section, problems),
        *_newest("comparison", saved.comparisons, comparison_section, problems),
        *_newest("simulation", saved.simulations, simulation_section, problems),
        *_newest("choice of w", [saved.weight_choice] if saved.weight_choice else [], weight_section, problems),
        *_newest("normalisation test", saved.norm_tests, norm_test_section, problems),
    ]
    return [training.model_copy(update={"caveats": [*training.caveats, *problems]}), *sections]


def _newest(kind: str, results: Sequence[R], section: Callable[[R], Section], problems: list[str]) -> list[Section]:
    """Sections of the newest results; one that was written by something else and lacks a value is a problem."""
    sections = []
    for result in results[: -_MOST - 1 : -1]:
        try:
            sections.append(section(result))
        except (KeyError, ValueError) as error:
            problems.append(f"A saved {kind} cannot be shown: {str(error)[:200]}")
    if len(results) > _MOST:
        problems.append(f"{len(results) - _MOST} older results of kind {kind} are kept in the run and not shown.")
    return sections
