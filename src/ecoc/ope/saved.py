"""Everything that was computed about a run and is kept in its folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import Field

from ecoc.errors import ArtifactError, InputError
from ecoc.evaluation.results import Comparison, EvaluationResult, NormTestResult
from ecoc.ope.results import SimulationResult, WeightChoice
from ecoc.result import Result
from ecoc.runs.folder import ACTING, Run
from ecoc.runs.saved import COMPARISON, EVALUATION, NORM_TEST, NOT_CHOSEN, SIMULATION, load_results
from ecoc.storage.trusted import load_json

R = TypeVar("R", bound=Result)


class SavedResults(Result):
    """Results of a run's present weights, oldest first; those of earlier weights are left out."""

    evaluations: list[EvaluationResult]
    comparisons: list[Comparison]
    simulations: list[SimulationResult]
    norm_tests: list[NormTestResult]
    weight_choice: WeightChoice | None = Field(description="the newest, also if no weight could be chosen")
    problems: list[str] = Field(default_factory=list, description="files that cannot be read, and why")


def saved_results(run: Run, *, strict: bool = True) -> SavedResults:
    """Read what is kept in a run; a broken file is an ArtifactError, or without `strict` one of the problems."""
    problems: list[str] = []

    def read_all(file: str, kind: type[R]) -> list[R]:
        with _collected(problems, strict=strict):
            return load_results(run, file, kind)
        return []

    choices = read_all(NOT_CHOSEN, WeightChoice)
    with _collected(problems, strict=strict):
        choices = choices or _chosen(run)
    return SavedResults(
        evaluations=read_all(EVALUATION, EvaluationResult),
        comparisons=read_all(COMPARISON, Comparison),
        simulations=read_all(SIMULATION, SimulationResult),
        norm_tests=read_all(NORM_TEST, NormTestResult),
        weight_choice=choices[0] if choices else None,
        problems=problems,
    )


@contextmanager
def _collected(problems: list[str], *, strict: bool) -> Iterator[None]:
    try:
        yield
    except ArtifactError as error:
        if strict:
            raise
        problems.append(str(error))


def _chosen(run: Run) -> list[WeightChoice]:
    """The evidence of the chosen weight; nothing if no weight was chosen for these weights, or without evidence."""
    if run.chosen_ranking() is None:  # reads the file with its limits
        return []
    try:
        evidence = load_json(run.path / ACTING, remedy="choose again, or remove it").get("evidence")
        return [WeightChoice.model_validate(evidence)] if evidence else []
    except (ValueError, InputError):
        raise ArtifactError(f"{run.path / ACTING}: its evidence is not readable; choose again, or remove it") from None
