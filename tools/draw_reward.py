"""Draw docs/reward.png: true reward of learned policies in the two worlds, and what the weight of the value trades.

python tools/draw_reward.py RUNS    # the folder that benchmarks/world.py -o RUNS wrote
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

from ecoc.data.sequences import open_data
from ecoc.evaluation.truth import open_market
from ecoc.world import POLICIES, evaluate

USERS = 4000
ROWS = {
    "logged": "logging policy",
    "supervised-ema": "supervised + EMA",
    "ecoc-myopic": "ECoC, γ = 0 (control)",
    "ecoc-shuffled": "ECoC, shuffled rewards (control)",
    "ecoc": "ECoC",
    "myopic": "myopic oracle",
    "far_sighted": "far-sighted oracle",
}
LEARNED, KNOWING = "#1f6f8b", "#c9c9c9"


def found(runs: Path, world: str) -> dict[str, list[dict[str, Any]]]:
    """What each policy did on each seed."""
    seeds = sorted(path.name for path in runs.glob(f"{world}-*") if path.name.count("-") == 2)
    result: dict[str, list[dict[str, Any]]] = {}
    for folder in seeds:
        data = open_data(runs / folder)
        market = open_market(data)
        for name in ROWS:
            kept = runs / f"{folder}-{name}" / "benchmark.json"
            if name in POLICIES:
                one = evaluate(market, POLICIES[name](market), USERS, seed=market.config.seed)
                result.setdefault(name, []).append({"reward": one.reward})
            elif kept.is_file():
                result.setdefault(name, []).append(json.loads(kept.read_text()))
    return result


def draw(axes: Any, curve: Any, world: str, cells: dict[str, list[dict[str, Any]]]) -> None:
    """Bars of one world, and its curve."""
    names = [name for name in ROWS if name in cells]
    means = [np.mean([one["reward"] for one in cells[name]]) for name in names]
    spread = [np.std([one["reward"] for one in cells[name]]) for name in names]
    colours = [KNOWING if name in POLICIES else LEARNED for name in names]
    axes.barh([ROWS[name] for name in names], means, xerr=spread, color=colours, height=0.7)
    for place, (value, error) in enumerate(zip(means, spread, strict=True)):
        axes.text(value + error + 0.03, place, f"{value:.2f}", va="center", fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.9)
    axes.set_title(world.replace("-", ":"), loc="left", fontsize=10)
    axes.set_xlabel("true reward a step")
    points = [one["curve"] for one in cells["ecoc"]]
    rewards, ndcgs = (np.mean([[p[key] for p in curve] for curve in points], axis=0) for key in ("reward", "ndcg@10"))
    curve.plot(ndcgs, rewards, "o-", color=LEARNED)
    for point, x, y in zip(points[0], ndcgs, rewards, strict=True):
        aside = (6, -11) if point["w"] == 20 else (6, 3)
        curve.annotate(f"w = {point['w']:g}", (x, y), textcoords="offset points", xytext=aside, fontsize=8)
    curve.set_xlabel("NDCG@10: likeness to the log")
    curve.set_ylabel("true reward a step")
    curve.set_title("what w trades", loc="left", fontsize=10)
    for each in (axes, curve):
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=8)


def main() -> None:
    """Draw both worlds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/reward.png"))
    options = parser.parse_args()
    figure, grid = plt.subplots(2, 2, figsize=(10, 6), width_ratios=(1.4, 1))
    for row, world in zip(grid, ("world-bait", "world-satiation"), strict=True):
        draw(row[0], row[1], world, found(options.runs, world))
    figure.tight_layout()
    figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
