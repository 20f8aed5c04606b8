"""What commands print: headings over every column, and the ten rows that decide."""

import re

from results_case import comparison, evaluation, norm_test, simulation, weight_choice

from ecoc.reporting.text import (
    comparison_text,
    evaluation_text,
    norm_test_text,
    recommendations_text,
    simulation_text,
    weight_text,
)


def lines_of(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip().startswith(start)]


def test_an_evaluation_names_its_columns_intervals_and_ranking_mode() -> None:
    text = evaluation_text(evaluation())
    assert lines_of(text, "policy")[0].split() == (
        [
            "policy",
            "HR@5",
            "HR@10",
            "HR@20",
            "MRR@10",
            "NDCG@5",
            "NDCG@10",
            "NDCG@20",
            "coverage",
            "popularity",
            "lift",
            "diversity",
        ]
    )
    assert "95 % intervals over users for ecoc: hr@10 0.0900 to 0.1100" in text
    assert "--rank-by policy" in text
    assert "--rank-by" not in evaluation_text(evaluation(mode="policy"))


def test_a_comparison_prints_the_ten_rows_that_decide_and_where_the_others_are() -> None:
    text = comparison_text(comparison("a", "b", "c"))
    shown = text[text.index("    metric") :].splitlines()[1:-2]
    assert sum(line.startswith("    ") for line in shown) == 10
    assert [line.strip() for line in shown if " - " in line] == ["a - b", "a - c", "b - c", "a - popular"], "runs first"
    assert "26 more comparisons: --json lists them, and so does ecoc report" in text
    assert "more comparisons" not in comparison_text(comparison("a"))


def test_a_simulation_prints_ten_policies_at_most_and_those_of_runs_first() -> None:
    few = simulation_text(simulation())
    assert "24 estimates by importance weighting: --json lists them" in few
    assert "more policies" not in few
    assert "not trusted: poor: it was never seen" in few
    controls = {"random": 0.3, "popular": 0.2, "best item": 0.1}
    many = simulation_text(simulation(ratios={**controls, **{f"run {place}": 1.0 for place in range(8)}}))
    table = many[many.index("    policy") : many.index("  Roll-out:")].splitlines()
    names = [re.split(r"  +", line.strip())[0] for line in table[1:]]
    assert len(names) == 10
    assert names[0] == "logged" and "random" not in names
    assert "5 more policies: --json lists them, and so does ecoc report" in many


def test_no_line_says_that_the_log_is_trusted_where_nothing_can_be() -> None:
    text = simulation_text(simulation(common=("too few events",)))
    assert "No figure can be trusted: too few events." in text
    (logged,) = lines_of(text, "logged")
    assert " no " in logged and "reference" not in text and "yes" not in text


def test_a_weight_is_chosen_or_not() -> None:
    text = weight_text(weight_choice())
    assert "chosen: w = 5" in text and "written into the run" in text
    assert lines_of(text, "w ")[0].split() == ["w", "reward", "per", "step", "NDCG@10", "items", "shown", "trusted"]
    assert "not chosen, the run ranks as before: too few events" in weight_text(weight_choice(None))


def test_a_norm_test_has_headings_for_both_tables() -> None:
    text = norm_test_text(norm_test())
    assert lines_of(text, "run")[0].split()[:6] == ["run", "Mean", "Std.", "t", "effect", "p"]
    assert lines_of(text, "run")[1].split() == ["run", "K", "cosine", "samples"]


def test_lists_have_headings_for_scores_and_values() -> None:
    entry = {"item": "i1", "title": "A lamp", "score": 0.5, "value": 1.25}
    results = [
        {"items": [entry], "unknown": ["x"], "unknown_feedback": []},
        {"items": [{**entry, "value": None}], "unknown": [], "unknown_feedback": []},
    ]
    answer = {"results": results}
    first, second = recommendations_text(answer, ["i9", " "]).split("without a history")
    assert first.splitlines() == [
        "after i9",
        "  unknown, ignored: x",
        "    rank  item   score  value  title",
        "       1  i1    0.5000  1.250  A lamp",
    ]
    assert "value" not in second
