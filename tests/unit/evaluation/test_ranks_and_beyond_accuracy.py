"""Ranks, pasts and lists against loops in plain Python."""

import csv
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import ecoc
from ecoc.batch import PAD, History, TrainSequences
from ecoc.data.loader import Cases, open_cases
from ecoc.data.sequences import Dataset
from ecoc.evaluation import ranks as judge
from ecoc.evaluation.beyond_accuracy import coverage, diversity, popularity_lift
from ecoc.evaluation.ranks import everything_before, is_seen, list_cases, rank_cases
from ecoc.model import load
from ecoc.policies.base import Policy

LENGTH, ITEMS = 5, 25
NAMES = ("sasrec", "ssept", "popular", "recent", "markov")  # ssept reads users
Ints = NDArray[np.int64]


def both(
    policy: Policy, data: Dataset, judged: Cases, *, exclude_seen: bool = False, k: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Ranks and lists of the same cases."""
    ranks = rank_cases(policy, data, judged, exclude_seen=exclude_seen)
    return ranks, list_cases(policy, data, judged, k, exclude_seen=exclude_seen)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log full of repeats, with sequences shorter and much longer than what encoders read, and runs on it."""
    path = tmp_path_factory.mktemp("judged")
    rng = np.random.default_rng(8)
    with (path / "log.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["user", "item", "ts", "event"])
        for time in range(450):
            user, item = rng.geometric(0.08) % 30, (time if time < ITEMS else rng.geometric(0.12)) % ITEMS
            writer.writerow([f"u{user}", f"i{item}", 1_600_000_000 + time, ["view", "buy"][rng.integers(2)]])
    data = ecoc.prepare(
        path / "log.csv",
        path / "data",
        user="user",
        item="item",
        time="ts",
        feedback="event",
        reward={"view": 1, "buy": 3},
        split="time:0.7",
        validation=0.3,
        threads=1,
    )
    train = {"max_steps": 10, "threads": 1}
    for name in NAMES[:2]:
        encoder = {"dim": 8, "length": LENGTH, "feedback": True}
        ecoc.train(data, path / name, encoder=name, config={"encoder": encoder, "train": train})
    for name in NAMES[2:]:
        ecoc.train(data, path / name, method=name, config={"encoder": {"length": LENGTH}, "train": train})
    return path


@pytest.fixture(scope="module")
def data(folder: Path) -> Dataset:
    return ecoc.open_data(folder / "data")


@pytest.fixture(scope="module")
def policies(folder: Path) -> dict[str, Policy]:
    return {name: load(folder / name).policy for name in NAMES}


@pytest.fixture(scope="module")
def cases(data: Dataset) -> dict[str, Cases]:
    return {split: open_cases(data, split, min_history=1, most=0, seed=0) for split in ("test", "validation")}


def past_of(data: Dataset, event: int, sequence: int) -> tuple[list[int], list[int], int, int]:
    """Item indices and feedback codes before an event, its own item, and the number of its user if learnt from."""
    row = data.sequence(sequence)
    place = event - int(data.offsets[sequence])
    items = [data.vocab.item(item).index for item in row.items]
    codes = [data.manifest.feedback.names.index(name) + 1 for name in row.feedback]
    user = sequence + 1 if row.train_length > 1 and not row.is_validation else 0
    return items[:place], codes[:place], items[place], user


def slow_scores(policy: Policy, items: list[int], codes: list[int], user: int) -> tuple[list[float], list[float]]:
    """Scores of items 1, 2, … after a history, and how far rounding may move each."""
    history = History(torch.tensor([items[-LENGTH:]]), torch.tensor([codes[-LENGTH:]]), torch.tensor([user]))
    with torch.inference_mode():
        query = policy.query(history)
        scores = policy.scores(query, 1, policy.items + 1)[0]
        slack = policy.scores_of(query, torch.arange(1, policy.items + 1)[None])[1][0]
    return scores.tolist(), slack.tolist()


def slow_rank(scores: list[float], slack: float, target: int, excluded: set[int]) -> float:
    if target in excluded:
        return math.inf
    mine, rank = scores[target - 1], 1.0
    for item, score in enumerate(scores, 1):
        if item != target and item not in excluded:
            rank += 1.0 if score > mine + slack else 0.5 if score >= mine - slack else 0.0
    return rank


@pytest.mark.parametrize("exclude_seen", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_ranks_and_lists_are_those_of_a_slow_loop(
    data: Dataset, policies: dict[str, Policy], cases: dict[str, Cases], name: str, exclude_seen: bool
) -> None:
    policy, k = policies[name], 6
    for judged in cases.values():
        ranks, lists = both(policy, data, judged, exclude_seen=exclude_seen, k=k)
        assert ranks.shape == (len(judged),)
        assert lists.shape == (len(judged), k)
        for place in range(len(judged)):
            items, codes, target, user = past_of(data, int(judged.event[place]), int(judged.sequence[place]))
            scores, slack = slow_scores(policy, items, codes, user)
            excluded = set(items) if exclude_seen else set()
            assert ranks[place] == slow_rank(scores, slack[target - 1], target, excluded)
            best = sorted((i for i in range(1, policy.items + 1) if i not in excluded), key=lambda i: -scores[i - 1])[
                :k
            ]
            assert lists[place].tolist() == best + [PAD] * (k - len(best))


def test_the_data_hold_what_these_tests_are_about(data: Dataset, cases: dict[str, Cases]) -> None:
    for judged in cases.values():
        past = judged.event - np.asarray(data.offsets)[judged.sequence]
        assert past.min() < LENGTH < past.max()
        seen = is_seen(data, judged)
        assert seen.any() and not seen.all()


@pytest.mark.parametrize("exclude_seen", [False, True])
@pytest.mark.parametrize("name", ["sasrec", "markov"])
def test_results_do_not_depend_on_the_chunk(
    data: Dataset,
    policies: dict[str, Policy],
    cases: dict[str, Cases],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    exclude_seen: bool,
) -> None:
    judged = cases["test"]
    ranks, lists = both(policies[name], data, judged, exclude_seen=exclude_seen, k=4)
    seen = is_seen(data, judged)
    for size in (1, 7, len(judged) - 1, len(judged), len(judged) + 1):
        monkeypatch.setattr(judge, "_CASES", size)
        again = both(policies[name], data, judged, exclude_seen=exclude_seen, k=4)
        assert np.array_equal(again[0], ranks)
        assert np.array_equal(again[1], lists)
        assert np.array_equal(is_seen(data, judged), seen)


@pytest.mark.parametrize("name", ["sasrec", "markov"])
def test_the_order_of_cases_does_not_matter(
    data: Dataset, policies: dict[str, Policy], cases: dict[str, Cases], name: str
) -> None:
    judged = cases["test"]
    ranks, lists = both(policies[name], data, judged, k=4)
    shuffled = np.random.default_rng(0).permutation(len(judged))
    again = both(policies[name], data, judged.part(shuffled), k=4)
    assert np.array_equal(again[0], ranks[shuffled])
    assert np.array_equal(again[1], lists[shuffled])
    repeated = np.repeat(np.arange(3), 2)
    assert np.array_equal(rank_cases(policies[name], data, judged.part(repeated)), ranks[repeated])


def test_lists_are_only_made_if_asked_and_no_longer_than_the_catalogue(
    data: Dataset, policies: dict[str, Policy], cases: dict[str, Cases]
) -> None:
    assert list_cases(policies["sasrec"], data, cases["test"], 0).shape == (len(cases["test"]), 0)
    _, lists = both(policies["sasrec"], data, cases["test"], k=1000)
    assert np.array_equal(np.sort(lists, axis=1), np.tile(np.arange(1, ITEMS + 1), (len(lists), 1)))


def test_no_cases_no_ranks(data: Dataset, policies: dict[str, Policy], cases: dict[str, Cases]) -> None:
    none = cases["test"].part(slice(0))
    ranks, lists = both(policies["markov"], data, none, exclude_seen=True, k=3)
    assert ranks.shape == (0,)
    assert lists.shape == (0, 3)
    assert everything_before(data, none).shape == (0, 0)
    assert is_seen(data, none).shape == (0,)


def test_stop_is_asked_after_each_chunk_and_ends_the_work(
    data: Dataset, policies: dict[str, Policy], cases: dict[str, Cases], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "_CASES", 10)
    watched: list[int] = []
    rank_cases(policies["sasrec"], data, cases["test"], watch=watched.append)
    assert watched == [*range(10, len(cases["test"]), 10), len(cases["test"])]
    answers = iter([False, False, True])
    watched.clear()
    ranks = rank_cases(policies["sasrec"], data, cases["test"], watch=watched.append, stop=lambda: next(answers))
    assert watched == [10, 20, 30]
    assert len(ranks) == len(cases["test"])


@pytest.mark.parametrize("is_training", [False, True])
def test_a_policy_is_judged_at_rest_and_left_as_it_was(
    folder: Path, data: Dataset, cases: dict[str, Cases], is_training: bool
) -> None:
    policy = load(folder / "sasrec").policy
    expected = rank_cases(policy, data, cases["test"])
    policy.train(is_training)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    ranks = rank_cases(policy, data, cases["test"])
    assert np.array_equal(ranks, expected)
    assert all(module.training is is_training for module in policy.modules())
    rank_cases(policy, data, cases["test"], stop=lambda: True)
    assert policy.training is is_training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in policy.parameters())


def test_everything_before_and_seen_are_those_of_a_loop(data: Dataset, cases: dict[str, Cases]) -> None:
    for whole in cases.values():
        for judged in (whole, whole.part(slice(3, 4)), whole.part(np.array([9, 2, 2, 5]))):
            before, seen = everything_before(data, judged), is_seen(data, judged)
            pasts = [past_of(data, int(e), int(s)) for e, s in zip(judged.event, judged.sequence, strict=True)]
            wide = max(len(items) for items, *_ in pasts)
            assert before.shape == (len(judged), wide)
            assert before.dtype == np.int64
            assert before.tolist() == [items + [PAD] * (wide - len(items)) for items, *_ in pasts]
            assert seen.tolist() == [target in items for items, _, target, _ in pasts]


def test_an_excluded_target_is_never_found_and_a_new_one_only_rises(
    data: Dataset, policies: dict[str, Policy], cases: dict[str, Cases]
) -> None:
    for policy in policies.values():
        plain = rank_cases(policy, data, cases["test"])
        excluded = rank_cases(policy, data, cases["test"], exclude_seen=True)
        seen = is_seen(data, cases["test"])
        assert np.isinf(excluded[seen]).all()
        assert (excluded[~seen] <= plain[~seen]).all()
        assert plain.min() >= 1 and plain.max() <= policy.items
        assert (np.mod(plain * 2, 1) == 0).all()


def some_lists(rng: np.random.Generator, rows: int, k: int, items: int) -> Ints:
    """Lists of distinct items, some of them short and padded at the end."""
    lists = np.stack([rng.permutation(items)[:k] + 1 for _ in range(rows)])
    short = rng.integers(2, k + 1, rows)
    return np.where(np.arange(k) < short[:, None], lists, PAD)


def slow_diversity(lists: Ints, sequences: list[list[int]]) -> float:
    holds = {item: {k for k, row in enumerate(sequences) if item in row} for item in np.unique(lists).tolist()}
    values = []
    for row in lists.tolist():
        for a, b in combinations([item for item in row if item != PAD], 2):
            union = holds[a] | holds[b]
            values.append(1 - len(holds[a] & holds[b]) / len(union) if union else 1.0)
    return sum(values) / len(values)


@pytest.mark.parametrize("seed", range(8))
def test_beyond_accuracy_is_what_slow_python_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    items, k = int(rng.integers(6, 40)), int(rng.integers(2, 7))
    lists = some_lists(rng, int(rng.integers(1, 60)), k, items)
    own = np.where(rng.random((20, 9)) < 0.7, rng.integers(1, items + 1, (20, 9)), PAD)
    share = np.append(np.float32(0), rng.dirichlet(np.ones(items)).astype(np.float32))
    sequences = [rng.integers(1, items + 1, rng.integers(1, 9)).tolist() for _ in range(30)]  # with repeats
    listed = [item for row in lists.tolist() for item in row if item != PAD]
    mine = [item for row in own.tolist() for item in row if item != PAD]

    assert coverage(lists, items) == len(set(listed)) / items
    lift = (sum(float(share[i]) for i in listed) / len(listed)) / (sum(float(share[i]) for i in mine) / len(mine)) - 1
    assert popularity_lift(lists, own, share) == pytest.approx(lift, rel=1e-6)
    sessions = TrainSequences(
        np.array([item for row in sequences for item in row], np.int64), np.cumsum([0, *map(len, sequences)])
    )
    assert diversity(lists, sessions, items) == pytest.approx(slow_diversity(lists, sequences), rel=1e-6)


def test_beyond_accuracy_of_known_lists() -> None:
    sessions = TrainSequences(np.array([1, 2, 1, 2, 3, 3, 4, 4]), np.array([0, 3, 5, 8]))  # {1, 2}, {2, 3}, {3, 4}
    assert diversity(np.array([[1, 2]]), sessions, 5) == pytest.approx(1 / 2)
    assert diversity(np.array([[1, 4]]), sessions, 5) == 1
    assert diversity(np.array([[1, 5]]), sessions, 5) == 1  # nobody has met 5
    assert diversity(np.array([[1, 2, 4], [2, 1, PAD]]), sessions, 5) == pytest.approx((0.5 + 1 + 1 + 0.5) / 4)
    assert coverage(np.array([[1, 2], [2, PAD]]), 4) == 0.5
    assert coverage(np.array([[PAD, PAD]]), 4) == 0
    share = np.array([0, 0.5, 0.3, 0.2], np.float32)
    assert popularity_lift(np.array([[1, PAD]]), np.array([[2, 3, PAD]]), share) == pytest.approx(1.0)
    assert popularity_lift(np.array([[1, 2]]), np.array([[1, 2, 2, 1]]), share) == pytest.approx(0, abs=1e-6)


def test_diversity_of_many_lists_is_a_sample_that_stays_the_same() -> None:
    rng = np.random.default_rng(1)
    lists = some_lists(rng, 2000, 5, 50)
    counts = rng.integers(1, 6, 7000)
    sequences = TrainSequences(rng.integers(1, 51, counts.sum()), np.append(0, np.cumsum(counts)))
    found = diversity(lists, sequences, 50)
    assert found == diversity(lists, sequences, 50)
    rows = [sequences.items[a:b].tolist() for a, b in zip(sequences.offsets, sequences.offsets[1:], strict=False)]
    assert found == pytest.approx(slow_diversity(lists[:50], rows[:1500]), abs=0.02)
