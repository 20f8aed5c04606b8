"""RQ4: the contribution of each part of ECoC: the paper's setting without one loss at a time, and controls."""

from collections.abc import Mapping, Sequence
from typing import Any

from ecoc.experiment.context import TRUTH_USERS, Context, Experiment
from ecoc.experiment.jobs import Job, Results
from ecoc.experiment.tables import (
    NOT_REINFORCEMENT,
    Row,
    bars,
    caveats,
    described,
    differences,
    earned_by,
    no_numbers,
    number,
    rows_of,
    truth_jobs,
)
from ecoc.experiment.variants import BASE, ECOC, PAPER, VARIANTS, Variant, variant_of
from ecoc.reporting.document import Cell, Head, Section, Table

ENCODERS = ("sasrec",)
_WHAT: tuple[tuple[Variant, str], ...] = (
    (VARIANTS[BASE], "no critic"),
    (variant_of(PAPER.control), "no critic, the paper's training"),
    (PAPER, "all losses of the paper"),
    (PAPER.but("ecoc-paper-no-bc", changes={"beta": 0.0}), "without the behavioural constraint L_BC"),
    (PAPER.but("ecoc-paper-no-reg", changes={"alpha": 0.0}), "without conservatism L_REG"),
    (PAPER.but("ecoc-paper-bpr", changes={"reg": "bpr"}), "with BPR on the same samples instead of L_REG"),
    (PAPER.but("ecoc-paper-no-dc", changes={"dc": 0.0}), "without directional control L_DC"),
    (ECOC, "the default setting: two towers, no L_DC"),
    (ECOC.but("ecoc-gamma-0", changes={"gamma": 0.0}), "control: the critic values one step only"),
    (ECOC.but("ecoc-shuffled", train={"shuffle_rewards": True}), "control: rewards shuffled among events"),
)
ABLATED = [variant for variant, _ in _WHAT]
_MEANING = {variant.name: text for variant, text in _WHAT}
_METRICS = ("hr@20", "ndcg@20")


def jobs(context: Context) -> list[Job[Any]]:
    """Runs of every variant and, in a built-in world, their true rewards."""
    encoders = context.encoders(ENCODERS)
    return [*context.run_jobs(ABLATED, encoders), *truth_jobs(context, ABLATED, encoders)]


def section(context: Context, results: Results) -> Section:
    """One table, and one figure per measure."""
    encoders = context.encoders(ENCODERS)
    rows = rows_of(context, results, ABLATED, encoders)
    earned = earned_by(context, results, ABLATED, encoders)
    ndcg = [(row.group, row.title, number(row.means("ndcg@20"))) for row in rows]
    rewards = [(row.group, row.title, number(earned.get((row.group, row.title), []))) for row in rows]
    figures = [
        bars("ablation-ndcg20", "NDCG@20 without one part at a time", "NDCG@20", ndcg),
        bars("ablation-reward", "True reward per step", "true reward per step", rewards),
    ]
    return Section(
        id="ablation",
        title="Ablation: the contribution of each part of ECoC",
        findings=[text for encoder in encoders if (text := _finding(encoder, rows))],
        text=[
            described(context),
            "ecoc-paper has the losses and the training of the paper. The paper reports: without L_BC results are much"
            " worse, without L_REG worse than the supervised method, with BPR instead of L_REG slightly worse.",
        ],
        tables=[_table(context, rows, earned)],
        figures=[figure for figure in figures if figure is not None],
        caveats=caveats(context, jobs(context), results, NOT_REINFORCEMENT),
    )


def _finding(encoder: str, rows: Sequence[Row]) -> str:
    """Effect of each loss of the paper."""
    numbers = {row.variant: number(row.means("ndcg@20")) for row in rows if row.group == encoder}
    values = {name: mean.value for name, mean in numbers.items() if mean is not None}
    left_out = [f"{_MEANING[name]} {values[name]:.4f}" for name in values if name.startswith(f"{PAPER.name}-")]
    if PAPER.name not in values or not left_out:
        return ""
    return f"Ablation, {encoder}: the paper's setting has NDCG@20 {values[PAPER.name]:.4f}; {'; '.join(left_out)}."


def _table(context: Context, rows: Sequence[Row], earned: Mapping[tuple[str, str], Sequence[float]]) -> Table:
    tests = differences(context, rows, "ndcg@20")
    heads: list[Head] = ["variant", "what it is", *((name.upper(), 4, "high") for name in _METRICS)]
    heads += ["Δ NDCG@20", ("p (Holm)", 3)]
    heads += [("true reward per step", 3, "high")] * bool(earned)
    body: list[list[Cell | float]] = []
    for row in rows:
        test = tests.get((row.group, row.title))
        values = [number(row.means(name)) for name in _METRICS] if row.runs else no_numbers(row.missing, 2)
        reward = [number(earned.get((row.group, row.title), []))] * bool(earned)
        body.append([row.title, _MEANING[row.variant], *values, *(test.cells() if test else (None, None)), *reward])
    note = (
        f"Δ: paired difference from {PAPER.control} or {BASE}; interval and p-value over users, Holm correction over"
        " the table."
    )
    if earned:
        note += f" True reward: {TRUTH_USERS:,} users of the world of the log; no item is shown twice per session."
    groups = [row.group for row in rows]
    return Table.of("ablation", f"Ablation on {context.title}", heads, body, groups=groups, note=note)


ABLATION = Experiment("ablation", "Ablation", jobs, section)
