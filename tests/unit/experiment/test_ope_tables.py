"""Tables of off-policy evaluation, from results made by hand."""

from typing import Any

import pytest

from ecoc.experiment.coverage import coverage_table
from ecoc.experiment.ope_truth import (
    _by_size,
    _estimators,
    _finding,
    _policies,
    _ratios,
    _regret,
    _scatter,
    rank_correlation,
)
from ecoc.experiment.results import CoverageRow, CoverageRows
from ecoc.ope.results import RolloutConfig, SimulationResult, WeightChoice
from ecoc.reporting.document import Number, Table
from ecoc.reporting.drawable import is_empty
from ecoc.reporting.figures import draw

TRUTH = {"logged": [0.5, 0.4, 0.6], "good": [1.0, 0.9, 1.1], "fair": [0.6, 0.5, 0.7], "poor": [0.2, 0.1, 0.3]}


class Titled:
    title = "a world"


QUALITY = {
    "fit_on": "log",
    "members": 3,
    "negatives": 0,
    "events": 10,
    "log_loss": 0.5,
    "log_loss_of_shares": 0.6,
    "calibration_error": 0.01,
    "reward_error": 0.02,
    "temperature": 1.0,
    "events_per_item": 5.0,
    "refused": 0.5,
}


def policy(name: str, ratio: float, one_step: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "control" if name == "logged" else "run",
        "acting": "policy",
        "reward": ratio / 2,
        "ratio": ratio,
        "low": ratio - 0.1,
        "high": ratio + 0.1,
        "unpenalised": ratio / 2 + 0.05,
        "doubt": 0.1,
        "charge": 0.05,
        "rare_actions": 0.0,
        "items_shown": 7,
        "reasons": [],
        "trusted": True,
        "one_step": {"conditional": {"ratio": one_step, "low": one_step, "high": one_step}},
        **more,
    }


def simulated(**changes: float) -> SimulationResult:
    ratios = {"good": 2.2, "fair": 1.3, "poor": 0.5, **changes}
    rows = [policy("logged", 1.0, 1.0)]
    rows += [policy(name, ratio, 3 - ratio) for name, ratio in ratios.items()]
    rows[-1] |= {"reasons": ["it was never seen"], "trusted": False}
    missing = dict.fromkeys(("value", "low", "high", "ess"))
    estimators = [
        {
            "policy": name,
            "of": "one decision",
            "estimator": "dr",
            "ratio": None if name == "poor" else ratio,
            **missing,
        }
        for name, ratio in ratios.items()
    ]
    return SimulationResult.build(
        {
            "data": "market",
            "settings": RolloutConfig(penalty=1.0),
            "exclude_seen": True,
            "simulator": QUALITY,
            "reasons": [],
            "one_step_simulator": {},
            "logged_reward": 0.5,
            "decisions": 100,
            "starts": 5,
            "steps": 17.0,
            "policies": rows,
            "estimators": estimators,
            "seconds": 1.0,
        }
    )


def cell(table: Table, row: str, column: str) -> Any:
    place = [one.name for one in table.columns].index(column)
    return next(found[place] for found in table.rows if found[0] == row)


def test_ratios_are_read_from_what_simulate_found() -> None:
    found = _ratios(simulated())
    assert found["roll-out with penalty (headline)"] == {"good": 2.2, "fair": 1.3, "poor": 0.5}
    assert found["roll-out without penalty"]["good"] == pytest.approx((1.1 + 0.05) / 0.5)
    assert found["one-step ratio (paper)"]["good"] == pytest.approx(0.8)
    assert found["DR, one decision"] == {"good": 2.2, "fair": 1.3}, "an estimator without a match says nothing"


