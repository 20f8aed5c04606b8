"""True reward per step of the reference policies in the built-in worlds, as a Markdown table.

python benchmarks/world.py [--users 4000] [--seeds 3]
"""

import argparse

from ecoc.world import POLICIES, Market, evaluate, parse_world

WORLDS = ("world:bait", "world:satiation")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print("| world, seed | " + " | ".join(POLICIES) + " |")
    print("| --- |" + " --- |" * len(POLICIES))
    for world in WORLDS:
        for seed in range(options.seeds):
            market = Market(parse_world(world, seed=seed))
            found = [evaluate(market, policy(market), options.users) for policy in POLICIES.values()]
            cells = [f"{result.reward:.3f} ± {result.reward - result.low:.3f}" for result in found]
            print(f"| `{world}`, {seed} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
