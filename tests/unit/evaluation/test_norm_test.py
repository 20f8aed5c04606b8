"""The normalisation test beside a loop of scipy, on toys with known answers, and on every encoder."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import spearmanr, ttest_1samp

import ecoc
from ecoc.data.loader import histories, open_cases
from ecoc.encoders import ENCODERS
from ecoc.errors import InputError
from ecoc.evaluation import norm_ranks
from ecoc.evaluation.norm_ranks import Table
from ecoc.evaluation.norm_test import KS, LARGEST, differences, fisher, normtest, sample_picks, summary
from ecoc.progress import no_progress
from ecoc.reporting.document import Section
from ecoc.reporting.sections.norm_test import PAPER, PAPER_DATA, norm_test_section, paper_values

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
ROW = {"run", "method", "encoder", "mean", "std", "t", "p", "p_two_sided", "effect", "n", "repeats"}
ROW |= {"clipped", "dropped", "distinct", "items", "flag", "norm_log_sd", "data", "source"}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world and a trained SASRec."""
    path = tmp_path_factory.mktemp("normtest")
    ecoc.prepare("world:small", path / "data", threads=1)
    trained(path, "sasrec", steps=40)
    return path


def trained(path: Path, name: str, *, method: str = "supervised", steps: int = 2) -> Path:
    config = {
        "encoder": {"dim": 16, "length": 8},
        "train": {"max_steps": steps, "threads": 1, "validation_cases": 50, "counts": "off"},
    }
    run = path / (name if method == "supervised" else method)
    ecoc.train(path / "data", run, method=method, encoder=name, config=config)
    return run


def slow(x: Singles, norms: Singles) -> Floats:
    """Both correlations of each row of scores, one spearmanr after the other."""
    y, z = x / np.where(norms > 0, norms, np.float32(1)), norms * np.sign(x)
    rows = zip(x, y, z, strict=True)
    return np.array([[spearmanr(a, b).statistic, spearmanr(a, c).statistic] for a, b, c in rows]).T


def unit(rows: int, dim: int, seed: int = 0) -> torch.Tensor:
    found = torch.from_numpy(np.random.default_rng(seed).standard_normal((rows, dim), np.float32))
    return torch.nn.functional.normalize(found, dim=1)


def log_normal(items: int, sd: float, dim: int = 64, seed: int = 1) -> torch.Tensor:
    """Isotropic directions, norms of a given log-sd."""
    norms = np.exp(sd * np.random.default_rng(seed).standard_normal((items, 1)))
    return unit(items, dim, seed + 1) * torch.from_numpy(norms.astype(np.float32))


def test_a_trained_model_equals_a_loop_of_scipy(made: Path) -> None:
    model, data = ecoc.load(made / "sasrec"), ecoc.open_data(made / "data")
    cases = open_cases(data, "test", min_history=1, most=200, seed=0)
    with torch.inference_mode():
        vectors = model.policy.vectors()
        assert vectors is not None
        query = model.policy.query(histories(data, cases, model.policy.length)).vector
    table = Table(vectors[1:].detach())
    p = torch.nn.functional.normalize(query, dim=1)
    expected, _ = fisher(slow(table.scores(p), table.norms))
    found, clipped = differences(table, p, no_progress, "")
    assert not clipped.any()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    # the definition itself in float64, norm of p and all; near values may change places by rounding
    e, q = vectors[1:].detach().double().numpy(), query.double().numpy()
    x, norms = q @ e.T, np.linalg.norm(e, axis=1)
    y = x / norms / np.linalg.norm(q, axis=1)[:, None]
    z = norms * np.linalg.norm(q, axis=1)[:, None] * np.sign(x)
    for row in range(len(cases)):
        whole = np.arctanh(spearmanr(x[row], y[row]).statistic) - np.arctanh(spearmanr(x[row], z[row]).statistic)
        assert found[row] == pytest.approx(whole, abs=1e-3)


