"""`ecoc.compare`: runs ranked on the same logged cases, and their paired differences."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import combinations, zip_longest
from os import PathLike

import numpy as np

from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.evaluator import Options, RankingEvaluator, RankingResult
from ecoc.evaluation.metrics import NAMES, check_metrics
from ecoc.evaluation.metrics import metrics as values_of
from ecoc.evaluation.opening import common_data, excludes_seen, open_models
from ecoc.evaluation.results import Comparison, PairedDifference, RankedPolicy
from ecoc.evaluation.statistics import holm, paired
from ecoc.model import Model
from ecoc.policies.base import RankBy
from ecoc.progress import ProgressCallback, no_progress
from ecoc.runs.saved import COMPARISON, save_in_runs, saving

COMPARED = ("hr@10", "mrr@10", "ndcg@10")


def compare(  # noqa: PLR0913 - one parameter per option
    models: Sequence[Model | str | PathLike[str]],
    data: Dataset | str | PathLike[str] | None = None,
    *,
    metrics: Sequence[str] = COMPARED,
    split: str = "test",
    max_cases: int = 0,
    exclude_seen: bool | None = None,
    untrained: bool = True,
    rank_by: RankBy | None = None,
    w: float | None = None,
    m: int | None = None,
    seed: int = 0,
    save: bool = True,
    progress: ProgressCallback | None = None,
    names: Sequence[str] | None = None,
) -> Comparison:
    """Rank the same cases by several runs: paired differences with 95 % intervals and p-values, over users.

    `metrics` are those whose differences are tested; `p_holm` is corrected for all of these tests. A run that was
    evaluated before is not ranked again. The other options are those of `evaluate`; runs without a critic keep their
    ranking mode. The comparison is saved in each run.
    """
    if names is not None:
        warnings.warn("names= is called metrics= now", DeprecationWarning, stacklevel=2)
    tested = check_metrics(metrics if names is None else names)
    opened = open_models(models, rank_by, w=w, m=m)
    dataset = common_data(opened, data)
    watch = progress or no_progress
    history = opened[0].config.train.min_history
    if any(model.config.train.min_history != history for model in opened):
        raise InputError("the runs differ in train.min_history, so they have no common test cases; train them alike")
    is_excluded = excludes_seen(opened, exclude_seen)
    options = Options(split, max_cases, is_excluded, history, seed)
    evaluator = RankingEvaluator(dataset, options)
    not_saved: list[str] = []
    results = [_ranked(model, evaluator, watch, not_saved if save else None) for model in opened]
    if untrained:
        results += evaluator.untrained(max(model.policy.length for model in opened), watch)
    named = _numbered(results)
    shown = tuple(dict.fromkeys([*NAMES, *tested]))
    comparison = Comparison(
        data=str(dataset.path),
        split=split,
        cases=len(evaluator.cases),
        users=len(np.unique(evaluator.users)),
        exclude_seen=is_excluded,
        runs=[
            RankedPolicy(
                name=name,
                ranking_mode=model.policy.ranking_mode if model else "policy",
                metrics=result.means(names=shown),
                **result.lists.model_dump(),
            )
            for (name, result), model in zip_longest(named.items(), opened)
        ],
        pairs=_pairs(named, len(opened), evaluator, tested),
        notes=evaluator.notes(is_default=exclude_seen is None, untrained=untrained),
    )
    if save:
        modes = (f"{name} {model.policy.ranking_mode}" for name, model in zip(named, opened, strict=False))
        key = f"{options.name}: {', '.join(modes)}"
        not_saved += save_in_runs([model.run for model in opened], COMPARISON, key, comparison)
    return comparison.model_copy(update={"notes": [*comparison.notes, *dict.fromkeys(not_saved)]})


def _ranked(
    model: Model, evaluator: RankingEvaluator, watch: ProgressCallback, not_saved: list[str] | None
) -> RankingResult:
    """The ranks that are kept, or new ones, which are kept then."""
    kept = evaluator.kept_ranks(model)
    if kept is not None:
        return kept
    result = evaluator.evaluate(model.name, model.policy, watch)
    if not_saved is not None:
        with saving(model.run, not_saved):
            evaluator.save_ranks(model, result)
    return result


def _pairs(
    named: Mapping[str, RankingResult], runs: int, evaluator: RankingEvaluator, names: Sequence[str]
) -> list[PairedDifference]:
    """Each of the first `runs` with all after it, on every metric and on the same resamples of users."""
    values = {name: np.stack(list(values_of(result.ranks, names).values())) for name, result in named.items()}
    couples = [couple for couple in combinations(named, 2) if couple[0] in list(named)[:runs]]
    if not couples:
        return []
    firsts = np.concatenate([values[a] for a, _ in couples])
    tests = paired(firsts, np.concatenate([values[b] for _, b in couples]), evaluator.users)
    keys = [(a, b, metric) for a, b in couples for metric in names]
    numbers = np.stack([tests.difference, tests.low, tests.high, tests.p, holm(tests.p)], axis=1).tolist()
    return [
        PairedDifference(a=a, b=b, metric=metric, difference=difference, low=low, high=high, p=p, p_holm=p_holm)
        for (a, b, metric), (difference, low, high, p, p_holm) in zip(keys, numbers, strict=True)
    ]


def _numbered(results: Sequence[RankingResult]) -> dict[str, RankingResult]:
    """By name; a name that occurs again is numbered."""
    named: dict[str, RankingResult] = {}
    for result in results:
        name, number = result.name, 2
        while name in named:
            name, number = f"{result.name} ({number})", number + 1
        named[name] = result
    return named
