"""Policies ranked on the cases of a dataset, and the ranks kept in a run for paired tests."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ecoc.arguments import as_choice, as_count
from ecoc.data.loader import dims_of, histories, open_cases, open_train_sequences
from ecoc.data.sequences import Dataset
from ecoc.errors import ArtifactError, InputError
from ecoc.evaluation import beyond_accuracy
from ecoc.evaluation.metrics import KS, NAMES, means
from ecoc.evaluation.ranks import list_cases, rank_cases
from ecoc.evaluation.results import ListQuality
from ecoc.methods import METHODS
from ecoc.methods.build import build_method
from ecoc.model import Model
from ecoc.policies.base import Policy
from ecoc.progress import ProgressCallback, no_progress
from ecoc.runs.config import RunConfig
from ecoc.storage.checkpoint import load_checkpoint, save_checkpoint

UNTRAINED = tuple(name for name in METHODS if not METHODS[name].is_trained)
_LIST_LENGTH = 10
_MOST_LISTS = 10_000  # cases whose lists are measured beyond accuracy
SEEN_LEFT_OUT = (
    "items of the user's past are left out, as in the validations of training (train.exclude_seen); --keep-seen ranks"
    " them too"
)
RECENT_IS_POPULAR = (
    "recent equals popular here: it ranks items of the user's past first, and those are left out of the ranking"
)


@dataclass(frozen=True)
class Options:
    """Which cases are ranked and how; results are comparable if these and the data agree."""

    split: str = "test"
    max_cases: int = 0
    exclude_seen: bool = False
    min_history: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        as_choice(self.split, "split", ("test", "validation"))
        for name in ("max_cases", "seed"):
            object.__setattr__(self, name, as_count(getattr(self, name), name))

    @property
    def name(self) -> str:
        """Key of the result, and name of the files that keep its ranks."""
        extra = [f"max-{self.max_cases}-seed-{self.seed}"] * (self.max_cases > 0)
        extra += ["exclude-seen"] * self.exclude_seen + [f"after-{self.min_history}"] * (self.min_history > 1)
        return "-".join([self.split, *extra])

    def name_of(self, model: Model) -> str:
        """The same with the model's ranking mode, where that is not the plain policy."""
        mode = model.policy.ranking_mode
        return self.name if mode == "policy" else f"{self.name}-{mode}"


@dataclass(frozen=True)
class RankingResult:
    """Ranks of one policy."""

    name: str
    ranks: NDArray[np.float64]  # [cases]
    lists: ListQuality
    seconds: float

    def means(self, chosen: NDArray[np.bool_] | None = None, names: tuple[str, ...] = NAMES) -> dict[str, float]:
        """Metrics over all cases, or over the chosen ones."""
        return means(self.ranks if chosen is None else self.ranks[chosen], names)


class RankingEvaluator:
    """The cases of a dataset under some options, to rank any number of policies on."""

    def __init__(self, data: Dataset, options: Options) -> None:
        self.data, self.options = data, options
        self.cases = open_cases(
            data, options.split, min_history=options.min_history, most=options.max_cases, seed=options.seed
        )
        if not len(self.cases):
            raise InputError(f"{data.path}: the {options.split} split has no case to judge; prepare with another split")
        self.users = data.users[self.cases.sequence]
        self.sessions = open_train_sequences(data)

    def evaluate(self, name: str, policy: Policy, watch: ProgressCallback = no_progress) -> RankingResult:
        """Rank every case, and measure the lists of a sample of them."""
        started = time.perf_counter()
        total = len(self.cases)
        ranks = rank_cases(
            policy,
            self.data,
            self.cases,
            exclude_seen=self.options.exclude_seen,
            watch=lambda done: watch(f"rank {name}", done, total),
        )
        return RankingResult(name, ranks, self._list_quality(policy), time.perf_counter() - started)

    def _list_quality(self, policy: Policy) -> ListQuality:
        chosen = np.random.default_rng(0).permutation(len(self.cases))[:_MOST_LISTS]
        sample = self.cases.part(np.sort(chosen))
        lists = list_cases(policy, self.data, sample, _LIST_LENGTH, exclude_seen=self.options.exclude_seen)
        share = self.data.vocab.popularity()
        past = histories(self.data, sample, policy.length).items.numpy()
        return ListQuality(
            coverage=beyond_accuracy.coverage(lists, policy.items),
            popularity_lift=beyond_accuracy.popularity_lift(lists, past, share),
            diversity=beyond_accuracy.diversity(lists, self.sessions, policy.items),
        )

    def untrained(self, length: int, watch: ProgressCallback = no_progress) -> list[RankingResult]:
        """The methods without training, on the same cases."""
        results = []
        for name in UNTRAINED:
            config = RunConfig.build({"method": {"name": name}, "encoder": {"length": length}})
            method = build_method(config, dims_of(self.data))
            method.fit_statistics(self.sessions)
            results.append(self.evaluate(name, method.policy, watch))
        return results

    def notes(self, *, is_default: bool, untrained: bool) -> list[str]:
        """What a reader has to know about seen items; `is_default`: nobody asked to leave them out."""
        if not self.options.exclude_seen:
            return []
        return [SEEN_LEFT_OUT] * is_default + [RECENT_IS_POPULAR] * untrained

    def save_ranks(self, model: Model, result: RankingResult) -> None:
        """Keep the ranks in the run, for paired tests."""
        folder = model.run.evaluations
        folder.mkdir(exist_ok=True)
        miss = max(model.policy.items, *KS) + 1.0  # stands for an infinite rank
        tensors = {
            "event": torch.from_numpy(self.cases.event),
            "sequence": torch.from_numpy(self.cases.sequence),
            "rank": torch.from_numpy(np.minimum(result.ranks, miss)),
        }
        state = {
            "data": self.data.checksum,
            "weights": model.run.result.weights_sha256,
            "metrics": result.means(),
            "lists": result.lists.model_dump(),
            "seconds": result.seconds,
        }
        save_checkpoint(folder, self.options.name_of(model), tensors, state)

    def kept_ranks(self, model: Model) -> RankingResult | None:
        """The ranks of an earlier evaluation, if they are of these weights and these cases."""
        folder, name = model.run.evaluations, self.options.name_of(model)
        if not (folder / f"{name}.json").is_file():
            return None
        try:
            checkpoint = load_checkpoint(folder, name)
            state, ranks = checkpoint.state, checkpoint.tensors["rank"].numpy()
            same = state["weights"] == model.run.result.weights_sha256 and state["data"] == self.data.checksum
            same = same and ranks.shape == (len(self.cases),) and bool((ranks >= 1).all())
            if not same or not np.array_equal(checkpoint.tensors["event"].numpy(), self.cases.event):
                return None
            return RankingResult(model.name, ranks, ListQuality.model_validate(state["lists"]), float(state["seconds"]))
        except (ArtifactError, KeyError, TypeError, ValueError):
            return None
