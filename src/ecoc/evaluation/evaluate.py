"""`ecoc.evaluate` and `ecoc.compare`: runs judged on the same logged cases, with intervals and paired tests."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ecoc.data.loader import dims_of, histories, open_cases, open_train_sequences
from ecoc.data.sequences import Dataset, open_data
from ecoc.errors import ArtifactError, InputError
from ecoc.evaluation import beyond_accuracy as beyond
from ecoc.evaluation.metrics import KS, NAMES, means, metrics
from ecoc.evaluation.ranks import is_seen, list_cases, rank_cases
from ecoc.evaluation.results import (
    Baseline,
    Comparison,
    EvaluationResult,
    ListQuality,
    PairedDifference,
    RankedPolicy,
    Subset,
)
from ecoc.evaluation.statistics import bootstrap, holm, paired
from ecoc.methods import METHODS
from ecoc.methods.build import build_method
from ecoc.model import Model, load
from ecoc.policies.base import Policy, RankBy
from ecoc.progress import ProgressCallback, no_progress
from ecoc.runs.config import RunConfig
from ecoc.runs.folder import EVALUATIONS
from ecoc.storage.checkpoint import load_checkpoint, save_checkpoint

UNTRAINED = tuple(name for name in METHODS if not METHODS[name].is_trained)
_LIST = 10
_LISTED = 10_000  # cases whose lists are looked at beyond accuracy
COMPARED = ("hr@10", "mrr@10", "ndcg@10")


@dataclass(frozen=True)
class Options:
    """What is judged; runs are comparable if these and the data agree."""

    split: str = "test"
    max_cases: int = 0
    exclude_seen: bool = False
    min_history: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.split not in ("test", "validation"):
            raise InputError(f"split {self.split!r:.40}: expected test or validation")
        if self.max_cases < 0 or self.seed < 0:
            raise InputError(f"max_cases {self.max_cases} and seed {self.seed}: neither may be below 0")

    @property
    def name(self) -> str:
        """Name of the files that keep the result."""
        extra = [f"max-{self.max_cases}-seed-{self.seed}"] * (self.max_cases > 0)
        extra += ["exclude-seen"] * self.exclude_seen + [f"after-{self.min_history}"] * (self.min_history > 1)
        return "-".join([self.split, *extra])


@dataclass(frozen=True)
class RankingResult:
    """One policy's results."""

    name: str
    ranks: NDArray[np.float64]
    lists: ListQuality
    seconds: float

    def means(self, chosen: NDArray[np.bool_] | None = None) -> dict[str, float]:
        """Metrics over all cases, or the chosen ones."""
        return means(self.ranks if chosen is None else self.ranks[chosen])


class RankingEvaluator:
    """A dataset's cases under some options, to judge any number of policies on."""

    def __init__(self, data: Dataset, options: Options) -> None:
        self.data, self.options = data, options
        self.cases = open_cases(
            data, options.split, min_history=options.min_history, most=options.max_cases, seed=options.seed
        )
        if not len(self.cases):
            raise InputError(f"{data.path}: the {options.split} split has no case to judge; prepare with another split")
        self.users = data.users[self.cases.sequence]
        self.sessions = open_train_sequences(data)

    def judge(self, name: str, policy: Policy, watch: ProgressCallback = no_progress) -> RankingResult:
        """Rank every case; look at the lists of a sample of them."""
        started = time.perf_counter()
        total = len(self.cases)
        ranks = rank_cases(
            policy,
            self.data,
            self.cases,
            exclude_seen=self.options.exclude_seen,
            watch=lambda done: watch(f"rank {name}", done, total),
        )
        return RankingResult(name, ranks, self._beyond(policy), time.perf_counter() - started)

    def _beyond(self, policy: Policy) -> ListQuality:
        chosen = np.random.default_rng(0).permutation(len(self.cases))[:_LISTED]
        sample = self.cases.part(np.sort(chosen))
        lists = list_cases(policy, self.data, sample, _LIST, exclude_seen=self.options.exclude_seen)
        share = self.data.vocab.popularity()
        past = histories(self.data, sample, policy.length).items.numpy()
        return ListQuality(
            coverage=beyond.coverage(lists, policy.items),
            popularity_lift=beyond.popularity_lift(lists, past, share),
            diversity=beyond.diversity(lists, self.sessions, policy.items),
        )

    def untrained(self, length: int, watch: ProgressCallback = no_progress) -> list[RankingResult]:
        """The methods that need no training, on the same cases."""
        found = []
        for name in UNTRAINED:
            config = RunConfig.build({"method": {"name": name}, "encoder": {"length": length}})
            method = build_method(config, dims_of(self.data))
            method.fit_statistics(self.sessions)
            found.append(self.judge(name, method.policy, watch))
        return found


