import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ecoc.batch import PAD, Dims
from ecoc.encoders import ENCODERS
from ecoc.policies import ranking
from ecoc.policies.base import TiedPolicy
from ecoc.policies.ranking import Query, rank_of, stable_topk, topk, topk_of

pytestmark = pytest.mark.usefixtures("one_thread")


class Table:
    """Scores that are written down; a query is the number of a row. Column 0 is PAD's and a trap: it is the best."""

    def __init__(self, rows: list[list[float]], slack: float = 0.0) -> None:
        self.items = len(rows[0]) if rows else 3
        self.table = torch.tensor([[1e9, *row] for row in rows]).reshape(len(rows), self.items + 1)
        self.slack = slack

    @property
    def query(self) -> Query:
        return Query(torch.arange(len(self.table))[:, None])

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        assert 1 <= first < last <= self.items + 1
        return self.table[query.vector[:, 0], first:last]

    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        found = self.table[query.vector[:, 0]].gather(1, items)
        return found, torch.full_like(found, self.slack)


@contextmanager
def blocks(rows: int, block: int, gathered: int = 1 << 24) -> Iterator[None]:
    """Small blocks, so that small catalogues have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "_ROWS", rows)
        patch.setattr(ranking, "_BLOCK", block)
        patch.setattr(ranking, "_TOPK_BLOCK", block)
        patch.setattr(ranking, "_SCORES", gathered)
        patch.setattr(ranking, "_GROUP", rows)
        patch.setattr(ranking, "_FEW_GROUPS", 0 if block % 2 else 4)
        patch.setattr(ranking, "_GATHERED", gathered)
        yield


def slow_rank(scores: list[float], target: int, exclude: list[int]) -> float:
    """1 + #{higher} + half of #{equal, not itself}; `scores[j - 1]` is item j's."""
    if target in exclude:
        return float("inf")
    rest = [scores[j - 1] for j in range(1, len(scores) + 1) if j not in exclude and j != target]
    truth = scores[target - 1]
    return 1 + sum(score > truth for score in rest) + sum(score == truth for score in rest) / 2


def slow_list(scores: list[float], k: int, exclude: list[int], only: list[int] | None) -> list[int]:
    allowed = [j for j in range(1, len(scores) + 1) if j not in exclude and (only is None or j in only)]
    return sorted(allowed, key=lambda j: (-scores[j - 1], j))[:k]


def as_tensor(rows: list[list[int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), len(rows[0]) if rows else 0)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[list[list[float]], list[int], list[list[int]]]:
    """Scores with many ties, a target and excluded items a row; the latter repeat, and are padded anywhere."""
    items, count = draw(st.integers(1, 14)), draw(st.integers(0, 7))
    score = st.sampled_from([-1.0, 0.0, 0.5, 2.0]) if draw(st.booleans()) else st.floats(-9, 9, width=32)
    scores = draw(st.lists(st.lists(score, min_size=items, max_size=items), min_size=count, max_size=count))
    targets = draw(st.lists(st.integers(1, items), min_size=count, max_size=count))
    wide = draw(st.integers(0, 6))
    excluded = st.lists(st.integers(PAD, items), min_size=wide, max_size=wide)
    return scores, targets, draw(st.lists(excluded, min_size=count, max_size=count))


SIZES = st.tuples(st.integers(1, 4), st.integers(1, 6), st.sampled_from([1, 5, 1 << 24]))


@settings(max_examples=200, deadline=None)
@given(matrices(), SIZES, st.booleans())
def test_ranks_are_what_counting_gives(
    drawn: tuple[list[list[float]], list[int], list[list[int]]], sizes: tuple[int, int, int], is_excluding: bool
) -> None:
    scores, targets, exclude = drawn
    table = Table(scores)
    with blocks(*sizes):
        found = rank_of(
            table,
            table.query,
            torch.tensor(targets, dtype=torch.int64),
            as_tensor(exclude) if is_excluding else None,
        )
    assert found.dtype == torch.float64
    assert found.tolist() == [
        slow_rank(row, target, [j for j in left_out if j != PAD] if is_excluding else [])
        for row, target, left_out in zip(scores, targets, exclude, strict=True)
    ]


@settings(max_examples=250, deadline=None)
@given(matrices(), SIZES, st.integers(0, 20), st.booleans(), st.data())
def test_lists_are_what_sorting_gives(
    drawn: tuple[list[list[float]], list[int], list[list[int]]],
    sizes: tuple[int, int, int],
    k: int,
    is_excluding: bool,
    data: st.DataObject,
) -> None:
    scores, _, exclude = drawn
    table = Table(scores)
    only = data.draw(st.none() | st.lists(st.integers(1, table.items), unique=True))
    with blocks(*sizes):
        left_out = as_tensor(exclude) if is_excluding else None
        if only is None:
            items, found = topk(table, table.query, k, exclude=left_out)
        else:
            items, found = topk_of(table, table.query, k, torch.tensor(only, dtype=torch.int64), exclude=left_out)
    width = min(k, table.items if only is None else len(only))
    assert items.shape == found.shape == (len(scores), width)
    assert items.dtype == torch.int64
    for row, without, listed, values in zip(scores, exclude, items.tolist(), found.tolist(), strict=True):
        expected = slow_list(row, k, without if is_excluding else [], only)
        rest = width - len(expected)
        assert listed == expected + [PAD] * rest
        assert values == [np.float32(row[j - 1]) for j in expected] + [float("-inf")] * rest


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 5).flatmap(
        lambda width: st.lists(
            st.lists(st.sampled_from([-torch.inf, 0.0, 1.0, 2.5]), min_size=width, max_size=width), max_size=5
        )
    ),
    st.integers(0, 7),
)
def test_the_stable_top_is_the_head_of_a_stable_sort(rows: list[list[float]], k: int) -> None:
    width = len(rows[0]) if rows else 4
    found = stable_topk(torch.tensor(rows).reshape(len(rows), width), k)
    assert found.shape == (len(rows), min(k, width))
    assert found.tolist() == [sorted(range(width), key=lambda j: (-row[j], j))[:k] for row in rows]


