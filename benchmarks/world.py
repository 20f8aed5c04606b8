"""True reward per step of learned policies in the built-in worlds, beside controls, oracles and the logging policy.

    python benchmarks/world.py -o runs                                   # both worlds, seeds 100 to 104
    python benchmarks/world.py -o runs --methods supervised-ema,sqn      # other methods, the same budget
    python benchmarks/world.py --oracles --first-seed 0 --seeds 3        # only the policies that need no training

Each seed makes another catalogue, other users, another log and other weights; the settings are those of
`ecoc train --method ecoc`, chosen on other seeds (docs/method.md). Every method gets the same encoder, epochs and
averaging rate. Controls: `ecoc-myopic` (gamma 0) and `ecoc-shuffled` (rewards changed places). A run that is there is
not trained again. Prints Markdown; intervals are over seeds (Student), the last table is over the blend's weight.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.ope.truth import open_market, true_reward
from ecoc.world import POLICIES, Market, evaluate, parse_world

TAU = 0.02
METHODS: dict[str, dict[str, Any]] = {
    "supervised": {"method": {"name": "supervised"}},
    "supervised-ema": {"method": {"name": "supervised"}, "train": {"ema": TAU}},
    "ecoc": {"method": {"name": "ecoc"}},
    "ecoc-myopic": {"method": {"name": "ecoc", "gamma": 0.0}},
    "ecoc-shuffled": {"method": {"name": "ecoc"}, "train": {"shuffle_rewards": True}},
}
BASELINES = ("sqn", "sa2c", "sdac_sr", "sdac_dc", "prl", "neural_lcb")
METHODS |= {name: {"method": {"name": name}, "train": {"ema": TAU}} for name in BASELINES}
DEFAULT = "supervised,supervised-ema,ecoc,ecoc-myopic,ecoc-shuffled"
WEIGHTS = (0.0, 2.0, 5.0, 10.0, 20.0, 50.0)


def measured(data: Dataset, path: Path, values: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Train, rank the test split and play in the world; or find what an earlier call did."""
    kept = path / "benchmark.json"
    if kept.is_file():
        return dict(json.loads(kept.read_text()))
    seed = int(data.manifest.settings["world"]["seed"])  # type: ignore[index]
    common = {"max_epochs": options.epochs, "patience": 0, "seed": seed, "threads": 1}
    config = {**values, "train": {**common, **values.get("train", {})}}
    run = ecoc.train(data, path, config=config, resume=path.exists())
    model, market = ecoc.load(path), open_market(data)
    earned = true_reward(model, market, options.users, seed=seed)
    ranked = ecoc.evaluate(model, data, untrained=False, max_cases=10_000)
    facts: dict[str, Any] = {
        "reward": earned.reward,
        "coverage": earned.coverage,
        "tempting": earned.tempting,
        "ndcg@10": ranked.metrics["ndcg@10"],
        "list_coverage": ranked.coverage,
        "seconds": run.result.seconds,
        "curve": [],
    }
    for w in WEIGHTS if path.name.endswith("-ecoc") else ():
        view = model.ranked_by("blend", w=w)
        point = true_reward(view, market, options.users, seed=seed)
        ndcg = ecoc.evaluate(view, data, untrained=False, max_cases=10_000).metrics["ndcg@10"]
        facts["curve"].append({"w": w, "reward": point.reward, "coverage": point.coverage, "ndcg@10": ndcg})
    kept.write_text(json.dumps(facts))
    return facts


def interval(values: list[float]) -> str:
    """Mean and half of the 95 % interval over seeds."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{np.mean(values):.3f} ± {half:.3f}"


def table(world: str, found: dict[str, list[dict[str, Any]]]) -> None:
    """Rows of one world."""
    base = [one["reward"] for one in found["supervised-ema"]]
    print(f"\n### {world}, {len(base)} seeds\n")
    print("| policy | true reward a step | × supervised+EMA | items shown | tempting | NDCG@10 | training, s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, cells in found.items():
        reward = [one["reward"] for one in cells]
        ratio = interval([mine / other for mine, other in zip(reward, base, strict=True)])
        ndcg = f"{np.mean([one['ndcg@10'] for one in cells]):.4f}" if "ndcg@10" in cells[0] else ""
        cost = f"{np.mean([one['seconds'] for one in cells]):.0f}" if "seconds" in cells[0] else ""
        shown, tempting = (np.mean([one[key] for one in cells]) for key in ("coverage", "tempting"))
        print(f"| {name} | {interval(reward)} | {ratio} | {shown:.0f} | {tempting:.0%} | {ndcg} | {cost} |", flush=True)
    if "ecoc" in found:
        print("\n| w | true reward a step | NDCG@10 | items shown |\n| --- | --- | --- | --- |")
        for place, w in enumerate(WEIGHTS):
            points = [one["curve"][place] for one in found["ecoc"]]
            ndcg, shown = (np.mean([point[key] for point in points]) for key in ("ndcg@10", "coverage"))
            print(f"| {w:g} | {interval([point['reward'] for point in points])} | {ndcg:.4f} | {shown:.0f} |")


def oracles(options: argparse.Namespace) -> None:
    """What the policies earn that need no training, seed by seed, with intervals over users."""
    print("| world, seed | " + " | ".join(POLICIES) + " |")
    print("| --- |" + " --- |" * len(POLICIES))
    for world in options.worlds.split(","):
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            market = Market(parse_world(world, seed=seed))
            found = [evaluate(market, policy(market), options.users) for policy in POLICIES.values()]
            cells = [f"{result.reward:.3f} ± {result.reward - result.low:.3f}" for result in found]
            print(f"| `{world}`, {seed} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs"))
    parser.add_argument("--oracles", action="store_true")
    parser.add_argument("--worlds", default="world:bait,world:satiation")
    parser.add_argument("--methods", default=DEFAULT)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--users", type=int, default=4000)
    options = parser.parse_args()
    if options.oracles:
        oracles(options)
        return
    for world in options.worlds.split(","):
        found: dict[str, list[dict[str, Any]]] = {}
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            folder = options.out / f"{world.replace(':', '-')}-{seed}"
            data = ecoc.open_data(folder) if folder.is_dir() else ecoc.prepare(world, folder, seed=seed)
            market = open_market(data)
            for name, policy in POLICIES.items():
                one = evaluate(market, policy(market), options.users, seed=seed)
                facts = {"reward": one.reward, "coverage": one.coverage, "tempting": one.tempting}
                found.setdefault(name, []).append(facts)
            for name in options.methods.split(","):
                path = options.out / f"{folder.name}-{name}"
                found.setdefault(name, []).append(measured(data, path, METHODS[name], options))
                print(f"{world} {seed} {name} {found[name][-1]['reward']:.3f}", file=sys.stderr, flush=True)
        table(world, found)


if __name__ == "__main__":
    main()
