"""`ecoc.normtest`: tests whether the angle of user and item affects the ranking more than the item's norm.

For a query p and item vectors e_i, with average ranks for equal values (docs/equations.md §5):

    X_i = e_i . p        Y_i = cos(e_i, p)        Z_i = |e_i| |p| sgn(X_i)
    D = artanh Spearman(X, Y) - artanh Spearman(X, Z)        H0: E D <= 0, paired t-test over queries

|p| changes no rank, so p counts only by its direction.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtr
from torch import Tensor

from ecoc.arguments import as_count
from ecoc.batch import PAD
from ecoc.data.loader import Cases, open_cases
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.norm_ranks import Table
from ecoc.evaluation.opening import data_of, load_all
from ecoc.evaluation.ranks import queries
from ecoc.evaluation.results import (
    CosineAtRank,
    Norms,
    NormTestControl,
    NormTestEntry,
    NormTestResult,
    NormTestRow,
    NormTestStatistics,
)
from ecoc.model import Model
from ecoc.policies import ranking
from ecoc.policies.base import ROUNDING, Head, InnerProductPolicy
from ecoc.policies.ranking import Query
from ecoc.progress import ProgressCallback, no_progress
from ecoc.runs.saved import NORM_TEST, save_in_runs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KS = (1, 5, 10, 20, 50, 100, 200, 500, 1000)
FEWEST_ITEMS = 30  # the variance of a Fisher z is 1 / (items - 3); with fewer items it is too large
LARGEST = 1 - 1e-7  # correlations are clipped to this absolute value
_CONSTANT = 1e-12  # a deviation below this share of the mean is rounding
_CELLS = 1 << 22  # scores per thread at a time


def fisher(correlations: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """D = artanh rho^XY - artanh rho^XZ, and whether a correlation was clipped: [2, n] -> [n] both."""
    d: Floats = -np.diff(np.arctanh(np.clip(correlations, -LARGEST, LARGEST)), axis=0)[0]
    is_clipped: NDArray[np.bool_] = np.any(np.abs(correlations) > LARGEST, axis=0)
    return d, is_clipped


def differences(
    table: Table, directions: Tensor, watch: ProgressCallback, stage: str
) -> tuple[Floats, NDArray[np.bool_]]:
    """D of each query, NaN where p is zero or a correlation is undefined, and whether it was clipped. [n] both."""
    threads = torch.get_num_threads()
    rows = max(1, _CELLS // len(table))
    correlations = np.full((2, len(directions)), np.nan)
    known = np.flatnonzero(~directions.isnan().any(1).numpy())
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(known), rows * threads):
            chosen = known[first : first + rows * threads]
            scores = table.scores(directions[torch.from_numpy(chosen)])
            parts = [part for part in np.array_split(scores, threads) if len(part)]
            correlations[:, chosen] = np.concatenate(list(pool.map(table.correlations, parts)), 1)
            watch(stage, first + len(chosen), len(known))
    return fisher(correlations)


def summary(values: Floats, picks: Ints) -> NormTestStatistics:
    """Averages over repeats [repeats, n] of mean, standard deviation and t of the values [cases] they picked."""
    drawn = values[picks]
    counts = np.isfinite(drawn).sum(1)
    if counts.min() < 2:
        raise InputError(
            "a correlation is undefined for nearly all samples: all scores of a user, or all item norms and signs, are"
            " equal; there is nothing to test"
        )
    mean, std = np.nanmean(drawn, 1), np.nanstd(drawn, 1, ddof=1)
    varies = std > _CONSTANT * np.abs(mean)
    std = np.where(varies, std, 0.0)
    infinite = np.where(mean == 0, 0.0, np.copysign(np.inf, mean))
    t = float(np.where(varies, mean / np.where(varies, std, 1) * np.sqrt(counts), infinite).mean())
    df = float(counts.mean()) - 1
    mean_std, grand_mean = float(std.mean()), float(mean.mean())
    return NormTestStatistics(
        mean=grand_mean,
        std=mean_std,
        t=t,
        p=float(stdtr(df, -t)),
        p_two_sided=float(2 * stdtr(df, -abs(t))),
        effect=grand_mean / mean_std if mean_std else t,
        n=picks.shape[1],
        repeats=len(picks),
        flag="" if varies.all() else "the differences do not vary, so t is undefined",
    )


def sample_picks(cases: int, samples: int, repeats: int, seed: int) -> Ints:
    """Cases of each repeat, without replacement where there are enough, [repeats, samples]."""
    rng = np.random.default_rng([seed, 5])
    return np.stack([rng.choice(cases, samples, replace=cases < samples) for _ in range(repeats)])


def normtest(
    runs: Sequence[Model | str | PathLike[str]],
    data: Dataset | str | PathLike[str] | None = None,
    *,
    samples: int = 10_000,
    repeats: int = 20,
    max_items: int = 0,
    seed: int = 0,
    save: bool = True,
    progress: ProgressCallback | None = None,
) -> NormTestResult:
    """The paper's test of normalised representations, and the same test on random item vectors as a control.

    Each repeat draws `samples` test interactions; a correlation is computed once per distinct interaction. `max_items`
    tests on a uniform sample of the items. Of a policy with a critic the cloned policy is tested; of a dense head the
    weights without their bias. The cosine by rank is over all samples and always over all items. The result is saved
    in each run.
    """
    samples, repeats = as_count(samples, "samples"), as_count(repeats, "repeats")
    max_items, seed = as_count(max_items, "max_items"), as_count(seed, "seed")
    if samples < 2 or repeats < 1 or max_items == 1:
        raise InputError(
            f"samples {samples}, repeats {repeats}, max_items {max_items}: expected at least 2 samples,"
            " 1 repeat and 2 items (0: all)"
        )
    watch = progress or no_progress
    models = load_all(runs)
    tests = [_Test(model, data_of(model, data)) for model in models]
    rows: list[NormTestRow] = []
    controls: list[NormTestControl] = []
    for test in tests:
        picks = sample_picks(len(test.cases), samples, repeats, seed)
        row, random_vectors = test.run(picks, max_items, seed, watch)
        rows.append(row)
        controls += random_vectors
    result = NormTestResult(
        rows=rows,
        control=controls[0],
        controls=controls,
        cosine_by_rank=rows[0].cosine_by_rank,
        samples=samples,
        repeats=repeats,
        max_items=max_items,
        seed=seed,
    )
    key = f"{samples} samples, {repeats} repeats, {max_items} items"
    notes = save_in_runs([model.run for model in models], NORM_TEST, key, result) if save else []
    return result.model_copy(update={"notes": notes})


class _Test:
    """One model and the interactions it may be tested on."""

    def __init__(self, model: Model, data: Dataset) -> None:
        self.model, self.data = model, data
        policy = (model.ranked_by("policy") if model.policy.has_critic else model).policy.without_counts
        if policy.vectors() is None or not isinstance(policy, InnerProductPolicy):
            raise InputError(
                f"{model.name}: method {model.config.method_name} does not score by products with item vectors,"
                " so it has no norms and angles to test"
            )
        self.policy: InnerProductPolicy = policy
        with torch.inference_mode():
            vectors = policy.item_matrix().float()
        has_bias = isinstance(getattr(policy, "head", None), Head)
        self.vectors = vectors[:, :-1] if has_bias else vectors  # [V, d], PAD's first
        self.items = len(vectors) - 1
        history = model.config.train.min_history
        self.cases = open_cases(data, "test", min_history=history, most=0, seed=0)
        if not len(self.cases):
            raise InputError(f"{data.path}: the test split has no case to test on; prepare with another split")

    def run(
        self, picks: Ints, max_items: int, seed: int, watch: ProgressCallback
    ) -> tuple[NormTestRow, list[NormTestControl]]:
        """The row of a model and those of its controls, which use the samples of the first repeat."""
        name = self.model.name
        distinct, place = np.unique(picks, return_inverse=True)
        place = place.reshape(picks.shape)
        cases = self.cases.part(distinct)
        with torch.inference_mode():
            directions = self._directions(cases, watch)
            table = Table(self._chosen(max_items, seed))
            values, clipped = differences(table, directions, watch, f"test {name}")
            entry = self._entry(table, values, clipped, place)
            row = NormTestRow(**entry.model_dump(), cosine_by_rank=self._cosine_by_rank(cases, directions))
            first, again = np.unique(place[:1], return_inverse=True)
            controls = []
            for norms, control in self._controls(table, seed):
                values, clipped = differences(control, directions[torch.from_numpy(first)], watch, f"control {name}")
                entry = self._entry(control, values, clipped, again.reshape(1, -1))
                controls.append(NormTestControl(**entry.model_dump(), norms=norms))
        return row, controls

    def _chosen(self, max_items: int, seed: int) -> Tensor:
        """Vectors of all items, or of a uniform sample of them."""
        if not max_items or max_items >= self.items:
            return self.vectors[PAD + 1 :]
        chosen = np.random.default_rng([seed, 6]).choice(self.items, max_items, replace=False)
        return self.vectors[torch.from_numpy(PAD + 1 + np.sort(chosen))]

    @staticmethod
    def _controls(table: Table, seed: int) -> Iterator[tuple[Norms, Table]]:
        """Random directions with the model's own norms, then random vectors as before training."""
        rng = np.random.default_rng([seed, 7])
        noise = torch.from_numpy(rng.standard_normal(table.vectors.shape, np.float32))
        yield "trained", Table(torch.nn.functional.normalize(noise, dim=1) * torch.from_numpy(table.norms)[:, None])
        yield "untrained", Table(noise)

    def _directions(self, cases: Cases, watch: ProgressCallback) -> Tensor:
        """Direction p / |p| of each case, NaN where p is zero or not finite, [cases, d]."""
        result, done = torch.empty(len(cases), self.vectors.shape[1]), 0
        for rows, query, _ in queries(self.policy, self.data, cases, False):
            p = query.vector[:, : result.shape[1]].double()
            direction = p / p.norm(dim=1, keepdim=True)
            result[torch.from_numpy(rows)] = direction.masked_fill_(~direction.isfinite(), torch.nan).float()
            done += len(rows)
            watch(f"read {self.model.name}", done, len(cases))
        return result

    def _entry(self, table: Table, values: Floats, clipped: NDArray[np.bool_], picks: Ints) -> NormTestEntry:
        """The test on one table of item vectors."""
        statistics = summary(values, picks)
        logs = np.log(table.norms[table.norms > 0].astype(np.float64))
        flags = [statistics.flag]
        if len(table) < FEWEST_ITEMS:
            flags.append(f"only {len(table)} items: the Fisher transform means nothing below {FEWEST_ITEMS}")
        if picks.shape[1] > len(self.cases):
            flags.append(f"only {len(self.cases)} test interactions: drawn with replacement, so t is too large")
        if len(table) < self.items:
            flags.append(f"tested on a uniform sample of {len(table)} of {self.items} items")
        return NormTestEntry(
            run=str(self.model.run.path),
            method=self.model.config.method_name,
            encoder=self.model.config.encoder_name,
            data=str(self.data.path),
            source=self.data.manifest.source,
            **statistics.model_dump(exclude={"flag"}),
            distinct=len(values),
            clipped=int(clipped.sum()),
            dropped=int(np.isnan(values).sum()),
            items=len(table),
            norm_log_sd=float(logs.std()) if len(logs) else 0.0,
            flag="; ".join(flag for flag in flags if flag),
        )

    def _cosine_by_rank(self, cases: Cases, directions: Tensor) -> list[CosineAtRank]:
        """Mean cosine of the true next item, over the cases in which it ranks at k or better."""
        known = ~directions.isnan().any(1)
        target = torch.from_numpy(self.data.items[cases.event].astype(np.int64))[known]
        p = directions[known]
        ranks = ranking.rank_of(_Products(self.vectors), Query(p), target).numpy()
        cosine = torch.nn.functional.cosine_similarity(self.vectors[target], p, dim=1).double().numpy()
        result = []
        for k in [*(k for k in KS if k < self.items), self.items]:
            within = cosine[ranks <= k]
            mean = float(within.mean()) if len(within) else None
            result.append(CosineAtRank(k=k, cosine=mean, count=len(within)))
        return result


class _Products:
    """Item vectors as a scorer whose queries are directions."""

    def __init__(self, vectors: Tensor) -> None:
        self.vectors, self.items = vectors, len(vectors) - 1

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        return query.vector @ self.vectors[first:last].T

    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        products = query.vector[:, None] * self.vectors[items]
        return products.sum(2), products.abs().sum(2) * ROUNDING
