"""The normalisation test, with the paper's own values beside it: the results of `ecoc.normtest`."""

import math
from collections.abc import Sequence
from pathlib import Path

from ecoc.evaluation.results import NormTestEntry, NormTestResult, NormTestRow
from ecoc.reporting.document import Axis, Cell, Figure, Head, Number, Point, Section, Series, Table, short_name

PAPER_DATA = ("yelp", "tmall", "rl4rs")
PAPER: dict[str, tuple[tuple[float, float, float], ...]] = {  # mean, standard deviation and t on each of PAPER_DATA
    "gru4rec": ((2.26, 0.14, 1624), (2.25, 0.07, 3029), (2.08, 0.06, 3211)),
    "narm": ((2.23, 0.13, 1669), (2.22, 0.06, 3478), (2.10, 0.07, 3128)),
    "stamp": ((2.21, 0.12, 1741), (2.24, 0.06, 3618), (2.07, 0.06, 3348)),
    "caser": ((1.90, 0.18, 1045), (1.45, 0.10, 1385), (1.33, 0.13, 1078)),
    "nextitnet": ((1.86, 0.19, 989), (1.32, 0.12, 1066), (1.28, 0.12, 996)),
    "srgnn": ((2.45, 0.13, 1891), (2.33, 0.07, 3298), (2.11, 0.07, 3114)),
    "gcsan": ((2.42, 0.12, 1998), (2.31, 0.06, 3750), (2.15, 0.08, 2862)),
    "dhcn": ((2.43, 0.14, 1835), (2.34, 0.07, 3442), (2.14, 0.07, 3057)),
    "sasrec": ((2.48, 0.12, 2098), (2.30, 0.05, 4595), (2.12, 0.07, 3063)),
    "ssept": ((2.49, 0.13, 1924), (2.32, 0.06, 3966), (2.13, 0.07, 3102)),
    "bert4rec": ((2.47, 0.12, 2035), (2.29, 0.05, 4317), (2.12, 0.08, 2850)),
}
FEWEST = 30  # samples of a point that is drawn
CONTROLS = {"trained": "random directions, its own norms", "untrained": "random vectors, as before training"}
CAVEATS = [
    "The test also rejects its null hypothesis for random item vectors, as the control rows show; it does not prove"
    " that anything was learnt.",
    "All samples share one table of item vectors, and each user contributes several samples. They are not independent,"
    " and with 10,000 samples any effect is significant. The effect size says more than t and p.",
    "The outcome depends on a user's vector only through its direction, and on the item vectors mostly through how much"
    " their norms vary: the less they vary, the larger the mean.",
]
_NO_PAPER = (None, None, None)
_DIGITS = {"Mean": 2, "Std.": 2, "t": 0, "effect": 2, "p": 3, "norm sd": 3, "clipped": 0, "dropped": 0}


def paper_values(encoder: str, data: str | None) -> tuple[float, float, float] | None:
    """Mean, standard deviation and t that the paper prints for an encoder on one of its datasets."""
    if data not in PAPER_DATA or encoder not in PAPER:
        return None
    return PAPER[encoder][PAPER_DATA.index(data)]


def norm_test_section(test: NormTestResult, paper_data: str | None = None) -> Section:
    """The section of a norm test; `paper_data` names the dataset of the paper to compare with, if not the run's own."""
    names = run_names(test.rows)
    starred, controls = (sum(entry.is_starred for entry in entries) for entries in (test.rows, test.controls))
    flags = [f"{name}: {row.flag}." for name, row in zip(names, test.rows, strict=True) if row.flag]
    return Section(
        id="normtest",
        title="Statistical normalisation test",
        findings=[
            f"Normalisation test: the angle matters more than the norm (p < .001) in {starred} of {len(test.rows)}"
            f" runs, and in {controls} of {len(test.controls)} controls with random directions."
        ],
        text=[
            "X is the score of every item for a user, Y its cosine, Z the item's norm with the sign of the score."
            " D = artanh Spearman(X, Y) - artanh Spearman(X, Z); H1: on average D > 0, the angle matters more for the"
            f" ranking than the norm. {test.samples:,} test interactions per repeat, averages over"
            f" {test.repeats} repeats."
        ],
        tables=[norm_test_table(test, paper_data)],
        figures=[_figure(test, names)],
        caveats=[*flags, *CAVEATS],
    )


