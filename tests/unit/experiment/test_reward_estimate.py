"""What a simulation is expected to take, before it begins."""

from pathlib import Path

import pytest

import ecoc
from ecoc.experiment.context import Context, Request
from ecoc.experiment.jobs import JobStore
from ecoc.experiment.plan import Plan
from ecoc.experiment.reward import simulate_seconds


def expected(folder: Path, reward: str) -> float:
    rows = "".join(f"u{n % 40},i{n % 7},{n},{'view' if n % 2 else 'buy'}\n" for n in range(800))
    (folder / "log.csv").write_text(f"user,item,time,event\n{rows}")
    data = ecoc.prepare(
        folder / "log.csv", folder / "data", user="user", item="item", time="time", feedback="event", reward=reward
    )
    request = Request("reward", None, None, 1, 10, None, 100, 0)
    return simulate_seconds(Context(data, folder, JobStore(folder, {}), request, Plan(10, 1, 0)), policies=0)


def test_refusals_that_are_made_up_take_time_too(tmp_path: Path) -> None:
    """On a log without refusals four made-up ones stand beside each event, and simulators answer five times as much."""
    for name in ("taken", "both"):
        (tmp_path / name).mkdir()
    taken, both = expected(tmp_path / "taken", "view=1,buy=3"), expected(tmp_path / "both", "view=0,buy=3")
    assert taken - 2.0 == pytest.approx(5 * (both - 2.0))
