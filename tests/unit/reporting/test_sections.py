"""Sections arrange results: what stands in their tables, figures and words."""

from typing import Any

import pytest
from results_case import comparison, evaluation, norm_test, simulation, weight_choice

from ecoc.ope.seeds import over_seeds
from ecoc.reporting.document import Number, Table
from ecoc.reporting.drawable import is_empty
from ecoc.reporting.sections.comparison import comparison_section
from ecoc.reporting.sections.norm_test import norm_test_section
from ecoc.reporting.sections.ranking import ranking_section
from ecoc.reporting.sections.simulation import (
    explained,
    reward_figures,
    reward_finding,
    reward_table,
    simulation_section,
)
from ecoc.reporting.sections.weight_choice import choice_figure, weight_section
from ecoc.reporting.tables import best_cells


def cell(table: Table, row: str, column: str) -> Any:
    place = [head.name for head in table.columns].index(column)
    return next(cells[place] for cells in table.rows if cells[0] == row)


def test_the_ranking_of_a_run_has_its_intervals_and_names_its_ranking_mode() -> None:
    section = ranking_section(evaluation())
    assert section.title == "Ranking what users did next: ecoc, test split"
    everything, new = section.tables
    own = cell(everything, "ecoc (blend, w10)", "NDCG@10")
    assert (own.low, own.high) == (0.09, 0.11)
    assert cell(everything, "popular", "NDCG@10").low is None
    assert cell(everything, "markov", "popularity lift") == Number(value=0.25)
    assert new.title == "New targets: not in the user's past (3,800 of 3,800 cases)", (
        "no table of the seen, of which there are none"
    )
    assert "coverage" not in [column.name for column in new.columns]


def test_a_metric_from_elsewhere_gets_a_column() -> None:
    own = evaluation()
    policies = {"metrics": {**own.metrics, "recall@3": 0.5}, "intervals": {**own.intervals, "recall@3": (0.4, 0.6)}}
    others = [one.model_copy(update={"metrics": {**one.metrics, "recall@3": 0.1}}) for one in own.untrained]
    table = ranking_section(own.model_copy(update={**policies, "untrained": others})).tables[0]
    assert cell(table, "ecoc (blend, w10)", "RECALL@3") == Number(value=0.5, low=0.4, high=0.6)


def test_differences_between_runs_come_before_those_from_untrained_policies() -> None:
    compared, pairs = comparison_section(comparison("a", "b", "c")).tables
    assert [row[0] for row in compared.rows] == ["a", "b", "c", "popular", "recent", "markov"]
    assert len(pairs.rows) == 36
    assert pairs.groups[:9] == ["a - b"] * 3 + ["a - c"] * 3 + ["b - c"] * 3
    rows = zip(pairs.groups, pairs.rows, strict=True)
    marked = {name for name, row in rows if isinstance(row[1], Number) and row[1].mark}
    assert marked == {"a - popular", "b - popular", "c - popular"}


def test_the_table_of_rewards_joins_seeds_and_says_what_is_not_trusted() -> None:
    simulations = [simulation(), simulation(ratios={"good": 2.4})]
    table = reward_table(simulations, {"good": [1.0, 1.2]}, name="reward", title="Reward")
    good = cell(table, "good", "roll-out, log = 1")
    assert good.value == pytest.approx(2.3)
    assert good.low < 2.2, "seeds that differ widen the interval"
    assert cell(table, "good", "true reward per step").value == pytest.approx(1.1)
    assert cell(table, "good", "true reward per step").sd == pytest.approx(0.1 * 2**0.5)
    assert cell(table, "fair", "true reward per step") is None
    trust = [cell(table, name, "trusted") for name in ("logged", "good", "poor")]
    assert trust == ["reference", "yes", "no"]
    assert "poor: it was never seen." in table.note
    assert "No figure" not in table.note
    figures = reward_figures(simulations, name="reward", title="")
    assert all(figure.y.line == 1.0 and "logged" not in figure.x.names for figure in figures)
    assert [figure.note for figure in figures] == ["Not to be trusted: poor.", ""]
    assert "log-loss 0.5000" in " ".join(explained(simulations[0]))


