"""Results as text: what commands print for people. The tables are those of the report."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ecoc.data.schema import ITEMS
from ecoc.errors import ArtifactError
from ecoc.evaluation.metrics import NAMES
from ecoc.evaluation.results import Comparison, EvaluationResult, NormTestResult
from ecoc.model import Model, Recommendations
from ecoc.ope.results import SimulationResult, WeightChoice
from ecoc.reporting import tables
from ecoc.reporting.document import Cell, Head, Table
from ecoc.reporting.sections.comparison import decisive, pairs_table
from ecoc.reporting.sections.norm_test import cosine_table, norm_test_table, run_names
from ecoc.reporting.sections.ranking import cases_text, ranking_table, ranking_tables
from ecoc.reporting.sections.simulation import quality_text, reward_table
from ecoc.reporting.sections.weight_choice import outcome, weight_table
from ecoc.runs.folder import BEST, COUNTS, Run
from ecoc.runs.result import CountsChoice
from ecoc.storage.trusted import file_sha256, printable

_MAIN = ("hr@10", "ndcg@10", "ndcg@20")
_MOST_ROWS = 10  # of a table, where a report and --json hold the others

Result = Mapping[str, Any]


def train_text(result: Result, *, profile: bool = False) -> str:
    """The outcome of a training run."""
    kind = f"{result['method']} {result['encoder']}" if result["encoder"] else str(result["method"])
    lines = [printable(f"{result['run']}: {kind} on {result['items']:,} items")]
    if result["steps"]:
        memory = result["peak_rss_bytes"] / 2**20
        lines += [
            f"  trained    {result['steps']:,} steps, {result['epochs']:.3g} epochs, {result['transitions']:,} targets"
            f" in {result['seconds']:.1f} s ({result['transitions_per_second']:,.0f} per second), peak memory"
            f" {memory:,.0f} MB",
            f"  best       {_best(result)}",
        ]
        if result.get("counts"):
            lines.append(f"  counts     {CountsChoice.model_validate(result['counts'])}")
        lines += ["", tables.text(_profile(result["parts"], result["steps"]))] if profile else []
    else:
        lines.append("  counted, not trained")
    return "\n".join([*lines, "", printable(f"  next       ecoc evaluate {result['run']}")])


def _best(result: Result) -> str:
    if result["validation"] is None:
        return "the last weights, because there is no validation split"
    shown = ", ".join(f"{name} {result['validation'][name]:.4f}" for name in _MAIN)
    averaged = ", averaged weights" if result["best_weights"] == "ema" else ""
    return f"epoch {result['best_epoch']:.3g}: validation {shown}{averaged}"


def _profile(parts: Mapping[str, float], steps: int) -> Table:
    """Where the time of a step went, the largest part first."""
    total = max(sum(parts.values()), 1e-9)
    rows: list[list[Cell | float]] = [
        [name, 1000 * seconds / max(steps, 1), 100 * seconds / total]
        for name, seconds in sorted(parts.items(), key=lambda part: -part[1])
    ]
    return Table.of("profile", "", ["part", ("time per step, ms", 3), ("%", 1)], rows)


def evaluation_text(evaluation: EvaluationResult) -> str:
    """A run beside policies without training."""
    name = printable(evaluation.name)
    lines = [printable(f"{evaluation.run} on {evaluation.data}"), f"  {printable(cases_text(evaluation))}", ""]
    shown = ranking_tables(evaluation, has_intervals=False)
    lines += [tables.text(table) + "\n" for table in shown]
    main = {key: ends for key, ends in evaluation.intervals.items() if key in _MAIN or key not in NAMES}
    ends = (main or evaluation.intervals).items()
    intervals = (f"{printable(key)} {low:.4f} to {high:.4f}" for key, (low, high) in ends)
    lines.append(f"  95 % intervals over users for {name}: {', '.join(intervals)}")
    if evaluation.ranking_mode != "policy":
        lines.append(
            f"  {name} ranks by {evaluation.ranking_mode}: it gives up likeness to the log for long-term reward;"
            " --rank-by policy ranks by its cloned policy"
        )
    if evaluation.has_few_repeats and not evaluation.exclude_seen:
        lines.append(
            "  few targets are items of the user's past, yet those stay in the ranking, as in the paper; --exclude-seen"
            " leaves them out"
        )
    return "\n".join([*lines, *_notes(evaluation.notes)])


def _notes(notes: Sequence[str]) -> list[str]:
    return [f"  {printable(note)}" for note in notes]


def ranking_text(comparison: Comparison) -> str:
    """Runs side by side."""
    title = f"  {comparison.split} split: {comparison.cases:,} cases of {comparison.users:,} users"
    table = ranking_table(comparison.runs[:_MOST_ROWS], name="ranking", title="")
    more = _left_out(len(comparison.runs), "policies")
    return "\n".join([title, tables.text(table), *more])


def comparison_text(comparison: Comparison) -> str:
    """Runs side by side, then the differences that decide."""
    pairs = decisive(comparison.pairs)
    lines = [printable(comparison.data), ranking_text(comparison)]
    if pairs:
        lines += ["", tables.text(pairs_table(pairs[:_MOST_ROWS])), *_left_out(len(pairs), "comparisons")]
    return "\n".join([*lines, *_notes(comparison.notes)])


def _left_out(count: int, what: str) -> list[str]:
    more = count - _MOST_ROWS
    return [f"  {more:,} more {what}: --json lists them, and so does ecoc report"] if more > 0 else []


def simulation_text(simulation: SimulationResult) -> str:
    """The roll-outs with the paper's ratio beside them, and where the other estimates are."""
    quality = simulation.simulator
    negatives = quality.negatives
    repeats = "never show an item twice" if simulation.exclude_seen else "may repeat items, as the log does"
    lines = [
        f"{printable(simulation.data)}: {simulation.starts:,} users, {simulation.steps:.1f} steps each, in"
        f" {quality.members} simulators fitted on the {quality.fit_on}; the log's own policy is 1 and earns"
        f" {simulation.logged_reward:.3f} per step",
        f"  {quality_text(quality)}",
        f"  Policies {repeats}"
        + (f"; {negatives} random items per event stand for what users did not take." if negatives else "."),
        "",
        rollout_text(simulation),
    ]
    if simulation.estimators:
        count = len(simulation.estimators)
        lines += ["", f"  {count:,} estimates by importance weighting: --json lists them, and so does ecoc report"]
    return "\n".join([*lines, *_notes(simulation.notes)])