def test_the_answer_is_the_average_over_repeats_of_the_same_correlations(made: Path) -> None:
    facts = normtest([made / "sasrec"], samples=300, repeats=4, seed=3)
    row, cosines = facts.rows[0], facts.cosine_by_rank
    model, data = ecoc.load(made / "sasrec"), ecoc.open_data(made / "data")
    cases = open_cases(data, "test", min_history=1, most=0, seed=0)
    picks = sample_picks(len(cases), 300, 4, 3)
    with torch.inference_mode():
        query = model.policy.query(histories(data, cases, model.policy.length)).vector
        vectors = model.policy.vectors()
        assert vectors is not None
    p = torch.nn.functional.normalize(query, dim=1)
    table = Table(vectors[1:].detach())
    values, _ = fisher(slow(table.scores(p), table.norms)[:, :])
    tests = [ttest_1samp(values[drawn], 0, alternative="greater") for drawn in picks]
    assert row.t == pytest.approx(np.mean([test.statistic for test in tests]), rel=1e-3)
    assert row.mean == pytest.approx(np.mean([values[drawn].mean() for drawn in picks]), abs=1e-5)
    assert row.std == pytest.approx(np.mean([values[drawn].std(ddof=1) for drawn in picks]), abs=1e-5)
    assert row.distinct == len(np.unique(picks))
    drawn = np.unique(picks)
    target = data.items[cases.event[drawn]].astype(np.int64)
    vectors = vectors.detach()
    scores, cosine = p[drawn] @ vectors.T, (p[drawn] * torch.nn.functional.normalize(vectors)[target]).sum(1).numpy()
    ranks = (scores[:, 1:] > scores.gather(1, torch.from_numpy(target)[:, None])).sum(1).numpy() + 1
    assert [entry.k for entry in cosines] == [k for k in KS if k < len(table)] + [len(table)]
    for entry in cosines:
        assert entry.count == (ranks <= entry.k).sum()
        assert entry.cosine == pytest.approx(cosine[ranks <= entry.k].mean(), abs=1e-5)


def test_equal_norms_leave_two_values_of_z_and_a_cosine_that_is_the_score() -> None:
    vectors = 0.37 * unit(400, 16)  # equal but for rounding
    p = unit(5, 16, seed=9)
    x = Table(vectors).scores(p)
    x[0] = np.abs(x[0]) * np.where(np.arange(400) % 2, 1, -1)  # as many below zero as above
    xy, xz = Table(vectors).correlations(x)
    assert xz[0] == pytest.approx(math.sqrt(3) / 2, abs=1e-4)
    found, clipped = differences(Table(vectors), p, no_progress, "")
    assert clipped.all()
    np.testing.assert_allclose(xy, 1, atol=1e-9)
    assert found == pytest.approx(np.arctanh(LARGEST) - np.arctanh(xz), abs=0.05)


def test_norms_that_are_shared_share_a_rank() -> None:
    vectors = unit(60, 8) * torch.tensor([1.0, 2.0, 2.0, 3.0, 3.0, 3.0]).repeat(10)[:, None].round()
    vectors = vectors / vectors.norm(dim=1, keepdim=True) * torch.tensor([1.0, 2, 2, 4, 4, 4]).repeat(10)[:, None]
    eye = torch.cat([torch.eye(6) * size for size in (1.0, 2.0, 2.0, 5.0)] + [-torch.eye(6) * 2.0])  # exact norms
    for table in (Table(vectors), Table(eye)):
        x = table.scores(unit(20, table.vectors.shape[1], seed=4))
        np.testing.assert_allclose(table.correlations(x), slow(x, table.norms), atol=1e-12)


def test_scores_of_zero_stand_between_the_signs() -> None:
    table = Table(log_normal(50, 0.5, dim=4))
    x = table.scores(unit(3, 4, seed=5))
    x[0, ::3] = 0.0
    x[1, ::7] = -0.0
    x[2, :3] = (0.0, -0.0, 0.0)
    np.testing.assert_allclose(table.correlations(x), slow(x, table.norms), atol=1e-12)


def test_a_zero_vector_has_cosine_zero_and_a_zero_query_is_dropped() -> None:
    vectors = torch.cat([torch.zeros(3, 8), log_normal(40, 0.3, dim=8)])
    table, p = Table(vectors), unit(6, 8, seed=6)
    np.testing.assert_allclose(table.correlations(table.scores(p)), slow(table.scores(p), table.norms), atol=1e-12)
    p[2] = torch.nan
    found, clipped = differences(table, p, no_progress, "")
    assert np.isnan(found).tolist() == [False, False, True, False, False, False]
    assert not clipped.any()
    picks = np.array([[0, 1, 2, 3, 4, 5]])
    assert summary(found, picks).mean == pytest.approx(found[[0, 1, 3, 4, 5]].mean())
    with pytest.raises(InputError, match="nothing to test"):
        summary(np.full(4, np.nan), picks[:, :4])


@pytest.mark.parametrize("items", [1, 2, 3, 5])
def test_tiny_catalogues_equal_scipy(items: int) -> None:
    table = Table(log_normal(items, 0.5, dim=3))
    x = table.scores(unit(30, 3, seed=7))
    found = table.correlations(x)
    if items == 1:
        assert np.isnan(found).all()
    else:
        np.testing.assert_allclose(found, slow(x, table.norms), atol=1e-12)


