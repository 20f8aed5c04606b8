"""xi against the distributions it promises (docs/equations.md §2.3), with fixed seeds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from ecoc.losses.sampling import effective_support
from ecoc.methods.ecoc import exploration
from ecoc.methods.ecoc.exploration import Xi, log_weights, sample_columns, sample_gumbel, sample_one

LOGITS = torch.tensor([1.5, -1.0, 0.0, 2.0, 0.5, -0.5])
LIKELY = 1e-3  # a right sampler is below it once in a thousand seeds; the seeds are fixed
ROWS = 20_000


def softmax(logits: Tensor) -> list[float]:
    masses = [math.exp(value) for value in logits.tolist()]
    return [mass / sum(masses) for mass in masses]


def rows_of(logits: Tensor, rows: int = ROWS) -> Tensor:
    return logits.expand(rows, -1).contiguous()


def fits(counts: Tensor, shares: list[float]) -> bool:
    """Whether draws come from these shares, by the chi-square test."""
    total = float(counts.sum())
    return float(chisquare(counts.numpy(), total * np.asarray(shares)).pvalue) > LIKELY


def kept(logits: Tensor, xi: Xi, n1: int) -> Tensor:
    """Which columns are explored, [N, K]; what is explored counts 1, what is not nothing."""
    found = log_weights(logits, xi, n1)
    assert found is not None
    assert ((found == 0) | (found == -math.inf)).all()
    return found == 0


def test_gumbel_draws_distinct_columns_one_first_by_the_softmax() -> None:
    torch.manual_seed(0)
    explored = kept(rows_of(LOGITS), "gumbel", 1)
    assert explored.sum(1).eq(1).all()
    assert fits(explored.sum(0), softmax(LOGITS))
    assert not fits(explored.sum(0), softmax(LOGITS * 0.9))  # the test sees what it should see


@pytest.mark.parametrize("n1", [2, 3, 5])
def test_gumbel_draws_exactly_n1_without_replacement(n1: int) -> None:
    """Sets of n1 columns are as likely as drawing one after another, each by its share of what is left."""
    torch.manual_seed(n1)
    explored = kept(rows_of(LOGITS), "gumbel", n1)
    assert explored.sum(1).eq(n1).all()
    shares, columns = softmax(LOGITS), range(len(LOGITS))
    orders: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    for _ in range(n1):
        orders = [
            ((*drawn, k), chance * shares[k] / (1 - sum(shares[i] for i in drawn)))
            for drawn, chance in orders
            for k in columns
            if k not in drawn
        ]
    sets: dict[frozenset[int], float] = {}
    for drawn, chance in orders:
        sets[frozenset(drawn)] = sets.get(frozenset(drawn), 0.0) + chance
    assert sum(sets.values()) == pytest.approx(1)
    found = dict.fromkeys(sets, 0)
    for row in explored.tolist():
        found[frozenset(k for k in columns if row[k])] += 1
    likely = [drawn for drawn in sets if sets[drawn] * ROWS >= 5]
    counts = [float(found[drawn]) for drawn in likely] + [ROWS - float(sum(found[drawn] for drawn in likely))]
    chances = [sets[drawn] for drawn in likely] + [1 - sum(sets[drawn] for drawn in likely)]
    if chances[-1] * ROWS < 1:
        counts[-2:], chances[-2:] = [sum(counts[-2:])], [sum(chances[-2:])]
    assert fits(torch.tensor(counts), chances)


def test_rows_draw_for_themselves() -> None:
    """Each row by its own logits, and two rows are drawn independently of each other."""
    torch.manual_seed(1)
    uneven = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    assert kept(uneven, "gumbel", 1).nonzero()[:, 1].tolist() == [0, 2]
    pairs = sample_one(torch.zeros(2 * ROWS, 3)).reshape(ROWS, 2)
    counts = torch.bincount(3 * pairs[:, 0] + pairs[:, 1], minlength=9)
    assert fits(counts, [1 / 9] * 9)


@pytest.mark.parametrize("xi", ["gumbel", "topk"])
@pytest.mark.parametrize("n1", [6, 7, 500])
def test_no_fewer_draws_than_columns_take_all_alike(xi: Xi, n1: int) -> None:
    assert log_weights(rows_of(LOGITS, 3), xi, n1) is None


@pytest.mark.parametrize("xi", ["all", "pool"])
def test_expectations_weigh_every_column_by_the_policy(xi: Xi) -> None:
    logits = torch.randn(3, 5)
    found = log_weights(logits, xi, 2)
    assert found is not None
    assert torch.equal(found, logits)


@pytest.mark.parametrize("n1", [1, 3, 7])
def test_cdf_counts_draws_with_replacement(n1: int) -> None:
    torch.manual_seed(n1)
    counts = sample_columns(rows_of(LOGITS), n1)
    assert counts.sum(1).eq(n1).all()
    assert (counts == counts.round()).all()
    assert (counts >= 0).all()
    assert fits(counts.sum(0), softmax(LOGITS))
    assert (counts > 1).any() or n1 == 1  # a column is drawn again
    torch.manual_seed(n1)
    logs = log_weights(rows_of(LOGITS), "cdf", n1)
    assert logs is not None
    torch.testing.assert_close(logs.exp(), counts)
    assert logs[counts == 0].eq(-math.inf).all()


def test_cdf_takes_more_draws_than_columns() -> None:
    torch.manual_seed(0)
    logs = log_weights(rows_of(LOGITS, 4), "cdf", 500)
    assert logs is not None
    assert logs.exp().sum(1).round().eq(500).all()


def test_cdf_inverts_the_cumulated_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).log()  # shares .1 .2 .3 .4
    draws = torch.tensor([[0.05, 0.09, 0.11, 0.29, 0.31, 0.61, 0.99, 0.59]])
    monkeypatch.setattr(torch, "rand", lambda *shape, **kind: draws)
    assert sample_columns(logits, 8).tolist() == [[2.0, 2.0, 2.0, 2.0]]


def test_a_draw_above_the_last_sum_is_the_last_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of floats may end below 1, and a draw may lie between."""
    draw, highest = torch.Generator().manual_seed(0), 1 - 2**-24
    logits = torch.randn(200, 50, generator=draw)
    logits = logits[logits.softmax(1).cumsum(1)[:, -1] < highest][:1]
    assert len(logits)
    monkeypatch.setattr(torch, "rand", lambda *shape, **kind: torch.full(shape, highest))
    assert sample_columns(logits, 3).tolist() == [[0.0] * 49 + [3.0]]


