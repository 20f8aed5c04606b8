import math
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from ecoc.errors import InputError
from ecoc.evaluation import statistics
from ecoc.evaluation.metrics import KS, NAMES, metrics
from ecoc.evaluation.statistics import bootstrap, holm, paired, sample_weights

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def floats(*values: float) -> Floats:
    return np.array(values, np.float64)


def counts(users: int, resamples: int, seed: int) -> Floats:
    """The whole table of how often each resample drew each user. [resamples, users]."""
    table = np.zeros((resamples, users))
    for picked, block, weights in sample_weights(users, resamples, np.random.default_rng(seed)):
        table[picked, block] += weights
    return table


def slow_means(values: Floats, users: Ints, drawn: Floats) -> Floats:
    """Mean of each metric in each resample, case by case. [resamples, metrics]."""
    column = {user: i for i, user in enumerate(sorted(set(users.tolist())))}
    means = []
    for row in drawn:
        times = [row[column[user]] for user in users.tolist()]
        means.append([sum(t * x for t, x in zip(times, line, strict=True)) / sum(times) for line in values.tolist()])
    return np.array(means)


def clustered(rng: np.random.Generator, users: int) -> tuple[Floats, Floats, Ints]:
    """Two equally good runs: cases share their user's difficulty, and each run has its own luck with each user."""
    owner = np.repeat(np.arange(users), rng.geometric(0.25, users))
    hard = rng.normal(2.5, 1.5, users)[owner] + rng.normal(0, 1, len(owner))
    runs = []
    for _ in range(2):
        luck = rng.normal(0, 0.7, users)[owner] + rng.normal(0, 0.7, len(owner))
        found = metrics(1 + np.floor(np.exp(hard + luck)))
        runs.append(np.stack([found["hr@5"], found["ndcg@10"], found["mrr@20"]]))
    return runs[0], runs[1], owner


