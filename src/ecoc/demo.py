"""The demo: generate a world, prepare its log, train on it, and show what its known truth says of simple policies."""

import shutil
import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from ecoc.data.describe import page, summary
from ecoc.data.prepare import prepare
from ecoc.evaluation.evaluate import evaluate as evaluate_run
from ecoc.pages import evaluate_page
from ecoc.run import is_run
from ecoc.training.start import train
from ecoc.watch import Watcher
from ecoc.world import POLICIES, Market, MarketConfig, evaluate

_EPOCHS = 12

_ABOUT = {
    "random": "any item not yet shown",
    "popular": "the same order for everyone",
    "logged": "the policy that wrote the log",
    "myopic": "oracle: the best item for this step alone",
    "far_sighted": "oracle: minds what an item does to later steps",
}


def demo(
    out: str | PathLike[str],
    *,
    quick: bool = False,
    world: str = "world:default",
    seed: int = 0,
    threads: int | None = None,
    say: Callable[[str], None] = lambda text: None,
    progress: Watcher | None = None,
) -> dict[str, Any]:
    """Run the demo into folder `out`; `say` is given each paragraph as it becomes known."""
    started = time.perf_counter()
    name = "world:small" if quick and world == "world:default" else world
    folder = Path(out)
    say(
        f"1. A world with a known truth: {name}, seed {seed}."
        f" Its log becomes a prepared dataset in {folder / 'data'}.\n"
    )
    data = prepare(name, folder / "data", seed=seed, threads=threads, overwrite=True, progress=progress)
    facts = summary(data)
    say(page(facts) + "\n")
    say("2. A user of this world, as the log has it:\n")
    say(_session(data) + "\n")
    say("3. SASRec, trained to predict the next item, ranks what users of the test split really did next:\n")
    run = _fresh(folder / "sasrec")
    train(
        data, run, settings={"train": {"max_epochs": _EPOCHS, "seed": seed, "threads": threads or 1}}, progress=progress
    )
    judged = evaluate_run(run, data, progress=progress)
    say(evaluate_page(judged) + "\n")
    say("4. What policies really earn a step in this world, because its truth is known (95 % intervals over users):\n")
    market = Market(MarketConfig.build(data.manifest.settings["world"]))  # type: ignore[arg-type]
    users = 1000 if quick else 4000
    results = {kind: evaluate(market, POLICIES[kind](market), users, seed=seed) for kind in _ABOUT}
    say(_table(results))
    say(f"\n  Go on: ecoc recommend {run} --history {data.sequence(0).items[0]} -k 5")
    return {
        "data": facts,
        "metrics": judged,
        "policies": [
            {
                "name": kind,
                "true_reward": result.reward,
                "low": result.low,
                "high": result.high,
                "coverage": result.coverage,
                "tempting": result.tempting,
            }
            for kind, result in results.items()
        ],
        "seconds": time.perf_counter() - started,
    }


def _fresh(path: Path) -> Path:
    """A place for a run; the one of an earlier demo makes room."""
    if is_run(path):
        shutil.rmtree(path)
    return path


def _session(data: Any) -> str:
    sequence = data.sequence(0)
    lines = []
    for item, feedback in list(zip(sequence.items, sequence.feedback, strict=True))[:8]:
        known = data.item(item)
        lines.append(f"  {sequence.user}  {feedback:<10} {known.title} ({known.category}, {known.price:.2f})")
    return "\n".join([*lines, f"  … {len(sequence)} events in all"])


def _table(results: dict[str, Any]) -> str:
    lines = [f"  {'policy':<12}{'reward a step':>15}{'interval':>18}{'items shown':>13}{'tempting':>10}   what it does"]
    for kind, result in results.items():
        interval = f"{result.low:.3f} to {result.high:.3f}"
        lines.append(
            f"  {kind:<12}{result.reward:>15.3f}{interval:>18}{result.coverage:>13,}{result.tempting:>10.0%}"
            f"   {_ABOUT[kind]}"
        )
    gap = results["far_sighted"].reward / results["myopic"].reward
    lines += [
        "",
        f"  Minding the future earns {gap:.2f} times what greed earns. The log alone must teach that to a policy.",
    ]
    return "\n".join(lines)