numbers = st.integers(-3, 3)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(2, 12).flatmap(
        lambda width: st.tuples(
            st.lists(st.tuples(numbers, numbers), min_size=width, max_size=width),
            st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=1, max_size=4),
        )
    )
)
@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_any_matrix_with_repeated_values_equals_scipy(drawn: tuple[list[tuple[int, int]], list[list[int]]]) -> None:
    table = Table(torch.tensor(drawn[0], dtype=torch.float32))
    x = np.array(drawn[1], np.float32) * (table.norms > 0)  # a zero vector scores zero
    np.testing.assert_allclose(table.correlations(x), slow(x, table.norms), atol=1e-9)


def test_large_catalogues_are_counted_and_still_equal_scipy() -> None:
    table = Table(log_normal(50_000, 0.3))
    p = unit(12, 64, seed=8)
    x = table.scores(p)
    counted = norm_ranks._Counting(table)
    assert not np.isnan([counted.correlations(row) for row in x]).any()  # by counting indeed
    np.testing.assert_allclose(table.sorted_correlations(x[:3]), slow(x[:3], table.norms), atol=1e-12)
    np.testing.assert_allclose(table.correlations(x), table.sorted_correlations(x), atol=1e-6)


def test_counting_gives_items_that_share_a_norm_one_rank() -> None:
    whole = np.random.default_rng(12).integers(-3, 4, (45_000, 8))  # norms are roots of whole numbers
    table = Table(torch.from_numpy(whole.astype(np.float32)))
    x = table.scores(unit(3, 8, seed=13))
    counted = norm_ranks._Counting(table)
    found = np.array([counted.correlations(row) for row in x]).T
    np.testing.assert_allclose(found, slow(x, table.norms), atol=1e-6)


def test_rows_that_classes_cannot_tell_apart_are_sorted() -> None:
    table = Table(log_normal(40_000, 0.3, dim=8))
    x = table.scores(unit(4, 8, seed=10))
    x[0, 5] = 0.0
    x[1] = 1 + 1e-3 * x[1]  # all in a few classes
    x[2, 0] = 1e36
    counted = norm_ranks._Counting(table)
    assert np.isnan([counted.correlations(row)[0] for row in x]).tolist() == [True, True, True, False]
    np.testing.assert_allclose(table.correlations(x)[:, :3], table.sorted_correlations(x[:3]), atol=0)


@pytest.mark.parametrize(("sd", "expected"), [(0.1, 2.46), (0.3, 1.28), (0.5, 0.73)])
def test_random_vectors_give_what_the_dispersion_of_their_norms_gives(sd: float, expected: float) -> None:
    found, _ = differences(Table(log_normal(43_748, sd)), unit(20, 64, seed=11), no_progress, "")
    assert found.mean() == pytest.approx(expected, abs=0.02)


def test_t_and_p_are_those_of_a_one_sided_test() -> None:
    values = np.random.default_rng(0).normal(0.05, 1, 500)
    picks = np.arange(500)[None]
    found = summary(values, picks)
    one = ttest_1samp(values, 0, alternative="greater")
    assert found.t == pytest.approx(one.statistic)
    assert found.p == pytest.approx(one.pvalue)
    assert found.p_two_sided == pytest.approx(ttest_1samp(values, 0).pvalue)
    assert found.effect == pytest.approx(values.mean() / values.std(ddof=1))
    assert not found.flag
    below = summary(values - 1, picks)
    assert below.p == pytest.approx(ttest_1samp(values - 1, 0, alternative="greater").pvalue)


def test_differences_that_do_not_vary_have_an_infinite_t() -> None:
    found = summary(np.array([0.1 + 0.2]), np.zeros((2, 7), np.int64))
    assert found.t == math.inf
    assert found.p == 0
    assert found.std == 0
    assert "undefined" in found.flag


def test_samples_are_drawn_without_replacement_where_there_are_enough() -> None:
    picks = sample_picks(50, 50, 3, seed=1)
    assert all(len(np.unique(row)) == 50 for row in picks)
    assert (picks[0] != picks[1]).any()
    assert sample_picks(5, 50, 2, seed=1).max() == 4
    np.testing.assert_array_equal(picks, sample_picks(50, 50, 3, seed=1))


def test_the_answer_has_every_key_and_says_what_was_left_out(made: Path) -> None:
    facts = normtest([made / "sasrec"], samples=5000, repeats=2, max_items=20)
    row = facts.rows[0]
    assert set(row.model_dump()) == ROW | {"cosine_by_rank"}
    assert (row.n, row.repeats, row.items, row.encoder) == (5000, 2, 20, "sasrec")
    assert all(part in row.flag for part in ("only 20 items", "with replacement", "a uniform sample of 20 of"))
    assert [control.norms for control in facts.controls] == ["trained", "untrained"]
    assert facts.control == facts.controls[0]
    assert facts.control.norm_log_sd == pytest.approx(row.norm_log_sd, abs=1e-5)
    assert facts.controls[1].norm_log_sd != pytest.approx(row.norm_log_sd, abs=1e-3)
    assert facts.cosine_by_rank[-1].k == 200  # always among all items
    assert normtest([made / "sasrec"], samples=5000, repeats=2, max_items=20).rows == facts.rows