def test_an_interval_over_seeds_joins_both_kinds_of_variation() -> None:
    single = {one.name: one for one in over_seeds([simulation()])}["good"]
    assert [single.low, single.high] == pytest.approx([2.1, 2.3]), "of one seed as it was"
    (both,) = (one for one in over_seeds([simulation(), simulation(ratios={"good": 2.4})]) if one.name == "good")
    half, between = 0.1 / 2**0.5, 1.96 * (0.2 / 2**0.5) / 2**0.5
    assert both.high - both.ratio == pytest.approx((half**2 + between**2) ** 0.5)
    assert both.unpenalised == pytest.approx((2.3 / 2 + 0.05) / 0.5)


def test_findings_name_what_can_be_trusted() -> None:
    assert reward_finding([simulation()], "Reward, sasrec") == (
        "Reward, sasrec: good earns 2.20 times what the log's policy earns, by roll-outs; fair 1.30."
    )
    doubted = [simulation(), simulation({"good": ["never seen"]})]
    assert reward_finding(doubted, "Reward").startswith("Reward: fair earns 1.30 times"), "in doubt with one seed"
    nothing = simulation({"good": ["never seen"], "fair": ["never seen"]})
    assert reward_finding([nothing], "Reward") == "Reward: no figure of a learned policy can be trusted."
    nothing = simulation({"poor": []}, common=("too few events",))
    assert (
        reward_finding([nothing], "Reward") == "Reward: no figure of a learned policy can be trusted: too few events."
    )
    bars, _ = reward_figures([nothing], name="reward", title="")
    assert bars.note == "No figure can be trusted: too few events."
    note = reward_table([nothing, nothing], {}, name="reward", title="Reward").note
    assert note.endswith("2 seeds. No figure can be trusted: too few events."), "said once, not of every policy"


def test_what_cannot_be_trusted_is_never_set_in_bold() -> None:
    table = reward_table([simulation(ratios={"poor": 9.0})], {}, name="reward", title="Reward")
    best = {table.rows[row][0] for row, place in best_cells(table) if table.columns[place].name == "roll-out, log = 1"}
    assert best == {"good"}


def test_a_simulation_shows_every_estimator() -> None:
    section = simulation_section(simulation())
    rollout, estimators = section.tables
    assert len(estimators.rows) == 4 * 2 * 3
    values = dict(zip(estimators.groups, (row[2] for row in estimators.rows), strict=True))
    assert values["poor"] == "no logged decision agrees"
    assert values["good"] == Number(value=0.5, low=0.5, high=0.5)
    assert section.text[0].startswith("Result: good earns 2.20 times")
    assert rollout.rows[0][0] == "logged"


def test_the_choice_of_a_weight_names_it_in_words_table_and_figure() -> None:
    section = weight_section(weight_choice())
    assert section.text == ["Chosen: w = 5, the smallest weight within 2 % of the best trusted reward."]
    (table,) = section.tables
    assert [row[0] for row in table.rows if row[-1] == "chosen"] == ["5"]
    assert cell(table, "50", "trusted") == "no"
    assert table.note == "w = 50 is not trusted: 60% of its sessions are unlike any logged one."
    labels = [point.label for point in choice_figure(weight_choice()).series[0].points]
    assert labels[3:5] == ["w = 5 (chosen)", "w = 10"]
    assert "ranks as before: too few events" in weight_section(weight_choice(None)).text[0]
    assert not is_empty(choice_figure(weight_choice(None)))


def test_the_norm_test_stands_above_its_controls() -> None:
    section = norm_test_section(norm_test())
    (table,) = section.tables
    assert [row[0] for row in table.rows] == [
        "sasrec",
        "control of sasrec: random directions, its own norms",
        "control of sasrec: random vectors, as before training",
    ]
    assert cell(table, "sasrec", "t").mark == "*"
    assert "t (paper)" not in [column.name for column in table.columns]
    assert cell(norm_test_section(norm_test(), "yelp").tables[0], "sasrec", "t (paper)") == Number(value=2098)
    assert [point.x for point in section.figures[0].series[0].points] == [5, 10, 20, 50, 100, 200], "30 samples or more"
