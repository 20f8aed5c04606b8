import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ecoc.report.ticks import Scale, bounds, number_text, tick_texts, ticks

ANY = st.floats(-1e300, 1e300)


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [
        (0, 1, 6, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 10, 5, [0, 2.5, 5, 7.5, 10]),
        (-0.13, 0.27, 5, [-0.1, 0, 0.1, 0.2]),
        (0.1, 0.7, 7, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
        (50, 12_000, 7, [2000, 4000, 6000, 8000, 10_000, 12_000]),
    ],
)
def test_round_numbers_are_chosen_without_the_dust_of_floats(
    low: float, high: float, most: int, expected: list[float]
) -> None:
    assert ticks(low, high, log=False, most=most) == expected


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [
        (1, 1000, 10, [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]),
        (1, 1e6, 7, [1, 10, 100, 1e3, 1e4, 1e5, 1e6]),
        (1, 1e6, 4, [1, 100, 1e4, 1e6]),
        (2, 4, 9, [2, 3, 4]),
        (2.1, 2.4, 5, [2.1, 2.2, 2.3, 2.4]),
    ],
)
def test_a_log_axis_shows_powers_of_ten_and_finer_ones_where_there_is_room(
    low: float, high: float, most: int, expected: list[float]
) -> None:
    assert ticks(low, high, log=True, most=most) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0.5, 1], ["0.0", "0.5", "1.0"]),
        ([-1, 0, 1], ["−1", "0", "1"]),
        ([0, 2.5, 5], ["0.0", "2.5", "5.0"]),
        ([1000, 2000], ["1,000", "2,000"]),
        ([0.001, 0.01, 0.1, 1, 10], ["0.001", "0.01", "0.1", "1", "10"]),
        ([1e6, 1e7, 1e8], ["10⁶", "10⁷", "10⁸"]),
        ([0, 5e9, 1e10], ["0", "5×10⁹", "10¹⁰"]),
        ([-2e-8, 0, 2e-8], ["−2×10⁻⁸", "0", "2×10⁻⁸"]),
        ([1e9 + 1, 1e9 + 2], ["1.000000001×10⁹", "1.000000002×10⁹"]),
        ([], []),
    ],
)
def test_numbers_along_an_axis_are_told_apart_in_few_letters(values: list[float], expected: list[str]) -> None:
    assert tick_texts(values) == expected


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1"), (0, "0"), (-0.25, "−0.25"), (12345.6, "12,346"), (1e-9, "10⁻⁹"), (3.2e12, "3.2×10¹²")]
)
def test_a_number_on_its_own(value: float, text: str) -> None:
    assert number_text(value) == text


@example([5e-324], True, False, 1)
@example([1e-300, 1e300], True, False, 1)
@given(st.lists(ANY, min_size=1), st.booleans(), st.booleans(), st.integers(1, 12))
def test_any_values_have_a_range_with_ticks_in_it(values: list[float], log: bool, zero: bool, most: int) -> None:
    low, high = bounds(values, log=log, zero=zero)
    assert math.isfinite(low) and math.isfinite(high) and low < high
    assert not log or low > 0
    shown = [value for value in values if value >= 1e-300] if log else values
    assert all(low <= value * (1 + 1e-9) and value <= high * (1 + 1e-9) for value in shown if value > 0)
    assert all(low <= value * (1 - 1e-9) and value <= high for value in shown if value < 0)
    found = ticks(low, high, log=log, most=most)
    assert found
    assert all(low - (high - low) * 1e-6 <= tick <= high + (high - low) * 1e-6 for tick in found)
    assert found == sorted(found)
    texts = tick_texts(found)
    assert len(set(texts)) == len(texts) == len(found)


@given(ANY, ANY, ANY, st.booleans())
def test_a_scale_never_leaves_its_place(value: float, a: float, b: float, log: bool) -> None:
    low, high = bounds([a, b], log=log)
    assert 10 <= Scale(low, high, log, 10, 90)(value) <= 90
    assert 10 <= Scale(low, high, log, 90, 10)(value) <= 90


def test_bars_start_at_zero_whatever_their_sign() -> None:
    assert bounds([3, 5], log=False, zero=True)[0] == 0
    assert bounds([-3, -5], log=False, zero=True)[1] == 0
    low, high = bounds([-1, 2], log=False, zero=True)
    assert low < -1 and high > 2
