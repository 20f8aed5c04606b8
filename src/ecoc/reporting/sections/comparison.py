"""Runs side by side and every two of them: the results of `ecoc.compare`."""

from collections.abc import Mapping, Sequence
from typing import Any

from ecoc.reporting.document import Cell, Column, Number, Section, Table
from ecoc.reporting.sections.ranking import CAVEAT, ranking_table

SIGNIFICANT = 0.05
_NOTE = f"Brackets are 95 % intervals. * p < {SIGNIFICANT:g} after Holm's correction for all the comparisons."


def decisive(pairs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Differences between two runs first, then those from policies without training."""
    runs = {pair["a"] for pair in pairs}
    return sorted(pairs, key=lambda pair: pair["b"] not in runs)


def pairs_table(pairs: Sequence[Mapping[str, Any]]) -> Table:
    """One row per pair and metric."""
    columns = [
        Column(name="difference"),
        Column(name="metric"),
        Column(name="value"),
        Column(name="p"),
        Column(name="p (Holm)"),
    ]
    rows: list[list[Cell]] = []
    for pair in pairs:
        mark = "*" if pair["p_holm"] < SIGNIFICANT else ""
        value = Number(value=pair["difference"], low=pair["low"], high=pair["high"], mark=mark)
        name = f"{pair['a']} - {pair['b']}"
        rows.append([name, pair["metric"].upper(), value, Number(value=pair["p"]), Number(value=pair["p_holm"])])
    return Table(id="pairs", title="Paired differences", columns=columns, rows=rows, note=_NOTE)


def comparison_section(comparison: Mapping[str, Any]) -> Section:
    """The section of compared runs."""
    runs, cases = comparison["runs"], f"{comparison['cases']:,} cases of {comparison['users']:,} users"
    tables = [ranking_table(runs, name="compared", title="Mean over all cases")]
    if comparison["pairs"]:
        tables.append(pairs_table(decisive(comparison["pairs"])))
    return Section(
        id="comparison",
        title="Comparison of runs on the same cases",
        text=[f"{comparison['split'].capitalize()} split: {cases}."],
        tables=tables,
        caveats=[CAVEAT],
    )
