"""How well policies rank what users did next: the results of `ecoc.evaluate`, and tables that a comparison shares."""

from collections.abc import Mapping, Sequence

from ecoc.evaluation.metrics import NAMES
from ecoc.evaluation.results import EvaluationResult, RankedPolicy
from ecoc.reporting.document import Cell, Head, Number, Section, Table, short_name

CAVEAT = "The log shows what its own policy chose, so this measures likeness to that policy, not what users gain."
_SHOWN = ("hr@5", "hr@10", "hr@20", "mrr@10", "ndcg@5", "ndcg@10", "ndcg@20")
_LISTS: list[Head] = [("coverage", 3), ("popularity lift", 2), ("diversity", 3)]

Intervals = Mapping[str, tuple[float, float]]


def policy_name(policy: RankedPolicy) -> str:
    """A policy's name, with its ranking mode where it could rank otherwise."""
    mode = "" if policy.ranking_mode == "policy" else f" ({policy.ranking_mode.replace('-', ', ')})"
    return f"{short_name(policy.name)}{mode}"


def ranking_table(
    policies: Sequence[RankedPolicy], *, name: str, title: str, intervals: Intervals | None = None
) -> Table:
    """One row per policy; the intervals are those of the first."""
    shown = _shown(policies[0].metrics)
    rows: list[list[Cell | float]] = []
    for policy in policies:
        ends = {} if rows else intervals or {}
        numbers = [_number(policy.metrics[metric], ends.get(metric)) for metric in shown]
        rows.append([policy_name(policy), *numbers, policy.coverage, policy.popularity_lift, policy.diversity])
    return Table.of(name, title, _heads(shown) + _LISTS, rows)


def _shown(metrics: Mapping[str, float]) -> list[str]:
    """The metrics that tables show: a few of the built-in ones, and all others."""
    return [metric for metric in metrics if metric in _SHOWN or metric not in NAMES] or list(metrics)


def _heads(metrics: Sequence[str]) -> list[Head]:
    return ["policy", *((metric.upper(), 4, "high") for metric in metrics)]


def _number(value: float, interval: tuple[float, float] | None) -> Number:
    low, high = interval or (None, None)
    return Number(value=value, low=low, high=high)


def ranking_tables(evaluation: EvaluationResult, *, has_intervals: bool = True) -> list[Table]:
    """The table of all targets, then of those inside and outside the user's past."""
    policies = evaluation.policies()
    intervals = evaluation.intervals if has_intervals else None
    tables = [ranking_table(policies, name="ranking", title="All targets", intervals=intervals)]
    for part, meaning in (("seen", "already in the user's past"), ("new", "not in the user's past")):
        subsets = [getattr(holder, part) for holder in (evaluation, *evaluation.untrained)]
        cases = subsets[0].cases
        if cases:
            title = f"{part.capitalize()} targets: {meaning} ({cases:,} of {evaluation.cases:,} cases)"
            shown = _shown(subsets[0].metrics)
            rows = [
                [policy_name(policy), *(subset.metrics[metric] for metric in shown)]
                for policy, subset in zip(policies, subsets, strict=True)
            ]
            tables.append(Table.of(f"ranking-{part}", title, _heads(shown), rows))
    return tables


def cases_text(evaluation: EvaluationResult) -> str:
    """Which cases were ranked."""
    past = "are left out of" if evaluation.exclude_seen else "stay in"
    return (
        f"{evaluation.split.capitalize()} split: {evaluation.cases:,} cases of {evaluation.users:,} users; all"
        f" {evaluation.items:,} items are ranked, and items of the user's past {past} the ranking."
    )


def ranking_section(evaluation: EvaluationResult) -> Section:
    """The section of an evaluated run."""
    return Section(
        id="ranking",
        title=f"Ranking what users did next: {short_name(evaluation.name)}, {evaluation.split} split",
        text=[f"{cases_text(evaluation)} Brackets are 95 % intervals over users."],
        tables=ranking_tables(evaluation),
        caveats=[*evaluation.notes, CAVEAT],
        commands=[f"ecoc evaluate {evaluation.run}"],
    )
