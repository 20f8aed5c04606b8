"""Times in histories: those of the events, and of the events that follow them."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_case import Past, basket_logs, dataset, logs

from ecoc.batch import PAD, History
from ecoc.data.loader import Mode, Windows, histories, open_cases
from ecoc.data.schema import TimeUnit
from ecoc.data.times import LATEST, PER_SECOND, in_seconds
from ecoc.encoders import prefixes

pytestmark = pytest.mark.usefixtures("one_thread")


def check(history: History) -> None:
    """Event e has item e + 1 and time e, or 1 for second 0, and the next event of its row has time e + 1."""
    assert history.times is not None
    assert history.request_times is not None
    event = history.items.clamp(min=1) - 1
    real = history.items != PAD
    assert history.times.equal(event.clamp(min=1) * real)
    assert history.request_times.equal((event + 1) * real)


@settings(max_examples=60, deadline=None)
@given(logs(), st.sampled_from(get_args(Mode)), st.integers(1, 6))
def test_windows_and_histories_hold_the_times_of_the_log(pasts: list[Past], mode: Mode, length: int) -> None:
    pasts = [*pasts, Past(4, 3)]
    with dataset(pasts, time_unit="s") as data:
        windows = Windows(data, length, batch=3, targets=10, mode=mode, min_history=1, seed=0)
        for step in range(windows.steps):
            check(windows[step].history)
        check(histories(data, open_cases(data, "test", min_history=1, most=0, seed=0), length))


@settings(max_examples=60, deadline=None)
@given(basket_logs(), st.sampled_from(get_args(Mode)), st.integers(1, 6))
def test_the_state_before_a_basket_is_used_at_the_time_of_the_basket(
    pasts: list[Past], mode: Mode, length: int
) -> None:
    pasts = [*pasts, Past(4, 4, baskets=(1, 2, 1))]
    with dataset(pasts, time_unit="s") as data:
        windows = Windows(data, length, batch=3, targets=10, mode=mode, min_history=1, seed=0)
        times = np.append(-1, in_seconds(data.times, "s"))  # by item
        for step in range(windows.steps):
            batch = windows[step]
            assert batch.state is not None
            assert batch.history.request_times is not None
            wanted = batch.target != PAD
            requested = batch.history.request_times.gather(1, batch.state)[wanted]
            assert requested.tolist() == times[batch.target[wanted].numpy()].tolist()


def test_a_log_that_has_only_an_order_has_no_times() -> None:
    with dataset([Past(5, 4), Past(6, 5)]) as data:
        batch = Windows(data, 4, batch=2, targets=10, mode="tile", min_history=1, seed=0)[0]
        past = histories(data, open_cases(data, "test", min_history=1, most=0, seed=0), 4)
    assert batch.history.times is batch.history.request_times is None
    assert past.times is past.request_times is None


@pytest.mark.parametrize("unit", get_args(TimeUnit))
def test_units_become_whole_seconds_and_zero_stays_free(unit: TimeUnit) -> None:
    ticks = PER_SECOND.get(unit, 1)
    times = np.array([-5, 0, 1, 7, 10**9]) * ticks + np.array([0, 0, 0, ticks - 1, 0])
    expected = [0] * 5 if unit == "order" else [-5, 1, 1, 7, 10**9]
    assert in_seconds(times, unit).tolist() == expected


def test_absurd_times_are_limited() -> None:
    times = np.array([-(2**63), 2**63 - 1])
    assert in_seconds(times, "s").tolist() == [-LATEST, LATEST]


def test_rows_and_prefixes_keep_times() -> None:
    with dataset([Past(5, 4), Past(6, 6)], time_unit="s") as data:
        history = Windows(data, 4, batch=2, targets=10, mode="tile", min_history=1, seed=0)[0].history
    check(history.rows(history.items[:, 0].argsort(descending=True)))
    check(prefixes(history))
