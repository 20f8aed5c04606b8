"""Learned policies in a world: the right items, the right histories, nothing shown twice."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import ecoc
from ecoc.batch import PAD, History
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.ope.truth import ModelInWorld, in_world, open_market, true_reward
from ecoc.policies.base import Policy
from ecoc.policies.ranking import Query
from ecoc.world import Market, Observation, evaluate
from ecoc.world.log import item_ids


class Remembers(Policy):
    """Scores item i by -i and keeps the histories it was asked about."""

    def __init__(self, items: int, length: int) -> None:
        super().__init__()
        self.items, self.length = items, length
        self.histories: list[History] = []

    def query(self, history: History) -> Query:
        self.histories.append(history)
        return Query(torch.zeros(len(history.items), 1))

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        return -torch.arange(first, last).float().expand(len(query), -1)

    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        return -items.float(), torch.zeros_like(items, dtype=torch.float32)

    def vectors(self) -> Tensor | None:
        return None


def seen(market: Market, items: list[list[int]], feedback: list[list[int]]) -> Observation:
    state = market.start(len(items), np.random.default_rng(0))
    return Observation(np.array(items, np.int32), np.array(feedback, np.int8), state)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return ecoc.prepare("world:small", tmp_path_factory.mktemp("truth") / "data")


def test_items_and_feedback_reach_the_policy_in_its_own_numbers(data: Dataset) -> None:
    market = open_market(data)
    index = np.array([3, PAD, 1, 2], np.int32)  # the world's items 0..3; the second was never in the log
    place = np.array([0, 2, 3, 0], np.int32)
    policy = Remembers(3, length=2)
    player = ModelInWorld(policy, index, place, np.array([1, 2, 3, 4], np.int32))
    shown = player(seen(market, [[0, 1], [1, 1]], [[3, 1], [0, 2]]), np.random.default_rng(0))
    assert policy.histories[0].items.tolist() == [[3, PAD], [1, PAD]], "one who knows nothing has seen item 1"
    assert policy.histories[0].feedback is not None
    assert policy.histories[0].feedback.tolist() == [[4, 0], [0, 0]]
    assert shown.tolist() == [2, 2], "the lowest index that was not shown, as the world numbers it"


def test_only_the_latest_items_are_read_and_all_shown_ones_are_left_out(data: Dataset) -> None:
    market = open_market(data)
    policy = Remembers(5, length=2)
    numbers = np.arange(1, 6, dtype=np.int32)
    player = ModelInWorld(policy, numbers, np.arange(-1, 5, dtype=np.int32), np.array([1, 2, 3, 4], np.int32))
    shown = player(seen(market, [[0, 1, 2]], [[0, 0, 0]]), np.random.default_rng(0))
    assert policy.histories[0].items.tolist() == [[2, 3]]
    assert shown.tolist() == [3]


@pytest.mark.parametrize(
    ("codes", "read"),
    [([0, 1, 2, 3], [2, 3]), ([0, 0, 0, 0], [1, 2, 3])],
    ids=["what its log never held is forgotten", "a log without feedback holds every event"],
)
def test_histories_hold_what_the_log_would(data: Dataset, codes: list[int], read: list[int]) -> None:
    policy = Remembers(5, length=3)
    numbers = np.arange(1, 6, dtype=np.int32)
    player = ModelInWorld(policy, numbers, np.arange(-1, 5, dtype=np.int32), np.array(codes, np.int32))
    shown = player(seen(open_market(data), [[0, 1, 2]], [[0, 1, 3]]), np.random.default_rng(0))
    assert [item for item in policy.histories[0].items[0].tolist() if item != PAD] == read
    assert shown.tolist() == [3], "what was ignored is not shown again either"


def test_a_trained_model_plays_its_world(data: Dataset, tmp_path: Path) -> None:
    settings = {"train": {"max_steps": 5}, "encoder": {"dim": 8, "length": 10}}
    model = ecoc.load(ecoc.train(data, tmp_path / "run", method="ecoc", config=settings).path)
    market = open_market(data)
    player = in_world(model, market)
    names = item_ids(market)
    assert all(model.vocab.ids(np.array([player.index[k]]))[0] == names[k] for k in range(0, len(names), 17))
    assert (player.place[player.index] == np.arange(len(names))).all()
    watched: list[Observation] = []

    def spied(now: Observation, rng: np.random.Generator, /) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        watched.append(now)
        return player(now, rng)

    result = evaluate(market, spied, 20)
    assert true_reward(model, market, 20).reward == result.reward
    warm, last = 3, watched[-1].items
    for session in last:
        chosen = session[warm:].tolist()
        assert len(set(chosen)) == len(chosen), "nothing is shown twice"
        assert not set(chosen) & set(session[:warm].tolist())


def test_a_log_from_elsewhere_has_no_known_truth(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item,time\n" + "".join(f"u{k % 5},i{k % 7},{k}\n" for k in range(100)))
    other = ecoc.prepare(tmp_path / "log.csv", tmp_path / "data", user="user", item="item", time="time")
    with pytest.raises(InputError, match="truth is not known"):
        open_market(other)
