"""RQ2: reward of policies by off-policy evaluation: roll-outs in fitted simulators, beside the paper's ratio."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.jobs import Arrays, Job, Results
from ecoc.experiment.tables import caveats, described, earned_by, truth_jobs
from ecoc.experiment.variants import BASE, ECOC, Variant, variant_of
from ecoc.model import Model
from ecoc.ope.choose_weight import choose_weight
from ecoc.ope.results import RolloutConfig, SimulationResult, WeightChoice
from ecoc.ope.simulate import simulate
from ecoc.progress import ProgressCallback
from ecoc.reporting.document import Figure, Section, Table
from ecoc.reporting.sections.simulation import CAVEATS, explained, reward_figures, reward_finding, reward_table
from ecoc.reporting.sections.weight_choice import choice_figure

ENCODERS = ("sasrec",)
_METHODS = ("supervised", BASE, "ecoc", "ecoc-paper", "sqn", "sa2c", "prl")
_FIT_SECONDS, _PLAY_SECONDS = 1.4e-4, 2.5  # per answer and simulator; per policy; measured on one slow core


def variants(context: Context) -> list[Variant]:
    """The requested methods, or the default ones."""
    return [variant_of(name) for name in context.request.methods or _METHODS]


def simulate_seconds(context: Context, policies: int, members: int = 3) -> float:
    """Estimated seconds of one call of `simulate`."""
    events = min(context.data.counts.interactions, RolloutConfig().most_events)
    return 2.0 + events * (1 + context.synthetic_negatives) * (members + 0.25) * _FIT_SECONDS + policies * _PLAY_SECONDS


def models_of(
    context: Context, chosen: Sequence[Variant], encoder: str, seed: int, progress: ProgressCallback
) -> list[Model]:
    """Every view of every variant, under its title."""
    return [
        model.called(title)
        for variant in chosen
        for title, model in context.views(context.run(variant, encoder, seed), progress).items()
    ]


def jobs(context: Context) -> list[Job[Any]]:
    """The runs, one simulation per seed (first seed first), and the choice of the weight w."""
    encoders, chosen = context.encoders(ENCODERS), variants(context)
    every: list[Job[Any]] = [*context.run_jobs(chosen, encoders), *truth_jobs(context, chosen, encoders)]
    for encoder in encoders:
        for place, seed in enumerate(context.seeds):
            every.append(_simulated(context, chosen, encoder, seed, priority=2 * (place > 0)))
        if ECOC in chosen:
            every.append(_weight(context, encoder, context.seeds[0]))
    return every


def _simulated(
    context: Context, chosen: Sequence[Variant], encoder: str, seed: int, *, priority: int = 0
) -> Job[SimulationResult]:
    settings = RolloutConfig(seed=seed)

    def work(progress: ProgressCallback) -> tuple[SimulationResult, Arrays]:
        models = models_of(context, chosen, encoder, seed, progress)
        return simulate(models, context.data, config=settings, cloned=False, save=False, progress=progress), {}

    return Job(
        f"simulate/{encoder}/{context.plan.steps}-steps/seed-{seed}",
        SimulationResult,
        work,
        lambda: {"runs": _configs(context, chosen, encoder, seed), "settings": asdict(settings)},
        seconds=simulate_seconds(context, len(chosen) + 5),
        wave=1,
        priority=priority,
        method="simulate",
        encoder=encoder,
        seed=seed,
    )


def _weight(context: Context, encoder: str, seed: int) -> Job[WeightChoice]:
    settings = RolloutConfig(seed=seed)

    def work(progress: ProgressCallback) -> tuple[WeightChoice, Arrays]:
        model = context.model(context.run(ECOC, encoder, seed), progress)
        return choose_weight(model, context.data, config=settings, save=False, progress=progress), {}

    return Job(
        f"choose-w/{encoder}/{context.plan.steps}-steps/seed-{seed}",
        WeightChoice,
        work,
        lambda: {"runs": _configs(context, [ECOC], encoder, seed), "settings": asdict(settings)},
        seconds=simulate_seconds(context, 8),
        wave=1,
        method="choose-w",
        encoder=encoder,
        seed=seed,
    )


def _configs(context: Context, chosen: Sequence[Variant], encoder: str, seed: int) -> list[dict[str, Any]]:
    return [context.depends(context.run(variant, encoder, seed)) for variant in chosen]


def section(context: Context, results: Results) -> Section:
    """A table and bars per encoder, and the choice of the weight."""
    chosen, tables, figures, text = variants(context), list[Table](), list[Figure](), [described(context)]
    findings = []
    for encoder in context.encoders(ENCODERS):
        values = [results.value(_simulated(context, chosen, encoder, seed)) for seed in context.seeds]
        simulations = [value for value in values if value is not None]
        if not simulations:
            continue
        earned = {title: values for (_, title), values in earned_by(context, results, chosen, [encoder]).items()}
        name, title = f"reward-{encoder}", f"Off-policy evaluation on {context.title}, {encoder}"
        tables.append(reward_table(simulations, earned, name=name, title=title))
        figures += reward_figures(simulations, name=name, title=f", {encoder}")
        findings.append(reward_finding(simulations, f"Reward, {encoder}"))
        text += explained(simulations[0])
        choice = results.value(_weight(context, encoder, context.seeds[0])) if ECOC in chosen else None
        if choice is not None:
            figure, w = choice_figure(choice), choice.w
            title = f"{figure.title}, {encoder}: {'no weight could be' if w is None else f'w = {w:g} was'} chosen"
            figures.append(figure.model_copy(update={"id": f"choose-w-{encoder}", "title": title}))
    return Section(
        id="reward",
        title="Reward: what policies would earn",
        findings=findings,
        text=list(dict.fromkeys(text)),
        tables=tables,
        figures=figures,
        caveats=caveats(context, jobs(context), results, *CAVEATS),
    )


REWARD = Experiment("reward", "Reward", jobs, section)