def run_names(rows: Sequence[NormTestRow]) -> list[str]:
    """A name for each run: its encoder where that is enough, and the method unless it is supervised."""
    plain = [row.encoder if row.method == "supervised" else f"{row.method} {row.encoder}" for row in rows]
    return [
        f"{name} ({short_name(Path(row.run).name)})" if plain.count(name) > 1 else name
        for name, row in zip(plain, rows, strict=True)
    ]


def norm_test_table(test: NormTestResult, paper_data: str | None = None) -> Table:
    """One row per run, its controls below it; the paper's values where it has some."""
    names = run_names(test.rows)
    published = [
        paper_values(row.encoder, paper_data or row.source) if row.method == "supervised" else None for row in test.rows
    ]
    has_paper = any(published)
    heads: list[Head] = ["run", *_DIGITS.items()]
    heads += [(f"{name} (paper)", _DIGITS[name]) for name in ("Mean", "Std.", "t")] * has_paper
    rows: list[Sequence[Cell | float]] = []
    for name, paper, (row, controls) in zip(names, published, test.with_controls(), strict=True):
        rows.append([name, *_cells(row), *(paper or _NO_PAPER) * has_paper])
        for control in controls:
            label = f"control of {name}: {CONTROLS[control.norms]}"
            rows.append([label, *_cells(control), *_NO_PAPER * has_paper])
    return Table.of(
        "normtest",
        "Does the angle matter more than the norm?",
        heads,
        rows,
        note="* p < .001, one-sided. Norm sd: standard deviation of the logarithm of the item vectors' norms. Clipped:"
        " a correlation beyond 1 - 1e-7 counts as that. Dropped: a correlation is undefined. Both count distinct"
        " samples.",
    )


def _cells(entry: NormTestEntry) -> list[Cell]:
    """The columns of `_DIGITS`; an infinite number in words."""
    numbers = [entry.mean, entry.std, entry.t, entry.effect, entry.p, entry.norm_log_sd, entry.clipped, entry.dropped]
    marks = ["", "", "*" if entry.is_starred else "", "", "", "", "", ""]
    return [
        Number(value=value, mark=mark) if math.isfinite(value) else f"{'-' * (value < 0)}infinite{mark}"
        for value, mark in zip(numbers, marks, strict=True)
    ]


def cosine_table(test: NormTestResult) -> Table:
    """Mean cosine of the user and the next item, by the rank of that item."""
    heads: list[Head] = ["run", ("K", 0), ("cosine", 3), ("samples", 0)]
    rows = [
        [name, entry.k, entry.cosine, entry.count]
        for name, row in zip(run_names(test.rows), test.rows, strict=True)
        for entry in row.cosine_by_rank
    ]
    return Table.of("cosines", "Mean cosine of user and next item where that item is among the K best", heads, rows)


def _figure(test: NormTestResult, names: Sequence[str]) -> Figure:
    series = []
    for name, row in zip(names, test.rows, strict=True):
        points = [
            Point(x=entry.k, y=entry.cosine)
            for entry in row.cosine_by_rank
            if entry.cosine is not None and entry.count >= FEWEST
        ]
        series.append(Series(name=name, points=points))
    return Figure(
        id="cosine-by-rank",
        title="Cosine of the item that came next, by its rank",
        kind="lines",
        x=Axis(label="among the K best by score", log=True),
        y=Axis(label="mean cosine of user and item"),
        series=series,
        note=f"Cumulative: all samples whose next item ranks at K or better. Points of fewer than {FEWEST} samples are"
        " not drawn; the last K is the number of items.",
    )