def test_estimators_are_judged_by_rank_error_and_regret() -> None:
    found = {1000: _ratios(simulated()), 2000: _ratios(simulated(good=0.1))}
    table = _estimators(Titled(), TRUTH, found)  # type: ignore[arg-type]
    rows = [row for row in table.rows if row[0] == "roll-out with penalty (headline)"]
    first, second = rows
    assert first[2] == Number(value=1.0)
    assert isinstance(first[3], Number)
    assert first[3].value == pytest.approx(((2.2 - 2) + (1.3 - 1.2) + (0.5 - 0.4)) / 3)
    assert first[5:] == ["good", Number(value=0.0)]
    assert second[5] == "fair"
    assert isinstance(second[6], Number)
    assert second[6].value == pytest.approx(100 * (1 - 0.6 / 1.0))
    assert rank_correlation({"a": 1, "b": 2, "c": 3}, {"a": 3, "b": 2, "c": 1}) == pytest.approx(-1)


def test_policies_stand_in_the_order_of_the_truth_and_figures_are_not_empty() -> None:
    found = _ratios(simulated())
    table = _policies(Titled(), TRUTH, found)  # type: ignore[arg-type]
    assert [row[0] for row in table.rows] == ["good", "fair", "poor"]
    assert cell(table, "poor", "DR, one decision") is None
    figures = [*_scatter(TRUTH, found), _by_size(TRUTH, {1000: found, 2000: found})]
    assert not any(is_empty(figure) for figure in figures)
    assert all(draw(figure).svg.startswith("<svg") for figure in figures)


def choice(w: float | None, reasons: list[str], points: list[dict[str, Any]]) -> WeightChoice:
    return WeightChoice.build(
        {
            "run": "ecoc",
            "data": "market",
            "w": w,
            "reasons": reasons,
            "points": points,
            "simulator": QUALITY,
            "settings": RolloutConfig(),
        }
    )


def test_regret_of_the_chosen_weight() -> None:
    names = ("supervised+ema", *(f"ecoc, w = {w}" for w in (1, 2, 5, 10, 20, 50)))
    truth = {name: [reward, 0.0, 1.0] for name, reward in zip(names, (0.5, 0.6, 0.7, 0.9, 1.0, 0.8, 0.4), strict=True)}
    points = [
        {
            "w": w,
            "reward": 0.5,
            "ratio": 1.0,
            "low": 0.9,
            "high": 1.1,
            "unpenalised": 0.6,
            "doubt": 0.1,
            "items_shown": 7,
            "ndcg@10": 0.1,
            "reasons": ["unlike"] * (w == 50),
            "trusted": w != 50,
        }
        for w in (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    ]
    table = _regret(truth, choice(5.0, [], points))
    assert "w = 5: regret 10.0%" in table.title
    assert [row[0] for row in table.rows][3:5] == ["5 (chosen)", "10 (best)"]
    assert [row[-1] for row in table.rows] == ["yes"] * 6 + ["no"]
    table = _regret(truth, choice(None, ["too few", "no refusals"], points))
    assert table.title == "No weight could be chosen without the truth"
    assert table.note.endswith("Not chosen: too few. Not chosen: no refusals.")
    assert [row[0] for row in table.rows][3:5] == ["5", "10 (best)"]


def test_coverage_is_the_share_of_logs_whose_interval_contains_the_true_value() -> None:
    row = {"policy": "p", "share": 0.05, "propensity": "true", "estimator": "dr", "value": 1.0, "ess": 9.0}
    rows = [CoverageRow.build({**row, "low": low, "high": low + 1.0}) for low in (0.0, 0.5, 1.1, 3.0)]
    logs = [CoverageRows(rows=[interval]) for interval in rows]
    (table,) = coverage_table(logs, {"p 0.05": 1.2})
    assert cell(table, "p, 5% of decisions", "contains the true value, %") == Number(value=50.0)
    assert coverage_table([], {"p 0.05": 1.2}) == []
    assert coverage_table(logs, {}) == []


def test_the_finding_of_the_truth_names_both_estimators() -> None:
    sentence = _finding(TRUTH, simulated())
    assert "over 3 policies the headline has a rank correlation of +1.00" in sentence
    assert "one-step ratio -1.00." in sentence
    assert sentence.endswith("marked as trusted for 2 of 3 learned policies.")