def test_topk_takes_the_highest() -> None:
    draw = torch.Generator().manual_seed(3)
    logits = torch.stack([torch.randperm(9, generator=draw) for _ in range(20)]).float()  # no two alike
    for n1 in range(1, 9):
        assert torch.equal(kept(logits, "topk", n1), logits >= 9 - n1)


def test_topk_takes_everything_that_equals_the_last() -> None:
    """Which of equals is nearer nobody can say: all are explored, and nothing below them."""
    logits = torch.tensor([[3.0, 1.0, 1.0, 0.0, 1.0], [2.0, 2.0, 2.0, 2.0, 2.0], [5.0, 4.0, 4.0, 3.0, 3.0]])
    assert kept(logits, "topk", 1).tolist() == [[True] + [False] * 4, [True] * 5, [True] + [False] * 4]
    assert kept(logits, "topk", 2).tolist() == [[True, True, True, False, True], [True] * 5, [True] * 3 + [False] * 2]
    assert kept(logits, "topk", 3)[2].tolist() == [True] * 3 + [False] * 2


@pytest.mark.parametrize("shift", [0.0, -30.0, 1000.0])
def test_one_column_is_drawn_by_the_softmax(shift: float) -> None:
    torch.manual_seed(4)
    drawn = sample_one(rows_of(LOGITS + shift))
    assert drawn.shape == (ROWS,)
    assert drawn.dtype == torch.int64
    assert fits(torch.bincount(drawn, minlength=6), softmax(LOGITS))


def test_a_column_that_is_no_candidate_is_never_drawn() -> None:
    torch.manual_seed(5)
    logits = LOGITS.clone()
    logits[3] = -math.inf
    drawn = sample_one(rows_of(logits))
    expected = softmax(logits)
    assert (drawn != 3).all()
    assert fits(torch.bincount(drawn, minlength=6)[[0, 1, 2, 4, 5]], [expected[k] for k in (0, 1, 2, 4, 5)])
    assert not kept(rows_of(logits), "gumbel", 5)[:, 3].any()