def evaluate(  # noqa: PLR0913 - one parameter a choice
    model: Model | str | PathLike[str],
    data: Dataset | str | PathLike[str] | None = None,
    *,
    split: str = "test",
    max_cases: int = 0,
    exclude_seen: bool = False,
    untrained: bool = True,
    rank_by: RankBy | None = None,
    w: float | None = None,
    m: int | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> EvaluationResult:
    """Rank every test target of a run among all items: HR, MRR, NDCG at 5, 10 and 20, with 95 % intervals over users.

    `max_cases` judges a seeded sample only, `exclude_seen` takes a user's past items out of the ranking (the paper
    leaves them in); `untrained` adds rows for popular, recent and markov; `rank_by`, `w` and `m` say how a policy with
    a critic acts. Ranks are kept in the run for `compare`.
    """
    opened = (model if isinstance(model, Model) else load(model)).ranked_by(rank_by, w=w, m=m)
    dataset = data_of(opened, data)
    options = Options(split, max_cases, exclude_seen, opened.config.train.min_history, seed)
    watch = progress or no_progress
    bench = RankingEvaluator(dataset, options)
    judged = bench.judge(opened.name, opened.policy, watch)
    _save(opened, bench, judged)
    others = bench.untrained(opened.policy.length, watch) if untrained else []
    seen = is_seen(dataset, bench.cases)
    values = np.stack(list(metrics(judged.ranks).values()))
    intervals = bootstrap(values, bench.users)
    return EvaluationResult(
        run=str(opened.run.path),
        data=str(dataset.path),
        split=split,
        cases=len(bench.cases),
        users=len(np.unique(bench.users)),
        items=opened.policy.items,
        exclude_seen=exclude_seen,
        ranking_mode=opened.policy.ranking_mode,
        metrics=judged.means(),
        intervals={name: (float(low), float(high)) for name, (low, high) in zip(NAMES, intervals, strict=True)},
        **judged.lists.model_dump(),
        seen=_subset(judged, seen),
        new=_subset(judged, ~seen),
        untrained=[
            Baseline(
                name=other.name,
                ranking_mode="policy",
                metrics=other.means(),
                **other.lists.model_dump(),
                seen=_subset(other, seen),
                new=_subset(other, ~seen),
            )
            for other in others
        ],
        seconds=judged.seconds,
    )


def compare(  # noqa: PLR0913 - one parameter a choice
    runs: Sequence[Model | str | PathLike[str]],
    data: Dataset | str | PathLike[str] | None = None,
    *,
    split: str = "test",
    names: Sequence[str] = COMPARED,
    max_cases: int = 0,
    exclude_seen: bool = False,
    untrained: bool = True,
    rank_by: RankBy | None = None,
    w: float | None = None,
    m: int | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> Comparison:
    """Judge runs on the same cases: paired differences with 95 % intervals and p-values, bootstrapped over users.

    `p_holm` is corrected for all the comparisons made. A run that was evaluated before is not ranked again. `rank_by`,
    `w` and `m` say how policies with a critic act; the others have no choice.
    """
    _check_names(names)
    models = open_models(runs, rank_by, w=w, m=m)
    dataset = data_of(models[0], data)
    watch = progress or no_progress
    for model in models:
        same_data(model, dataset)
    history = models[0].config.train.min_history
    if any(model.config.train.min_history != history for model in models):
        raise InputError("the runs differ in train.min_history, so they have no common test cases; train them alike")
    bench = RankingEvaluator(dataset, Options(split, max_cases, exclude_seen, history, seed))
    judged = [
        _kept(model, bench) or _save(model, bench, bench.judge(model.name, model.policy, watch)) for model in models
    ]
    if untrained:
        judged += bench.untrained(max(model.policy.length for model in models), watch)
    named = _named(judged)
    pairs = _pairs(named, len(models), bench, names)
    return Comparison(
        data=str(dataset.path),
        split=split,
        cases=len(bench.cases),
        users=len(np.unique(bench.users)),
        exclude_seen=exclude_seen,
        runs=[
            RankedPolicy(
                name=name,
                ranking_mode=model.policy.ranking_mode if model else "policy",
                metrics=result.means(),
                **result.lists.model_dump(),
            )
            for (name, result), model in zip_longest(named.items(), models)
        ],
        pairs=pairs,
    )


def _pairs(
    named: Mapping[str, RankingResult], runs: int, bench: RankingEvaluator, names: Sequence[str]
) -> list[PairedDifference]:
    """Each of the first `runs` with all after it, on every metric and on the same resamples of users."""
    rows = [NAMES.index(name) for name in names]
    values = {name: np.stack(list(metrics(one.ranks).values()))[rows] for name, one in named.items()}
    couples = [couple for couple in combinations(named, 2) if couple[0] in list(named)[:runs]]
    if not couples:
        return []
    firsts = np.concatenate([values[a] for a, _ in couples])
    found = paired(firsts, np.concatenate([values[b] for _, b in couples]), bench.users)
    keys = [(a, b, metric) for a, b in couples for metric in names]
    columns = zip(keys, found.difference, found.low, found.high, found.p, holm(found.p), strict=True)
    return [
        PairedDifference(
            a=a,
            b=b,
            metric=metric,
            difference=float(difference),
            low=float(low),
            high=float(high),
            p=float(p),
            p_holm=float(p_holm),
        )
        for (a, b, metric), difference, low, high, p, p_holm in columns
    ]


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if name not in NAMES:
            raise InputError(f"unknown metric '{name}'; there is: {', '.join(NAMES)}")


def _named(judged: Sequence[RankingResult]) -> dict[str, RankingResult]:
    """By name; a name that comes again is numbered."""
    result: dict[str, RankingResult] = {}
    for one in judged:
        name, number = one.name, 2
        while name in result:
            name, number = f"{one.name} ({number})", number + 1
        result[name] = one
    return result


def _subset(judged: RankingResult, chosen: NDArray[np.bool_]) -> Subset:
    """Metrics of some of the cases; none if there are none."""
    return Subset(cases=int(chosen.sum()), metrics=judged.means(chosen) if chosen.any() else None)


def open_models(
    runs: Sequence[Model | str | PathLike[str]], rank_by: RankBy | None, *, w: float | None, m: int | None
) -> list[Model]:
    """Runs acting as asked; those without a critic act as they can, unless none of them has one."""
    if not runs:
        raise InputError("no run given; name at least one")
    models = [run if isinstance(run, Model) else load(run) for run in runs]
    if not any(model.policy.has_critic for model in models):
        models[0].ranked_by(rank_by, w=w, m=m)  # says so if that makes no sense
    return [model.ranked_by(rank_by, w=w, m=m) if model.policy.has_critic else model for model in models]


def data_of(model: Model, data: Dataset | str | PathLike[str] | None) -> Dataset:
    """The dataset to judge on: the given one, or the one the run was trained on, where it still lies there."""
    if data is None:
        data = str(model.run.result().get("data", {}).get("path", ""))
        if not Path(data).is_dir():
            raise InputError(f"{model.name}: its dataset is no longer at '{data}'; say where it is with --data")
    dataset = data if isinstance(data, Dataset) else open_data(data)
    same_data(model, dataset)
    return dataset


def same_data(model: Model, data: Dataset) -> None:
    """Refuse a dataset that a run was not trained on."""
    if model.run.result().get("data", {}).get("checksum") != data.checksum:
        raise InputError(f"{model.name}: was trained on other data than {data.path}; judge it on its own dataset")


def _save(model: Model, bench: RankingEvaluator, judged: RankingResult) -> RankingResult:
    """Keep the ranks in the run, for paired tests."""
    folder = model.run.path / EVALUATIONS
    folder.mkdir(exist_ok=True)
    tensors = {
        "event": torch.from_numpy(bench.cases.event),
        "sequence": torch.from_numpy(bench.cases.sequence),
        "rank": torch.from_numpy(np.minimum(judged.ranks, max(model.policy.items, *KS) + 1.0)),  # infinite: a miss too
    }
    state = {
        "data": bench.data.checksum,
        "weights": model.run.result()["weights_sha256"],
        "metrics": judged.means(),
        "lists": judged.lists.model_dump(),
        "seconds": judged.seconds,
    }
    save_checkpoint(folder, _file(model, bench), tensors, state)
    return judged


def _file(model: Model, bench: RankingEvaluator) -> str:
    """Name of the files that keep how a model did."""
    acting = model.policy.ranking_mode
    return bench.options.name if acting == "policy" else f"{bench.options.name}-{acting}"


def _kept(model: Model, bench: RankingEvaluator) -> RankingResult | None:
    """What an earlier evaluation kept, if it is of these weights and these cases."""
    folder = model.run.path / EVALUATIONS
    if not (folder / f"{_file(model, bench)}.json").is_file():
        return None
    try:
        found = load_checkpoint(folder, _file(model, bench))
        state, ranks = found.state, found.tensors["rank"].numpy()
        same = state["weights"] == model.run.result()["weights_sha256"] and state["data"] == bench.data.checksum
        same = same and len(ranks) == len(bench.cases)
        if not same or not np.array_equal(found.tensors["event"].numpy(), bench.cases.event):
            return None
        lists = ListQuality.model_validate(state["lists"])
        return RankingResult(model.name, ranks, lists, float(state["seconds"]))
    except (ArtifactError, KeyError, TypeError, ValueError):
        return None
