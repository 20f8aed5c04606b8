"""The demo as a report: what policies really earn, what the log alone shows, and how they trained."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ecoc.data.sequences import Dataset
from ecoc.evaluation.results import Comparison
from ecoc.ope.results import SimulationResult
from ecoc.reporting.document import Axis, Cell, Document, Figure, Number, Point, Section, Series, Table, save_document
from ecoc.reporting.provenance import made_with
from ecoc.reporting.sections.ranking import CAVEAT, ranking_table
from ecoc.reporting.sections.simulation import CAVEATS, explained, reward_figures, reward_table
from ecoc.reporting.sections.training import training_section
from ecoc.reporting.write import report
from ecoc.world import Evaluation

ABOUT = {
    "random": "a random item not yet shown",
    "popular": "the same order for every user",
    "logged": "the policy that wrote the log",
    "supervised": "predicts the next item of the log, averaged weights",
    "ecoc": "the same, plus the long-term value of its critic",
    "myopic": "knows the truth: the best item for this step alone",
    "far_sighted": "knows the truth: considers the effect on later steps",
}
"""The policies of the demo, and what they do."""


def write_report(
    folder: Path,
    data: Dataset,
    world: str,
    seed: int,
    *,
    earned: Mapping[str, Evaluation],
    compared: Comparison,
    curve: Sequence[Mapping[str, float]],
    simulated: SimulationResult,
) -> str:
    """Write report.json and report.html into the demo's folder; return the path of the page."""
    command = f"ecoc demo -o {folder.name} --world {world} --seed {seed}"
    gain = earned["ecoc"].reward / earned["supervised"].reward
    sections = [
        _truth(earned),
        _trade(curve),
        _estimated(simulated, earned),
        _ranking(compared),
        *(training_section(folder / name) for name in ("supervised", "ecoc")),
    ]
    counts = data.counts
    document = Document(
        title="ecoc demo: long-term reward, learnt from a log",
        summary=[
            f"From the same log, with the same encoder and number of steps, ECoC earns {gain:.2f} times the reward per"
            f" step of the supervised policy in {world}: {earned['ecoc'].reward:.3f} against"
            f" {earned['supervised'].reward:.3f}. The policy that wrote the log earns {earned['logged'].reward:.3f}.",
            "The world is synthetic and its rules are known, so the reward of a policy is measured, not estimated. The"
            " demo shows that the method finds long-term value where there is some, not how much there is in your log.",
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
    return report([folder]).report


def truth_table(earned: Mapping[str, Evaluation]) -> Table:
    """One row per policy: the reward it really earns."""
    rows: list[list[Cell | float]] = [
        [name, _reward(result), result.coverage, 100 * result.tempting, ABOUT[name]] for name, result in earned.items()
    ]
    note = "Brackets are 95 % intervals over users. Tempting items please now and cost later. Oracles know the world."
    shown = ("true reward per step", 3), ("items shown", 0), ("tempting, %", 0)
    return Table.of("truth", "", ["policy", *shown, "what it does"], rows, note=note)


def _reward(result: Evaluation) -> Number:
    return Number(value=result.reward, low=result.low, high=result.high)


def weights_table(curve: Sequence[Mapping[str, float]]) -> Table:
    """One row per weight w: true reward, ranking quality and number of different items shown."""
    rows: list[list[Cell | float]] = [
        [f"{point['w']:g}", point["true_reward"], point["ndcg@10"], point["items_shown"]] for point in curve
    ]
    return Table.of("weights", "", ["w", ("true reward per step", 3), "NDCG@10", ("items shown", 0)], rows)


def _truth(earned: Mapping[str, Evaluation]) -> Section:
    axis = Axis(label="true reward per step", line=round(earned["logged"].reward, 3))
    rewards = [("", name, _reward(result)) for name, result in earned.items()]
    title = "True reward per step; the line is the policy that wrote the log"
    return Section(
        id="truth",
        title="What policies really earn",
        text=["Users of the world respond to each policy; the first steps of each session are those of the log."],
        tables=[truth_table(earned).model_copy(update={"title": "True reward per step"})],
        figures=[Figure.bars("truth-bars", title, "policy", axis, rewards)],
        caveats=["One world, one seed: docs/results/true-reward.md has five seeds of two worlds, with controls."],
    )


def _trade(curve: Sequence[Mapping[str, float]]) -> Section:
    points = [Point(x=point["ndcg@10"], y=point["true_reward"], label=f"w = {point['w']:g}") for point in curve]
    return Section(
        id="trade",
        title="Reward against likeness to the log",
        text=[
            "The weight w of the long-term value is one number, which can change after training. With w = 0 the policy"
            " ranks as the log did; the larger w, the more it counts later reward and the less it resembles the log."
        ],
        tables=[weights_table(curve).model_copy(update={"title": "Effect of the weight w"})],
        figures=[
            Figure(
                id="trade",
                title="True reward against likeness to the log, over w",
                kind="points",
                x=Axis(label="NDCG@10 on the test split"),
                y=Axis(label="true reward per step"),
                series=[Series(name="", points=points)],
            )
        ],
        caveats=["NDCG measures how well the log is imitated. It falls while reward rises: do not judge by it alone."],
    )


def _estimated(simulated: SimulationResult, earned: Mapping[str, Evaluation]) -> Section:
    known = {name: [result.reward] for name, result in earned.items() if name != "popular"}  # other than the log's
    return Section(
        id="estimated",
        title="What the log alone shows",
        text=explained(simulated),
        tables=[reward_table([simulated], known, name="estimated", title="Off-policy evaluation beside the truth")],
        figures=reward_figures([simulated], name="estimated", title=""),
        caveats=list(CAVEATS),
    )


def _ranking(compared: Comparison) -> Section:
    title = f"{compared.cases:,} test cases of {compared.users:,} users, all items ranked"
    return Section(
        id="ranking",
        title="Ranking what users did next",
        tables=[ranking_table(compared.runs, name="ranking", title=title)],
        caveats=[CAVEAT],
    )
