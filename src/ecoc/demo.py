"""The demo: generate a world, prepare its log, learn two policies from it, and show what its truth says of them."""

import shutil
import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from ecoc.data.describe import page, summary
from ecoc.data.prepare import prepare
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.compare import compare
from ecoc.evaluation.evaluate import evaluate as evaluate_run
from ecoc.model import Model, load
from ecoc.ope.results import RolloutConfig
from ecoc.ope.simulate import simulate
from ecoc.ope.truth import open_market, true_reward
from ecoc.progress import ProgressCallback
from ecoc.reporting.sections.demo import truth_table, weights_table, write_report
from ecoc.reporting.tables import text
from ecoc.reporting.text import ranking_text, rollout_text
from ecoc.runs.folder import is_run
from ecoc.training.train import train
from ecoc.world import POLICIES, Market, evaluate

_EPOCHS = 8
_TAU = 0.02
_MARK = "made by ecoc demo"
_WEIGHTS = (0.0, 2.0, 5.0, 10.0, 20.0, 50.0)
_CURVE_USERS = 1000
_SIMULATED = RolloutConfig(users=300, most_events=40_000)
_QUICK = RolloutConfig(users=100, most_events=20_000)

_ABOUT = {
    "random": "any item not yet shown",
    "popular": "the same order for everyone",
    "logged": "the policy that wrote the log",
    "supervised": "predicts what the log does next, averaged weights",
    "ecoc": "the same, and its critic's view of the future",
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
    progress: ProgressCallback | None = None,
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
    say("3. Two policies learn from this log, with the same encoder and the same steps. Ranking what users did next:\n")
    models = _trained(data, folder, seed, threads or 1, progress)
    compared = compare([*models.values()], data, progress=progress)
    say(ranking_text(compared) + "\n")
    say("4. What policies really earn per step, because the truth of this world is known:\n")
    market = open_market(data)
    users = 1000 if quick else 4000
    results = {
        kind: true_reward(models[kind], market, users, seed=seed)
        if kind in models
        else evaluate(market, POLICIES[kind](market), users, seed=seed)
        for kind in _ABOUT
    }
    say(text(truth_table(results, _ABOUT)))
    gain = results["ecoc"].reward / results["supervised"].reward
    say(f"\n  ECoC earns {gain:.2f} times what the supervised policy earns, from the same log.\n")
    say("5. The weight w of the long-term value is one number, which can change after training. Its effect:\n")
    curve = _curve(models["ecoc"], data, market, seed)
    say(text(weights_table(curve)))
    say("\n6. Without the truth, only the log remains. What the same policies earn by simulators of its users:\n")
    config = _QUICK if quick else _SIMULATED
    simulated = simulate([*models.values()], data, config=config, cloned=False, progress=progress)
    say(rollout_text(simulated))
    place = write_report(
        folder,
        data,
        name,
        seed,
        earned=results,
        about=_ABOUT,
        compared=compared,
        curve=curve,
        simulated=simulated,
        gain=gain,
    )
    say(f"\n7. All of this as a page, to look at and to pass around: {place}")
    example = data.sequence(0).items[0]
    say(f"\n  Go on: ecoc recommend {folder / 'ecoc'} --history {example} -k 5")
    say(f"         ecoc simulate {folder / 'ecoc'} --choose-w")
    return {
        "data": facts,
        "metrics": compared.model_dump(),
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
        "curve": curve,
        "simulated": simulated.model_dump(),
        "report": place,
        "seconds": time.perf_counter() - started,
    }


def _trained(
    data: Dataset, folder: Path, seed: int, threads: int, progress: ProgressCallback | None
) -> dict[str, Model]:
    """The supervised policy with averaged weights, and ECoC on the same encoder and schedule."""
    common = {"max_epochs": _EPOCHS, "patience": 0, "seed": seed, "threads": threads}
    for method, extra in (("supervised", {"ema": _TAU}), ("ecoc", {})):
        run = _fresh(folder / method)
        train(data, run, method=method, config={"train": {**common, **extra}}, progress=progress)
        (run / _MARK).touch()
    return {method: load(folder / method) for method in ("supervised", "ecoc")}


def _curve(model: Model, data: Dataset, market: Market, seed: int) -> list[dict[str, float]]:
    """True reward, ranking quality and breadth of the blend over its weight."""
    points = []
    for w in _WEIGHTS:
        view = model.ranked_by("blend", w=w)
        earned = true_reward(view, market, _CURVE_USERS, seed=seed)
        ranked = evaluate_run(view, data, untrained=False, max_cases=_CURVE_USERS, save=False)
        points.append(
            {
                "w": w,
                "true_reward": earned.reward,
                "ndcg@10": ranked.metrics["ndcg@10"],
                "items_shown": earned.coverage,
            }
        )
    return points


def _fresh(path: Path) -> Path:
    """A place for a run; the one of an earlier demo makes room, anyone else's does not."""
    if is_run(path):
        if not (path / _MARK).is_file():
            raise InputError(f"{path}: a run that no demo made is there; choose another folder with -o")
        shutil.rmtree(path)
    return path


def _session(data: Any) -> str:
    sequence = data.sequence(0)
    lines = []
    for item, feedback in list(zip(sequence.items, sequence.feedback, strict=True))[:8]:
        known = data.item(item)
        lines.append(f"  {sequence.user}  {feedback:<10} {known.title} ({known.category}, {known.price:.2f})")
    return "\n".join([*lines, f"  … {len(sequence)} events in all"])
