"""What every experiment has at hand: data, plan, runs that are trained once and shared, and how they are judged."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecoc.data.sequences import Dataset
from ecoc.errors import ArtifactError, InputError
from ecoc.evaluation.evaluator import Options, RankingEvaluator, RankingResult
from ecoc.evaluation.metrics import KS
from ecoc.evaluation.ranks import is_seen
from ecoc.experiment.cost import StepCost, measure
from ecoc.experiment.jobs import Arrays, Cell, JobResult, Store
from ecoc.experiment.plan import Plan
from ecoc.experiment.variants import VALIDATIONS, Variant, settings
from ecoc.methods import METHODS
from ecoc.model import Model, load
from ecoc.ope.evaluator import synthetic_negatives
from ecoc.ope.truth import open_market, true_reward
from ecoc.progress import ProgressCallback
from ecoc.reporting.document import Section
from ecoc.runs.config import RunConfig
from ecoc.runs.folder import RESULT
from ecoc.storage.atomic import json_bytes, write_whole
from ecoc.training.train import train
from ecoc.world import Market

RUNS = "runs"
TRUTH_USERS = 2000  # of a built-in world, whom a policy meets
_FIXED_SECONDS = 0.5  # of a cell, besides what is timed: opening, saving, loading
_JUDGING = 3.0  # judging a case costs so many times the ranking of one: lists are looked at too, and caches are cold
_TRUTH_DECISIONS = 20


@dataclass(frozen=True)
class Request:
    """What a call asks for; a plan is kept for it."""

    experiment: str
    methods: tuple[str, ...] | None
    encoders: tuple[str, ...] | None
    seeds: int
    steps: int | None
    budget: float | None
    max_cases: int
    seed: int
    exclude_seen: bool = False

    def values(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


@dataclass(frozen=True)
class RunSpec:
    """A run that experiments share: the same variant, encoder, seed and steps are trained once."""

    variant: Variant
    encoder: str
    seed: int
    steps: int
    config: RunConfig

    @property
    def name(self) -> str:
        """Of its folder and its cells."""
        return f"{self.encoder}/{self.variant.name}/{self.steps}-steps/seed-{self.seed}"


@dataclass(frozen=True)
class Context:
    """One call of `reproduce`."""

    data: Dataset
    out: Path
    store: Store
    asked: Request
    plan: Plan
    threads: int = 1
    title: str = ""  # what tables call the data
    paces: dict[tuple[str, str], StepCost] = field(default_factory=dict)

    @property
    def seeds(self) -> range:
        """The seeds of this plan."""
        return range(self.asked.seed, self.asked.seed + self.plan.seeds)

    def encoders(self, usual: Sequence[str]) -> Sequence[str]:
        """The encoders asked for, or an experiment's usual ones."""
        return self.asked.encoders or usual

    @cached_property
    def bench(self) -> RankingEvaluator:
        """The test cases everyone is judged on."""
        return RankingEvaluator(self.data, self.options)

    @property
    def options(self) -> Options:
        """Which cases those are."""
        probe = self.config(_PROBE, "sasrec", self.asked.seed)
        return Options(
            max_cases=self.asked.max_cases,
            exclude_seen=self.asked.exclude_seen,
            min_history=probe.train.min_history,
            seed=self.asked.seed,
        )

    def _judging(self, kind: str) -> str:
        """Cells of both ways to rank live side by side, and share their runs."""
        return f"{kind}-exclude-seen" if self.asked.exclude_seen else kind

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """Whether each case's item occurred before in its sequence."""
        return is_seen(self.data, self.bench.cases)

    @cached_property
    def synthetic_negatives(self) -> int:
        """How many refusals simulators of the data make up for each event."""
        return synthetic_negatives(self.data)

    @cached_property
    def market(self) -> Market | None:
        """The built-in world the data are from, if they are."""
        return open_market(self.data) if "world" in self.data.manifest.settings else None

    @property
    def known_market(self) -> Market:
        """The built-in world the data must be from."""
        if self.market is None:
            raise InputError(f"{self.data.path}: no log of a built-in world, so its truth is not known")
        return self.market

    def config(self, variant: Variant, encoder: str, seed: int) -> RunConfig:
        """What a run of this plan is trained with."""
        return settings(variant, encoder, self.data, steps=self.plan.steps, seed=seed, threads=self.threads)

    def run(self, variant: Variant, encoder: str, seed: int) -> RunSpec:
        """A run of this plan."""
        return RunSpec(variant, encoder, seed, self.plan.steps, self.config(variant, encoder, seed))

    def folder(self, spec: RunSpec) -> Path:
        """Where a run is."""
        return self.out / RUNS / spec.name

    def model(self, spec: RunSpec, watch: ProgressCallback) -> Model:
        """The model of a run, trained now if it is not yet; a damaged run is trained again."""
        try:
            return self._model(spec, watch)
        except ArtifactError:
            shutil.rmtree(self.folder(spec))
            return self._model(spec, watch)

    def _model(self, spec: RunSpec, watch: ProgressCallback) -> Model:
        path = self.folder(spec)
        probe = Cell(spec.name, _no_work, lambda: {"config": self.depends(spec)["config"]})
        mark, wanted = path.with_name(f"{path.name}.json"), json_bytes({"fingerprint": self.store.fingerprint(probe)})
        if path.exists() and not mark.is_file():
            raise InputError(f"{path}: a run that ecoc reproduce did not make is there; choose another folder with -o")
        if not mark.is_file() or mark.read_bytes() != wanted:  # made by other settings, other data or another version
            if path.exists():
                shutil.rmtree(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(mark, [wanted])
        train(self.data, path, config=spec.config.values(), resume=path.exists(), progress=watch)
        return load(path)

    def views(self, spec: RunSpec, watch: ProgressCallback) -> dict[str, Model]:
        """The model of a run in each of the ways it is judged."""
        model = self.model(spec, watch)
        return {
            title: model if how is None or not model.policy.has_critic else model.ranked_by(how)
            for title, how in spec.variant.views.items()
        }

    # -- cells that several experiments have in common

    def run_cell(self, variant: Variant, encoder: str, seed: int, *, rank: int = 0) -> Cell:
        """Train, and rank the test cases in every view."""
        spec = self.run(variant, encoder, seed)
        return Cell(
            f"{self._judging('run')}/{spec.name}",
            lambda watch: self._judged(spec, watch),
            lambda: self.depends(spec) | {"options": asdict(self.options)},
            seconds=self._seconds(spec),
            rank=rank,
            method=variant.name,
            encoder=encoder if variant.has_encoder else "",
            seed=seed,
            paced=(variant.paced_as or variant.name, encoder),
        )

    def run_cells(self, variants: Iterable[Variant], encoders: Sequence[str]) -> list[Cell]:
        """Every variant with every encoder and seed; what uses no encoder once a seed."""
        return [
            self.run_cell(variant, encoder, seed)
            for variant in variants
            for encoder in (encoders if variant.has_encoder else encoders[:1])
            for seed in self.seeds
        ]

    def truth_cell(self, variant: Variant, encoder: str, seed: int, *, rank: int = 0) -> Cell:
        """What a run really earns in its world, in every view."""
        spec = self.run(variant, encoder, seed)
        pace = self._pace(variant, encoder)
        decisions = TRUTH_USERS * _TRUTH_DECISIONS * len(variant.views)
        return Cell(
            f"truth/{spec.name}",
            lambda watch: self._earned(spec, watch),
            lambda: self.depends(spec) | {"users": TRUTH_USERS},
            seconds=_FIXED_SECONDS + (decisions * pace.case if pace else 0.0),
            stage=1,
            rank=rank,
            method=variant.name,
            encoder=encoder,
            seed=seed,
        )

    def untrained_cell(self) -> Cell:
        """The methods that need no training."""
        length = self.config(_PROBE, "sasrec", self.asked.seed).encoder.length

        def work(watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
            found = self.bench.untrained(length, watch)
            return {"views": {one.name: self._facts(one) for one in found}}, self._ranks(
                {one.name: one for one in found}
            )

        return Cell(
            f"{self._judging('untrained')}/length-{length}",
            work,
            lambda: {"options": asdict(self.options), "length": length},
            seconds=_FIXED_SECONDS,
            method="untrained",
        )

    def pace_cell(self, variant: Variant, encoder: str) -> Cell:
        """What a training step costs."""
        config = self.config(variant, encoder, self.asked.seed)
        values = config.values()
        values["train"] = {
            key: value for key, value in values["train"].items() if key not in ("max_steps", "validate_every")
        }

        def work(watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
            return measure(self.data, config, watch).values(), {}

        return Cell(f"pace/{encoder}/{variant.name}", work, lambda: values, method=variant.name, encoder=encoder)

    def depends(self, spec: RunSpec) -> dict[str, Any]:
        """What the results of a run depend on, as JSON takes it."""
        values = spec.config.values()
        values["train"].pop("threads")
        return {"config": values, "views": dict(spec.variant.views)}

    def _pace(self, variant: Variant, encoder: str) -> StepCost | None:
        """To estimate by: its own, or the slowest there is."""
        slowest = max(self.paces.values(), key=lambda pace: pace.wall, default=None)
        return self.paces.get((variant.paced_as or variant.name, encoder), slowest)

    def _seconds(self, spec: RunSpec) -> float:
        """Estimate of training, if that is still to do, and judging."""
        pace = self._pace(spec.variant, spec.encoder)
        if pace is None:
            return 0.0
        averages = 2 if spec.config.train.ema or spec.variant.method == "ecoc" else 1
        ranked = VALIDATIONS * averages * spec.config.train.validation_cases
        cases = min(self.asked.max_cases or self.data.counts.test_targets, self.data.counts.test_targets)
        judged = _JUDGING * cases * len(spec.variant.views)
        trained = pace.start + spec.steps * pace.wall + ranked * pace.case
        return _FIXED_SECONDS + judged * pace.case + (0.0 if (self.folder(spec) / RESULT).is_file() else trained)

    def _judged(self, spec: RunSpec, watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
        models = self.views(spec, watch)
        judged = {title: self.bench.evaluate(title, model.policy, watch) for title, model in models.items()}
        result = next(iter(models.values())).run.result.values()
        kept = ("epochs", "steps", "best_epoch", "best_weights", "validation", "parameters", "weights_sha256")
        facts = {key: result.get(key) for key in kept}
        return facts | {"views": {title: self._facts(one) for title, one in judged.items()}}, self._ranks(judged)

    def _facts(self, judged: RankingResult) -> dict[str, Any]:
        parts = {"seen": self.seen, "new": ~self.seen}
        return {
            "metrics": judged.means(),
            **{name: judged.means(chosen) if chosen.any() else None for name, chosen in parts.items()},
            **judged.lists.model_dump(),
        }

    def _ranks(self, judged: Mapping[str, RankingResult]) -> Arrays:
        beyond = max(self.data.counts.items, *KS) + 1.0  # infinite: a miss too
        return {title: np.minimum(one.ranks, beyond) for title, one in judged.items()}

    def _earned(self, spec: RunSpec, watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
        facts: dict[str, Any] = {}
        arrays: dict[str, NDArray[Any]] = {}
        for title, model in self.views(spec, watch).items():
            found = true_reward(model, self.known_market, TRUTH_USERS, seed=self.asked.seed)
            facts[title] = {
                "reward": found.reward,
                "low": found.low,
                "high": found.high,
                "coverage": found.coverage,
                "tempting": found.tempting,
            }
            arrays[title] = found.per_user
        return {"views": facts}, arrays


_PROBE = Variant("probe", next(name for name in METHODS if METHODS[name].is_trained))


def _no_work(watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
    return {}, {}


@dataclass(frozen=True)
class Experiment:
    """One of the paper's: which cells it needs under a plan, and what it tells of their results."""

    name: str
    title: str
    cells: Callable[[Context], list[Cell]]
    section: Callable[[Context, Mapping[str, JobResult]], Section]
    needs_world: bool = False