def test_threads_do_not_change_the_answer(made: Path) -> None:
    alone = normtest([made / "sasrec"], samples=500, repeats=2).rows[0].mean
    torch.set_num_threads(2)
    try:
        assert normtest([made / "sasrec"], samples=500, repeats=2).rows[0].mean == pytest.approx(alone, abs=1e-5)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("name", list(ENCODERS))
def test_every_encoder_can_be_tested(made: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "data").symlink_to(made / "data")
    facts = normtest([trained(tmp_path, name)], samples=60, repeats=2)
    row = facts.rows[0]
    assert row.encoder == name
    assert row.dropped == 0
    assert math.isfinite(row.t)


def test_a_policy_with_a_critic_is_tested_as_its_cloned_policy_and_a_dense_head_without_bias(
    made: Path, tmp_path: Path
) -> None:
    (tmp_path / "data").symlink_to(made / "data")
    runs = [trained(tmp_path, "sasrec", method=method) for method in ("ecoc", "sqn", "prl")]
    found = [normtest([run], samples=60, repeats=1).rows[0] for run in runs]
    assert [row.method for row in found] == ["ecoc", "sqn", "prl"]
    model = ecoc.load(runs[1])
    with torch.no_grad():
        model.policy.head.weight[1:, -1] = torch.arange(len(model.vocab)) * 100.0  # type: ignore[union-attr, operator]
    assert normtest([model], samples=60, repeats=1).rows[0].mean == found[1].mean
    cloned = ecoc.load(runs[0])
    table = cloned.policy.vectors()
    assert table is not None
    assert found[0].norm_log_sd == pytest.approx(
        table[1:].detach().norm(dim=1).log().std(correction=0).item(), abs=1e-5
    )


def test_what_cannot_be_tested_is_refused(made: Path, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(made / "data")
    for method in ("markov", "neural_lcb"):
        with pytest.raises(InputError, match=f"method {method} does not score by products"):
            normtest([trained(tmp_path, "sasrec", method=method)])
    with pytest.raises(InputError, match="at least one"):
        normtest([])
    wrong: list[dict[str, Any]] = [{"samples": 1}, {"repeats": 0}, {"max_items": -1}, {"max_items": 1}, {"seed": -1}]
    for options in wrong:
        with pytest.raises(InputError, match=r"expected at least 2 samples|expected a whole number, 0 or more"):
            normtest([made / "sasrec"], **options)


def cell(section: Section, row: int, column: str) -> Any:
    table = section.tables[0]
    return table.rows[row][[one.name for one in table.columns].index(column)]


def test_the_section_shows_controls_the_paper_and_only_points_with_enough_samples(made: Path) -> None:
    facts = normtest([made / "sasrec"], samples=300, repeats=2)
    section = norm_test_section(facts, "yelp")
    assert all(len(row) == len(section.tables[0].columns) for row in section.tables[0].rows)
    assert section.tables[0].rows[0][0] == "sasrec"
    assert len(section.tables[0].rows) == 3
    assert cell(section, 0, "Mean").value == facts.rows[0].mean
    assert cell(section, 0, "t").mark == "*"
    assert cell(section, 0, "t (paper)").value == 2098
    assert cell(section, 1, "t (paper)") is None
    assert any("random item vectors" in caveat for caveat in section.caveats)
    shown = [point.x for point in section.figures[0].series[0].points]
    assert shown == [entry.k for entry in facts.cosine_by_rank if entry.count >= 30]
    assert 0 < len(shown) < len(facts.cosine_by_rank)
    assert len(norm_test_section(facts, None).tables[0].columns) == len(section.tables[0].columns) - 3
    endless = facts.model_copy(update={"rows": [facts.rows[0].model_copy(update={"t": math.inf})]})
    assert cell(norm_test_section(endless), 0, "t") == "infinite*"


def test_the_papers_t_follows_from_its_mean_and_deviation() -> None:
    assert set(PAPER) == set(ENCODERS) - {"hstu"}  # later than the paper
    for encoder in PAPER:
        for data in PAPER_DATA:
            found = paper_values(encoder, data)
            assert found is not None
            mean, std, t = found
            assert 95 * (mean - 0.005) / (std + 0.005) < t < 105 * (mean + 0.005) / (std - 0.005)  # N = 10,000
    assert paper_values("sasrec", "movielens") is None