def rollout_text(simulation: SimulationResult) -> str:
    """The roll-out of each policy, and why an estimate cannot be trusted."""
    lines = [f"  No figure can be trusted: {reason}." for reason in simulation.reasons]
    table = reward_table([simulation], {}, name="rollout", title="")
    note = "Roll-out: reward per step with the uncertainty penalty, the figure to act on. The one-step ratio favours"
    note += " what pays now and costs later."
    kept = table.rows[:1] + _learned_first(simulation, table)[: _MOST_ROWS - 1]
    lines.append(tables.text(table.model_copy(update={"rows": kept, "note": note})))
    lines += _left_out(len(table.rows), "policies")
    for policy in simulation.policies:
        own = simulation.own_reasons(policy)
        lines += _notes([f"not trusted: {policy.name}: {'; '.join(own)}"] if own else [])
    return "\n".join(lines)


def _learned_first(simulation: SimulationResult, table: Table) -> list[list[Cell]]:
    """Rows after the log's, those of runs first where not all can be shown."""
    rows = list(zip(simulation.policies, table.rows, strict=True))[1:]
    if len(table.rows) > _MOST_ROWS:
        rows.sort(key=lambda pair: pair[0].kind != "run")
    return [row for _, row in rows]


def weight_text(choice: WeightChoice) -> str:
    """Reward and ranking quality over the weight, and the choice."""
    first, *reasons = outcome(choice)
    title = "roll-outs from validation histories, in simulators fitted on the training part of the log"
    lines = [
        f"{printable(choice.run)}: the weight w of the long-term value; {title}",
        "",
        tables.text(weight_table(choice)),
        "",
        f"  {first}" + ("" if choice.w is None else "; written into the run, which ranks by it from now on"),
    ]
    return "\n".join([*lines, *_notes(reasons)])


