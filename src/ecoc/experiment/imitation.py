"""RQ1: how well each method ranks the next item of a user. HR, MRR and NDCG at 5, 10 and 20, by encoder."""

from collections.abc import Sequence
from typing import Any

from ecoc.evaluation.metrics import KS
from ecoc.evaluation.ranks import REPEATS
from ecoc.experiment import paper
from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.jobs import Job, Results
from ecoc.experiment.results import RunOutcome
from ecoc.experiment.tables import (
    NOT_REINFORCEMENT,
    Difference,
    Row,
    bars,
    caveats,
    described,
    differences,
    no_numbers,
    number,
    rows_of,
)
from ecoc.experiment.variants import (
    BASE,
    ECOC,
    PAPER,
    RELEASED,
    VARIANTS,
    Variant,
    preset_of,
    variant_of,
    with_controls,
)
from ecoc.reporting.document import Cell, Column, Number, Section, Table

ENCODERS = ("nextitnet", "sasrec", "srgnn")
_FAMILIES = {"hr": "Hit rate", "mrr": "Mean reciprocal rank", "ndcg": "NDCG"}
_UNTRAINED = "no training"


def _variants(context: Context) -> list[Variant]:
    """The requested methods; beside their controls if runs train until they have converged."""
    variants = [variant_of(name) for name in context.request.methods or VARIANTS]
    return with_controls(variants) if context.request.until_converged else variants


def jobs(context: Context) -> list[Job[Any]]:
    """Runs of every method with every encoder and seed, and the methods that need no training."""
    return [*context.run_jobs(_variants(context), context.encoders(ENCODERS)), context.untrained_job()]


def section(context: Context, results: Results) -> Section:
    """Three tables of ranking quality, one of subsets and costs, and the paper's numbers on its datasets."""
    encoders = context.encoders(ENCODERS)
    rows = rows_of(context, results, _variants(context), encoders)
    untrained = results.of(context.untrained_job())
    names = untrained.value.views if untrained.value is not None else ()
    rows += [Row(name, name, _UNTRAINED, (untrained,)) for name in names]
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
        title="Imitation: ranking the next item of users",
        findings=[text for encoder in encoders if (text := _finding(encoder, rows))],
        text=[
            described(context),
            "Numbers are means over seeds ± their standard deviation; the best of each encoder is bold. Δ is the"
            " difference from the control of the same encoder, paired over the cases of all seeds. Its interval and"
            " p-value are bootstrapped over users; p-values are Holm-corrected for all comparisons of the table; *"
            " marks p < .05. ecoc is one run evaluated twice: as the cloned policy (w = 0), which by construction"
            f" equals {BASE}, and with its critic (w = 10), which trades agreement with the log for reward.",
            *_named_settings(rows),
        ],
        tables=tables,
        figures=[figure] if figure else [],
        caveats=caveats(context, jobs(context), results, *_repeats(context), NOT_REINFORCEMENT),
    )


def _named_settings(rows: Sequence[Row]) -> list[str]:
    """What the rows of the paper and of its code are, if there are any."""
    texts = {
        PAPER.name: "ecoc-paper has the paper's encoder, losses and training (preset paper), ecoc-paper-losses the"
        " paper's losses with our encoder and training.",
        RELEASED.name: "ecoc-released has the settings of the authors' released code (preset released); its control"
        " averages weights and has no L2 penalty on the actor, as it has.",
    }
    return [text for name, text in texts.items() if any(row.variant == name for row in rows)]


def _repeats(context: Context) -> list[str]:
    """A caveat for a log with few repeated items: some models rank items of the past first, others cannot."""
    share = float(context.seen.mean())
    if context.request.exclude_seen or share >= REPEATS:
        return []
    return [
        f"Only {share:.1%} of the targets occurred before in their sequence, yet items of the user's past stay in the"
        " ranking, as in the paper. They take first places wrongly, most often in models that read and score items by"
        " the same vectors; --exclude-seen takes them out."
    ]


def _finding(encoder: str, rows: Sequence[Row]) -> str:
    """The best method with an encoder, and the values of ECoC."""
    numbers = {row.title: number(row.means("ndcg@10")) for row in rows if row.group == encoder}
    values = {title: mean.value for title, mean in numbers.items() if mean is not None}
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
    columns += [Column(name=f"Δ {tested.upper()}"), Column(name="p (Holm)", digits=3), Column(name="control")]
    body = [_family_row(row, names, tests.get((row.group, row.title))) for row in rows]
    return Table(
        id=f"imitation-{family}",
        title=f"{_FAMILIES[family]} on {context.title}",
        columns=columns,
        rows=body,
        groups=[row.group for row in rows],
    )


def _family_row(row: Row, names: Sequence[str], test: Difference | None) -> list[Cell]:
    if not row.runs:
        return [row.title, *no_numbers(row.missing, len(names)), None, None, None]
    values: list[Cell] = [number(row.means(name)) for name in names]
    if test is None:
        return [row.title, *values, None, None, None]
    change = test.value.model_copy(update={"mark": test.mark})
    return [row.title, *values, change, Number(value=test.p), test.control]


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
        trained = [run.value for run in row.runs if isinstance(run.value, RunOutcome)]
        step_cost = context.step_costs.get((row.variant, row.group if row.group in encoders else encoders[0]))
        is_trained = row.group != _UNTRAINED
        parts: list[Cell] = [number(row.means("ndcg@10", part)) for part in ("seen", "new")]
        cost = Number(value=step_cost.epoch_seconds) if step_cost and is_trained else None
        coverage = number([view.coverage for view in row.views])
        body.append([row.title, *parts, coverage, Number(value=trained[0].epochs) if trained else None, cost])
    seen = int(context.seen.sum())
    return Table(
        id="imitation-parts",
        title="Items seen before and new items, coverage, cost",
        columns=columns,
        rows=body,
        groups=[row.group for row in rows],
        note=f"{seen:,} targets occurred before in their sequence, {len(context.seen) - seen:,} are new. s/epoch:"
        " processor seconds of the training steps of an epoch, one thread, measured once per method and encoder.",
    )


def _beside_paper(context: Context, rows: Sequence[Row]) -> list[Table]:
    """Our numbers beside the published ones, on the datasets of the paper."""
    published = paper.RESULTS.get(preset_of(context.data) or "", [])
    if not published or context.request.exclude_seen:  # the paper ranks them
        return []
    names = paper.METRICS
    ours = {(row.group, row.title): row for row in rows if row.runs}
    body: list[list[Cell]] = []
    groups = []
    for entry in published:
        row = ours.get((entry.encoder, paper.OURS.get(entry.method, entry.method)))
        mine: list[Cell] = [number(row.means(name)) if row else None for name in names]
        theirs: list[Cell] = [None if value is None else Number(value=value) for value in entry.values]
        body.append([entry.method, *(cell for pair in zip(mine, theirs, strict=True) for cell in pair)])
        groups.append(entry.encoder)
    columns = [Column(name="method")]
    columns += [Column(name=f"{name.upper()}{who}") for name in names for who in ("", ", paper")]
    return [
        Table(
            id="imitation-paper",
            title="Comparison with the numbers of the paper",
            columns=columns,
            rows=body,
            groups=groups,
            note="The paper trained for another number of epochs, and its released code chose the epoch on test data:"
            " compare the order of rows, not the digits. 'best baseline' is the paper's best value per metric.",
        )
    ]


IMITATION = Experiment("imitation", "Imitation: ranking the next item of users", jobs, section)
