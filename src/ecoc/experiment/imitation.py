"""RQ1: how well each method ranks what users did next. HR, MRR and NDCG at 5, 10 and 20, by encoder."""

from collections.abc import Mapping, Sequence

from ecoc.evaluation.metrics import KS
from ecoc.evaluation.ranks import REPEATS
from ecoc.experiment import paper
from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.jobs import Cell as Work
from ecoc.experiment.jobs import JobResult
from ecoc.experiment.tables import (
    NOT_REINFORCEMENT,
    Difference,
    Row,
    bars,
    caveats,
    described,
    differences,
    number,
    rows_of,
    said,
)
from ecoc.experiment.variants import BASE, ECOC, VARIANTS, Variant, preset_of, variant_of
from ecoc.reporting.document import Cell, Column, Number, Section, Table

ENCODERS = ("nextitnet", "sasrec", "srgnn")
_FAMILIES = {"hr": "Hit rate", "mrr": "Mean reciprocal rank", "ndcg": "NDCG"}
_UNTRAINED = "no training"


def _variants(context: Context) -> list[Variant]:
    return [variant_of(name) for name in context.asked.methods or VARIANTS]


def cells(context: Context) -> list[Work]:
    """Every method with every encoder and seed, and the methods that need no training."""
    return [*context.run_cells(_variants(context), context.encoders(ENCODERS)), context.untrained_cell()]


def section(context: Context, results: Mapping[str, JobResult]) -> Section:
    """Three tables of ranking quality, one of parts and costs, and the paper's numbers where it has some."""
    encoders = context.encoders(ENCODERS)
    rows = rows_of(context, results, _variants(context), encoders)
    free = results[context.untrained_cell().name]
    rows += [Row(name, name, _UNTRAINED, (free,)) for name in free.facts.get("views", {})]
    tables = [_family(context, rows, family) for family in _FAMILIES]
    tables.append(_parts(context, rows))
    tables += _beside_paper(context, rows)
    figure = bars(
        "imitation-ndcg10",
        "NDCG@10 by method and encoder",
        "NDCG@10",
        [(row.group, row.title, number(row.means("ndcg@10"))) for row in rows],
    )
    return Section(
        id="imitation",
        title="Imitation: ranking what users did next",
        findings=[text for encoder in encoders if (text := _finding(encoder, rows))],
        text=[
            described(context),
            f"Numbers are means over seeds ± their standard deviation, the best of each encoder in bold. Δ is the"
            f" difference from {BASE} of the same encoder, paired over the cases of all seeds; its interval and p-value"
            " are bootstrapped over users, p-values corrected (Holm) for all comparisons of the table; * marks p < .05."
            " ecoc is one run judged twice: as the cloned policy (w = 0), which by construction is"
            f" {BASE}, and acting on its critic (w = 10), which gives up likeness to the log for reward.",
        ],
        tables=tables,
        figures=[figure] if figure else [],
        caveats=caveats(context, cells(context), results, *_repeats(context), NOT_REINFORCEMENT),
    )


def _repeats(context: Context) -> list[str]:
    """A log that hardly repeats is better judged without what users had: some models put that first, others cannot."""
    share = float(context.seen.mean())
    if context.asked.exclude_seen or share >= REPEATS:
        return []
    return [
        f"Only {share:.1%} of the targets occurred before in their sequence, yet what users had stays in the ranking,"
        " as in the paper. It takes first places nobody would give it, most of all in models that read and score items"
        " by the same vectors; --exclude-seen leaves it out."
    ]


def _finding(encoder: str, rows: Sequence[Row]) -> str:
    """Who ranks best with an encoder, and where ECoC stands."""
    found = {row.title: number(row.means("ndcg@10")) for row in rows if row.group == encoder}
    values = {title: one.value for title, one in found.items() if one is not None}
    if not values:
        return ""
    best = max(values, key=lambda title: values[title])
    others = [f"{title} {values[title]:.4f}" for title in (BASE, *ECOC.views) if title in values and title != best]
    return f"Imitation, {encoder}: {best} ranks best, NDCG@10 {values[best]:.4f}" + "; ".join(["", *others]) + "."


