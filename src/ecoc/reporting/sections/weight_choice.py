"""The choice of the weight w of the long-term value: the results of `ecoc.choose_weight`."""

from collections.abc import Mapping, Sequence
from typing import Any

from ecoc.reporting.document import Axis, Cell, Column, Figure, Number, Point, Section, Series, Table


def weight_table(points: Sequence[Mapping[str, Any]], reward: str, chosen: float | None = None) -> Table:
    """One row per weight: reward, ranking quality and number of different items shown."""
    has_trust = all("trusted" in point for point in points)
    columns = [
        Column(name="w"),
        Column(name="reward per step", digits=3),
        Column(name="NDCG@10"),
        Column(name="items shown", digits=0),
        *[Column(name="trusted")] * has_trust,
        *[Column(name="")] * (chosen is not None),
    ]
    rows: list[list[Cell]] = [
        [
            f"{point['w']:g}",
            Number(value=point[reward]),
            Number(value=point["ndcg@10"]),
            Number(value=point["items_shown"]),
            *["yes" if point.get("trusted") else "no"] * has_trust,
            *["chosen" if point["w"] == chosen else None] * (chosen is not None),
        ]
        for point in points
    ]
    return Table(id="weights", title="", columns=columns, rows=rows)


def choice_figure(choice: Mapping[str, Any]) -> Figure:
    """Reward against ranking quality over the weight, from the cloned policy on; the chosen weight is named."""
    points = [
        Point(
            x=point["ndcg@10"],
            y=point["ratio"],
            low=point["low"],
            high=point["high"],
            label=f"w = {point['w']:g}{' (chosen)' * (point['w'] == choice['w'])}",
        )
        for point in choice["points"]
    ]
    return Figure(
        id="choose-w",
        title="Reward against likeness to the log, over the weight w",
        kind="points",
        x=Axis(label="NDCG@10 on validation: likeness to the log"),
        y=Axis(label="roll-out reward, log = 1", line=1.0),
        series=[Series(name="blend", points=points)],
        note="Roll-outs start from validation histories in simulators fitted on the training part of the log. Whiskers"
        " are 95 % intervals.",
    )


def outcome(choice: Mapping[str, Any]) -> list[str]:
    """Which weight was chosen and why; which weights have an estimate that cannot be trusted."""
    if choice["w"] is None:
        return [f"not chosen, the run ranks as before: {'; '.join(choice['reasons'])}"]
    doubts = [
        f"w = {point['w']:g} is not trusted: {'; '.join(point['reasons'])}"
        for point in choice["points"]
        if point["reasons"]
    ]
    return [f"chosen: w = {choice['w']:g}, the smallest weight within 2 % of the best trusted reward", *doubts]


def weight_section(choice: Mapping[str, Any]) -> Section:
    """The section of a run whose weight was chosen."""
    first, *doubts = outcome(choice)
    note = " ".join(f"{doubt}." for doubt in doubts)
    table = weight_table(choice["points"], "reward", choice["w"])
    return Section(
        id="weight",
        title="Choice of the weight w of the long-term value",
        text=[f"{first[0].upper()}{first[1:]}."],
        tables=[table.model_copy(update={"title": "Estimated reward per weight", "note": note})],
        figures=[choice_figure(choice)],
        caveats=["The choice uses the validation part of the log only; the test part plays no role in it."],
        commands=[f"ecoc simulate {choice['run']} --choose-w"],
    )
