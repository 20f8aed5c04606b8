"""How well policies rank what users did next: the results of `ecoc.evaluate`, and rows that a comparison shares."""

from collections.abc import Mapping, Sequence
from typing import Any

from ecoc.reporting.document import Cell, Column, Number, Section, Table

METRICS = ("hr@5", "hr@10", "hr@20", "mrr@10", "ndcg@5", "ndcg@10", "ndcg@20")
LISTS = {"coverage@10": ("coverage", 3), "popularity_lift@10": ("popularity lift", 2), "diversity@10": ("diversity", 3)}
CAVEAT = "The log shows what its own policy chose, so this measures likeness to that policy, not what users gain."

Row = Mapping[str, Any]


def policy_name(row: Row) -> str:
    """A policy's name, with its ranking mode where it could rank otherwise."""
    return row["name"] if row["acting"] == "policy" else f"{row['name']} ({row['acting'].replace('-', ', ')})"


def ranking_table(rows: Sequence[Row], *, name: str, title: str, part: str | None = None) -> Table:
    """One row per policy; `part` is "seen" or "new" for the targets inside or outside the user's past."""
    lists = {} if part else {key: shown for key, shown in LISTS.items() if all(key in row for row in rows)}
    body: list[list[Cell]] = []
    for row in rows:
        metrics, intervals = (row[part] if part else row)["metrics"], {} if part else row.get("intervals", {})
        numbers = [_number(metrics[metric], intervals.get(metric)) for metric in METRICS]
        body.append([policy_name(row), *numbers, *(Number(value=row[key]) for key in lists)])
    columns = [Column(name="policy"), *(Column(name=metric.upper(), better="high") for metric in METRICS)]
    columns += [Column(name=heading, digits=digits) for heading, digits in lists.values()]
    return Table(id=name, title=title, columns=columns, rows=body)


def _number(value: float, interval: Sequence[float] | None) -> Number:
    low, high = interval or (None, None)
    return Number(value=value, low=low, high=high)


def evaluation_rows(evaluation: Row) -> list[Row]:
    """The evaluated run, then the policies without training."""
    return [{**evaluation, "name": evaluation["run"].rstrip("/").rpartition("/")[2]}, *evaluation["untrained"]]


def ranking_tables(evaluation: Row) -> list[Table]:
    """The table of all targets, then of those inside and outside the user's past."""
    rows = evaluation_rows(evaluation)
    tables = [ranking_table(rows, name="ranking", title="All targets")]
    for part, meaning in (("seen", "already in the user's past"), ("new", "not in the user's past")):
        cases = evaluation[part]["cases"]
        if cases:
            title = f"{part.capitalize()} targets: {meaning} ({cases:,} cases, {cases / evaluation['cases']:.1%})"
            tables.append(ranking_table(rows, name=f"ranking-{part}", title=title, part=part))
    return tables


def ranking_section(evaluation: Row) -> Section:
    """The section of an evaluated run."""
    return Section(
        id="ranking",
        title=f"Ranking what users did next: {evaluation_rows(evaluation)[0]['name']}",
        text=[f"{cases_text(evaluation)} Brackets are 95 % intervals over users."],
        tables=ranking_tables(evaluation),
        caveats=[CAVEAT],
        commands=[f"ecoc evaluate {evaluation['run']}"],
    )


def cases_text(evaluation: Row) -> str:
    """Which cases were ranked."""
    past = "are left out of" if evaluation["exclude_seen"] else "stay in"
    return (
        f"{evaluation['split'].capitalize()} split: {evaluation['cases']:,} cases of {evaluation['users']:,} users;"
        f" all {evaluation['items']:,} items are ranked, and items of the user's past {past} the ranking."
    )
