"""The demo as a report: what policies really earn, what the log alone would have told, and how they were learnt."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ecoc.data.sequences import Dataset
from ecoc.report.curves import run_section
from ecoc.report.document import (
    Axis,
    Cell,
    Column,
    Document,
    Figure,
    Number,
    Point,
    Section,
    Series,
    Table,
    save_document,
)
from ecoc.report.made import made_with
from ecoc.report.reward import CAVEATS, explained, reward_figures, reward_table
from ecoc.report.write import report
from ecoc.world import Evaluation

_RANKED = ("hr@5", "hr@10", "hr@20", "mrr@10", "ndcg@10", "ndcg@20")


def write_report(  # noqa: PLR0913 - what the demo found, one parameter each
    folder: Path,
    data: Dataset,
    world: str,
    seed: int,
    *,
    earned: Mapping[str, Evaluation],
    about: Mapping[str, str],
    judged: Mapping[str, Any],
    curve: Sequence[Mapping[str, float]],
    simulated: Mapping[str, Any],
) -> str:
    """Write report.json and report.html into the demo's folder; where the page is."""
    gain = earned["ecoc"].reward / earned["supervised"].reward
    counts = data.counts
    command = f"ecoc demo -o {folder.name} --world {world} --seed {seed}"
    sections = [
        _truth(earned, about),
        _trade(curve),
        _estimated(simulated, earned),
        _ranking(judged),
        *(run_section(folder / name) for name in ("supervised", "ecoc")),
    ]
    document = Document(
        title="ecoc demo: long-term reward, learnt from a log",
        summary=[
            f"From the same log, with the same encoder and steps, ECoC earns {gain:.2f} times what the supervised"
            f" policy earns a step in {world}: {earned['ecoc'].reward:.3f} against {earned['supervised'].reward:.3f}."
            f" The policy that wrote the log earns {earned['logged'].reward:.3f}.",
            "This is a made-up world whose rules are known, so that what a policy earns can be measured instead of"
            " estimated. It says that the method can find long-term value where there is some, not how much there is in"
            " your log.",
        ],
        facts={
            "world": f"{world}, seed {seed}",
            "log": f"{counts.interactions:,} events, {counts.sequences:,} sessions, {counts.items:,} items",
            **made_with(),
            "command": command,
        },
        sections=[section.model_copy(update={"commands": section.commands or [command]}) for section in sections],
    )
    save_document(folder, document)
    return str(report([folder])["report"])


def _number(found: Evaluation) -> Number:
    return Number(value=found.reward, low=found.low, high=found.high)


def _truth(earned: Mapping[str, Evaluation], about: Mapping[str, str]) -> Section:
    body: list[list[Cell]] = [
        [name, _number(found), Number(value=found.coverage), Number(value=100 * found.tempting), about[name]]
        for name, found in earned.items()
    ]
    points = [Point(x=place, y=one.reward, low=one.low, high=one.high) for place, one in enumerate(earned.values())]
    return Section(
        id="truth",
        title="What policies really earn",
        text=["Played by users of the world the log is from; the first steps of each session are the log's own."],
        tables=[
            Table(
                id="truth",
                title="True reward a step",
                columns=[
                    Column(name="policy"),
                    Column(name="true reward a step", digits=3),
                    Column(name="items shown", digits=0),
                    Column(name="tempting, %", digits=0),
                    Column(name="what it does"),
                ],
                rows=body,
                note="95 % intervals over users. Tempting: items that please now and cost later. Oracles know what no"
                " log shows.",
            )
        ],
        figures=[
            Figure(
                id="truth-bars",
                title="True reward a step; the line is the policy that wrote the log",
                kind="bars",
                x=Axis(label="policy", names=list(earned)),
                y=Axis(label="true reward a step", line=round(earned["logged"].reward, 3)),
                series=[Series(name="true reward", points=points)],
            )
        ],
        caveats=["One world, one seed: docs/results/true-reward.md has five seeds of two worlds, with controls."],
    )


def _trade(curve: Sequence[Mapping[str, float]]) -> Section:
    points = [Point(x=one["ndcg@10"], y=one["true_reward"], label=f"w = {one['w']:g}") for one in curve]
    return Section(
        id="trade",
        title="What acting on the value trades",
        text=[
            "How much the critic has a say is one number, w, which can change after training. With w = 0 the policy"
            " does as the log did; the more it minds the future, the less it resembles the log."
        ],
        figures=[
            Figure(
                id="trade",
                title="Reward against likeness to the log, over w",
                kind="points",
                x=Axis(label="NDCG@10 on the test split"),
                y=Axis(label="true reward a step"),
                series=[Series(name="blend", points=points)],
            )
        ],
        caveats=["NDCG measures how well the log is imitated. It falls while reward rises: do not judge by it alone."],
    )


def _estimated(simulated: Mapping[str, Any], earned: Mapping[str, Evaluation]) -> Section:
    known = {name: [one.reward] for name, one in earned.items() if name != "popular"}  # the world's own, not the log's
    return Section(
        id="estimated",
        title="What the log alone would have told",
        text=explained(simulated),
        tables=[reward_table([simulated], known, name="estimated", title="Off-policy evaluation beside the truth")],
        figures=reward_figures([simulated], name="estimated", title=""),
        caveats=list(CAVEATS),
    )


def _ranking(judged: Mapping[str, Any]) -> Section:
    columns = [Column(name="policy"), *(Column(name=name.upper(), better="high") for name in _RANKED)]
    body: list[list[Cell]] = [
        [row["name"] if row["acting"] == "policy" else f"{row['name']} ({row['acting']})"]
        + [Number(value=row["metrics"][name]) for name in _RANKED]
        for row in judged["runs"]
    ]
    return Section(
        id="ranking",
        title="Ranking what users were shown next",
        tables=[
            Table(
                id="ranking",
                title=f"{judged['cases']:,} test cases of {judged['users']:,} users, all items ranked",
                columns=columns,
                rows=body,
            )
        ],
        caveats=[
            "The log shows what its own policy chose, so this ranks likeness to that policy, not what users gain."
        ],
    )