def norm_test_text(test: NormTestResult) -> str:
    """The test of each run above its controls, then the cosines by rank."""
    flags = zip(run_names(test.rows), test.rows, strict=True)
    return "\n".join(
        [
            f"normalisation test: {test.samples:,} test interactions, {test.repeats} repeats",
            tables.text(norm_test_table(test)),
            *_notes([f"{name}: {row.flag}" for name, row in flags if row.flag]),
            "  Random item vectors pass the test too: compare the effect with theirs; it says more than t and p.",
            "",
            tables.text(cosine_table(test)),
            *_notes(test.notes),
        ]
    )


def recommendations_json(model: Model, recommendations: Recommendations) -> dict[str, Any]:
    """The answer of `ecoc recommend --json`."""
    results = []
    strange = recommendations.unknown_feedback or [[]] * len(recommendations)
    rows = (recommendations.items, recommendations.scores, recommendations.unknown, strange, recommendations.values)
    for items, scores, unknown, feedback, values in zip(*rows, strict=True):
        listed = [
            {"item": item, "title": model.vocab.item(item).title, "score": score, "value": value}
            for item, score, value in zip_longest(items, scores, values or [])
        ]
        results.append({"items": listed, "unknown": unknown, "unknown_feedback": feedback})
    return {"results": results}


def recommendations_text(answer: Result, queries: Sequence[str]) -> str:
    """Lists, each under its history."""
    lines = []
    for query, result in zip(queries, answer["results"], strict=True):
        lines.append(f"after {printable(query)}" if query.strip() else "without a history: the most popular items")
        lines += [f"  unknown, ignored: {printable(', '.join(result['unknown']))}"] if result["unknown"] else []
        feedback = printable(", ".join(result["unknown_feedback"]))
        lines += [f"  unknown feedback, its items are kept: {feedback}"] if feedback else []
        lines.append(tables.text(_list_table(result["items"])))
    return "\n".join(lines)


def _list_table(entries: Sequence[Result]) -> Table:
    has_value = any(entry["value"] is not None for entry in entries)
    has_title = any(entry["title"] for entry in entries)
    heads: list[Head] = [("rank", 0), "item", "score", *[("value", 3)] * has_value, *["title"] * has_title]
    rows = [
        [place, entry["item"], entry["score"], *[entry["value"]] * has_value, *[entry["title"]] * has_title]
        for place, entry in enumerate(entries, 1)
    ]
    return Table.of("list", "", heads, rows)


def run_json(path: Path, *, verify: bool) -> dict[str, Any]:
    """The answer of `ecoc info RUN --json`."""
    run = Run(path)
    config, result = run.config(), run.result
    expected = {run.checkpoints / f"{BEST}.safetensors": result.weights_sha256, path / ITEMS: result.items_sha256}
    if result.counts is not None and result.counts.weight:
        expected[run.checkpoints / f"{COUNTS}.safetensors"] = result.counts.sha256
    for file, checksum in expected.items():
        if verify and file_sha256(file) != checksum:
            raise ArtifactError(f"{file}: changed since the run ended; train again")
    answer = {"kind": "run", **result.values(), "config": config.values(), "is_verified": verify}
    try:
        run_text(answer)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ArtifactError(f"{path}: result.json is not the result of a run; train again") from None
    return answer


def run_text(run: Result) -> str:
    """A run: its outcome, data, weights and settings."""
    lines = [train_text(run), "", printable(f"  data       {run['data']['path']} ({run['data']['checksum'][:16]}…)")]
    lines += [printable(f"  weights    {run['weights_sha256']}")]
    lines += ["             unchanged since the run ended"] if run["is_verified"] else []
    for section, values in run["config"].items():
        settings = ", ".join(f"{key} {value}" for key, value in values.items() if value is not None)
        lines.append(f"  {section:<11}{printable(settings)}")
    return "\n".join(lines)