def test_ranks_by_hand() -> None:
    table = Table([[5, 3, 3, 3, 1]] * 6)
    assert rank_of(table, table.query[:5], torch.arange(1, 6)).tolist() == [1, 3, 3, 3, 5]
    exclude = torch.tensor([[1, 1, PAD], [2, 1, 2], [5, 5, 5], [PAD, PAD, PAD], [1, 3, 4], [5, 1, 2]])
    target = torch.tensor([2, 3, 3, 3, 5, 5])
    assert rank_of(table, table.query, target, exclude).tolist() == [2, 1.5, 3, 3, 2, float("inf")]


def test_a_policy_that_cannot_tell_items_apart_is_in_the_middle() -> None:
    for items in (1, 2, 9):
        table = Table([[7.0] * items] * items)
        found = rank_of(table, table.query, torch.arange(1, items + 1))
        assert found.tolist() == [(items + 1) / 2] * items


def test_scores_nearer_than_rounding_are_equal() -> None:
    table = Table([[1.0, 1.2, 0.8, 1.3, 0.7, 1.0]], slack=0.25)
    target = torch.tensor([1])
    assert rank_of(table, table.query, target).tolist() == [1 + 1 + 3 / 2]
    assert rank_of(table, table.query, target, torch.tensor([[2, 4, 5]])).tolist() == [1 + 0 + 2 / 2]


def test_no_queries() -> None:
    table = Table([[1.0, 2.0]])
    none = torch.zeros(0, 1, dtype=torch.int64)
    assert rank_of(table, Query(none), none[:, 0], none).shape == (0,)
    items, scores = topk(table, Query(none), 5)
    assert items.shape == scores.shape == (0, 2)
    assert items.dtype == torch.int64
    assert topk_of(table, Query(none), 5, torch.tensor([2]))[0].shape == (0, 1)


def test_ties_are_listed_by_index_across_blocks() -> None:
    table = Table([[1.0] * 9, [1.0, 2.0] * 4 + [2.0]])
    for block in range(1, 11):
        with blocks(1, block):
            items, _ = topk(table, table.query, 5)
        assert items.tolist() == [[1, 2, 3, 4, 5], [2, 4, 6, 8, 9]]


@pytest.mark.parametrize("k", [9000, 10**6])
def test_a_list_of_the_whole_catalogue_is_in_order(k: int) -> None:
    items = 9000  # two blocks
    table = Table([torch.randn(items, generator=torch.Generator().manual_seed(0)).tolist()])
    _, scores = topk(table, table.query, k)
    assert scores.shape == (1, items)
    assert (scores.diff() <= 0).all()


def test_padding_is_never_listed_even_where_it_would_be_best() -> None:
    table = Table([[-1.0, -2.0, -3.0]])
    items, scores = topk(table, table.query, 10, exclude=torch.tensor([[PAD, 2, PAD]]))
    assert items.tolist() == [[1, 3, PAD]]
    assert scores.tolist() == [[-1.0, -3.0, float("-inf")]]
    items, _ = topk(table, table.query, 2, exclude=torch.tensor([[1, 2, 3]]))
    assert items.tolist() == [[PAD, PAD]]
    items, _ = topk_of(table, table.query, 2, torch.tensor([2, 3]), exclude=torch.tensor([[3]]))
    assert items.tolist() == [[2, PAD]]


