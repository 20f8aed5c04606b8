"""The counts term against slow loops over dictionaries; lists and ranks against every item's score."""

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ranking import as_tensor, blocks, slow_list, slow_rank
from tiny_value_policy import ITEMS, histories, make
from torch import Tensor

from ecoc.batch import PAD, History, TrainSequences
from ecoc.errors import ArtifactError
from ecoc.policies import counts as counts_module
from ecoc.policies.base import Policy
from ecoc.policies.counts import CountsQuery, PolicyWithCounts, Transitions
from ecoc.policies.ranking import Query

pytestmark = pytest.mark.usefixtures("one_thread")

Shares = dict[int, dict[int, float]]


def sessions_of(sequences: list[list[int]]) -> TrainSequences:
    flat = [item for sequence in sequences for item in sequence]
    return TrainSequences(np.array(flat, np.int64), np.cumsum([0, *map(len, sequences)]).astype(np.int64))


def slow_shares(sequences: list[list[int]], items: int, kept: int) -> Shares:
    """s_ji by dictionaries; of each item the `kept` largest, of equal ones the lower follower."""
    pairs: Shares = defaultdict(lambda: defaultdict(float))
    for sequence in sequences:
        for place, item in enumerate(sequence):
            for distance, follower in enumerate(sequence[place + 1 : place + 6], 1):
                pairs[item][follower] += 0.7 ** (distance - 1)
    shares: Shares = {}
    for item in range(1, items + 1):
        row = pairs[item]
        whole = sum(row.values()) + 10
        best = sorted(row, key=lambda follower, row=row: (-np.float32(row[follower] / whole), follower))[:kept]  # type: ignore[misc]
        shares[item] = {follower: row[follower] / whole for follower in best}
    return shares


def slow_repeats(sequences: list[list[int]]) -> list[float]:
    """r_k for k = 1..50."""
    rates = []
    for k in range(1, 51):
        pairs = [(sequence[t - k], sequence[t]) for sequence in sequences for t in range(k, len(sequence))]
        rates.append(sum(before == item for before, item in pairs) / (len(pairs) + 10))
    return rates


def slow_gain(shares: Shares, repeats: list[float], history: list[int], item: int, items: int) -> float:
    latest = history[::-1]
    p = sum(0.7**k * shares[j].get(item, 0.0) for k, j in enumerate(latest[:5]))
    p /= sum(0.7**k for k in range(len(latest[:5])))
    q = sum(rate for rate, j in zip(repeats, latest, strict=False) if j == item)
    return math.log(1 + items * p) + 2 * math.log(1 + items * q)


def history_of(rows: list[list[int]]) -> History:
    width = max(map(len, rows), default=0)
    return History(as_tensor([row + [PAD] * (width - len(row)) for row in rows]))


def all_items(rows: int, items: int) -> Tensor:
    return torch.arange(items + 1).repeat(rows, 1)


class Written(Policy):
    """Scores that are written down, one row of the table for each row of a query."""

    def __init__(self, table: list[list[float]]) -> None:
        super().__init__()
        self.items, self.length = len(table[0]), 9
        self.table = torch.tensor([[1e9, *row] for row in table])

    def query(self, history: History) -> Query:
        return Query(torch.arange(len(history.items))[:, None])

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        return self.table[query.vector[:, 0], first:last]

    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.table[query.vector[:, 0]].gather(1, items)
        return scores, torch.zeros_like(scores)

    def vectors(self) -> None:
        return None


@st.composite
def logs(draw: st.DrawFn) -> tuple[int, list[list[int]], list[list[int]]]:
    """Number of items, training sequences (some empty or of one event) and histories of at least one event."""
    items = draw(st.integers(1, 7))
    item = st.integers(1, items)
    sequences = draw(st.lists(st.lists(item, max_size=9), max_size=6))
    return items, sequences, draw(st.lists(st.lists(item, min_size=1, max_size=9), min_size=1, max_size=4))


@settings(max_examples=150, deadline=None)
@given(logs(), st.integers(1, 4), st.integers(1, 8))
def test_counts_are_those_of_slow_loops(
    log: tuple[int, list[list[int]], list[list[int]]], kept: int, events: int
) -> None:
    """Also with few followers kept, and counted a few events at a time."""
    items, sequences, rows = log
    shares = slow_shares(sequences, items, kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts_module, "KEPT", kept)
        patch.setattr(counts_module, "_EVENTS", events)
        transitions = Transitions.count(sessions_of(sequences), items)
        Transitions.open(transitions.state_dict(), items, "here")
    repeats = slow_repeats(sequences)
    assert transitions.repeats.tolist() == pytest.approx(repeats, rel=1e-6)
    for item in range(1, items + 1):
        row = slice(int(transitions.starts[item]), int(transitions.starts[item + 1]))
        own = dict(zip(transitions.followers[row].tolist(), transitions.shares[row].tolist(), strict=True))
        assert own == pytest.approx(shares[item], rel=1e-6)
    policy = PolicyWithCounts(Written([[0.0] * items] * len(rows)), transitions, 1.0)
    query = policy.query(history_of(rows))
    assert isinstance(query, CountsQuery)
    gains = query.gains.of(all_items(len(rows), items))
    for number, history in enumerate(rows):
        expected = [slow_gain(shares, repeats, history, item, items) for item in range(1, items + 1)]
        assert gains[number, 1:].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert not gains[:, PAD].any()


