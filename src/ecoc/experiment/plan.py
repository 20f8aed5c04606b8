"""The plan of an experiment: everything requested, or as much of it as fits a time budget, with a list of cuts."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ecoc.durations import readable
from ecoc.errors import ArtifactError
from ecoc.storage.atomic import json_bytes, write_whole
from ecoc.storage.trusted import load_json

PLANS = "plan.json"
SHARE = 0.8  # of a budget that is planned; the rest is a reserve
_LEAST_STEPS = 200
_LEAST_SHARE = 0.1  # of the requested steps


@dataclass(frozen=True)
class Plan:
    """Training steps per run, number of seeds, and the highest priority number of jobs that are computed."""

    steps: int
    seeds: int
    priority: int
    seconds: float = 0.0  # estimate
    trimmed: tuple[str, ...] = ()


def least_steps(requested: int) -> int:
    """Smallest number of steps that still tests a method; below it seeds are cut instead."""
    return min(requested, max(_LEAST_STEPS, round(_LEAST_SHARE * requested)))


def fit(requested: Plan, cost: Callable[[Plan], float], limit: float) -> Plan:
    """The requested plan, cut to cost at most `limit`: first steps, down to a minimum, then seeds, then priorities.

    `cost` grows with steps, seeds and priority. If even the smallest plan costs more, it is used: jobs that do not fit
    are not run, and the tables state it.
    """
    least = least_steps(requested.steps)
    for priority in range(requested.priority, -1, -1):
        for seeds in range(requested.seeds, 0, -1):
            floor = Plan(least, seeds, priority)
            if cost(floor) <= limit:
                low, high = least, requested.steps
                while low < high:
                    middle = (low + high + 1) // 2
                    low, high = (middle, high) if cost(replace(floor, steps=middle)) <= limit else (low, middle - 1)
                return _priced(replace(floor, steps=low), cost)
    return _priced(Plan(least, 1, 0), cost)


def _priced(plan: Plan, cost: Callable[[Plan], float]) -> Plan:
    return replace(plan, seconds=cost(plan))


def cuts(requested: Plan, chosen: Plan, budget: float, left_out: list[str]) -> tuple[str, ...]:
    """What a time budget took away, one sentence per cut."""
    sentences = []
    why = f"to fit a budget of {readable(budget)}"
    if chosen.steps < requested.steps:
        sentences.append(f"{chosen.steps:,} training steps per run instead of {requested.steps:,}, {why}")
    if chosen.seeds < requested.seeds:
        sentences.append(f"{chosen.seeds} of {requested.seeds} seeds, {why}")
    if left_out:
        sentences.append(f"left out, {why}: {', '.join(left_out)}")
    if chosen.seconds > budget:
        sentences.append(
            f"the smallest plan takes about {readable(chosen.seconds)}, more than the budget of {readable(budget)}:"
            " jobs without time left are marked as not run"
        )
    return tuple(sentences)


class Plans:
    """The plans of a folder, by request: the same request gets the same plan."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PLANS

    def begin(self) -> None:
        """Mark the folder as one of experiments before anything else is written to it."""
        if not self._path.is_file():
            self._write({})

    def load(self, request: Mapping[str, Any]) -> Plan | None:
        """The plan of an earlier call with this request, or None."""
        try:
            values = dict(self._read()[_key(request)]["plan"])
            values["priority"] = values.pop("rank")
            plan = Plan(**{**values, "trimmed": tuple(str(text) for text in values["trimmed"])})
            is_sound = all(isinstance(n, int) and n > 0 for n in (plan.steps, plan.seeds)) and plan.priority >= 0
            return plan if is_sound else None
        except (KeyError, TypeError):
            return None

    def save(self, request: Mapping[str, Any], plan: Plan) -> None:
        """Store a plan."""
        values = asdict(plan)
        values["rank"] = values.pop("priority")
        self._write({**self._read(), _key(request): {"asked": dict(request), "plan": values}})

    def _read(self) -> dict[str, Any]:
        try:
            return dict(load_json(self._path, remedy="")["plans"])
        except (ArtifactError, KeyError, TypeError, ValueError):
            return {}

    def _write(self, plans: Mapping[str, Any]) -> None:
        write_whole(self._path, [json_bytes({"plans": dict(plans)})])


def _key(request: Mapping[str, Any]) -> str:
    return sha256(json.dumps(dict(request), sort_keys=True).encode()).hexdigest()[:16]
