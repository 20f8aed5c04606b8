"""What every experiment uses: the data, the plan, runs that are trained once and shared, and their evaluation."""

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
from ecoc.experiment.jobs import Arrays, Job, JobStore, Results
from ecoc.experiment.plan import Plan
from ecoc.experiment.recorded import recorded, step_settings
from ecoc.experiment.results import EarnedViews, RankedViews, RunOutcome, TrueReward, ViewQuality
from ecoc.experiment.variants import BATCH_TARGETS, VALIDATIONS, Length, Variant, preset_of, settings
from ecoc.methods import METHODS
from ecoc.model import Model, load
from ecoc.ope.evaluator import synthetic_negatives
from ecoc.ope.truth import open_market, true_reward
from ecoc.progress import ProgressCallback
from ecoc.reporting.document import Section
from ecoc.runs.config import RunConfig, open_preset
from ecoc.runs.folder import RESULT
from ecoc.storage.atomic import json_bytes, write_whole
from ecoc.storage.trusted import read_bytes
from ecoc.training.cost import StepCost, measure
from ecoc.training.train import train
from ecoc.world import Market

RUNS = "runs"
TRUTH_USERS = 2000  # users of a built-in world that a policy meets
_FIXED_SECONDS = 0.5  # per job, for opening, saving and loading
_LARGEST_MARK = 1 << 16  # bytes
_EVALUATION = 3.0  # evaluating a case costs this many times ranking it: lists are analysed too, and caches are cold
_TRUTH_DECISIONS = 20
_CONVERGED = 12  # validations after which a run is expected to have converged; used for estimates only
_VALIDATED_TARGETS = 200_000  # fewest targets between two validations of runs that end when they have converged


@dataclass(frozen=True)
class Request:
    """The arguments of a call of `reproduce`; its plan is stored under them."""

    experiment: str
    methods: tuple[str, ...] | None
    encoders: tuple[str, ...] | None
    seeds: int
    steps: int | None
    budget: float | None
    max_cases: int
    seed: int
    exclude_seen: bool = False
    until_converged: bool = False
    paper_protocol: bool = False

    def values(self) -> dict[str, Any]:
        """As JSON; flags that version 0.1 did not have are left out where they are off, so that its plans are found."""
        later = ("until_converged", "paper_protocol")
        return {name: value for name, value in asdict(self).items() if value or name not in later}


@dataclass(frozen=True)
class RunSpec:
    """A run that experiments share: one variant, encoder, seed and number of steps is trained once."""

    variant: Variant
    encoder: str
    seed: int
    length: Length
    config: RunConfig

    @property
    def name(self) -> str:
        """Name of its folder and its jobs."""
        length = "until-converged" if self.length.until_converged else f"{self.length.steps}-steps"
        return f"{self.encoder}/{self.variant.name}/{length}/seed-{self.seed}"


