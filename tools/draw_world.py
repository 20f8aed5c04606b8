"""Draw docs/world.png: the true reward of each policy by step of the session, in the two built-in worlds.

python tools/draw_world.py [OUT.png]
"""

import sys
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ecoc.world import POLICIES, Market, evaluate, parse_world

STYLES = {
    "random": ("#9aa0a6", ":"),
    "logged": ("#5f6368", "--"),
    "myopic": ("#d93025", "-"),
    "far_sighted": ("#188038", "-"),
}
TITLES = {"world:bait": "bait and trust", "world:satiation": "satiation and drift"}
USERS = 4000


def main(out: Path) -> None:
    """Measure and draw."""
    figure = Figure(figsize=(9, 3.4), dpi=150, layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (name, title) in zip(panels, TITLES.items(), strict=True):
        market = Market(parse_world(name))
        for policy, (colour, line) in STYLES.items():
            result = evaluate(market, POLICIES[policy](market), USERS)
            steps = range(4, 4 + len(result.per_step))
            label = f"{policy.replace('_', '-')}: {result.reward:.2f} per step"
            panel.plot(steps, result.per_step, line, color=colour, label=label, linewidth=2)
        panel.set_title(f"{name} ({title})", fontsize=10)
        panel.set_xlabel("step of the session")
        panel.set_xticks(range(4, 21, 4))
        panel.set_ylim(0, 1.9)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.75))
    panels[0].set_ylabel("true reward")
    FigureCanvasAgg(figure)
    figure.savefig(str(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs" / "world.png")
