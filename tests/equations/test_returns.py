"""Transitions and their targets against loops over rows and positions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from ecoc.batch import PAD, Batch, History
from ecoc.losses.returns import Transitions, lambda_returns

Floats = NDArray[np.float64]
Place = tuple[int, int]  # row and position


def random_batch(seed: int, rows: int = 4, length: int = 6, ends: float = 0.3, gaps: float = 0.3) -> Batch:
    """Rows of any length; positions without a target at their start and, by `gaps`, elsewhere; episodes end by `ends`.

    A row is cut off by its window (a target after its last item), or ends with its sequence (done there).
    """
    draw = np.random.default_rng(seed)
    items, target = np.zeros((rows, length), np.int64), np.zeros((rows, length), np.int64)
    done = np.zeros((rows, length))
    for b in range(rows):
        count = int(draw.integers(1, length + 1))
        sequence = draw.integers(1, 9, count + 1)
        items[b, :count], target[b, :count] = sequence[:-1], sequence[1:]
        done[b, :count] = draw.random(count) < ends
        done[b, count - 1] = draw.random() < 0.5
        target[b, : int(draw.integers(0, 3))] = PAD  # too little history
        target[b, draw.random(length) < gaps] = PAD
    done[target == PAD] = 0
    reward = np.where(target == PAD, 0.0, draw.normal(size=(rows, length)))
    whole = (torch.from_numpy(values) for values in (target, reward, done))
    return Batch(History(torch.from_numpy(items)), *whole)


def slow_places(batch: Batch) -> list[Place]:
    return [(b, t) for b, row in enumerate(batch.target.tolist()) for t, item in enumerate(row) if item != PAD]


def slow_is_whole(batch: Batch, place: Place) -> bool:
    b, t = place
    items = batch.history.items[b].tolist()
    return bool(batch.done[b, t]) or (t + 1 < len(items) and items[t + 1] != PAD)


def slow_returns(
    places: list[Place], reward: Tensor, done: Tensor, ahead: Floats, own: Floats, gamma: float, trace: float
) -> Floats:
    """G_k = r_k + g (1 - done_k) V_k + g l (G_{k+1} - own_{k+1}), the last term if k+1 goes on from k; backwards."""
    found = np.zeros(len(places))
    for k in reversed(range(len(places))):
        b, t = places[k]
        is_done = bool(done[b, t])
        found[k] = float(reward[b, t]) + (0.0 if is_done else gamma * ahead[k])
        if not is_done and k + 1 < len(places) and places[k + 1] == (b, t + 1):
            found[k] += gamma * trace * (found[k + 1] - own[k + 1])
    return found


@pytest.mark.parametrize("seed", range(12))
def test_transitions_are_the_positions_with_a_target(seed: int) -> None:
    batch = random_batch(seed)
    states = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(seed))
    for transitions, places in (
        (Transitions.of(batch), slow_places(batch)),
        (Transitions.of(batch).whole(), [place for place in slow_places(batch) if slow_is_whole(batch, place)]),
    ):
        assert transitions.length == 6
        assert transitions.position.tolist() == [b * 6 + t for b, t in places]
        assert transitions.item.tolist() == [int(batch.target[place]) for place in places]
        assert transitions.reward.tolist() == [float(batch.reward[place]) for place in places]
        assert transitions.done.tolist() == [float(batch.done[place]) for place in places]
        assert transitions.is_whole.tolist() == [slow_is_whole(batch, place) for place in places]
        current, ahead = transitions.current(states), transitions.next(states)
        assert current.shape == ahead.shape == (len(places), 3)
        for n, (b, t) in enumerate(places):
            assert torch.equal(current[n], states[b, t])
            if transitions.is_whole[n] and not transitions.done[n]:
                assert torch.equal(ahead[n], states[b, t + 1])


def test_random_batches_hold_every_case() -> None:
    """Or the tests above and below would show little."""
    seen, starts = set(), set()
    for seed in range(12):
        batch = random_batch(seed)
        places = slow_places(batch)
        for b, t in places:
            is_last = t + 1 == 6 or not batch.history.items[b, t + 1]
            seen.add((bool(batch.done[b, t]), is_last, slow_is_whole(batch, (b, t)), (b, t + 1) in places))
        starts |= {bool(batch.target[b, 0] == PAD) for b in range(4)}
    assert seen == {
        (False, False, True, True),
        (False, False, True, False),  # a gap follows
        (True, False, True, True),  # an episode ends within the window
        (True, False, True, False),
        (False, True, False, False),  # cut off by the window
        (True, True, True, False),
    }
    assert starts == {False, True}  # late, or from the first position on


def test_the_last_cell_of_a_batch_has_a_next_row_to_read() -> None:
    """Its outcome is the end of the sequence; what is read there means nothing, but must be there."""
    batch = Batch(
        History(torch.tensor([[1, 2]])), torch.tensor([[2, 3]]), torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0]])
    )
    transitions = Transitions.of(batch)
    states = torch.randn(1, 2, 4)
    assert transitions.is_whole.all()
    assert torch.equal(transitions.next(states)[0], states[0, 1])
    assert transitions.next(states).shape == (2, 4)


def test_a_batch_without_a_known_outcome_has_no_whole_transition() -> None:
    batch = Batch(History(torch.tensor([[1, 0]])), torch.tensor([[2, 0]]), torch.zeros(1, 2), torch.zeros(1, 2))
    transitions = Transitions.of(batch)
    assert transitions.is_whole.tolist() == [False]
    assert len(transitions.whole().position) == 0
    assert transitions.whole().next(torch.randn(1, 2, 3)).shape == (0, 3)
    assert lambda_returns(transitions.whole(), torch.zeros(0), torch.zeros(0), 0.9, 0.8).shape == (0,)


def compare(batch: Batch, gamma: float, trace: float, seed: int = 0) -> Floats:
    transitions = Transitions.of(batch).whole()
    places = [place for place in slow_places(batch) if slow_is_whole(batch, place)]
    draw = np.random.default_rng(seed)
    ahead, own = draw.normal(size=len(places)), draw.normal(size=len(places))
    expected = slow_returns(places, batch.reward, batch.done, ahead, own, gamma, trace)
    found = lambda_returns(transitions, torch.from_numpy(ahead), torch.from_numpy(own), gamma, trace)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10, atol=1e-12)
    return expected


@pytest.mark.parametrize("trace", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.95, 1.0])
def test_returns_are_the_backward_recursion(gamma: float, trace: float) -> None:
    for seed in range(8):
        compare(random_batch(seed, length=9), gamma, trace, seed)
        compare(random_batch(seed, length=9, ends=0.0, gaps=0.0), gamma, trace, seed)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.integers(1, 8),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_returns_of_any_batch(
    seed: int, rows: int, length: int, ends: float, gaps: float, gamma: float, trace: float
) -> None:
    compare(random_batch(seed, rows, length, ends, gaps), gamma, trace, seed)


def line(target: list[int], done: list[float], reward: list[float]) -> Transitions:
    """One row whose window goes on after its last target."""
    items = torch.full((1, len(target)), 7)
    values = torch.tensor([target]), torch.tensor([reward]).double(), torch.tensor([done]).double()
    return Transitions.of(Batch(History(items), *values)).whole()


def test_a_run_by_hand() -> None:
    transitions = line([1, 2, 3, 0], [0, 0, 0, 0], [1.0, 10.0, 100.0, 0.0])
    ahead, own = torch.tensor([2.0, 3.0, 4.0]).double(), torch.tensor([9.0, 5.0, 6.0]).double()
    third = 100 + 0.5 * 4
    second = 10 + 0.5 * 3 + 0.5 * 0.2 * (third - 6)
    first = 1 + 0.5 * 2 + 0.5 * 0.2 * (second - 5)
    assert lambda_returns(transitions, ahead, own, 0.5, 0.2).tolist() == pytest.approx([first, second, third])


def test_an_end_within_the_window_stops_the_trace() -> None:
    """Rewards after it change nothing before it; y there is the reward alone."""
    ahead, own = torch.full((4,), 50.0).double(), torch.full((4,), -3.0).double()
    found = [
        lambda_returns(line([1, 2, 3, 4, 0], [0, 1, 0, 0, 0], [1.0, 2.0, late, 4.0, 0.0]), ahead, own, 0.9, 1.0)
        for late in (3.0, 3000.0)
    ]
    assert torch.equal(found[0][:2], found[1][:2])
    assert found[0][1].item() == 2.0
    assert found[0][0].item() == pytest.approx(1 + 0.9 * 50 + 0.9 * (2 - -3))
    assert found[0][2].item() != found[1][2].item()


def test_a_gap_stops_the_trace() -> None:
    ahead, own = torch.full((2,), 5.0).double(), torch.full((2,), -3.0).double()
    found = lambda_returns(line([1, 0, 3, 0], [0, 0, 0, 0], [1.0, 0.0, 700.0, 0.0]), ahead, own, 0.9, 1.0)
    assert found.tolist() == pytest.approx([1 + 0.9 * 5, 700 + 0.9 * 5])


def test_rows_do_not_run_into_each_other() -> None:
    """The last cell of a row and the first of the next are neighbours only in memory."""
    batch = Batch(
        History(torch.full((2, 2), 7)),
        torch.tensor([[1, 2], [3, 4]]),
        torch.tensor([[1.0, 2.0], [900.0, 4.0]]).double(),
        torch.tensor([[0.0, 1.0], [0.0, 1.0]]).double(),
    )
    ahead, own = torch.zeros(4).double(), torch.zeros(4).double()
    assert lambda_returns(Transitions.of(batch), ahead, own, 1.0, 1.0).tolist() == [3.0, 2.0, 904.0, 4.0]


@pytest.mark.parametrize("trace", [0.0, 0.5, 1.0])
def test_where_everything_ends_y_is_the_reward(trace: float) -> None:
    """docs/equations.md §10, property 8."""
    batch = random_batch(3, gaps=0.0)
    batch = Batch(batch.history, batch.target, batch.reward, (batch.target != PAD).double())
    transitions = Transitions.of(batch)
    assert transitions.is_whole.all()
    wild = torch.full((len(transitions.position),), 1e6).double()
    assert torch.equal(lambda_returns(transitions, wild, -wild, 1.0, trace), transitions.reward)


def test_a_full_trace_to_the_end_is_the_discounted_sum_of_rewards() -> None:
    """With trace 1 what is believed on the way cancels, if the value of s' is the value of the item taken there."""
    transitions = line([1, 2, 3, 4], [0, 0, 0, 1], [1.0, -2.0, 0.5, 4.0])
    own = torch.tensor([3.0, -1.0, 2.0, 8.0]).double()
    ahead = torch.cat([own[1:], own[:1]])
    expected, later = [0.0] * 4, 0.0
    for k in (3, 2, 1, 0):
        later = float(transitions.reward[k]) + 0.9 * later
        expected[k] = later
    assert lambda_returns(transitions, ahead, own, 0.9, 1.0).tolist() == pytest.approx(expected)


def test_no_discount_and_no_trace_look_at_the_reward_or_one_step() -> None:
    transitions = line([1, 2, 0], [0, 0, 0], [1.0, 2.0, 0.0])
    ahead, own = torch.tensor([5.0, 6.0]).double(), torch.tensor([7.0, 8.0]).double()
    assert lambda_returns(transitions, ahead, own, 0.0, 1.0).tolist() == [1.0, 2.0]
    assert lambda_returns(transitions, ahead, own, 0.5, 0.0).tolist() == [3.5, 5.0]
