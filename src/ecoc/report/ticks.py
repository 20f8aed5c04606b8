"""Axes: which range to show, where to write numbers along it, and how."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

_LARGEST, _LEAST = 1e300, 1e-300  # beyond them sums overflow or lose their digits; such values lie at the edge
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PLAIN = 10_000_000.0  # numbers are written out up to here
_FINEST = 5  # and down to so many decimals


@dataclass(frozen=True)
class Scale:
    """Numbers -> places between `start` and `end`; what lies beyond the range is put at its edge."""

    low: float
    high: float
    log: bool
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a number lies."""
        if self.log:
            if value <= 0:
                return self.start
            low, high, value = math.log10(self.low), math.log10(self.high), math.log10(value)
        else:
            low, high = self.low, self.high
        share = (value - low) / (high - low)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))


def bounds(values: Iterable[float], *, log: bool, pad: float = 0.05, zero: bool = False) -> tuple[float, float]:
    """A range that holds all values (on a log axis: the positive ones) with some room; never an empty one.

    With `zero` it starts or ends there if all values lie on one side, as bars need.
    """
    least = _LEAST if log else -_LARGEST
    known = [min(_LARGEST, max(least, value)) for value in values if value > 0 or not log]
    if not known:
        return (0.1, 10.0) if log else (0.0, 1.0)
    low, high = min(known), max(known)
    return _log_bounds(low, high, pad) if log else _linear_bounds(low, high, pad, zero)


def _log_bounds(low: float, high: float, pad: float) -> tuple[float, float]:
    first, last = math.log10(low), math.log10(high)
    room = max((last - first) * pad, 0.02) if last - first > 1e-9 else 0.5
    return 10 ** max(first - room, -305), 10 ** min(last + room, 305)


def _linear_bounds(low: float, high: float, pad: float, zero: bool) -> tuple[float, float]:
    bottom, top = (min(low, 0.0), max(high, 0.0)) if zero else (low, high)
    size = max(abs(bottom), abs(top))
    if top - bottom <= max(size * 1e-9, 1e-290):  # one value: room on both sides, or no tick could be told apart
        room = size * 0.1 if size > 1e-280 else 1.0
        return bottom - room, top + room
    room = (top - bottom) * pad
    keep_bottom, keep_top = zero and low >= 0, zero and high <= 0
    return bottom - (0 if keep_bottom else room), top + (0 if keep_top else room)


def ticks(low: float, high: float, *, log: bool, most: int) -> list[float]:
    """Round numbers within a range, at least one and about `most` at most."""
    found = _log_ticks(low, high, most) if log else _linear_ticks(low, high, most)
    return found or [low + (high - low) / 2]


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    for factor in (1, 2, 2.5, 5, 10, 20, 25, 50):
        step = factor * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [_rounded(index * step, step) for index in range(first, last + 1)]
    return []


def _rounded(value: float, step: float) -> float:
    """Without the dust of multiplication: 0.30000000000000004 is 0.3."""
    digits = min(2 - math.floor(math.log10(step)), 320)
    return round(value, digits) + 0.0


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    within = [10.0**power for power in range(first, last + 1) if low <= 10.0**power <= high]
    if len(within) > most:
        return within[:: math.ceil(len(within) / max(most, 1))]
    for factors in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1, 3)):
        finer = [
            factor * 10.0**power
            for power in range(first, last + 1)
            for factor in factors
            if low <= factor * 10.0**power <= high
        ]
        if 2 < len(finer) <= most:
            return finer
    return within if len(within) > 1 else _linear_ticks(low, high, most)


def tick_texts(values: Sequence[float]) -> list[str]:
    """Numbers as an axis writes them: with as many digits as tell them apart, thousands set apart, powers of ten."""
    distances = [abs(b - a) for a, b in pairwise(sorted(values)) if a != b]
    exact = 0.01 * min(distances) if distances else max(map(abs, values), default=0.0) * 1e-3
    largest = max(map(abs, values), default=0.0)
    smallest = min((abs(value) for value in values if value), default=1.0)
    if largest >= _PLAIN or smallest < 10.0**-_FINEST:
        return [_scientific(value, exact) for value in values]
    if (
        smallest == min(values, default=0.0) and largest / smallest >= 50
    ):  # those of a log axis, where each has digits of its own
        return [f"{value:,.0f}" if value >= 100 else f"{value:.6g}" for value in values]
    digits = next((d for d in range(12) if all(abs(round(value, d) - value) <= exact for value in values)), 12)
    return [f"{value:,.{digits}f}".replace("-", "−") for value in values]


def _scientific(value: float, exact: float) -> str:
    """Through Python's own notation, which is right down to the smallest number there is."""
    if value == 0:
        return "0"
    texts = (f"{abs(value):.{digits}e}" for digits in range(17))
    text = next((text for text in texts if abs(float(text) - abs(value)) <= exact), f"{abs(value):.16e}")
    mantissa, _, power = text.partition("e")
    factor = "" if float(mantissa) == 1 else f"{mantissa}×"
    return f"{'−' * (value < 0)}{factor}10{str(int(power)).translate(_SUPERSCRIPTS)}"


def number_text(value: float) -> str:
    """A number on its own, to about four digits."""
    if value and not 1e-4 <= abs(value) < _PLAIN:
        return _scientific(value, abs(value) * 1e-3)
    return f"{value:,.0f}".replace("-", "−") if abs(value) >= 10_000 else f"{value:.4g}".replace("-", "−")