def test_noise_is_gumbels() -> None:
    """P(noise <= x) = exp(-exp(-x)), in every column, and columns are independent of each other."""
    torch.manual_seed(6)
    noise = sample_gumbel(ROWS, 4)
    levels = torch.arange(1, 10) / 10
    edges = -(-levels.log()).log()
    for column in range(4):
        counts = torch.bincount(torch.bucketize(noise[:, column].contiguous(), edges), minlength=10)
        assert fits(counts, [0.1] * 10)
    shares = torch.bucketize(noise.contiguous(), edges[4:5]).double()
    correlation = torch.corrcoef(shares.T) - torch.eye(4)
    assert correlation.abs().max() < 4 / ROWS**0.5


@pytest.mark.parametrize("columns", [1, 2, 7, 300])
def test_effective_support_counts_what_is_really_explored(columns: int) -> None:
    uniform = torch.full((2, columns), 1 / columns)
    torch.testing.assert_close(effective_support(uniform), torch.full((2,), float(columns)))
    torch.testing.assert_close(effective_support(torch.eye(columns)), torch.ones(columns))
    half = torch.zeros(1, 2 * columns)
    half[:, :columns] = 1 / columns
    torch.testing.assert_close(effective_support(half), torch.tensor([float(columns)]))


SAMPLED: list[Xi] = ["gumbel", "cdf", "topk", "all", "pool"]


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(SAMPLED),
    st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=8),
    st.integers(1, 9),
    st.integers(0, 99),
)
def test_logits_of_any_size_are_explored_without_nonsense(xi: Xi, values: list[float], n1: int, seed: int) -> None:
    logits = torch.tensor([values, [0.0] * len(values)])
    before = logits.clone()
    torch.manual_seed(seed)
    logs = log_weights(logits, xi, n1)
    assert torch.equal(logits, before)
    if logs is None:
        assert xi in ("gumbel", "topk")
        assert n1 >= len(values)
    else:
        assert logs.shape == logits.shape
        assert not logs.isnan().any()
        assert (logs > -math.inf).any(1).all()
        assert not logs.eq(math.inf).any()
        assert not logs.softmax(1).isnan().any()
    if logs is not None and xi in ("gumbel", "topk"):
        explored = logs == 0
        assert (explored.sum(1) >= n1).all()
        for row, chosen in zip(logits, explored, strict=True):
            gap = 50.0 if xi == "gumbel" else 0.0  # noise never lifts anything this much
            best = row.sort(descending=True).values[n1 - 1]
            assert not chosen[row < best - gap].any()
    elif logs is not None and xi == "cdf":
        assert logs.exp().sum(1).round().eq(n1).all()
    drawn = sample_one(logits)
    assert ((drawn >= 0) & (drawn < len(values))).all()


@pytest.mark.parametrize("xi", SAMPLED)
def test_draws_depend_only_on_the_seed(xi: Xi) -> None:
    logits = torch.randn(50, 40, generator=torch.Generator().manual_seed(0))
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        logs = log_weights(logits, xi, 7)
        assert logs is not None
        found.append((logs, sample_one(logits)))
        sample_gumbel(3, 11)  # what was drawn before does not matter
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert not torch.equal(found[0][1], found[2][1])
    assert torch.equal(found[0][0], found[2][0]) == (xi in ("topk", "all", "pool"))


def test_draws_do_not_depend_on_a_larger_catalogue_seen_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration, "_NOISE", 1000)
    monkeypatch.setattr(exploration, "_noise", None, raising=False)
    torch.manual_seed(0)
    first = sample_gumbel(20, 5)
    sample_gumbel(2, 3000)
    torch.manual_seed(0)
    assert torch.equal(sample_gumbel(20, 5), first)


def test_noise_is_long_enough_for_any_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration, "_NOISE", 16)
    monkeypatch.setattr(exploration, "_noise", None, raising=False)
    torch.manual_seed(0)
    for columns in (1, 3, 40, 500):
        noise = sample_gumbel(64, columns)
        assert noise.shape == (64, columns)
        assert noise.isfinite().all()
        assert len({tuple(row) for row in noise.tolist()}) > 8
