"""RQ4: what each part of ECoC contributes: the paper's setting without one loss at a time, the default's controls."""

from collections.abc import Mapping, Sequence

from ecoc.experiment.context import TRUTH_USERS, Context, Experiment
from ecoc.experiment.jobs import Cell as Work
from ecoc.experiment.jobs import JobResult
from ecoc.experiment.tables import (
    NOT_REINFORCEMENT,
    Row,
    bars,
    caveats,
    described,
    differences,
    earned_by,
    number,
    rows_of,
    said,
)
from ecoc.experiment.variants import BASE, ECOC, PAPER, VARIANTS, Variant
from ecoc.reporting.document import Cell, Column, Number, Section, Table

ENCODERS = ("sasrec",)
_WHAT: tuple[tuple[Variant, str], ...] = (
    (VARIANTS[BASE], "no critic at all"),
    (PAPER, "the paper's losses, all of them"),
    (PAPER.but("ecoc-paper-no-bc", changes={"beta": 0.0}), "without the behavioural constraint L_BC"),
    (PAPER.but("ecoc-paper-no-reg", changes={"alpha": 0.0}), "without conservatism L_REG"),
    (PAPER.but("ecoc-paper-bpr", changes={"reg": "bpr"}), "L_REG replaced by BPR on the same samples"),
    (PAPER.but("ecoc-paper-no-dc", changes={"dc": 0.0}), "without directional control L_DC"),
    (ECOC, "the default setting: two towers, no L_DC"),
    (ECOC.but("ecoc-gamma-0", changes={"gamma": 0.0}), "control: the critic sees one step only"),
    (ECOC.but("ecoc-shuffled", train={"shuffle_rewards": True}), "control: rewards change places among events"),
)
ABLATED = [variant for variant, _ in _WHAT]
_METRICS = ("hr@20", "ndcg@20")


def cells(context: Context) -> list[Work]:
    """Every variant, and what it earns if the world's truth is known."""
    encoders = context.encoders(ENCODERS)
    found = context.run_cells(ABLATED, encoders)
    if context.market is not None:
        found += [
            context.truth_cell(variant, encoder, seed)
            for variant in ABLATED
            for encoder in encoders
            for seed in context.seeds
        ]
    return found


def section(context: Context, results: Mapping[str, JobResult]) -> Section:
    """One table, and a figure a measure."""
    encoders = context.encoders(ENCODERS)
    rows = rows_of(context, results, ABLATED, encoders)
    earned = earned_by(context, results, ABLATED, encoders)
    figures = [bars("ablation-ndcg20", "NDCG@20 without one part at a time", "NDCG@20", _bars(rows, "ndcg@20"))]
    if earned:
        values = [(row.group, row.title, number(earned.get((row.group, row.title), []))) for row in rows]
        figures.append(bars("ablation-reward", "True reward a step", "true reward a step", values))
    return Section(
        id="ablation",
        title="Ablation: what each part of ECoC contributes",
        findings=[text for encoder in encoders if (text := _finding(encoder, rows))],
        text=[
            described(context),
            "ecoc-paper has the paper's losses and weights. Expected from the paper: no L_BC is far worse, no L_REG"
            " falls below the backbone, BPR in place of L_REG is slightly worse.",
        ],
        tables=[_table(context, rows, earned)],
        figures=[figure for figure in figures if figure is not None],
        caveats=caveats(context, cells(context), results, NOT_REINFORCEMENT),
    )


def _finding(encoder: str, rows: Sequence[Row]) -> str:
    """What leaving out each of the paper's losses does."""
    found = {row.variant: number(row.means("ndcg@20")) for row in rows if row.group == encoder}
    values = {name: one.value for name, one in found.items() if one is not None}
    what = {variant.name: text for variant, text in _WHAT}
    left_out = [f"{what[name]} {values[name]:.4f}" for name in values if name.startswith(f"{PAPER.name}-")]
    if PAPER.name not in values or not left_out:
        return ""
    return f"Ablation, {encoder}: the paper's setting has NDCG@20 {values[PAPER.name]:.4f}; {'; '.join(left_out)}."


def _bars(rows: Sequence[Row], metric: str) -> list[tuple[str, str, Number | None]]:
    return [(row.group, row.title, number(row.means(metric))) for row in rows]


def _table(context: Context, rows: Sequence[Row], earned: Mapping[tuple[str, str], Sequence[float]]) -> Table:
    tests = differences(context, rows, "ndcg@20")
    what = {variant.name: text for variant, text in _WHAT}
    columns = [Column(name="variant"), Column(name="what it is")]
    columns += [Column(name=name.upper(), better="high") for name in _METRICS]
    columns += [Column(name="Δ NDCG@20"), Column(name="p (Holm)", digits=3)]
    columns += [Column(name="true reward a step", better="high", digits=3)] * bool(earned)
    body: list[list[Cell]] = []
    for row in rows:
        test = tests.get((row.group, row.title))
        values: list[Cell] = [number(row.means(name)) for name in _METRICS] if row.cells else said(row.missing, 2)
        change: list[Cell] = [None, None]
        if test is not None:
            change = [test.value.model_copy(update={"mark": test.mark}), Number(value=test.p)]
        reward: list[Cell] = [number(earned.get((row.group, row.title), []))] if earned else []
        body.append([row.title, what[row.variant], *values, *change, *reward])
    note = f"Δ: paired difference from {BASE}, interval and p over users, Holm over the table."
    if earned:
        note += f" True reward: {TRUTH_USERS:,} users of the world the log is from, no item shown twice in a session."
    return Table(
        id="ablation",
        title=f"Ablation on {context.title}",
        columns=columns,
        rows=body,
        groups=[row.group for row in rows],
        note=note,
    )


ABLATION = Experiment("ablation", "Ablation", cells, section)
