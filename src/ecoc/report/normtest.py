"""The normalisation test as a section of a report, with the paper's own values beside it."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ecoc.report.document import Axis, Cell, Column, Figure, Number, Point, Section, Series, Table

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
SIGNIFICANT = 0.001
CONTROLS = {"trained": "random directions, its own norms", "untrained": "random vectors, as before training"}
CAVEATS = [
    "The test also rejects its null hypothesis for random item vectors, as the control rows show; it is no proof that"
    " anything was learnt.",
    "All samples share one table of item vectors and a user gives several of them, so they are not independent, and"
    " with 10,000 of them any effect is significant. The effect size says more than t and p.",
    "The outcome depends on a user's vector only through its direction, and on the item vectors mostly through how much"
    " their norms vary: the less they do, the larger the mean.",
]
_HEAD = {"Mean": 2, "Std.": 2, "t": 0, "effect": 2, "p": 3}  # digits after the point


def paper_values(encoder: str, data: str | None) -> tuple[float, float, float] | None:
    """Mean, standard deviation and t that the paper prints for an encoder on one of its datasets."""
    if data not in PAPER_DATA or encoder not in PAPER:
        return None
    return PAPER[encoder][PAPER_DATA.index(data)]


def is_starred(row: dict[str, Any]) -> bool:
    """Whether a row gets the paper's star."""
    return float(row["p"]) < SIGNIFICANT


def normtest_section(facts: dict[str, Any], paper_data: str | None = None) -> Section:
    """What `ecoc.normtest` answers, as a section; `paper_data` names the paper's dataset, if it is one of them."""
    names = run_names(facts["rows"])
    flags = [f"{name}: {row['flag']}." for name, row in zip(names, facts["rows"], strict=True) if row["flag"]]
    return Section(
        id="normtest",
        title="Statistical normalisation test",
        findings=[_finding(facts)],
        text=[
            "X is the score of every item for a user, Y its cosine, Z the item's norm with the sign of the score."
            " D = artanh Spearman(X, Y) - artanh Spearman(X, Z); H1: on average D > 0, the angle matters more for the"
            f" ranking than the norm. {facts['samples']:,} test interactions a repeat, averages over"
            f" {facts['repeats']} repeats."
        ],
        tables=[_table(facts, names, paper_data)],
        figures=[_figure(facts, names)],
        caveats=[*flags, *CAVEATS],
    )


def _finding(facts: dict[str, Any]) -> str:
    starred, controls = (sum(map(is_starred, facts[kind])) for kind in ("rows", "controls"))
    return (
        f"Normalisation test: the angle matters more than the norm (p < .001) in {starred} of {len(facts['rows'])}"
        f" runs, and in {controls} of {len(facts['controls'])} controls with random directions."
    )


def run_names(rows: list[dict[str, Any]]) -> list[str]:
    """A name for each run: its encoder where that is enough, and the method unless it is plain imitation."""
    plain = [row["encoder"] if row["method"] == "supervised" else f"{row['method']} {row['encoder']}" for row in rows]
    return [
        f"{name} ({Path(row['run']).name})" if plain.count(name) > 1 else name
        for name, row in zip(plain, rows, strict=True)
    ]


def with_controls(
    facts: dict[str, Any], names: list[str]
) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """Each run's name, row and control rows."""
    each = len(facts["controls"]) // max(len(names), 1)
    for place, (name, row) in enumerate(zip(names, facts["rows"], strict=True)):
        yield name, row, facts["controls"][place * each : (place + 1) * each]


def _table(facts: dict[str, Any], names: list[str], paper_data: str | None) -> Table:
    has_paper = paper_data in PAPER_DATA
    columns = [
        Column(name="method"),
        *(Column(name=name, digits=digits) for name, digits in _HEAD.items()),
    ]
    columns += [Column(name=name, digits=0) for name in ("N", "repeats", "clipped", "dropped")]
    if has_paper:
        columns += [Column(name=f"{name} (paper)", digits=_HEAD[name]) for name in ("Mean", "Std.", "t")]
    rows: list[list[Cell]] = []
    for name, row, controls in with_controls(facts, names):
        found = paper_values(row["encoder"], paper_data) if row["method"] == "supervised" else None
        rows.append(_cells(name, row) + _paper_cells(found) * has_paper)
        for control in controls:
            label = f"control of {name}: {CONTROLS[control['norms']]}"
            rows.append(_cells(label, control) + _paper_cells(None) * has_paper)
    return Table(
        id="normtest",
        title="Does the angle matter more than the norm?",
        columns=columns,
        rows=rows,
        note="* p < .001, one-sided. Clipped: a correlation beyond 1 - 1e-7 counts as that. Dropped: a correlation is"
        " undefined. Both are counts of the distinct samples.",
    )


def _cells(name: str, row: dict[str, Any]) -> list[Cell]:
    star = "*" if is_starred(row) else ""
    numbers = [row["mean"], row["std"], row["t"], row["effect"], row["p"]]
    cells: list[Cell] = [name]
    cells += [_number(value, star if place == 2 else "") for place, value in enumerate(numbers)]
    return cells + [Number(value=row[key]) for key in ("n", "repeats", "clipped", "dropped")]


def _paper_cells(found: tuple[float, float, float] | None) -> list[Cell]:
    return [None, None, None] if found is None else [Number(value=value) for value in found]


def _number(value: float, mark: str) -> Cell:
    """A number; an infinite one in words."""
    return Number(value=value, mark=mark) if math.isfinite(value) else f"{'-' * (value < 0)}infinite{mark}"


def _figure(facts: dict[str, Any], names: list[str]) -> Figure:
    series = []
    for name, row in zip(names, facts["rows"], strict=True):
        shown = [entry for entry in row["cosine_by_rank"] if entry["count"] >= FEWEST]
        points = [Point(x=entry["k"], y=entry["cosine"], label=f"{entry['count']} samples") for entry in shown]
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
