from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders import EncoderConfig
from ecoc.methods import METHODS, BuildContext
from ecoc.methods.untrained import CountedPolicy, MarkovPolicy, Untrained
from ecoc.policies.base import load_weights
from ecoc.policies.ranking import Query
from ecoc.storage.checkpoint import load_checkpoint, save_checkpoint

ITEMS, LENGTH = 7, 5
NAMES = ("popular", "recent", "markov")


pytestmark = pytest.mark.usefixtures("one_thread")


SEQUENCES = st.lists(st.lists(st.integers(1, ITEMS), min_size=1, max_size=8), min_size=1, max_size=6)
HISTORIES = st.lists(st.lists(st.integers(1, ITEMS), min_size=1, max_size=LENGTH), min_size=1, max_size=5)


def sessions_of(sequences: list[list[int]]) -> TrainSequences:
    offsets = np.cumsum([0, *(len(part) for part in sequences)])
    return TrainSequences(np.array([item for part in sequences for item in part], np.int64), offsets)


def learned(name: str, sequences: list[list[int]]) -> CountedPolicy:
    """The policy through its method, as a run builds it."""
    kind = METHODS[name]
    encoder = EncoderConfig(length=LENGTH)

    def no_encoder() -> None:
        raise AssertionError("an untrained method needs no encoder")

    method = kind(kind.Config(), BuildContext(Dims(ITEMS), encoder, no_encoder))  # type: ignore[arg-type]
    assert isinstance(method, Untrained)
    assert not method.is_trained
    method.fit_statistics(sessions_of(sequences))
    return method.policy.eval()


def history_of(rows: list[list[int]], padding: int = 0) -> History:
    wide = max(len(row) for row in rows) + padding
    return History(torch.tensor([row + [PAD] * (wide - len(row)) for row in rows]))


def own_count(name: str, sequences: list[list[int]], row: list[int], item: int) -> int:
    """The whole part of a score."""
    if name == "markov":
        pairs = Counter(pair for part in sequences for pair in pairwise(part))
        return pairs[row[-1], item]
    if name == "recent":
        return max((place + 1 for place, other in enumerate(row) if other == item), default=0)
    return 0


def slow_scores(name: str, sequences: list[list[int]], row: list[int]) -> list[float]:
    """Of items 1..ITEMS, as the policies promise: own count, then popularity among all events."""
    everything = [item for part in sequences for item in part]
    share = [everything.count(item) / (len(everything) + 1) for item in range(1, ITEMS + 1)]
    return [own_count(name, sequences, row, item) + share[item - 1] for item in range(1, ITEMS + 1)]


def scores_of_all(policy: CountedPolicy, query: Query) -> Tensor:
    return policy.scores(query, 1, ITEMS + 1)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=70, deadline=None)
@given(sequences=SEQUENCES, rows=HISTORIES, padding=st.integers(0, 3), data=st.data())
def test_scores_ranks_and_lists_are_what_counting_gives(
    name: str, sequences: list[list[int]], rows: list[list[int]], padding: int, data: st.DataObject
) -> None:
    policy = learned(name, sequences)
    assert (policy.items, policy.length) == (ITEMS, LENGTH)
    query = policy.query(history_of(rows, padding))
    expected = np.array([slow_scores(name, sequences, row) for row in rows])
    found = scores_of_all(policy, query)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)

    first = data.draw(st.integers(1, ITEMS))
    last = data.draw(st.integers(first + 1, ITEMS + 1))
    assert torch.equal(policy.scores(query, first, last), found[:, first - 1 : last - 1])
    items = torch.tensor(data.draw(st.lists(st.lists(st.integers(1, ITEMS), min_size=4, max_size=4))) or [[1]])
    items = items[torch.arange(len(rows)) % len(items)]
    scored, slack = policy.scores_of(query, items)
    assert torch.equal(scored, found.gather(1, items - 1))
    assert not slack.any()

    target = items[:, :1]
    ranks = policy.ranks(query, target.squeeze(1))
    for row, wanted, rank in zip(expected.round(9), target[:, 0].tolist(), ranks.tolist(), strict=True):
        truth = row[wanted - 1]
        assert rank == 1 + (row > truth).sum() + ((row == truth).sum() - 1) / 2
    lists, _ = policy.topk(query, ITEMS)
    for row, listed in zip(expected.round(9), lists.tolist(), strict=True):
        assert listed == sorted(range(1, ITEMS + 1), key=lambda item: (-row[item - 1], item))


