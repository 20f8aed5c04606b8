"""The choice of the weight w of the long-term value: the results of `ecoc.choose_weight`."""

from ecoc.ope.results import WeightChoice
from ecoc.reporting.document import Axis, Figure, Head, Point, Section, Series, Table


def weight_table(choice: WeightChoice) -> Table:
    """One row per weight: reward, ranking quality and number of different items shown."""
    rows = [
        [
            f"{point.w:g}",
            point.reward,
            point.ndcg,
            point.items_shown,
            "yes" if point.trusted else "no",
            "chosen" if point.w == choice.w else None,
        ]
        for point in choice.points
    ]
    heads: list[Head] = ["w", ("reward per step", 3), "NDCG@10", ("items shown", 0), "trusted", ""]
    return Table.of("weights", "", heads, rows)


def choice_figure(choice: WeightChoice) -> Figure:
    """Reward against ranking quality over the weight, from the cloned policy on; the chosen weight is named."""
    points = [
        Point(
            x=point.ndcg,
            y=point.ratio,
            low=point.low,
            high=point.high,
            label=f"w = {point.w:g}{' (chosen)' * (point.w == choice.w)}",
        )
        for point in choice.points
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


def outcome(choice: WeightChoice) -> list[str]:
    """Which weight was chosen and why; which weights have an estimate that cannot be trusted."""
    if choice.w is None:
        return [f"not chosen, the run ranks as before: {'; '.join(choice.reasons)}"]
    reasons = [f"w = {p.w:g} is not trusted: {'; '.join(p.reasons)}" for p in choice.points if p.reasons]
    return [f"chosen: w = {choice.w:g}, the smallest weight within 2 % of the best trusted reward", *reasons]


def weight_section(choice: WeightChoice) -> Section:
    """The section of a run whose weight was chosen."""
    first, *reasons = outcome(choice)
    note = " ".join(f"{reason}." for reason in reasons)
    return Section(
        id="weight",
        title="Choice of the weight w of the long-term value",
        text=[f"{first[0].upper()}{first[1:]}."],
        tables=[weight_table(choice).model_copy(update={"title": "Estimated reward per weight", "note": note})],
        figures=[choice_figure(choice)],
        caveats=["The choice uses the validation part of the log only; the test part plays no role in it."],
        commands=[f"ecoc simulate {choice.run} --choose-w"],
    )
