"""Reward against ranking quality over the blend's weight, as a figure."""

from typing import Any

from ecoc.report.document import Axis, Figure, Point, Series


def choice_figure(facts: dict[str, Any]) -> Figure:
    """What `choose_w` found: a curve from the cloned policy on, the chosen weight named."""
    points = [
        Point(
            x=point["ndcg@10"],
            y=point["ratio"],
            low=point["low"],
            high=point["high"],
            label=f"w = {point['w']:g}{' (chosen)' * (point['w'] == facts['w'])}",
        )
        for point in facts["points"]
    ]
    return Figure(
        id="choose-w",
        title="What acting on the value trades",
        kind="points",
        x=Axis(label="NDCG@10 on validation: likeness to the log"),
        y=Axis(label="roll-out reward, the log = 1", line=1.0),
        series=[Series(name="blend", points=points)],
        note="Played from validation histories in simulators of the training part; whiskers are 95 % intervals.",
    )
