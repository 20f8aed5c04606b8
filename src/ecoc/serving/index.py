"""The index: items compressed to 32 bytes each. A scan of these gives candidates, which are then scored exactly.

    score     q . x_i = (A q) . (B x_i)           x_i the item's row of the matrix; A and B separately for the columns
                                                  of the cloned policy and for those of the value
    codes     B x_i  ~  sum of one of 16 centres of each of 64 sub-quantisers
    scan      the sum of 64 table entries an item, by the fast scan of faiss
    list      the best `factor` * k of the scan, in the order of the policy's own scores

B turns the columns into directions of independent scores: A q has second moments 1, B x_i is uncorrelated. Several
sub-quantisers share a direction in which scores differ much, and several directions of little effect share one
sub-quantiser. So all add the same error, and no table needs more range than another. Directions and centres are those
of items near the top of lists: other items need only be known to be low.

The query of the blend is [mu, w nu, w]: one index serves every w. At export, recall is measured for a grid of w with
histories that took no part in the building. `factor` is the least that gives back .99 of the exact best 20. Where an
index cannot help, the answer is exact: a weight beyond the grid, ranking modes with scores of other vectors, and lists
that need a large share of the catalogue. `ecoc serve` uses the index of a bundle; all other commands rank exactly.

The file holds plain tensors. The library's own format is never read: its reader trusts its input.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecoc.batch import PAD, History
from ecoc.data.loader import histories, open_cases
from ecoc.errors import ArtifactError, EcocError, InputError
from ecoc.evaluation.opening import data_of
from ecoc.model import Model
from ecoc.policies import ranking
from ecoc.policies.base import InnerProductPolicy, Policy, check_finite
from ecoc.policies.counts import CountsQuery
from ecoc.policies.ranking import Query
from ecoc.policies.value_policy import ValuePolicy
from ecoc.runs.bundle import INDEX, IndexEntry, IndexPoint

WEIGHTS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Weights w of the value for which recall is measured."""
FACTORS = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Candidates per place of a list, of which the least sufficient number is chosen."""
TARGET, REQUIRED = 0.99, 0.98
"""Recall that the factor is chosen for, and the least that is accepted with the largest factor."""
LISTED = 20
"""Places of the lists whose recall is measured; shorter lists get as many candidates."""
WORTHWHILE = 20_000
"""Fewer items are ranked exactly in about the same time."""
LEAST_SHARE = 32
"""One candidate among fewer items than this costs more than scoring them all."""
_FEWEST_ITEMS = 256
_SUB_QUANTISERS, _CENTRES = 64, 16
_MOST_WIDTH = 1 << 16  # of all sub-quantisers together
_QUERIES = 256  # for the building, and as many others for the measurement
_NEAR_PLACES, _NEAR_ITEMS = 100, 25_000
_RIDGE = 0.05  # of the mean second moment of queries: directions that no known query has still count
_LEVELS_ERROR = 0.0115  # mean squared error of a normal variable in 16 levels
_GROUP_LOSS = 1.3  # by which 16 centres in several dimensions fall short of the bound of rate-distortion theory
_GATHERED = 1 << 22  # most floats gathered at a time

Floats = NDArray[np.float32]
Tensors = dict[str, Tensor]


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError("an index needs faiss: pip install 'ecoc[ann]'") from None
    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss


def scanned(policy: Policy) -> InnerProductPolicy | None:
    """The ranking mode whose item matrix is compressed; none if the policy has no item matrix."""
    plain = policy.without_counts
    if isinstance(plain, ValuePolicy):
        return plain.ranked_by("blend", w=1.0)
    return plain if isinstance(plain, InnerProductPolicy) else None


def _scan_query(policy: Policy, query: Query) -> tuple[Tensor, Tensor] | None:
    """Query vectors for the compressed matrix [B, q], and their weights w [B]; none in other ranking modes."""
    plain = policy.without_counts
    vector = query.vector
    if not isinstance(plain, ValuePolicy):
        return (vector, vector.new_zeros(len(vector))) if isinstance(plain, InnerProductPolicy) else None
    if plain.rank_by == "blend":
        return vector, vector[:, -1]
    if plain.rank_by == "policy":
        zeros = vector.new_zeros(len(vector), plain.critic.width + 1)
        return torch.cat([vector, zeros], 1), zeros[:, 0]
    return None


class ItemIndex:
    """Compressed items in memory: about 32 bytes an item, in each process of a server."""

    def __init__(self, tensors: Tensors, points: Sequence[IndexPoint] = ()) -> None:
        faiss = _faiss()
        codebooks, codes, self._directions = tensors["codebooks"], tensors["codes"], tensors["directions"]
        count, _, width = codebooks.shape
        plain = faiss.IndexPQ(count * width, count, 4, faiss.METRIC_INNER_PRODUCT)
        faiss.copy_array_to_vector(codebooks.numpy().ravel(), plain.pq.centroids)
        faiss.copy_array_to_vector(codes.numpy().ravel(), plain.codes)
        plain.ntotal, plain.is_trained = len(codes), True
        self._scan = faiss.IndexPQFastScan(plain)
        self.items, self.points = len(codes), list(points)

    @classmethod
    def open(cls, model: Model) -> "ItemIndex | None":
        """The index of a model's bundle, after all of it was checked; none if it has none."""
        bundle = model.bundle
        if bundle is None or bundle.record.index is None:
            return None
        where = str(bundle.path / INDEX)
        tensors = bundle.tensors(INDEX)
        check_tensors(tensors, scanned(model.policy), where)
        return cls(tensors, bundle.record.index.points)

    def candidates(self, vectors: Tensor, count: int) -> Tensor:
        """The best `count` items of the scan for each query vector, best first; [B, count]."""
        _faiss()  # as many threads as torch uses here
        turned = (vectors.float() @ self._directions).detach().numpy()
        _, rows = self._scan.search(np.ascontiguousarray(turned), min(count, self.items))
        return torch.from_numpy(rows).clamp_(min=-1) + 1  # a place without an item has row -1, and PAD is 0

    def topk(self, policy: Policy, query: Query, k: int, *, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `Policy.topk`; each list by the index if it can give it, else exactly."""
        scan_query = _scan_query(policy, query)
        if scan_query is None or not self.points:
            return policy.topk(query, k, exclude=exclude)
        vectors, weights = scan_query
        k = min(k, policy.items)
        wanted = self._factors(weights) * max(k, LISTED)
        left_out = torch.zeros_like(wanted) if exclude is None else (exclude != PAD).sum(1)
        needed = wanted + left_out
        is_scanned = (wanted > 0) & (needed * LEAST_SHARE <= self.items)
        if bool(is_scanned.all()):
            return self._list(policy, query, vectors, k, int(wanted.max()), int(needed.max()), exclude)
        if not bool(is_scanned.any()):
            return policy.topk(query, k, exclude=exclude)
        items, scores = torch.zeros(len(query), k, dtype=torch.int64), torch.zeros(len(query), k)
        for scans in (True, False):
            rows = (is_scanned == scans).nonzero().squeeze(1)
            part, without = query[rows], None if exclude is None else exclude[rows]
            if scans:
                sizes = int(wanted[rows].max()), int(needed[rows].max())
                items[rows], scores[rows] = self._list(policy, part, vectors[rows], k, *sizes, without)
            else:
                items[rows], scores[rows] = policy.topk(part, k, exclude=without)
        return items, scores

    def _factors(self, weights: Tensor) -> Tensor:
        """Candidates per place for each weight: the larger factor of the measured weights around it; 0 beyond."""
        factors = torch.tensor([point.factor for point in self.points])
        upper = torch.cat([torch.maximum(factors, factors.roll(1)), torch.zeros(1, dtype=torch.int64)])
        upper[0] = factors[0]
        place = torch.searchsorted(torch.tensor([point.w for point in self.points]), weights.contiguous())
        return upper[place]

    def _list(
        self, policy: Policy, query: Query, vectors: Tensor, k: int, wanted: int, needed: int, exclude: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The best k of at least `wanted` candidates, which are left of `needed` when the excluded items are out."""
        chosen = self.candidates(vectors, needed)
        if bool((chosen == PAD).any()):  # a query of zeros, or a foreign index: faiss then leaves places empty
            return policy.topk(query, k, exclude=exclude)
        banned = None if exclude is None else exclude.sort(1).values
        if banned is not None:
            chosen = _without(chosen, banned)
            if needed > 2 * wanted:  # scoring some more costs less than this
                chosen = chosen.gather(1, (chosen == PAD).sort(dim=1, stable=True).indices)[:, :wanted]
        if isinstance(query, CountsQuery):  # the counts term raises only these: with them no list can miss an item
            raised = _raised(query)
            chosen = torch.cat([chosen, raised if banned is None else _without(raised, banned)], 1)
        chosen = chosen.sort(1).values  # so that ties are resolved by item index
        chosen[:, 1:].masked_fill_(chosen[:, 1:] == chosen[:, :-1], PAD)
        scores = torch.cat([policy.scores_of(query[rows], chosen[rows])[0] for rows in self._chunks(chosen)])
        scores = scores.masked_fill(chosen == PAD, -torch.inf)
        columns = ranking.stable_topk(scores, k)
        items, scores = chosen.gather(1, columns), scores.gather(1, columns)
        return items.masked_fill(scores == -torch.inf, PAD), scores

    def _chunks(self, chosen: Tensor) -> list[slice]:
        step = max(1, _GATHERED // (chosen.shape[1] * len(self._directions)))
        return [slice(first, first + step) for first in range(0, len(chosen), step)]


def _without(items: Tensor, banned: Tensor) -> Tensor:
    """PAD in place of the banned items; `banned` [B, E] is sorted by row."""
    place = torch.searchsorted(banned, items).clamp_(max=max(banned.shape[1] - 1, 0))
    return items.masked_fill(banned.gather(1, place) == items, PAD) if banned.shape[1] else items


def _raised(query: CountsQuery) -> Tensor:
    """Items whose scores the counts term raises, [B, G], PAD where a row has fewer."""
    rows = len(query)
    item, row = query.gains.key // rows, query.gains.key % rows
    row, order = row.sort(stable=True)
    sizes = torch.bincount(row, minlength=rows)
    result = torch.zeros(rows, int(sizes.max()) if len(sizes) else 0, dtype=torch.int64)
    result[row, torch.arange(len(row)) - (sizes.cumsum(0) - sizes)[row]] = item[order]
    return result


def check_tensors(tensors: Tensors, policy: InnerProductPolicy | None, where: str) -> None:
    """Refuse tensors that are not an index of the policy's items. Any byte is a pair of valid codes."""
    dtypes = {"codebooks": torch.float32, "codes": torch.uint8, "directions": torch.float32}
    if {name: tensor.dtype for name, tensor in tensors.items()} != dtypes or policy is None:
        raise ArtifactError(f"{where}: not the index of this model; export it again")
    codebooks = tensors["codebooks"]
    count, width = (codebooks.shape[0], codebooks.shape[2]) if codebooks.ndim == 3 else (0, 0)
    expected = {
        "codebooks": (count, _CENTRES, width),
        "codes": (policy.items, count // 2),
        "directions": (policy.item_matrix().shape[1], count * width),
    }
    if count % 2 or not 0 < count * width <= _MOST_WIDTH:
        raise ArtifactError(f"{where}: {count} sub-quantisers of width {width}; export it again")
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise ArtifactError(f"{where}: tensor '{name}' is {list(tensors[name].shape)}, expected {list(shape)}")
        check_finite(name, tensors[name], where)


def build_index(model: Model) -> tuple[Tensors, IndexEntry]:
    """Compress the items of a run's model, and measure what factors it takes. Histories are those of its dataset."""
    policy = scanned(model.policy)
    if policy is None:
        raise InputError(
            f"{model.name}: method {model.config.method_name} has no item vectors that an index could hold"
        )
    if policy.items < _FEWEST_ITEMS:
        raise InputError(f"{policy.items} items are too few for an index: exact lists are faster; leave out --index")
    _faiss()
    with torch.inference_mode():
        history = _some_histories(model)
        encoded = policy.encoded(history)
        measured = torch.arange(len(history.items)) % 2 == 1
        tensors = compress(policy, encoded[~measured])
        points = measure(ItemIndex(tensors), policy, encoded[measured])
    if not points:
        raise InputError(
            f"{model.name}: an index would miss more than {1 - REQUIRED:.0%} of the exact lists; leave out --index"
        )
    return tensors, IndexEntry(kind="pq4", points=points)


def _some_histories(model: Model) -> History:
    """Histories of the dataset's test or validation part; without the dataset, made of items drawn by popularity."""
    with suppress(EcocError, OSError):
        data = data_of(model, None)
        for split in ("test", "validation"):
            cases = open_cases(data, split, min_history=1, most=2 * _QUERIES, seed=0)
            if len(cases) >= _QUERIES:
                return replace(histories(data, cases, model.policy.length), users=None)
    random = torch.Generator().manual_seed(0)
    longest = min(model.policy.length, LISTED)
    share = model.popular.share.double().clamp(min=0)
    share[PAD] = 0
    chance = share.cumsum(0)
    drawn = torch.rand(2 * _QUERIES, longest, generator=random, dtype=torch.float64) * chance[-1]
    items = torch.searchsorted(chance, drawn, right=True).clamp_(1, model.policy.items)
    lengths = torch.randint(1, longest + 1, (2 * _QUERIES, 1), generator=random)
    return History(items.masked_fill(torch.arange(longest) >= lengths, PAD), torch.zeros_like(items))


def _weighted(policy: InnerProductPolicy, encoded: Query) -> list[tuple[float, Query]]:
    """The queries for each weight of the grid; a policy without a critic has one."""
    if not policy.has_critic:
        return [(0.0, policy.query_of(encoded))]
    return [(w, policy.query_of(encoded, torch.full((len(encoded),), w))) for w in WEIGHTS]


def measure(index: ItemIndex, policy: InnerProductPolicy, encoded: Query) -> list[IndexPoint]:
    """The least sufficient factor and its recall, by weight, up to the first weight for which no factor suffices."""
    points: list[IndexPoint] = []
    for w, query in _weighted(policy, encoded):
        exact, _ = policy.topk(query, LISTED)
        recalls = recall_by_factor(index, query, exact)
        factor = next((factor for factor in FACTORS if recalls[factor] >= TARGET), FACTORS[-1])
        if recalls[factor] < REQUIRED:
            break
        points.append(IndexPoint(w=w, factor=factor, recall=recalls[factor]))
    return points


def recall_by_factor(index: ItemIndex, query: Query, exact: Tensor) -> dict[int, float]:
    """Share of the exact lists [B, k] among the candidates, by number of candidates per place."""
    k = exact.shape[1]
    listed = torch.zeros(len(exact), len(FACTORS))
    for row in range(len(exact)):
        chosen = index.candidates(query.vector[row : row + 1], k * FACTORS[-1]).squeeze(0)
        place, is_item = (chosen == exact[row, :, None]).max(1).indices, torch.isin(exact[row], chosen)
        for column, factor in enumerate(FACTORS):
            listed[row, column] = (is_item & (place < k * factor)).sum() / k
    return dict(zip(FACTORS, listed.double().mean(0).tolist(), strict=True))


def compress(policy: InnerProductPolicy, encoded: Query) -> Tensors:
    """The tensors of an index of the policy's items, built for queries like these, which `encoded` gave."""
    matrix = policy.item_matrix()
    near = _near_top(policy, encoded)
    others = torch.from_numpy(np.random.default_rng(0).integers(1, policy.items + 1, len(near)))
    sample = torch.cat([near, others]) - 1
    queries = _weighted(policy, encoded)[-1][1].vector
    dim = policy.item_vectors().shape[1] if isinstance(policy, ValuePolicy) else matrix.shape[1]
    blocks = [slice(0, dim), slice(dim, matrix.shape[1])] if dim < matrix.shape[1] else [slice(0, dim)]
    subs: list[_Sub] = []
    for block in blocks:
        turn = _Turn.of(matrix[near, block], queries[:, block])
        plan = _plan(turn.spreads, _SUB_QUANTISERS // len(blocks))
        subs += _quantised(matrix[1:, block], sample, turn, plan, block.start)
    return _joined(subs, policy.items, matrix.shape[1])


def _near_top(policy: InnerProductPolicy, encoded: Query) -> Tensor:
    """Items near the top of exact lists, each once, at most some."""
    lists = [policy.topk(query, _NEAR_PLACES)[0] for _, query in _weighted(policy, encoded)]
    items: Tensor = torch.unique(torch.cat([part.flatten() for part in lists]))
    items = items[items != PAD]
    order = np.random.default_rng(0).permutation(len(items))[:_NEAR_ITEMS]
    return items[torch.from_numpy(order)].sort().values


@dataclass(frozen=True)
class _Turn:
    """Linear maps whose results have the same products: of items, uncorrelated; of queries, with second moments 1."""

    items: Tensor  # [q, q]
    queries: Tensor  # [q, q]
    spreads: NDArray[np.float64]  # standard deviation of each coordinate of items, in descending order

    @classmethod
    def of(cls, items: Tensor, queries: Tensor) -> "_Turn":
        moments = queries.double().T @ queries.double() / len(queries)
        moments += (_RIDGE * moments.trace() / len(moments) + 1e-12) * torch.eye(len(moments), dtype=torch.float64)
        values, vectors = torch.linalg.eigh(moments)
        root, inverse = (vectors * values.sqrt()) @ vectors.T, (vectors / values.sqrt()) @ vectors.T
        scaled = (items.double() - items.double().mean(0)) @ root
        variances, axes = torch.linalg.eigh(scaled.T @ scaled / len(items))
        axes = axes.flip(1)
        return cls((root @ axes).float(), (inverse @ axes).float(), variances.flip(0).clamp(min=0).sqrt().numpy())


@dataclass(frozen=True)
class _Planned:
    """A sub-quantiser: its coordinates, and how many sub-quantisers, itself included, still share what is left."""

    coordinates: slice
    sharing: int


def _plan(spreads: NDArray[np.float64], count: int) -> list[_Planned]:
    """At most `count` sub-quantisers for coordinates of descending spread, all with about the same error."""
    spreads = spreads[spreads > spreads[0] * 1e-6]
    if not len(spreads):
        return [_Planned(slice(0, 1), 1)]
    low, high = spreads[0] / 1000, float(spreads.sum())
    while len(_planned_for(spreads, high)) > count:
        high *= 2
    for _ in range(50):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if len(_planned_for(spreads, middle)) <= count else (middle, high)
    return _planned_for(spreads, high)


def _planned_for(spreads: NDArray[np.float64], most: float) -> list[_Planned]:
    """Sub-quantisers whose error is that of a single coordinate of spread `most`."""
    plan: list[_Planned] = []
    error, variances = _LEVELS_ERROR * most**2, spreads**2
    first = 0
    while first < len(spreads) and spreads[first] >= 0.75 * most:
        sharing = int(np.ceil(spreads[first] / most))
        plan += [_Planned(slice(first, first + 1), left) for left in range(sharing, 0, -1)]
        first += 1
    while first < len(spreads):
        last = first + 1
        while last < len(spreads) and _group_error(variances[first : last + 1]) <= error:
            last += 1
        plan.append(_Planned(slice(first, last), 1))
        first = last
    return plan


def _group_error(variances: NDArray[np.float64]) -> float:
    """Mean squared error of coordinates that share 16 centres, 4 bits; never more than without any."""
    count = len(variances)
    bound = count * float(np.exp(np.log(variances).mean())) * 2 ** (-8 / count)
    return min(_GROUP_LOSS * bound, float(variances.sum()))


@dataclass(frozen=True)
class _Sub:
    """A sub-quantiser with its centres, the code of each item, and the map of queries to its coordinates."""

    centres: Floats  # [16, n]
    codes: NDArray[np.uint8]  # [V]
    first: int  # column of the matrix that `directions` begin at
    directions: Tensor  # [q of the block, n]


def _quantised(rows: Tensor, sample: Tensor, turn: _Turn, plan: list[_Planned], first: int) -> list[_Sub]:
    faiss = _faiss()
    left: Floats = (rows @ turn.items).numpy()  # what no sub-quantiser has given yet
    subs = []
    for planned in plan:
        points = np.ascontiguousarray(left[:, planned.coordinates] / planned.sharing)
        means = faiss.Kmeans(
            points.shape[1], _CENTRES, niter=20, seed=1, min_points_per_centroid=1, max_points_per_centroid=1 << 20
        )
        means.train(points[sample.numpy()])
        nearest = means.index.search(points, 1)[1][:, 0]
        left[:, planned.coordinates] -= means.centroids[nearest]
        subs.append(_Sub(means.centroids, nearest.astype(np.uint8), first, turn.queries[:, planned.coordinates]))
    return subs


def _joined(subs: list[_Sub], items: int, columns: int) -> Tensors:
    """The tensors of the file; sub-quantisers are filled up with zeros to one width and an even number."""
    count, width = len(subs) + len(subs) % 2, max(sub.centres.shape[1] for sub in subs)
    codebooks, directions = torch.zeros(count, _CENTRES, width), torch.zeros(columns, count, width)
    codes = np.zeros((items, count // 2), np.uint8)
    for place, sub in enumerate(subs):
        size = sub.centres.shape[1]
        codebooks[place, :, :size] = torch.from_numpy(sub.centres)
        directions[sub.first : sub.first + len(sub.directions), place, :size] = sub.directions
        codes[:, place // 2] |= sub.codes << 4 * (place % 2)  # the even one in the low half of a byte
    return {"codebooks": codebooks, "codes": torch.from_numpy(codes), "directions": directions.flatten(1)}
