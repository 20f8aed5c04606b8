"""`ecoc.evaluate`: ranking quality of a run on logged cases, with intervals."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecoc.data.sequences import Dataset
from ecoc.evaluation.evaluator import Options, RankingEvaluator, RankingResult
from ecoc.evaluation.metrics import NAMES, check_metrics
from ecoc.evaluation.metrics import metrics as values_of
from ecoc.evaluation.opening import data_of, excludes_seen
from ecoc.evaluation.ranks import is_seen
from ecoc.evaluation.results import Baseline, EvaluationResult, Subset
from ecoc.evaluation.statistics import bootstrap
from ecoc.model import Model, load
from ecoc.policies.base import RankBy
from ecoc.progress import ProgressCallback, no_progress
from ecoc.runs.saved import EVALUATION, is_read_only, not_saved, save_result, saving


def evaluate(  # noqa: PLR0913 - one parameter per option
    model: Model | str | PathLike[str],
    data: Dataset | str | PathLike[str] | None = None,
    *,
    metrics: Sequence[str] = NAMES,
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
) -> EvaluationResult:
    """Rank the true next item of every test case among all items, and average metrics with 95 % intervals over users.

    `metrics` are HR, MRR and NDCG at 5, 10 and 20 unless others are named. `max_cases` ranks a seeded sample only.
    `exclude_seen` leaves the items of a user's past out of the ranking (the paper keeps them); none: as validation did
    in training (`train.exclude_seen`). `untrained` adds rows for popular, recent and markov. `rank_by`, `w` and `m` set
    the ranking mode of a policy with a critic. The result and the ranks are saved in the run, unless `save` is off or
    the folder is read-only.
    """
    names = check_metrics(metrics)
    opened = (model if isinstance(model, Model) else load(model)).ranked_by(rank_by, w=w, m=m)
    dataset = data_of(opened, data)
    can_save = save and not is_read_only(opened.run, opened.run.evaluations)  # known before the work, not after it
    is_excluded = excludes_seen([opened], exclude_seen)
    options = Options(split, max_cases, is_excluded, opened.config.train.min_history, seed)
    watch = progress or no_progress
    evaluator = RankingEvaluator(dataset, options)
    ranked = evaluator.evaluate(opened.name, opened.policy, watch)
    baselines = evaluator.untrained(opened.policy.length, watch) if untrained else []
    seen = is_seen(dataset, evaluator.cases)
    intervals = bootstrap(np.stack(list(values_of(ranked.ranks, names).values())), evaluator.users)
    result = EvaluationResult(
        run=str(opened.run.path),
        data=str(dataset.path),
        split=split,
        cases=len(evaluator.cases),
        users=len(np.unique(evaluator.users)),
        items=opened.policy.items,
        exclude_seen=is_excluded,
        ranking_mode=opened.policy.ranking_mode,
        **_quality(ranked, seen, names),
        intervals={name: (float(low), float(high)) for name, (low, high) in zip(names, intervals, strict=True)},
        untrained=[
            Baseline(name=baseline.name, ranking_mode="policy", **_quality(baseline, seen, names))
            for baseline in baselines
        ],
        notes=evaluator.notes(is_default=exclude_seen is None, untrained=untrained),
        seconds=ranked.seconds,
    )
    if not can_save:
        return result.model_copy(update={"notes": [*result.notes, *[not_saved(opened.run)] * save]})
    with saving(opened.run) as notes:
        evaluator.save_ranks(opened, ranked)
        save_result(opened.run, EVALUATION, options.name_of(opened), result)
    return result.model_copy(update={"notes": [*result.notes, *notes]})


def _quality(ranked: RankingResult, seen: NDArray[np.bool_], names: tuple[str, ...]) -> dict[str, Any]:
    """Metrics of all cases and of those inside and outside the user's past, and what the lists look like."""
    subsets = {
        part: Subset(cases=int(chosen.sum()), metrics=ranked.means(chosen, names) if chosen.any() else None)
        for part, chosen in (("seen", seen), ("new", ~seen))
    }
    return {"metrics": ranked.means(names=names), **ranked.lists.model_dump(), **subsets}