@pytest.mark.parametrize("name", NAMES)
def test_padding_has_no_count(name: str) -> None:
    policy = learned(name, [[1, 2, 1]])
    query = policy.query(history_of([[2, 1], [1]]))
    found, _ = policy.scores_of(query, torch.tensor([[PAD], [PAD]]))
    assert not found.any()


def test_popular_is_the_same_for_everyone() -> None:
    policy = learned("popular", [[3, 3, 3], [1, 3], [1, 2]])
    lists, _ = policy.topk(policy.query(history_of([[5], [1, 2, 3]])), 4)
    assert lists.tolist() == [[3, 1, 2, 4]] * 2


def test_recent_lists_the_latest_first_and_then_what_is_popular() -> None:
    policy = learned("recent", [[6, 6, 6], [5, 5], [4]])
    lists, _ = policy.topk(policy.query(history_of([[1, 2, 1, 3], [2, 2]])), 5)
    assert lists.tolist() == [[3, 1, 2, 6, 5], [2, 6, 5, 4, 1]]


def test_markov_never_counts_pairs_across_sequences() -> None:
    policy = learned("markov", [[1, 2], [3, 4, 3, 4], [5], [6, 1]])
    assert isinstance(policy, MarkovPolicy)
    pairs = {
        (item, int(follower)): float(times)
        for item in range(1, ITEMS + 1)
        for follower, times in zip(
            policy.followers[policy.starts[item] : policy.starts[item + 1]],
            policy.times[policy.starts[item] : policy.starts[item + 1]],
            strict=True,
        )
    }
    assert pairs == {(1, 2): 1, (3, 4): 2, (4, 3): 1, (6, 1): 1}


@pytest.mark.parametrize("sequences", [[[4]], [[4], [2], [4]]])
def test_markov_of_sequences_without_pairs_is_popularity(sequences: list[list[int]]) -> None:
    policy = learned("markov", sequences)
    query = policy.query(history_of([[4], [2, 1]]))
    expected = np.array([slow_scores("popular", sequences, []) for _ in range(2)])
    np.testing.assert_allclose(scores_of_all(policy, query).numpy(), expected, rtol=1e-6)


def test_a_policy_that_counts_anew_scores_anew() -> None:
    policy = learned("markov", [[1, 2], [1, 2]])
    query = policy.query(history_of([[1]]))
    assert policy.topk(query, 1)[0].tolist() == [[2]]
    policy.fit_statistics(sessions_of([[1, 3], [2, 2]]))
    assert policy.topk(query, 1)[0].tolist() == [[3]]


@pytest.mark.parametrize("name", NAMES)
def test_popularity_only_settles_what_counts_leave_open(name: str) -> None:
    """An item that is all of the log is still below any item with a count of its own."""
    policy = learned(name, [[2] * 5000, [1, 3]])
    lists, _ = policy.topk(policy.query(history_of([[3, 1]])), 3)
    expected = {"popular": [2, 1, 3], "recent": [1, 3, 2], "markov": [3, 2, 1]}
    assert lists.tolist() == [expected[name]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sequences", [[[1, 2, 1, 3], [3, 3]], [[5]]])
def test_a_saved_policy_scores_as_before(name: str, sequences: list[list[int]], tmp_path: Path) -> None:
    policy = learned(name, sequences)
    save_checkpoint(tmp_path, "best", policy.state_dict(), {"step": 0})
    fresh = type(policy)(ITEMS, LENGTH)
    load_weights(fresh, load_checkpoint(tmp_path, "best").tensors, where="best")
    rows = history_of([[1], [3, 2], [2, 1, 1]])
    assert torch.equal(scores_of_all(fresh, fresh.query(rows)), scores_of_all(policy, policy.query(rows)))
    assert set(fresh.state_dict()) == set(policy.state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_there_is_no_loss_and_no_vector(name: str) -> None:
    kind = METHODS[name]
    method = kind(kind.Config(), BuildContext(Dims(ITEMS), EncoderConfig(), lambda: None))  # type: ignore[arg-type, return-value]
    nothing = torch.zeros(1, 1)
    with pytest.raises(TypeError, match="untrained"):
        method.loss(Batch(history_of([[1]]), nothing.long(), nothing, nothing))
    assert method.policy.vectors() is None
    assert not list(method.parameters())