@pytest.mark.parametrize("block", [1, 2, 9])
@pytest.mark.parametrize("only", [[PAD], [2, 2, 2], [PAD, 3, 3], [3, 1, 1, 3], [99, 2]])
def test_candidates_that_repeat_or_are_no_items_count_once_or_not(only: list[int], block: int) -> None:
    table = Table([[3.0, 2.0, 1.0]])
    with blocks(1, block):
        items, scores = topk_of(table, table.query, 9, torch.tensor(only))
    assert items.tolist() == [sorted({item for item in only if 1 <= item <= 3})]
    assert scores.shape == items.shape


def test_scores_that_are_no_numbers_do_not_look_perfect() -> None:
    table = Table([[torch.nan] * 4, [1.0, torch.nan, 3.0, 2.0]])
    found = rank_of(table, table.query, torch.tensor([2, 2]))
    assert not (found <= 1).any()


def tied(items: int, dim: int) -> TiedPolicy:
    kind = ENCODERS["sasrec"]
    torch.manual_seed(0)
    return TiedPolicy(kind(kind.Config.build({"dim": dim, "heads": 1, "length": 4}), Dims(items)), init=0.05).eval()


@pytest.mark.parametrize("dim", [1, 7, 64, 513])
@pytest.mark.parametrize("sign", ["any", "positive"])
def test_items_with_one_vector_share_their_rank_whatever_the_blocks(dim: int, sign: str) -> None:
    """Float sums round differently in a product of matrices and item by item; equal items are equal all the same."""
    groups = 5
    policy = tied(items=60, dim=dim)
    member = torch.arange(60) % groups  # which group item j + 1 belongs to
    with torch.no_grad():
        vectors = torch.randn(groups, dim) * 3
        query = torch.randn(10, dim)
        if sign == "positive":
            vectors, query = vectors.abs(), query.abs()
        policy.table[1:] = vectors[member]
        scores = query.double() @ vectors.double().T  # [10, groups]
        assert scores.diff(dim=1).abs().min() > 1e-3 or dim == 1
        target = torch.randint(1, 61, (10,))
        truth = scores.gather(1, member[target - 1][:, None])
        expected = 1 + 12 * (scores > truth).sum(1) + 11 / 2
        exclude = torch.tensor([[j for j in range(1, 61, 4) if j != wanted][:14] for wanted in target.tolist()])
        rest = torch.tensor([[j not in row for j in range(1, 61)] for row in exclude.tolist()])
        spread = scores[:, member]
        without = 1 + ((spread > truth) & rest).sum(1) + (((spread == truth) & rest).sum(1) - 1) / 2
        for sizes in [(256, 2048), (1, 1), (3, 7), (10, 59), (256, 60), (4, 61)]:
            with blocks(*sizes):
                assert policy.ranks(Query(query), target).tolist() == expected.tolist()
                assert policy.ranks(Query(query), target, exclude).tolist() == without.tolist()


def test_a_policy_of_zeros_ranks_everything_in_the_middle() -> None:
    policy = tied(items=9, dim=8)
    with torch.no_grad():
        policy.table.zero_()
        assert policy.ranks(Query(torch.randn(4, 8)), torch.tensor([1, 5, 9, 2])).tolist() == [5.0] * 4


FLAT = """
import resource, torch
from ecoc.policies.ranking import Query, rank_of, topk
torch.set_num_threads(1)
torch.manual_seed(0)

class Scorer:
    items = 200_000
    table = torch.randn(200_001, 4)
    def scores(self, query, first, last):
        return query.vector @ self.table[first:last].T
    def scores_of(self, query, items):
        found = (query.vector[:, None] * self.table[items]).sum(2)
        return found, torch.full_like(found, 1e-5)

query, target = Query(torch.randn(2000, 4)), torch.randint(1, 200_001, (2000,))
exclude = torch.randint(0, 200_001, (2000, 300))
rank_of(Scorer(), query[:1], target[:1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ranks = rank_of(Scorer(), query, target, exclude)
items, _ = topk(Scorer(), query[:50], 20, exclude=exclude[:50])
assert (ranks > 100).float().mean() > 0.9 and (items > 0).all()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_memory_does_not_grow_with_queries_times_items() -> None:
    """2,000 x 200,000 scores are 1.6 GB; none of that is held."""
    done = subprocess.run([sys.executable, "-c", FLAT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 250