@settings(max_examples=150, deadline=None)
@given(logs(), st.data(), st.sampled_from([0.0, 0.5, 2.0]), st.integers(1, 4), st.integers(1, 5))
def test_lists_and_ranks_are_those_of_every_items_score(
    log: tuple[int, list[list[int]], list[list[int]]], data: st.DataObject, weight: float, some: int, block: int
) -> None:
    """And a list can be made of the policy's own best k and the items with counts: an index needs no others."""
    items, sequences, rows = log
    score = st.sampled_from([-1.0, 0.0, 0.5, 2.0])
    table = data.draw(st.lists(st.lists(score, min_size=items, max_size=items), min_size=len(rows), max_size=len(rows)))
    item, k = st.integers(PAD, items), data.draw(st.integers(1, items + 2))
    wide = data.draw(st.integers(0, 4))
    exclude = data.draw(st.lists(st.lists(item, min_size=wide, max_size=wide), min_size=len(rows), max_size=len(rows)))
    only = data.draw(st.none() | st.lists(item, max_size=items))
    target = data.draw(st.lists(st.integers(1, items), min_size=len(rows), max_size=len(rows)))
    plain = Written(table)
    policy = PolicyWithCounts(plain, Transitions.count(sessions_of(sequences), items), weight)
    query = policy.query(history_of(rows))
    assert isinstance(query, CountsQuery)
    gains = query.gains.of(all_items(len(rows), items))
    dense = (plain.table + weight * gains)[:, 1:]
    if weight == 0:
        assert torch.equal(policy.scores(query, 1, items + 1), plain.table[:, 1:])
    with blocks(some, block):
        lists, scores = policy.topk(
            query, k, exclude=as_tensor(exclude), only=None if only is None else as_tensor([only])[0]
        )
        ranks = policy.ranks(query, as_tensor([target])[0], as_tensor(exclude))
        own, _ = plain.topk(
            query.policy_query, k, exclude=as_tensor(exclude), only=None if only is None else as_tensor([only])[0]
        )
    for row, listed in enumerate(lists.tolist()):
        all_scores = dense[row].tolist()
        expected = slow_list(all_scores, k, exclude[row], only)
        assert [each for each in listed if each != PAD] == expected
        assert scores[row, : len(expected)].tolist() == pytest.approx([all_scores[j - 1] for j in expected], abs=1e-6)
        allowed = [j for j in range(1, items + 1) if j not in exclude[row] and (only is None or j in only)]
        candidates = {*own[row].tolist(), *(j for j in allowed if gains[row, j] > 0)} - {PAD}
        assert sorted(candidates, key=lambda j: (-all_scores[j - 1], j))[:k] == expected
        assert float(ranks[row]) == pytest.approx(near_rank(all_scores, target[row], exclude[row]))


def near_rank(scores: list[float], target: int, exclude: list[int]) -> float:
    """The slow rank, with scores that differ by rounding taken as equal."""
    return slow_rank([round(score, 4) for score in scores], target, exclude)


def test_rows_of_a_query_are_those_rows() -> None:
    transitions = Transitions.count(sessions_of([[1, 2, 3, 1], [3, 2, 3, 3]]), 3)
    policy = PolicyWithCounts(Written([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0], [0.0, 0.0, 0.0]]), transitions, 1.5)
    query = policy.query(history_of([[1, 2], [3], [2, 2, 1]]))
    whole = policy.scores(query, 1, 4)
    assert query[:3] is query
    for rows in (slice(1, 3), torch.tensor([2, 0]), slice(0, 0)):
        assert torch.equal(policy.scores(query[rows], 1, 4), whole[rows])


def test_an_item_without_followers_leaves_the_scores_as_they_are() -> None:
    transitions = Transitions.count(sessions_of([[1, 2], [3]]), 4)
    policy = PolicyWithCounts(Written([[0.5, 1.0, 2.0, 0.1]]), transitions, 9.0)
    query = policy.query(history_of([[4, 3]]))
    assert torch.equal(policy.scores(query, 1, 5), torch.tensor([[0.5, 1.0, 2.0, 0.1]]))
    assert torch.equal(policy.scores_of(query, torch.tensor([[4, 1]]))[0], torch.tensor([[0.1, 0.5]]))