@st.composite
def cases(draw: st.DrawFn) -> tuple[Floats, Floats, Ints]:
    """Few cases of few users: values of two runs [2, cases] and the users, in any order."""
    users = draw(hnp.arrays(np.int64, st.integers(1, 12), elements=st.integers(-3, 3)))
    shape, tenths = (2, len(users)), st.integers(0, 10).map(lambda x: x / 10)
    return (
        draw(hnp.arrays(np.float64, shape, elements=tenths)),
        draw(hnp.arrays(np.float64, shape, elements=tenths)),
        users,
    )


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three users a block and a few resamples at a time, so that small inputs cross every border."""
    with monkeypatch.context() as patch:
        patch.setattr(statistics, "_USERS", 3)
        patch.setattr(statistics, "_CELLS", 12)
        yield


def test_metrics_by_hand() -> None:
    found = metrics(floats(1, 2, 3, 5, 5.5, 10, 10.5, 20, 20.5))
    log = math.log2
    assert found["hr@5"].tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert found["hr@10"].tolist() == [1, 1, 1, 1, 1, 1, 0, 0, 0]
    assert found["hr@20"].tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 0]
    np.testing.assert_allclose(found["mrr@5"], [1, 1 / 2, 1 / 3, 1 / 5, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(found["mrr@20"], [1, 1 / 2, 1 / 3, 1 / 5, 2 / 11, 1 / 10, 2 / 21, 1 / 20, 0])
    np.testing.assert_allclose(found["ndcg@10"], [1, 1 / log(3), 1 / 2, 1 / log(6), 1 / log(6.5), 1 / log(11), 0, 0, 0])


def test_names_keep_one_order() -> None:
    assert NAMES == ("hr@5", "hr@10", "hr@20", "mrr@5", "mrr@10", "mrr@20", "ndcg@5", "ndcg@10", "ndcg@20")
    assert tuple(metrics(floats(1))) == NAMES


def test_a_list_longer_than_the_catalogue_always_hits() -> None:
    found = metrics(floats(1, 2, 3, 2))  # three items; in the last case all of them tie
    for k in KS:
        assert found[f"hr@{k}"].tolist() == [1, 1, 1, 1]
        np.testing.assert_allclose(found[f"mrr@{k}"], [1, 1 / 2, 1 / 3, 1 / 2])


def test_an_item_that_cannot_be_ranked_scores_zero() -> None:
    assert all(value.tolist() == [0] for value in metrics(floats(math.inf)).values())


def test_no_case_has_no_values() -> None:
    assert all(value.shape == (0,) for value in metrics(floats()).values())


@given(hnp.arrays(np.int64, st.integers(0, 30), elements=st.integers(2, 100)))
def test_metrics_are_bounded_and_grow_with_k(doubled: Ints) -> None:
    found = metrics(doubled / 2)
    for kind in ("hr", "mrr", "ndcg"):
        short, middle, long = (found[f"{kind}@{k}"] for k in KS)
        assert np.all((short >= 0) & (short <= middle) & (middle <= long) & (long <= 1))
    for k in KS:
        assert np.all((found[f"mrr@{k}"] <= found[f"ndcg@{k}"]) & (found[f"ndcg@{k}"] <= found[f"hr@{k}"]))


@pytest.mark.parametrize("users", [1, 2, 3, 4, 10])
def test_each_resample_draws_as_many_users_as_there_are(users: int, small_blocks: None) -> None:
    drawn = counts(users, 50, 0)
    assert np.all(drawn.sum(1) == users) and np.all(drawn >= 0) and np.all(drawn == np.floor(drawn))


def test_users_are_drawn_evenly_within_and_across_blocks(small_blocks: None) -> None:
    drawn = counts(7, 20_000, 1)
    np.testing.assert_allclose(drawn.mean(0), 1, atol=0.035)  # five standard errors
    expected = np.full((7, 7), -1 / 7)
    np.fill_diagonal(expected, 6 / 7)
    np.testing.assert_allclose(np.cov(drawn.T), expected, atol=0.06)  # those of a multinomial


@pytest.mark.parametrize("users", [1, 3, 8])
def test_resamples_agree_with_a_slow_loop(users: int, small_blocks: None) -> None:
    rng = np.random.default_rng(users)
    owner = rng.permutation(np.concatenate([np.arange(users), rng.integers(0, users, 15)])) * 10 - 7
    a, b = rng.random((2, 4, len(owner)))
    drawn = counts(users, 40, 5)
    slow = slow_means(a, owner, drawn)
    np.testing.assert_allclose(bootstrap(a, owner, resamples=40, seed=5), np.quantile(slow, [0.025, 0.975], 0).T)

    slow = slow_means(a - b, owner, drawn)
    found = paired(a, b, owner, resamples=40, seed=5, level=0.8)
    np.testing.assert_allclose(found.difference, (a - b).mean(1))
    np.testing.assert_allclose(np.stack([found.low, found.high]), np.quantile(slow, [0.1, 0.9], 0), atol=1e-15)
    tails = 2 * (1 + np.minimum((slow <= 0).sum(0), (slow >= 0).sum(0))) / 41
    np.testing.assert_allclose(found.p, np.clip(tails, 2.0 ** (1 - users), 1))


def test_two_users_by_hand() -> None:
    # Resamples: both users twice the first (mean 1), one each (mean 1/4), twice the second (mean 0).
    values, users = np.array([[1.0, 0, 0, 0]]), np.array([7, 9, 9, 9])
    assert bootstrap(values, users, resamples=4000).tolist() == [[0, 1]]
    assert bootstrap(values, users, resamples=4000, level=0.4).tolist() == [[0.25, 0.25]]


@given(cases(), st.integers(0, 5))
@settings(deadline=None)
def test_intervals_stay_within_the_users_means(drawn: tuple[Floats, Floats, Ints], seed: int) -> None:
    values, _, users = drawn
    low, high = bootstrap(values, users, resamples=60, seed=seed).T
    means = np.stack([values[:, users == user].mean(1) for user in np.unique(users)])
    assert np.all(low <= high)
    assert np.all(low >= means.min(0) - 1e-12) and np.all(high <= means.max(0) + 1e-12)


@given(cases(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_cases_and_the_names_of_users_do_not_matter(
    drawn: tuple[Floats, Floats, Ints], random: Random
) -> None:
    a, b, users = drawn
    order = random.sample(range(len(users)), len(users))
    first = paired(a, b, users, resamples=60)
    second = paired(a[:, order], b[:, order], users[order] * 1000 + 17, resamples=60)
    for name in ("difference", "low", "high", "p"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), atol=1e-12)
    np.testing.assert_allclose(
        bootstrap(a, users, resamples=60), bootstrap(a[:, order], users[order], resamples=60), atol=1e-12
    )


@given(cases())
@settings(deadline=None)
def test_swapping_the_runs_turns_the_sign_and_nothing_else(drawn: tuple[Floats, Floats, Ints]) -> None:
    a, b, users = drawn
    one, other = paired(a, b, users, resamples=60), paired(b, a, users, resamples=60)
    np.testing.assert_allclose(one.difference, -other.difference, atol=1e-12)
    np.testing.assert_allclose(one.low, -other.high, atol=1e-12)
    np.testing.assert_allclose(one.p, other.p)
    assert np.all((one.p > 0) & (one.p <= 1))


def test_users_shuffled_among_their_names_give_nearly_the_same_interval() -> None:
    rng = np.random.default_rng(0)
    a, b, users = clustered(rng, 300)
    one = paired(a, b, users)
    other = paired(a, b, rng.permutation(300)[users])
    np.testing.assert_allclose(one.difference, other.difference)
    np.testing.assert_allclose(one.high - one.low, other.high - other.low, rtol=0.1)


def test_metrics_share_the_resamples_and_rows_do_not_disturb_each_other() -> None:
    a, b, users = clustered(np.random.default_rng(3), 40)
    whole = paired(a, b, users)
    for row in range(len(a)):
        alone = paired(a[[row]], b[[row]], users)
        np.testing.assert_allclose([alone.low[0], alone.high[0]], [whole.low[row], whole.high[row]], atol=1e-12)
        assert alone.p[0] == whole.p[row]


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    a, b, users = clustered(np.random.default_rng(3), 40)
    assert bootstrap(a, users).tolist() == bootstrap(a, users).tolist()
    assert bootstrap(a, users).tolist() != bootstrap(a, users, seed=1).tolist()
    assert paired(a, b, users).p.tolist() == paired(a, b, users).p.tolist()


def test_many_cases_of_one_user_make_nothing_surer() -> None:
    a, b, users = clustered(np.random.default_rng(4), 60)
    one = paired(a, b, users)
    tenfold = paired(np.tile(a, 10), np.tile(b, 10), np.tile(users, 10))
    np.testing.assert_allclose(one.low, tenfold.low, atol=1e-12)
    np.testing.assert_allclose(one.p, tenfold.p)


def test_one_user_gives_a_point_and_no_evidence() -> None:
    a, b, users = np.array([[1.0, 0.5, 0.0]]), np.zeros((1, 3)), np.array([4, 4, 4])
    assert bootstrap(a, users).tolist() == [[0.5, 0.5]]
    found = paired(a, b, users)
    assert (found.difference[0], found.low[0], found.high[0], found.p[0]) == (0.5, 0.5, 0.5, 1)


def test_equal_runs_do_not_differ() -> None:
    a, _, users = clustered(np.random.default_rng(0), 30)
    found = paired(a, a, users)
    assert found.p.tolist() == [1, 1, 1]
    assert not found.difference.any() and not found.low.any() and not found.high.any()


def test_differences_that_cancel_up_to_rounding_are_no_evidence() -> None:
    a, b = np.array([[0.1, 0.2, 0.0]]), np.array([[0.0, 0.0, 0.3]])
    assert (a - b).sum() != 0
    assert paired(np.tile(a, 20), np.tile(b, 20), np.repeat(np.arange(20), 3)).p.tolist() == [1]


@pytest.mark.parametrize(("agreeing", "least"), [(1, 1), (2, 1 / 2), (5, 1 / 16), (9, 1 / 256)])
def test_few_users_that_agree_are_no_proof(agreeing: int, least: float) -> None:
    a = np.zeros((1, agreeing))
    assert paired(a + 0.3, a, np.arange(agreeing)).p.tolist() == [least]


def test_a_clear_difference_is_found() -> None:
    a, b, users = clustered(np.random.default_rng(0), 400)
    found = paired(a + 0.1, b, users)
    assert np.all(found.p < 0.01) and np.all(found.low > 0)


def test_no_cases_is_an_input_error() -> None:
    none, nobody = np.zeros((9, 0)), np.zeros(0, np.int64)
    with pytest.raises(InputError, match="no test cases"):
        bootstrap(none, nobody)
    with pytest.raises(InputError, match="no test cases"):
        paired(none, none, nobody)


def test_runs_over_other_cases_are_an_input_error() -> None:
    with pytest.raises(InputError, match="same test cases"):
        paired(np.zeros((1, 3)), np.zeros((1, 1)), np.arange(3))
    with pytest.raises(InputError, match="there are 4 values per metric but 3 cases"):
        bootstrap(np.zeros((1, 4)), np.arange(3))


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(holm(floats(0.01, 0.04, 0.03, 0.005)), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm(floats(0.5, 0.5, 0.9)), [1, 1, 1])
    assert holm(floats(0.2)).tolist() == [0.2]
    assert holm(floats()).tolist() == []


@given(hnp.arrays(np.float64, st.integers(0, 20), elements=st.floats(0, 1)), st.randoms(use_true_random=False))
def test_holm_is_larger_ordered_capped_and_blind_to_order(p: Floats, random: Random) -> None:
    adjusted = holm(p)
    order = np.argsort(p, kind="stable")
    assert np.all(adjusted >= p) and np.all(adjusted <= 1)
    assert np.all(np.diff(adjusted[order]) >= 0)
    shuffled = random.sample(range(len(p)), len(p))
    np.testing.assert_array_equal(holm(p[shuffled]), adjusted[shuffled])
    slow = [max(min(1.0, (len(p) - i) * p[order[i]]) for i in range(rank + 1)) for rank in range(len(p))]
    np.testing.assert_allclose(adjusted[order], slow)


def test_a_true_null_is_rejected_as_often_as_it_should_be_and_covered_by_the_interval() -> None:
    rng = np.random.default_rng(2024)
    rejected, covered = np.zeros(3), np.zeros(3)
    for seed in range(400):
        found = paired(*clustered(rng, 150), resamples=500, seed=seed)
        rejected += found.p < 0.05
        covered += (found.low <= 0) & (found.high >= 0)
    # 20 expected; a binomial of 400 at .05 is within 8 … 34 but once in 500
    assert np.all((rejected >= 8) & (rejected <= 34)), rejected
    assert np.all((covered >= 0.9 * 400) & (covered <= 0.98 * 400)), covered


def test_the_interval_of_a_mean_covers_the_truth() -> None:
    rng = np.random.default_rng(7)
    truth = np.mean([clustered(rng, 4000)[0].mean(1) for _ in range(40)], axis=0)
    covered = np.zeros(3)
    for seed in range(400):
        values, _, users = clustered(rng, 150)
        low, high = bootstrap(values, users, resamples=500, seed=seed).T
        covered += (low <= truth) & (truth <= high)
    assert np.all((covered >= 0.9 * 400) & (covered <= 0.98 * 400)), covered
