"""Draw docs/reward.png: true reward of policies in the two worlds, and the trade-off that the weight w sets.

python tools/draw_reward.py [OUT.png]

The figures are the published ones, docs/results/tables/true-reward.csv and true-reward-by-w.csv, which hold what
`python benchmarks/world.py -o RUNS` printed. Bars are means over seeds, lines on them 95 % intervals over seeds.
"""

import csv
import sys
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

DOCS = Path(__file__).parent.parent / "docs"
POLICIES = {
    "logged": "logging policy",
    "supervised-ema": "supervised, averaged weights",
    "ecoc-myopic": "ECoC, γ = 0 (control)",
    "ecoc-shuffled": "ECoC, shuffled rewards (control)",
    "ecoc": "ECoC",
    "myopic": "myopic oracle",
    "far_sighted": "far-sighted oracle",
}
LEARNED, NOT_LEARNED = "#1f6f8b", "#c9c9c9"


def table(name: str, world: str) -> list[dict[str, str]]:
    """Rows of one world."""
    with (DOCS / "results" / "tables" / name).open(encoding="utf-8", newline="") as stream:
        return [row for row in csv.DictReader(stream) if row["world"] == world]


def draw_policies(axes: Any, world: str) -> None:
    """Bars, one per policy."""
    rows = {row["policy"]: row for row in table("true-reward.csv", world)}
    rewards = [float(rows[name]["reward per step"]) for name in POLICIES]
    intervals = [float(rows[name]["± 95 %"]) for name in POLICIES]
    colours = [LEARNED if rows[name]["NDCG@10"] else NOT_LEARNED for name in POLICIES]
    axes.barh(list(POLICIES.values()), rewards, xerr=intervals, color=colours, height=0.7)
    for place, (reward, interval) in enumerate(zip(rewards, intervals, strict=True)):
        axes.text(reward + interval + 0.03, place, f"{reward:.2f}", va="center", fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.9)
    axes.set_title(world, loc="left", fontsize=10)
    axes.set_xlabel("true reward per step")


def draw_weights(axes: Any, world: str) -> None:
    """Reward against likeness to the log, one point per w."""
    rows = table("true-reward-by-w.csv", world)
    ndcgs, rewards = ([float(row[name]) for row in rows] for name in ("NDCG@10", "reward per step"))
    axes.plot(ndcgs, rewards, "o-", color=LEARNED)
    for row, ndcg, reward in zip(rows, ndcgs, rewards, strict=True):
        aside = (-38, 3) if row["w"] == "20" else (6, 3)
        axes.annotate(f"w = {row['w']}", (ndcg, reward), textcoords="offset points", xytext=aside, fontsize=8)
    axes.margins(x=0.12, y=0.12)
    axes.set_xlabel("NDCG@10: likeness to the log")
    axes.set_ylabel("true reward per step")
    axes.set_title("ECoC by weight w of the long-term value", loc="left", fontsize=10)


def main(out: Path) -> None:
    """Draw both worlds."""
    figure = Figure(figsize=(10, 6), dpi=110, layout="constrained")
    for (bars, curve), world in zip(
        figure.subplots(2, 2, width_ratios=(1.4, 1)), ("world:bait", "world:satiation"), strict=True
    ):
        draw_policies(bars, world)
        draw_weights(curve, world)
        for axes in (bars, curve):
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
    FigureCanvasAgg(figure)
    figure.savefig(str(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "reward.png")