def _family(context: Context, rows: Sequence[Row], family: str) -> Table:
    names = [f"{family}@{k}" for k in KS]
    tested = names[1]
    tests = differences(context, rows, tested)
    columns = [Column(name="method")]
    columns += [Column(name=name.upper(), better="high") for name in names]
    columns += [Column(name=f"Δ {tested.upper()}"), Column(name="p (Holm)", digits=3)]
    body = [_family_row(row, names, tests.get((row.group, row.title))) for row in rows]
    return Table(
        id=f"imitation-{family}",
        title=f"{_FAMILIES[family]} on {context.title}",
        columns=columns,
        rows=body,
        groups=[row.group for row in rows],
    )


def _family_row(row: Row, names: Sequence[str], test: Difference | None) -> list[Cell]:
    if not row.cells:
        return [row.title, *said(row.missing, len(names)), None, None]
    values: list[Cell] = [number(row.means(name)) for name in names]
    if test is None:
        return [row.title, *values, None, None]
    change = test.value.model_copy(update={"mark": test.mark})
    return [row.title, *values, change, Number(value=test.p)]


def _parts(context: Context, rows: Sequence[Row]) -> Table:
    columns = [
        Column(name="method"),
        Column(name="NDCG@10, seen", better="high"),
        Column(name="NDCG@10, new", better="high"),
        Column(name="coverage@10", digits=3),
        Column(name="epochs", digits=2),
        Column(name="s/epoch", better="low", digits=2),
    ]
    body: list[list[Cell]] = []
    encoders = context.encoders(ENCODERS)
    for row in rows:
        epochs = [cell.facts["epochs"] for cell in row.cells if "epochs" in cell.facts]
        pace = context.paces.get((row.variant, row.group if row.group in encoders else encoders[0]))
        is_trained = row.group != _UNTRAINED
        parts: list[Cell] = [number(row.means("ndcg@10", part)) for part in ("seen", "new")]
        cost = Number(value=pace.epoch_seconds) if pace and is_trained else None
        coverage = number(row.facts("coverage@10"))
        body.append([row.title, *parts, coverage, Number(value=epochs[0]) if epochs else None, cost])
    seen = int(context.seen.sum())
    return Table(
        id="imitation-parts",
        title="Items seen before and new ones, breadth, cost",
        columns=columns,
        rows=body,
        groups=[row.group for row in rows],
        note=f"{seen:,} targets occurred before in their sequence, {len(context.seen) - seen:,} are new. s/epoch:"
        " processor seconds of the training steps of one epoch, one thread, timed once a method and encoder.",
    )


def _beside_paper(context: Context, rows: Sequence[Row]) -> list[Table]:
    """Ours and the published numbers, if the data are the paper's."""
    published = paper.RESULTS.get(preset_of(context.data) or "", [])
    if not published or context.asked.exclude_seen:  # the paper left them in
        return []
    names = paper.METRICS
    ours = {(row.group, row.title): row for row in rows if row.cells}
    body: list[list[Cell]] = []
    groups = []
    for one in published:
        row = ours.get((one.encoder, paper.OURS.get(one.method, one.method)))
        mine: list[Cell] = [number(row.means(name)) if row else None for name in names]
        theirs: list[Cell] = [None if value is None else Number(value=value) for value in one.values]
        body.append([one.method, *(cell for pair in zip(mine, theirs, strict=True) for cell in pair)])
        groups.append(one.encoder)
    columns = [Column(name="method")]
    columns += [Column(name=f"{name.upper()}{who}") for name in names for who in ("", ", paper")]
    return [
        Table(
            id="imitation-paper",
            title="Beside the paper's own numbers",
            columns=columns,
            rows=body,
            groups=groups,
            note="The paper trained on one GPU for its own number of epochs, and its released code chose the epoch on"
            " test data; compare the order of rows, not the digits. 'best baseline' is its best value per metric.",
        )
    ]


IMITATION = Experiment("imitation", "Imitation: ranking what users did next", cells, section)
