"""How much is computed: as much as was asked for, or as much of it as a budget of time allows, said openly."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ecoc.errors import InputError
from ecoc.storage.atomic import json_bytes, write_whole

PLANS = "plan.json"
SHARE = 0.8  # of a budget is planned for
_LEAST_STEPS = 200
_LEAST_SHARE = 0.1  # of the steps asked for
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_LONGEST = 10 * 365 * 24 * 3600.0


def parse_budget(text: str) -> float:
    """`30m`, `90s`, `2h` or `1h30m` as seconds."""
    match = re.fullmatch(r"(?=\d)(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower())
    seconds = 0.0 if match is None else sum(float(match[n + 1] or 0) * _UNITS[unit] for n, unit in enumerate("hms"))
    if not 0 < seconds <= _LONGEST:
        raise InputError(f"--budget {text[:40]!r} is not a time; expected e.g. 90s, 30m, 2h or 1h30m")
    return seconds


def readable(seconds: float) -> str:
    """Seconds as one would say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class Plan:
    """How long and how often every method is trained, and up to which rank optional cells are computed."""

    steps: int
    seeds: int
    rank: int
    seconds: float = 0.0  # estimate
    trimmed: tuple[str, ...] = ()


def least_steps(asked: int) -> int:
    """Fewer steps than this say nothing about a method; rather fewer seeds."""
    return min(asked, max(_LEAST_STEPS, round(_LEAST_SHARE * asked)))


def fit(asked: Plan, cost: Callable[[Plan], float], limit: float) -> Plan:
    """The plan asked for, trimmed to cost no more than `limit`: first steps, down to a floor, then seeds, then ranks.

    `cost` grows with steps, seeds and rank. Where even the least is too much the least is planned: what does not fit
    is not run, and the tables say so.
    """
    least = least_steps(asked.steps)
    for rank in range(asked.rank, -1, -1):
        for seeds in range(asked.seeds, 0, -1):
            floor = Plan(least, seeds, rank)
            if cost(floor) <= limit:
                low, high = least, asked.steps
                while low < high:
                    middle = (low + high + 1) // 2
                    low, high = (middle, high) if cost(replace(floor, steps=middle)) <= limit else (low, middle - 1)
                return _priced(replace(floor, steps=low), cost)
    return _priced(Plan(least, 1, 0), cost)


def _priced(plan: Plan, cost: Callable[[Plan], float]) -> Plan:
    return replace(plan, seconds=cost(plan))


def trimmings(asked: Plan, chosen: Plan, budget: float, left_out: list[str]) -> tuple[str, ...]:
    """In words, what a budget took away."""
    said = []
    why = f"to fit a budget of {readable(budget)}"
    if chosen.steps < asked.steps:
        said.append(f"{chosen.steps:,} training steps a run in place of {asked.steps:,}, {why}")
    if chosen.seeds < asked.seeds:
        said.append(f"{chosen.seeds} of {asked.seeds} seeds, {why}")
    if left_out:
        said.append(f"left out, {why}: {', '.join(left_out)}")
    if chosen.seconds > budget:
        said.append(
            f"even the least takes about {readable(chosen.seconds)}: what a budget of {readable(budget)} leaves"
            " no time for is marked as not run"
        )
    return tuple(said)


class Plans:
    """The plans of a folder, by what was asked: asked again, the same plan."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PLANS

    def begin(self) -> None:
        """Mark the folder as one of experiments, before anything else is in it."""
        if not self._path.is_file():
            self._write({})

    def load(self, asked: Mapping[str, Any]) -> Plan | None:
        """The plan made for this before, if any."""
        try:
            values = dict(self._read()[_key(asked)]["plan"])
            plan = Plan(**{**values, "trimmed": tuple(str(text) for text in values["trimmed"])})
            is_sound = all(isinstance(n, int) and n > 0 for n in (plan.steps, plan.seeds)) and plan.rank >= 0
            return plan if is_sound else None
        except (KeyError, TypeError):
            return None

    def save(self, asked: Mapping[str, Any], plan: Plan) -> None:
        """Keep a plan."""
        self._write({**self._read(), _key(asked): {"asked": dict(asked), "plan": asdict(plan)}})

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_bytes())
            return dict(found["plans"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return {}

    def _write(self, plans: Mapping[str, Any]) -> None:
        write_whole(self._path, [json_bytes({"plans": dict(plans)})])


def _key(asked: Mapping[str, Any]) -> str:
    return sha256(json.dumps(dict(asked), sort_keys=True).encode()).hexdigest()[:16]
