"""Runs side by side and every two of them: the results of `ecoc.compare`."""

from collections.abc import Sequence

from ecoc.evaluation.results import SIGNIFICANT, Comparison, PairedDifference
from ecoc.reporting.document import Cell, Number, Section, Table, short_name
from ecoc.reporting.sections.ranking import CAVEAT, ranking_table

_NOTE = f"Brackets are 95 % intervals. * p < {SIGNIFICANT:g} after Holm's correction for all the comparisons."


def decisive(pairs: Sequence[PairedDifference]) -> list[PairedDifference]:
    """Differences between two runs first, then those from policies without training."""
    runs = {pair.a for pair in pairs}
    return sorted(pairs, key=lambda pair: pair.b not in runs)


def pairs_table(pairs: Sequence[PairedDifference]) -> Table:
    """One row per metric, pair by pair."""
    rows: list[list[Cell | float]] = []
    for pair in pairs:
        mark = "*" if pair.is_significant else ""
        value = Number(value=pair.difference, low=pair.low, high=pair.high, mark=mark)
        rows.append([pair.metric.upper(), value, pair.p, pair.p_holm])
    groups = [f"{short_name(pair.a)} - {short_name(pair.b)}" for pair in pairs]
    heads = ("metric", "difference", "p", "p (Holm)")
    return Table.of("pairs", "Paired differences", heads, rows, groups=groups, note=_NOTE)


def comparison_section(comparison: Comparison) -> Section:
    """The section of compared runs."""
    tables = [ranking_table(comparison.runs, name="compared", title="Mean over all cases")]
    if comparison.pairs:
        tables.append(pairs_table(decisive(comparison.pairs)))
    return Section(
        id="comparison",
        title="Comparison of runs on the same cases",
        text=[f"{comparison.split.capitalize()} split: {comparison.cases:,} cases of {comparison.users:,} users."],
        tables=tables,
        caveats=[*comparison.notes, CAVEAT],
    )