@dataclass(frozen=True)
class Context:
    """One call of `reproduce`."""

    data: Dataset
    out: Path
    store: JobStore
    request: Request
    plan: Plan
    threads: int = 1
    title: str = ""  # name of the data in tables
    step_costs: dict[tuple[str, str], StepCost] = field(default_factory=dict)

    @property
    def seeds(self) -> range:
        """The seeds of this plan."""
        return range(self.request.seed, self.request.seed + self.plan.seeds)

    def encoders(self, default: Sequence[str]) -> Sequence[str]:
        """The requested encoders, or the default ones of an experiment."""
        return self.request.encoders or default

    @cached_property
    def evaluator(self) -> RankingEvaluator:
        """Ranks the test cases, the same for all methods."""
        return RankingEvaluator(self.data, self.options)

    @property
    def min_history(self) -> int:
        """Events before a target, in training, validation and test: the paper's on its data and in its protocol."""
        preset = preset_of(self.data) or ("paper" if self.request.paper_protocol else None)
        if preset is None:
            return 1
        return int(open_preset(preset, encoder="sasrec", method="ecoc")["train"]["min_history"])

    @property
    def length(self) -> Length:
        """How long runs train."""
        if not self.request.until_converged:
            return Length(self.plan.steps)
        return Length(self.plan.steps, until_converged=True, validate_every=validation_steps(self.data))

    @property
    def options(self) -> Options:
        """Which test cases are ranked, and how."""
        return Options(
            max_cases=self.request.max_cases,
            exclude_seen=self.request.exclude_seen,
            min_history=self.min_history,
            seed=self.request.seed,
        )

    def _named(self, kind: str) -> str:
        """With `exclude_seen` jobs have other names, so that both kinds can be in one folder and share their runs."""
        return f"{kind}-exclude-seen" if self.request.exclude_seen else kind

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """Whether the item of each case occurred before in its sequence."""
        return is_seen(self.data, self.evaluator.cases)

    @cached_property
    def synthetic_negatives(self) -> int:
        """Number of random items per event that stand for refusals when a simulator is fitted."""
        return synthetic_negatives(self.data)

    @cached_property
    def market(self) -> Market | None:
        """The built-in world that the data are from, or None."""
        return open_market(self.data) if "world" in self.data.manifest.settings else None

    @property
    def known_market(self) -> Market:
        """The built-in world that the data are from; other data are refused."""
        if self.market is None:
            raise InputError(f"{self.data.path}: not the log of a built-in world, so the true rewards are unknown")
        return self.market

    def config(self, variant: Variant, encoder: str, seed: int) -> RunConfig:
        """Settings of a run under this plan."""
        return settings(
            variant,
            encoder,
            self.data,
            length=self.length,
            min_history=self.min_history,
            seed=seed,
            threads=self.threads,
        )

    def run(self, variant: Variant, encoder: str, seed: int) -> RunSpec:
        """A run under this plan."""
        return RunSpec(variant, encoder, seed, self.length, self.config(variant, encoder, seed))

    def folder(self, spec: RunSpec) -> Path:
        """Folder of a run."""
        return self.out / RUNS / spec.name

    def model(self, spec: RunSpec, progress: ProgressCallback) -> Model:
        """The model of a run, which is trained first if needed; a damaged run is trained again."""
        try:
            return self._model(spec, progress)
        except ArtifactError:
            shutil.rmtree(self.folder(spec))
            return self._model(spec, progress)

    def _model(self, spec: RunSpec, progress: ProgressCallback) -> Model:
        path = self.folder(spec)
        fingerprint = self.store.fingerprint(spec.name, {"config": self.depends(spec)["config"]})
        mark, expected = path.with_name(f"{path.name}.json"), json_bytes({"fingerprint": fingerprint})
        if path.exists() and not mark.is_file():
            raise InputError(f"{path}: a run that ecoc reproduce did not make; choose another folder with -o")
        if (
            not mark.is_file() or read_bytes(mark, largest=_LARGEST_MARK) != expected
        ):  # from other settings, other data or another version
            if path.exists():
                shutil.rmtree(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(mark, [expected])
        train(self.data, path, config=spec.config.values(), resume=path.exists(), progress=progress)
        return load(path)

    def views(self, spec: RunSpec, progress: ProgressCallback) -> dict[str, Model]:
        """The model of a run in each of its ranking modes, by title."""
        model = self.model(spec, progress)
        return {
            title: model if mode is None or not model.policy.has_critic else model.ranked_by(mode)
            for title, mode in spec.variant.views.items()
        }

    # -- jobs that several experiments have in common

    def run_job(self, variant: Variant, encoder: str, seed: int, *, priority: int = 0) -> Job[RunOutcome]:
        """Train a run and rank the test cases in every view."""
        spec = self.run(variant, encoder, seed)
        return Job(
            f"{self._named('run')}/{spec.name}",
            RunOutcome,
            lambda progress: self._evaluate(spec, progress),
            lambda: self.depends(spec) | {"options": asdict(self.options)},
            seconds=self._seconds(spec),
            priority=priority,
            method=variant.name,
            encoder=encoder if variant.has_encoder else "",
            seed=seed,
            timed_as=(variant.timed_as or variant.name, encoder),
        )

    def run_jobs(self, variants: Iterable[Variant], encoders: Sequence[str]) -> list[Job[RunOutcome]]:
        """Every variant with every encoder and seed; a variant without encoder once per seed."""
        return [
            self.run_job(variant, encoder, seed)
            for variant in variants
            for encoder in (encoders if variant.has_encoder else encoders[:1])
            for seed in self.seeds
        ]

    def truth_job(self, variant: Variant, encoder: str, seed: int) -> Job[EarnedViews]:
        """True reward of a run in its world, in every view."""
        spec = self.run(variant, encoder, seed)
        cost = self._step_cost(variant, encoder)
        decisions = TRUTH_USERS * _TRUTH_DECISIONS * len(variant.views)
        return Job(
            f"truth/{spec.name}",
            EarnedViews,
            lambda progress: self._earn(spec, progress),
            lambda: self.depends(spec) | {"users": TRUTH_USERS},
            seconds=_FIXED_SECONDS + (decisions * cost.case if cost else 0.0),
            wave=1,
            method=variant.name,
            encoder=encoder,
            seed=seed,
        )

    def untrained_job(self) -> Job[RankedViews]:
        """Rank the test cases with the methods that need no training."""
        length = self.config(_PROBE, "sasrec", self.request.seed).encoder.length

        def work(progress: ProgressCallback) -> tuple[RankedViews, Arrays]:
            ranked = {policy.name: policy for policy in self.evaluator.untrained(length, progress)}
            return RankedViews(views=self._views(ranked)), self._ranks(ranked)

        return Job(
            f"{self._named('untrained')}/length-{length}",
            RankedViews,
            work,
            lambda: {"options": asdict(self.options), "length": length},
            seconds=_FIXED_SECONDS,
            method="untrained",
        )

    def step_cost_job(self, variant: Variant, encoder: str) -> Job[StepCost]:
        """Measure the cost of training steps."""
        config = self.config(variant, encoder, self.request.seed)

        def work(progress: ProgressCallback) -> tuple[StepCost, Arrays]:
            return measure(self.data, config, progress), {}

        return Job(
            f"pace/{encoder}/{variant.name}",
            StepCost,
            work,
            lambda: step_settings(config),
            method=variant.name,
            encoder=encoder,
        )

    def depends(self, spec: RunSpec) -> dict[str, Any]:
        """What the results of a run depend on, as JSON."""
        values = recorded(spec.config)
        values["train"].pop("threads")
        return {"config": values, "views": dict(spec.variant.views)}

    def _step_cost(self, variant: Variant, encoder: str) -> StepCost | None:
        """The measured cost for an estimate, or the largest one if this variant was not measured."""
        slowest = max(self.step_costs.values(), key=lambda cost: cost.wall, default=None)
        return self.step_costs.get((variant.timed_as or variant.name, encoder), slowest)

    def _seconds(self, spec: RunSpec) -> float:
        """Estimated seconds of training, if the run is not trained yet, and evaluation."""
        cost = self._step_cost(spec.variant, spec.encoder)
        if cost is None:
            return 0.0
        train = spec.config.train
        averages = 2 if train.ema or spec.variant.method == "ecoc" else 1
        steps, validations = train.max_steps or 0, VALIDATIONS
        if spec.length.until_converged:
            validations = min(_CONVERGED, round(spec.length.steps / spec.length.validate_every))
            steps = validations * (train.validate_every or 0)
        ranked = validations * averages * train.validation_cases
        cases = min(self.request.max_cases or self.data.counts.test_targets, self.data.counts.test_targets)
        evaluated = _EVALUATION * cases * len(spec.variant.views)
        training = cost.start + steps * cost.wall + ranked * cost.case
        return _FIXED_SECONDS + evaluated * cost.case + (0.0 if (self.folder(spec) / RESULT).is_file() else training)

    def _evaluate(self, spec: RunSpec, progress: ProgressCallback) -> tuple[RunOutcome, Arrays]:
        models = self.views(spec, progress)
        ranked = {title: self.evaluator.evaluate(title, model.policy, progress) for title, model in models.items()}
        result = next(iter(models.values())).run.result
        outcome = RunOutcome(
            epochs=result.epochs,
            steps=result.steps,
            best_epoch=result.best_epoch,
            best_weights=result.best_weights,
            validation=result.validation,
            parameters=result.parameters,
            weights_sha256=result.weights_sha256,
            views=self._views(ranked),
        )
        return outcome, self._ranks(ranked)

    def _views(self, ranked: Mapping[str, RankingResult]) -> dict[str, ViewQuality]:
        return {
            title: ViewQuality(
                metrics=result.means(),
                seen=result.means(self.seen) if self.seen.any() else None,
                new=result.means(~self.seen) if not self.seen.all() else None,
                **result.lists.model_dump(),
            )
            for title, result in ranked.items()
        }

    def _ranks(self, ranked: Mapping[str, RankingResult]) -> Arrays:
        beyond = max(self.data.counts.items, *KS) + 1.0  # stands for an infinite rank, which is a miss too
        return {title: np.minimum(result.ranks, beyond) for title, result in ranked.items()}

    def _earn(self, spec: RunSpec, progress: ProgressCallback) -> tuple[EarnedViews, Arrays]:
        evaluations = {
            title: true_reward(model, self.known_market, TRUTH_USERS, seed=self.request.seed)
            for title, model in self.views(spec, progress).items()
        }
        rewards = EarnedViews(views={title: TrueReward.of(each) for title, each in evaluations.items()})
        return rewards, {title: each.per_user for title, each in evaluations.items()}


def validation_steps(data: Dataset) -> int:
    """Steps of BATCH_TARGETS targets between two validations of runs that train until they have converged.

    One pass over the training transitions, but more on a small log, where a pass is too short to see an improvement.
    """
    transitions = data.counts.train - data.counts.train_sequences
    return round(max(transitions, _VALIDATED_TARGETS) / BATCH_TARGETS)


_PROBE = Variant("probe", next(name for name in METHODS if METHODS[name].is_trained))


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper: the jobs it needs under a plan, and the section made from their results."""

    name: str
    title: str
    jobs: Callable[[Context], list[Job[Any]]]
    section: Callable[[Context, Results], Section]
    needs_world: bool = False
