"""What a log without refusals teaches, and what can be estimated from it: the built-in worlds with refusals deleted.

    python benchmarks/taken_up.py -o runs                    # both worlds, seed 103

Shops and rating sites often log only what users took up. Here such a log is made from a world's by deleting what was
ignored, policies learn from it, and off-policy evaluation ranks them beside the truth: with items at random standing
for refusals (`--negatives`), and without. Policies know what they showed before and do not repeat it, but histories
hold only what was taken up, as in the log. A run that is there is not trained again. Prints Markdown.
"""

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import torch

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.experiment.ope_truth import rank_correlation
from ecoc.model import Model
from ecoc.ope.choose_weight import WEIGHTS
from ecoc.ope.results import RolloutConfig, SimulationResult
from ecoc.ope.simulate import simulate
from ecoc.ope.truth import true_reward
from ecoc.world import Market, parse_world
from ecoc.world.log import log_batches

RUNS: dict[str, dict[str, Any]] = {
    "supervised+ema": {"method": {"name": "supervised"}, "train": {"ema": 0.02}},
    "prl": {"method": {"name": "prl"}},
    "ecoc": {"method": {"name": "ecoc"}},
    "γ = 0, w = 10": {"method": {"name": "ecoc", "gamma": 0.0}},
    "shuffled, w = 10": {"method": {"name": "ecoc"}, "train": {"shuffle_rewards": True}},
}
NEGATIVES = {"refusals made up": 4, "as it is": 0}


def taken_up(market: Market, folder: Path) -> Dataset:
    """The market's log without what was ignored."""
    if not (folder / "data").exists():
        folder.mkdir(parents=True, exist_ok=True)
        log = pa.Table.from_batches(log_batches(market))
        log = log.set_column(log.schema.get_field_index("feedback"), "feedback", log["feedback"].cast(pa.string()))
        log = log.filter(pc.not_equal(log["feedback"], "ignore"))
        pyarrow.csv.write_csv(log.select(["user", "item", "time", "feedback"]), folder / "log.csv")
        settings: dict[str, Any] = {name: name for name in ("user", "item", "time", "feedback")}
        settings |= {"reward": {"click": 1, "favourite": 2, "buy": 3}, "min_item_support": 1, "min_length": 2}
        ecoc.prepare(folder / "log.csv", folder / "data", threads=1, **settings)
    return ecoc.open_data(folder / "data")


def policies(data: Dataset, folder: Path, epochs: int) -> dict[str, Model]:
    """Learned from it: the runs, and ECoC at several weights."""
    found = {}
    for name, values in RUNS.items():
        path = folder / name.split(",")[0].replace(" ", "")
        train = {"max_epochs": epochs, "patience": 0, "threads": 1, **values.get("train", {})}
        if not (path / "result.json").exists():
            ecoc.train(data, path, config={**values, "train": train}, resume=path.exists())
        found[name] = ecoc.load(path)
    critic = found.pop("ecoc")
    found |= {f"ecoc, w = {w:g}": critic.ranked_by("blend", w=w) for w in WEIGHTS if w}
    return {name: model.called(name) for name, model in found.items()}


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs"))
    parser.add_argument("--worlds", default="world:bait,world:satiation")
    parser.add_argument("--seed", type=int, default=103)
    parser.add_argument("--events", type=int, default=500_000, help="before refusals are deleted")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--users", type=int, default=2000, help="who play for the truth")
    options = parser.parse_args()
    for world in options.worlds.split(","):
        market = Market(parse_world(world, seed=options.seed, events=options.events))
        folder = options.out / f"{world.split(':')[1]}-{options.seed}-taken-up"
        data = taken_up(market, folder)
        learned = policies(data, folder, options.epochs)
        true = {name: true_reward(one, market, options.users).reward for name, one in learned.items()}
        estimated = {
            kind: simulate(list(learned.values()), data, config=RolloutConfig(negatives=count), cloned=False)
            for kind, count in NEGATIVES.items()
        }
        table(world, data, true, estimated)


def table(world: str, data: Dataset, true: dict[str, float], estimated: dict[str, SimulationResult]) -> None:
    """Learned policies by what they really earn, and what each estimate says."""
    columns: dict[str, dict[str, float]] = {}
    for kind, result in estimated.items():
        rows = {row.name: row for row in result.policies if row.name in true}
        columns[f"roll-out, {kind}"] = {name: row.ratio for name, row in rows.items()}
        simulator = "with negatives" if result.simulator.negatives else "conditional"
        columns[f"one step, {kind}"] = {name: row.one_step[simulator].ratio for name, row in rows.items()}
    print(f"\n### {world}, {data.counts.interactions:,} events of {data.counts.items:,} items, none of them ignored\n")
    print("| policy | true reward a step | × supervised+EMA | " + " | ".join(columns) + " |")
    print("| --- | --- | --- |" + " --- |" * len(columns))
    for name in sorted(true, key=lambda name: -true[name]):
        cells = " | ".join(f"{values[name]:.2f}" for values in columns.values())
        print(f"| {name} | {true[name]:.3f} | {true[name] / true['supervised+ema']:.2f} | {cells} |")
    ranks = [rank_correlation(true, values) for values in columns.values()]
    print(
        "| rank correlation with the truth |  |  | " + " | ".join(f"{rank:+.2f}" for rank in ranks) + " |", flush=True
    )


if __name__ == "__main__":
    main()
