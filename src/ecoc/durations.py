"""Lengths of time as people write and read them."""

import re

from ecoc.errors import InputError

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_LONGEST = 10 * 365 * 24 * 3600.0


def parse_budget(value: str | float) -> float:
    """`30m`, `90s`, `2h`, `1h30m`, or a number of seconds, as seconds."""
    seconds = 0.0
    if isinstance(value, str):
        pattern = r"(?=\d)(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?"
        match = re.fullmatch(pattern, value.strip().lower()[:40])
        if match is not None:
            seconds = sum(float(match[n + 1] or 0) * _UNITS[unit] for n, unit in enumerate("hms"))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    if not 0 < seconds <= _LONGEST:
        raise InputError(f"--budget {value!r:.40} is not a time; expected e.g. 90s, 30m, 2h or 1h30m")
    return seconds


def readable(seconds: float) -> str:
    """Seconds as readable text."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
