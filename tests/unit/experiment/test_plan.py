"""How a plan is fitted into a budget: openly, the same way every time, and never to more than was requested."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoc.durations import parse_budget, readable
from ecoc.errors import InputError
from ecoc.experiment.plan import PLANS, Plan, Plans, cuts, fit, least_steps


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), (" 1H5S ", 3605), ("0.5h", 1800), ("1m30s", 90)],
)
def test_budgets_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "30", "m", "30 m", "-5m", "1d", "5m1h", "1e3s", "h30m", "9" * 400 + "h"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InputError, match=r"expected e\.g\. 90s, 30m"):
        parse_budget(text)


@given(st.integers(0, 40), st.integers(0, 59), st.integers(0, 59))
def test_any_time_can_be_written(hours: int, minutes: int, seconds: int) -> None:
    total = 3600 * hours + 60 * minutes + seconds
    if total:
        assert parse_budget(f"{hours}h{minutes}m{seconds}s") == total


def test_times_are_said_in_their_unit() -> None:
    assert [readable(n) for n in (5, 89, 120, 7200)] == ["5 s", "89 s", "2 min", "2.0 h"]


PLANS_REQUESTED = st.builds(Plan, steps=st.integers(1, 5000), seeds=st.integers(1, 6), priority=st.integers(0, 5))
PACES = st.tuples(st.floats(1e-4, 0.5), st.floats(0.0, 20.0), st.lists(st.integers(1, 9), min_size=6, max_size=6))


def priced(pace: tuple[float, float, list[int]]) -> Callable[[Plan], float]:
    """Seconds of a plan whose priority p has so many jobs."""
    step, fixed, jobs = pace
    return lambda plan: plan.seeds * sum(jobs[: plan.priority + 1]) * (fixed + step * plan.steps)


@given(PLANS_REQUESTED, PACES, st.floats(0.1, 1e5))
def test_a_plan_fits_where_the_least_does(requested: Plan, pace: tuple[float, float, list[int]], limit: float) -> None:
    cost = priced(pace)
    plan = fit(requested, cost, limit)
    least = Plan(least_steps(requested.steps), 1, 0)
    assert plan.seconds == cost(plan)
    if cost(least) <= limit:
        assert cost(plan) <= limit
    else:
        assert (plan.steps, plan.seeds, plan.priority) == (least.steps, least.seeds, least.priority)


@given(PLANS_REQUESTED, PACES, st.floats(0.1, 1e5))
def test_no_plan_asks_for_more_or_goes_below_the_floor(
    requested: Plan, pace: tuple[float, float, list[int]], limit: float
) -> None:
    plan = fit(requested, priced(pace), limit)
    assert least_steps(requested.steps) <= plan.steps <= requested.steps
    assert 1 <= plan.seeds <= requested.seeds
    assert 0 <= plan.priority <= requested.priority


@given(PLANS_REQUESTED, PACES, st.floats(0.1, 1e5), st.floats(1.0, 100.0))
def test_more_time_never_means_less(
    requested: Plan, pace: tuple[float, float, list[int]], limit: float, times: float
) -> None:
    """Rows count most, then seeds, then steps: that is the order in which they are given up."""
    small, large = (fit(requested, priced(pace), budget) for budget in (limit, limit * times))
    assert (small.priority, small.seeds, small.steps) <= (large.priority, large.seeds, large.steps)


@given(PLANS_REQUESTED, PACES, st.floats(0.1, 1e5))
def test_no_time_is_left_unused_by_a_whole_step(
    requested: Plan, pace: tuple[float, float, list[int]], limit: float
) -> None:
    cost, plan = priced(pace), fit(requested, priced(pace), limit)
    if plan.steps < requested.steps and cost(plan) <= limit:
        assert cost(Plan(plan.steps + 1, plan.seeds, plan.priority)) > limit


@given(PLANS_REQUESTED, PACES, st.floats(0.1, 1e5))
def test_everything_taken_away_is_said(requested: Plan, pace: tuple[float, float, list[int]], limit: float) -> None:
    plan = fit(requested, priced(pace), limit)
    left_out = ["some row"] * (plan.priority < requested.priority)
    said = " ".join(cuts(requested, plan, limit, left_out))
    assert ("training steps" in said) == (plan.steps < requested.steps)
    assert ("seeds" in said) == (plan.seeds < requested.seeds)
    assert ("some row" in said) == (plan.priority < requested.priority)
    assert ("not run" in said) == (plan.seconds > limit)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(6000, (1000, 3, 1)), (3000, (500, 3, 1)), (1000, (250, 2, 1)), (410, (205, 1, 1)), (300, (300, 1, 0))],
)
def test_steps_go_before_seeds_and_seeds_before_rows(limit: float, expected: tuple[int, int, int]) -> None:
    plan = fit(Plan(1000, 3, 1), priced((1.0, 0.0, [1, 1, 0, 0, 0, 0])), limit)
    assert (plan.steps, plan.seeds, plan.priority) == expected


def test_asked_again_the_plan_is_the_same(tmp_path: Path) -> None:
    plans = Plans(tmp_path)
    plans.begin()
    assert plans.load({"budget": 60}) is None
    plan = Plan(250, 2, 1, 41.5, ("2 of 3 seeds",))
    plans.save({"budget": 60}, plan)
    plans.save({"budget": 120}, Plan(500, 3, 1))
    assert Plans(tmp_path).load({"budget": 60}) == plan
    assert Plans(tmp_path).load({"budget": 61}) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"plans": 5}', '{"plans": {}}'])
def test_a_damaged_file_of_plans_is_as_none(tmp_path: Path, content: str) -> None:
    plans = Plans(tmp_path)
    plans.save({"a": 1}, Plan(1, 1, 0))
    (tmp_path / PLANS).write_text(content)
    assert plans.load({"a": 1}) is None
    plans.save({"a": 1}, Plan(7, 1, 0))
    assert plans.load({"a": 1}) == Plan(7, 1, 0)


def test_a_plan_that_cannot_be_is_as_none(tmp_path: Path) -> None:
    plans = Plans(tmp_path)
    plans.save({"a": 1}, Plan(7, 1, 0))
    content = json.loads((tmp_path / PLANS).read_text())
    next(iter(content["plans"].values()))["plan"]["steps"] = -1
    (tmp_path / PLANS).write_text(json.dumps(content))
    assert plans.load({"a": 1}) is None
