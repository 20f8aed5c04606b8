from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_case import KINDS, Past, dataset, logs

from ecoc.batch import PAD
from ecoc.data.loader import Cases, dims_of, histories, open_cases, open_train_sequences

pytestmark = pytest.mark.usefixtures("one_thread")


def slow_cases(pasts: list[Past], split: str, min_history: int) -> list[tuple[int, int]]:
    """(event, sequence)."""
    found, start = [], 0
    for k, past in enumerate(pasts):
        for place in range(past.events):
            is_test = place >= past.train
            is_in = is_test if split == "test" else past.is_held_out and not is_test
            if is_in and place >= min_history:
                found.append((start + place, k))
        start += past.events
    return found


@settings(max_examples=150, deadline=None)
@given(logs(), st.sampled_from(["test", "validation"]), st.integers(1, 5), st.integers(1, 6))
def test_cases_and_their_histories_are_what_a_loop_finds(
    pasts: list[Past], split: Literal["test", "validation"], min_history: int, length: int
) -> None:
    with dataset(pasts) as data:
        cases = open_cases(data, split, min_history=min_history, most=0, seed=0)
        expected = slow_cases(pasts, split, min_history)
        assert list(zip(cases.event.tolist(), cases.sequence.tolist(), strict=True)) == expected
        history = histories(data, cases, length)
    assert history.feedback is not None
    assert history.users is not None
    widest = 0
    for row, (event, k) in enumerate(expected):
        start = sum(past.events for past in pasts[:k])
        read = list(range(max(start, event - length), event))
        widest = max(widest, len(read))
        short = [0] * (history.items.shape[1] - len(read))
        assert history.items[row].tolist() == [e + 1 for e in read] + [PAD] * len(short)
        assert history.feedback[row].tolist() == [e % KINDS + 1 for e in read] + short
        is_learnt = pasts[k].train > cases.min_history and not pasts[k].is_held_out
        assert history.users[row].item() == (k + 1 if is_learnt else 0)
    assert history.items.shape == history.feedback.shape == (len(expected), widest)
    assert history.items.dtype == history.feedback.dtype == history.users.dtype == torch.int64


@settings(max_examples=60, deadline=None)
@given(logs(), st.sampled_from(["test", "validation"]), st.integers(1, 30), st.integers(0, 2**63 - 1))
def test_a_sample_of_cases_is_sorted_distinct_and_drawn_by_the_seed(
    pasts: list[Past], split: Literal["test", "validation"], most: int, seed: int
) -> None:
    with dataset(pasts) as data:
        everything = slow_cases(pasts, split, 1)
        one, other = (open_cases(data, split, min_history=1, most=most, seed=seed) for _ in range(2))
    found = list(zip(one.event.tolist(), one.sequence.tolist(), strict=True))
    assert found == sorted(set(found))
    assert set(found) <= set(everything)
    assert len(found) == len(one) == min(most, len(everything))
    assert np.array_equal(one.event, other.event)


def test_samples_of_cases_reach_all_of_them() -> None:
    with dataset([Past(30, 3), Past(30, 5)]) as data:
        drawn = [open_cases(data, "test", min_history=1, most=10, seed=seed).event.tolist() for seed in range(60)]
        everything = open_cases(data, "test", min_history=1, most=0, seed=0).event.tolist()
    assert len({tuple(events) for events in drawn}) == 60
    assert {event for events in drawn for event in events} == set(everything)


def test_no_cases_have_no_histories() -> None:
    with dataset([Past(4, 4)]) as data:
        cases = open_cases(data, "test", min_history=1, most=5, seed=0)
        assert len(cases) == 0
        assert histories(data, cases, 3).items.shape == (0, 0)


def test_part_of_the_cases() -> None:
    cases = Cases(np.arange(5) * 10, np.arange(5))
    assert cases.part(slice(1, 3)).event.tolist() == [10, 20]
    assert cases.part(np.array([4, 0])).sequence.tolist() == [4, 0]


@settings(max_examples=100, deadline=None)
@given(logs())
def test_sessions_are_what_a_loop_finds(pasts: list[Past]) -> None:
    with dataset(pasts) as data:
        sessions = open_train_sequences(data)
        dims = dims_of(data)
    assert (dims.items, dims.users, dims.feedback) == (sum(past.events for past in pasts), len(pasts), KINDS)
    expected, start = [], 0
    for past in pasts:
        if not past.is_held_out and past.train:
            expected.append([start + place + 1 for place in range(past.train)])
        start += past.events
    found = [part.tolist() for part in np.split(sessions.items, sessions.offsets[1:-1])] if expected else []
    assert found == expected
    assert sessions.offsets.tolist() == [0, *np.cumsum([len(part) for part in expected]).tolist()]
    assert sessions.items.dtype == np.int64
