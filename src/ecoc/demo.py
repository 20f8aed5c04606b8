"""The demo: generate a world, prepare its log, train two policies on it, and show their true rewards."""

import logging
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from pydantic import Field

from ecoc.arguments import StrPath
from ecoc.data.describe import page, summary
from ecoc.data.prepare import prepare
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.compare import compare
from ecoc.evaluation.evaluate import evaluate as evaluate_run
from ecoc.evaluation.results import Comparison
from ecoc.model import Model, load
from ecoc.ope.results import RolloutConfig, SimulationResult
from ecoc.ope.simulate import simulate
from ecoc.ope.truth import open_market, true_reward
from ecoc.progress import ProgressCallback
from ecoc.reporting.sections.demo import ABOUT, truth_table, weights_table, write_report
from ecoc.reporting.tables import text
from ecoc.reporting.text import ranking_text, rollout_text
from ecoc.result import Result, attributes
from ecoc.runs.folder import is_run
from ecoc.serving.export import export
from ecoc.training.train import train
from ecoc.world import POLICIES, Market, evaluate

_LOG = logging.getLogger("ecoc.demo")
_EPOCHS = 8
_TAU = 0.02
_MARK = "made by ecoc demo"
_WEIGHTS = (0.0, 2.0, 5.0, 10.0, 20.0, 50.0)
_CURVE_USERS = 1000
_SIMULATED = RolloutConfig(users=300, most_events=40_000)
_QUICK = RolloutConfig(users=100, most_events=20_000)


class PolicyReward(Result):
    """True reward per step of a policy, with its 95 % interval."""

    name: str
    true_reward: float
    low: float
    high: float
    coverage: int = Field(description="distinct items shown")
    tempting: float = Field(description="share of bait or heavy items among those shown")


class DemoResult(Result):
    """Everything that the demo computed."""

    data: dict[str, Any] = Field(description="summary of the dataset, as JSON")
    metrics: Comparison
    policies: list[PolicyReward]
    curve: list[dict[str, float]] = Field(description="true reward, NDCG@10 and items shown by weight w")
    simulated: SimulationResult
    report: str
    model: str = Field(description="bundle of ECoC, to be served")
    seconds: float


def demo(
    out: StrPath,
    *,
    quick: bool = False,
    world: str = "world:default",
    seed: int = 0,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> DemoResult:
    """Run the demo into folder `out`; the logger `ecoc.demo` gets its text paragraph by paragraph."""
    started = time.perf_counter()
    name = "world:small" if quick and world == "world:default" else world
    folder = Path(out)
    _LOG.info(
        f"1. A world with a known truth: {name}, seed {seed}."
        f" Its log becomes a prepared dataset in {folder / 'data'}.\n"
    )
    data = prepare(name, folder / "data", seed=seed, threads=threads, overwrite=True, progress=progress)
    description = summary(data)
    _LOG.info(page(description) + "\n")
    _LOG.info("2. A user of this world in the log:\n")
    _LOG.info(_session(data) + "\n")
    _LOG.info("3. Two policies learn from this log, with the same encoder and steps. How they rank the next items:\n")
    models = _trained(data, folder, seed, threads or 1, progress)
    compared = compare([*models.values()], data, progress=progress)
    _LOG.info(ranking_text(compared) + "\n")
    _LOG.info("4. The true reward per step of policies, which is known in this world:\n")
    market = open_market(data)
    users = 1000 if quick else 4000
    results = {
        kind: true_reward(models[kind], market, users, seed=seed)
        if kind in models
        else evaluate(market, POLICIES[kind](market), users, seed=seed)
        for kind in ABOUT
    }
    _LOG.info(text(truth_table(results)))
    gain = results["ecoc"].reward / results["supervised"].reward
    _LOG.info(f"\n  ECoC earns {gain:.2f} times as much as the supervised policy, from the same log.\n")
    _LOG.info("5. The weight w of the long-term value can be changed after training. Its effect:\n")
    curve = _curve(models["ecoc"], data, market, seed)
    _LOG.info(text(weights_table(curve)))
    _LOG.info("\n6. Without the truth, rewards are estimated from the log alone, by simulators of its users:\n")
    config = _QUICK if quick else _SIMULATED
    simulated = simulate([*models.values()], data, config=config, cloned=False, progress=progress)
    _LOG.info(rollout_text(simulated))
    place = write_report(folder, data, name, seed, earned=results, compared=compared, curve=curve, simulated=simulated)
    _LOG.info(f"\n7. All of this as a page: {place}")
    bundle = folder / "model"
    export(folder / "ecoc", bundle, overwrite=bundle.exists())
    _LOG.info(f"\n8. ECoC as a bundle, ready to be served: {bundle}")
    example, ecoc = data.sequence(0).items[0], _command()
    _LOG.info("")
    for lead, command in (
        ("Next:", f"recommend {_quoted(folder / 'ecoc')} --history {example} -k 5"),
        ("", f"simulate {_quoted(folder / 'ecoc')} --choose-w"),
        ("", f"serve {_quoted(bundle)}    # then open http://127.0.0.1:8000/"),
    ):
        _LOG.info(f"{'':2}{lead:6}{ecoc} {command}")
    return DemoResult(
        data=description,
        metrics=compared,
        policies=[
            PolicyReward(
                name=kind, true_reward=result.reward, **attributes(result, "low", "high", "coverage", "tempting")
            )
            for kind, result in results.items()
        ],
        curve=curve,
        simulated=simulated,
        report=place,
        model=str(bundle),
        seconds=time.perf_counter() - started,
    )


def _trained(
    data: Dataset, folder: Path, seed: int, threads: int, progress: ProgressCallback | None
) -> dict[str, Model]:
    """The supervised policy with averaged weights, and ECoC on the same encoder and schedule; both without counts."""
    common = {"max_epochs": _EPOCHS, "patience": 0, "counts": "off", "seed": seed, "threads": threads}
    for method, extra in (("supervised", {"ema": _TAU}), ("ecoc", {})):
        run = _cleared(folder / method)
        train(data, run, method=method, config={"train": {**common, **extra}}, progress=progress)
        (run / _MARK).touch()
    return {method: load(folder / method) for method in ("supervised", "ecoc")}


def _curve(model: Model, data: Dataset, market: Market, seed: int) -> list[dict[str, float]]:
    """True reward, ranking quality and items shown by weight w of the long-term value."""
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


def _command() -> str:
    """How the user starts ecoc: by its name if a shell finds this one, else by its path."""
    own, known = Path(sys.executable).parent / "ecoc", shutil.which("ecoc")
    if not own.is_file() or (known is not None and Path(known).samefile(own)):
        return "ecoc"
    return _quoted(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _cleared(path: Path) -> Path:
    """Folder for a run; the run of an earlier demo is removed, any other is kept and refused."""
    if is_run(path):
        if not (path / _MARK).is_file():
            raise InputError(f"{path}: holds a run that the demo did not make; choose another folder with -o")
        shutil.rmtree(path)
    return path


def _session(data: Any) -> str:
    sequence = data.sequence(0)
    lines = []
    for item, feedback in list(zip(sequence.items, sequence.feedback, strict=True))[:8]:
        known = data.item(item)
        lines.append(f"  {sequence.user}  {feedback:<10} {known.title} ({known.category}, {known.price:.2f})")
    return "\n".join([*lines, f"  … {len(sequence)} events in total"])