# ------------------------------------------------------------------------------------- a policy with a critic


def with_counts(weight: float = 1.0) -> PolicyWithCounts:
    draw = np.random.default_rng(0)
    sequences = [draw.integers(1, ITEMS + 1, 12).tolist() for _ in range(40)]
    return PolicyWithCounts(make(), Transitions.count(sessions_of(sequences), ITEMS), weight)


@pytest.mark.parametrize("mode", ["policy", "blend", "control"])
def test_counts_are_added_in_the_modes_with_scores_of_the_same_scale(mode: str) -> None:
    policy, history = with_counts().ranked_by(mode), histories()  # type: ignore[arg-type]
    plain = policy.without_counts
    query = policy.query(history)
    assert isinstance(query, CountsQuery)
    gains = query.gains.of(all_items(len(history.items), ITEMS))[:, 1:]
    expected = plain.scores(plain.query(history), 1, ITEMS + 1) + gains.double()
    assert torch.allclose(policy.scores(query, 1, ITEMS + 1), expected)
    assert gains.any(1).all()
    items = torch.tensor([[1, 2]] * len(history.items))
    values = plain.values(plain.query(history), items, history)
    answered = policy.values(query, items, history)
    assert values is not None and answered is not None
    assert torch.equal(answered, values)
    assert (policy.has_critic, policy.ranking_mode) == (True, plain.ranking_mode)


@pytest.mark.parametrize("mode", ["rerank", "cosine"])
def test_other_modes_stay_as_they_are_and_can_be_left_again(mode: str) -> None:
    counted, history = with_counts(), histories()
    policy = counted.ranked_by(mode)  # type: ignore[arg-type]
    plain = policy.without_counts
    lists = policy.topk(policy.query(history), 5)
    assert torch.equal(lists[0], plain.topk(plain.query(history), 5)[0])
    target = lists[0][:, 3]
    assert torch.equal(policy.ranks(policy.query(history), target), plain.ranks(plain.query(history), target))
    back = policy.ranked_by("blend", w=2.0)
    expected = counted.ranked_by("blend", w=2.0)
    query = back.query(history)
    assert torch.equal(back.scores(query, 1, 9), expected.scores(expected.query(history), 1, 9))
    assert isinstance(query, CountsQuery)


def test_a_blend_without_value_is_the_cloned_policy_with_the_same_counts() -> None:
    policy, history = with_counts(), histories()
    blend, cloned = policy.ranked_by("blend", w=0.0), policy.ranked_by("policy")
    first, second = (view.scores(view.query(history), 1, ITEMS + 1) for view in (blend, cloned))
    assert torch.allclose(first, second)


# ------------------------------------------------------------------------------------- saved counts


BROKEN = {
    "a tensor is missing": lambda t: t.pop("shares"),
    "a tensor is foreign": lambda t: t.update(wings=torch.zeros(1)),
    "starts of another type": lambda t: t.update(starts=t["starts"].int()),
    "a matrix": lambda t: t.update(shares=t["shares"][None]),
    "other items": lambda t: t.update(starts=t["starts"][:-1]),
    "starts fall": lambda t: t["starts"].__setitem__(2, -1),
    "starts beyond the end": lambda t: t["starts"].__setitem__(-1, 999),
    "starts not at 0": lambda t: t["starts"].__setitem__(0, 1),
    "padding has followers": lambda t: t["starts"].__setitem__(1, 1),
    "fewer shares": lambda t: t.update(shares=t["shares"][:-1]),
    "padding follows": lambda t: t["followers"].__setitem__(0, PAD),
    "an item that does not exist": lambda t: t["followers"].__setitem__(0, 5),
    "a negative share": lambda t: t["shares"].__setitem__(0, -0.1),
    "a share above 1": lambda t: t["shares"].__setitem__(0, 1.1),
    "fewer repeats": lambda t: t.update(repeats=t["repeats"][:-1]),
    "a repeat above 1": lambda t: t["repeats"].__setitem__(0, 1.1),
    "a share that is no number": lambda t: t["shares"].__setitem__(0, torch.nan),
}


@pytest.mark.parametrize("change", BROKEN)
def test_broken_counts_are_refused(change: str) -> None:
    tensors = Transitions.count(sessions_of([[1, 2, 3, 4, 1]]), 4).state_dict()
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    Transitions.open(tensors, 4, "here")
    BROKEN[change](tensors)
    with pytest.raises(ArtifactError, match=r"^here: .*train again$"):
        Transitions.open(tensors, 4, "here")


def test_too_many_followers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = Transitions.count(sessions_of([[1, 2, 3, 4, 1]]), 4).state_dict()
    monkeypatch.setattr(counts_module, "KEPT", 2)
    with pytest.raises(ArtifactError, match="rows of its counts"):
        Transitions.open(tensors, 4, "here")
