"""Off-policy evaluation against the truth: a built-in world gives the true value of every policy, to test estimators.

Policies of many kinds are ranked by their true reward and by each estimator, for logs of several sizes. The doubly
robust interval of policies close to the logging policy is tested over new logs. The weight w that roll-outs choose is
compared with the best one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.coverage import REPEATS, coverage_job, coverage_table, encoder_of, mixed_truth_job
from ecoc.experiment.jobs import Arrays, Job, Results
from ecoc.experiment.results import KnownRewards
from ecoc.experiment.reward import simulate_seconds
from ecoc.experiment.tables import caveats
from ecoc.experiment.variants import BASE, ECOC, VARIANTS, Variant
from ecoc.model import Model
from ecoc.ope.candidates import controls
from ecoc.ope.choose_weight import WEIGHTS, choose_weight
from ecoc.ope.results import LOGGED, RolloutConfig, SimulationResult, WeightChoice
from ecoc.ope.simulate import simulate
from ecoc.ope.truth import in_world, true_reward
from ecoc.progress import ProgressCallback
from ecoc.reporting.document import Axis, Cell, Figure, Head, Number, Point, Section, Series, Table
from ecoc.world import POLICIES, Evaluation, Observation, evaluate
from ecoc.world.market import Ints
from ecoc.world.policies import MarketPolicy, best_unseen

SIZES = (20_000, 60_000, 200_000)
_MYOPIC = ECOC.but("ecoc-gamma-0", changes={"gamma": 0.0})
_SHUFFLED = ECOC.but("ecoc-shuffled", train={"shuffle_rewards": True})
_VARIANTS: tuple[Variant, ...] = (VARIANTS["supervised"], VARIANTS[BASE], ECOC, _MYOPIC, _SHUFFLED, VARIANTS["prl"])
_TRUTH_USERS = 2000
_HEADLINE = "roll-out with penalty (headline)"
_PLAIN = "roll-out without penalty"
_ONE_STEP = "one-step ratio (paper)"
_TEST_ONLY = "roll-out, one simulator fitted on the test split"
_NAMES = {"snips": "SNIPS, one decision", "dr": "DR, one decision", "switch": "switch, one decision"}


def models_of(context: Context, progress: ProgressCallback) -> dict[str, Model]:
    """Policies of many kinds from six runs."""
    encoder, seed = encoder_of(context), context.seeds[0]
    run = {variant.name: context.model(context.run(variant, encoder, seed), progress) for variant in _VARIANTS}
    models = {name: run[name] for name in ("supervised", BASE, "prl")}
    models |= {f"ecoc, w = {w:g}": run["ecoc"].ranked_by("blend", w=w) for w in WEIGHTS if w}
    models["ecoc, rerank 20"] = run["ecoc"].ranked_by("rerank", m=20)
    models["ecoc, value alone"] = run["ecoc"].ranked_by("blend", w=1000.0)
    models["γ = 0, w = 10"] = run[_MYOPIC.name].ranked_by("blend", w=10.0)
    models["shuffled, w = 10"] = run[_SHUFFLED.name].ranked_by("blend", w=10.0)
    return {name: model.called(name) for name, model in models.items()}


def jobs(context: Context) -> list[Job[Any]]:
    """The runs, the true rewards, one estimate per log size, the choice of w, and repeats of the interval."""
    if context.market is None:
        return []
    return [
        *(context.run_job(variant, encoder_of(context), context.seeds[0]) for variant in _VARIANTS),
        _truth(context),
        _choice(context),
        mixed_truth_job(context, _depends(context)),
        *(_estimate(context, size) for size in sizes(context)),
        _estimate(context, sizes(context)[-1], alone=True),
        *(coverage_job(context, _depends(context), number) for number in range(REPEATS)),
    ]


def sizes(context: Context) -> list[int]:
    """Log sizes in events, up to that of the dataset."""
    events = context.data.counts.interactions
    return sorted({min(size, events) for size in SIZES})


def _depends(context: Context) -> dict[str, Any]:
    encoder, seed = encoder_of(context), context.seeds[0]
    return {"runs": [context.depends(context.run(variant, encoder, seed)) for variant in _VARIANTS]}


def _truth(context: Context) -> Job[KnownRewards]:
    def work(progress: ProgressCallback) -> tuple[KnownRewards, Arrays]:
        market, models = context.known_market, models_of(context, progress)
        earned: dict[str, Evaluation] = {LOGGED: evaluate(market, POLICIES["logged"](market), _TRUTH_USERS)}
        earned["random"] = evaluate(market, POLICIES["random"](market), _TRUTH_USERS)
        index = in_world(next(iter(models.values())), market).index
        for name, score in fixed_scores(context).items():
            earned[name] = evaluate(market, _ordered(score[index]), _TRUTH_USERS)
        for number, (name, model) in enumerate(models.items()):
            progress("play in the world", number, len(models))
            earned[name] = true_reward(model, market, _TRUTH_USERS)
        return KnownRewards(rewards={name: (each.reward, each.low, each.high) for name, each in earned.items()}), {}

    return Job(
        f"known/{encoder_of(context)}/{context.plan.steps}-steps",
        KnownRewards,
        work,
        lambda: {**_depends(context), "users": _TRUTH_USERS},
        seconds=30.0,
        wave=1,
        method="truth",
        encoder=encoder_of(context),
    )


def fixed_scores(context: Context) -> dict[str, NDArray[np.float32]]:
    """Scores of the controls that show every user the same items, by item index; [V] each."""
    return {each.name: each.score.numpy() for each in controls(context.data) if each.score is not None}


def _ordered(score: NDArray[np.float32]) -> MarketPolicy:
    def choose(seen: Observation, rng: np.random.Generator, /) -> Ints:
        return best_unseen(np.tile(score, (len(seen.items), 1)), seen.items)

    return choose


def _estimate(context: Context, size: int, *, alone: bool = False) -> Job[SimulationResult]:
    """Estimates from a log of some size; `alone`: by one simulator of the test split, as in the paper."""
    settings = RolloutConfig(most_events=size)
    if alone:
        settings = RolloutConfig(fit_on="test", members=1, most_events=size)

    def work(progress: ProgressCallback) -> tuple[SimulationResult, Arrays]:
        models = list(models_of(context, progress).values())
        return simulate(models, context.data, config=settings, cloned=False, save=False, progress=progress), {}

    return Job(
        f"estimate/{encoder_of(context)}/{context.plan.steps}-steps/{'test-alone' if alone else f'{size}-events'}",
        SimulationResult,
        work,
        lambda: {**_depends(context), "settings": asdict(settings)},
        seconds=simulate_seconds(context, 18, settings.members),
        wave=1,
        priority=0 if size == sizes(context)[-1] and not alone else 1,
        method="estimate",
        encoder=encoder_of(context),
    )


def _choice(context: Context) -> Job[WeightChoice]:
    def work(progress: ProgressCallback) -> tuple[WeightChoice, Arrays]:
        model = context.model(context.run(ECOC, encoder_of(context), context.seeds[0]), progress)
        return choose_weight(model, context.data, save=False, progress=progress), {}

    return Job(
        f"choice/{encoder_of(context)}/{context.plan.steps}-steps",
        WeightChoice,
        work,
        lambda: {**_depends(context), "settings": asdict(RolloutConfig())},
        seconds=simulate_seconds(context, 8),
        wave=1,
        method="choose-w",
        encoder=encoder_of(context),
    )


def section(context: Context, results: Results) -> Section:
    """Policies by true and estimated reward; estimators by error and rank correlation; the interval; the weight."""
    known, largest = results.value(_truth(context)), sizes(context)[-1]
    simulation = results.value(_estimate(context, largest))
    tables: list[Table] = []
    figures: list[Figure] = []
    if known is not None and simulation is not None:
        simulations = {size: results.value(_estimate(context, size)) for size in sizes(context)}
        estimates = {size: _ratios(value) for size, value in simulations.items() if value is not None}
        alone = results.value(_estimate(context, largest, alone=True))
        if alone is not None:
            estimates[largest][_TEST_ONLY] = _ratios(alone)[_PLAIN]
        tables = [_policies(context, known.rewards, estimates[largest]), _estimators(context, known.rewards, estimates)]
        figures = [*_scatter(known.rewards, estimates[largest]), _by_size(known.rewards, estimates)]
    depends = _depends(context)
    repeats = [results.value(coverage_job(context, depends, number)) for number in range(REPEATS)]
    mixed = results.value(mixed_truth_job(context, depends))
    tables += coverage_table([repeat for repeat in repeats if repeat is not None], mixed.root if mixed else {})
    choice = results.value(_choice(context))
    if known is not None and choice is not None:
        tables.append(_regret(known.rewards, choice))
    return Section(
        id="ope-truth",
        title="Off-policy evaluation against the known truth",
        findings=[] if known is None or simulation is None else [_finding(known.rewards, simulation)],
        text=[
            f"The true reward of a policy is its mean over {_TRUTH_USERS:,} users of the world that the log is from."
            " The estimators use the log alone. Ratios are relative to the logging policy.",
            "With a rank correlation of 1, an estimator orders policies as their true rewards do. Optimism is the mean"
            " of the estimated ratio minus the true ratio.",
        ],
        tables=tables,
        figures=figures,
        caveats=caveats(
            context,
            jobs(context),
            results,
            "The logging policy of the built-in worlds knows the hidden interest of each user, which the log does not"
            " hold. Items it chose look better than if a learned policy had chosen them, so estimates are too high.",
            "The uncertainty penalty was set on world seeds 100 and 102 (both worlds), 101 (bait) and 0 (small):"
            " figures of these seeds do not test it.",
        ),
    )


def _finding(truth: Mapping[str, Sequence[float]], simulation: SimulationResult) -> str:
    """How well the headline and the paper's ratio rank the policies."""
    true, ratios = _true_ratios(truth), _ratios(simulation)
    headline, one_step = (rank_correlation(true, ratios[name]) for name in (_HEADLINE, _ONE_STEP))
    learned = [policy for policy in simulation.policies if policy.kind == "run"]
    trusted = sum(policy.trusted for policy in learned)
    return (
        f"Off-policy evaluation: over {len(true)} policies the headline has a rank correlation of {headline:+.2f} with"
        f" the true reward, the paper's one-step ratio {one_step:+.2f}. The headline is marked as trusted for {trusted}"
        f" of {len(learned)} learned policies."
    )


def _ratios(simulation: SimulationResult) -> dict[str, dict[str, float]]:
    """Estimator -> policy -> reward relative to the logging policy."""
    policies = [policy for policy in simulation.policies if policy.name != LOGGED]
    base = simulation.logged.reward
    ratios = {
        _HEADLINE: {policy.name: policy.ratio for policy in policies},
        _PLAIN: {policy.name: policy.unpenalised / base for policy in policies},
        _ONE_STEP: {policy.name: policy.one_step["conditional"].ratio for policy in policies},
    }
    for row in simulation.estimators:
        if row.of == "one decision" and row.estimator in _NAMES and row.ratio is not None:
            ratios.setdefault(_NAMES[row.estimator], {})[row.policy] = row.ratio
    return ratios


def _true_ratios(truth: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: values[0] / truth[LOGGED][0] for name, values in truth.items() if name != LOGGED}


def _policies(
    context: Context, truth: Mapping[str, Sequence[float]], estimates: Mapping[str, Mapping[str, float]]
) -> Table:
    true = _true_ratios(truth)
    order = sorted(true, key=lambda name: -true[name])
    shown = [name for name in (_HEADLINE, _PLAIN, _ONE_STEP, _NAMES["dr"]) if name in estimates]
    body: list[list[Cell | float]] = []
    for name in order:
        value, low, high = truth[name]
        cells = [estimates[estimator].get(name) for estimator in shown]
        body.append([name, Number(value=value, low=low, high=high), true[name], *cells])
    heads: list[Head] = ["policy", ("true reward per step", 3), ("true ratio", 3), *((name, 3) for name in shown)]
    note = f"The true reward of the logging policy is {truth[LOGGED][0]:.3f} per step."
    return Table.of("ope-policies", f"Truth and estimates on {context.title}", heads, body, note=note)


def rank_correlation(true: Mapping[str, float], estimated: Mapping[str, float]) -> float:
    """Spearman's rank correlation, over the policies in both."""
    names = [name for name in true if name in estimated]
    return float(spearmanr([true[name] for name in names], [estimated[name] for name in names]).statistic)


def _estimators(
    context: Context, truth: Mapping[str, Sequence[float]], estimates: Mapping[int, Mapping[str, Mapping[str, float]]]
) -> Table:
    true, body, groups = _true_ratios(truth), list[list[Cell | float]](), list[str]()
    for size, estimators in estimates.items():
        for name, ratios in estimators.items():
            errors = np.array([ratios[policy] - true[policy] for policy in true if policy in ratios])
            best = max(ratios, key=lambda policy: ratios[policy])
            regret = 1 - true[best] / max(true.values())
            correlation, optimism, error = rank_correlation(true, ratios), errors.mean(), np.abs(errors).mean()
            body.append([name, f"{size:,}", correlation, float(optimism), float(error), best, 100 * regret])
            groups.append(f"{size:,} events")
    return Table.of(
        "ope-estimators",
        f"Estimators compared with the truth on {context.title}: {len(true)} policies",
        [
            "estimator",
            "events",
            ("rank correlation", 3, "high"),
            ("optimism", 3),
            ("mean error", 3, "low"),
            "best policy by the estimate",
            ("regret, %", 1, "low"),
        ],
        body,
        groups=groups,
        note="Regret: by how many % the true reward of the policy that the estimator chooses is below the best.",
    )


def _scatter(truth: Mapping[str, Sequence[float]], estimates: Mapping[str, Mapping[str, float]]) -> list[Figure]:
    true = _true_ratios(truth)
    figures = []
    for name, title in ((_HEADLINE, "ope-headline"), (_ONE_STEP, "ope-one-step")):
        points = [Point(x=true[policy], y=estimates[name][policy], label=policy) for policy in true]
        correlation = rank_correlation(true, estimates[name])
        figures.append(
            Figure(
                id=title,
                title=f"{name}: rank correlation {correlation:+.2f} with the truth",
                kind="points",
                x=Axis(label="true reward, log = 1"),
                y=Axis(label="estimate, log = 1", line=1.0),
                series=[Series(name="policies", points=points)],
            )
        )
    return figures


def _by_size(
    truth: Mapping[str, Sequence[float]], estimates: Mapping[int, Mapping[str, Mapping[str, float]]]
) -> Figure:
    true = _true_ratios(truth)
    names = dict.fromkeys(name for estimators in estimates.values() for name in estimators if name != _TEST_ONLY)
    series = []
    for name in names:
        known = {size: estimators[name] for size, estimators in estimates.items() if name in estimators}
        points = [Point(x=size, y=rank_correlation(true, ratios)) for size, ratios in known.items()]
        series.append(Series(name=name, points=points))
    return Figure(
        id="ope-by-size",
        title="Rank correlation with the truth by log size",
        kind="lines",
        x=Axis(label="events of the log", log=True, ticks=[float(size) for size in estimates]),
        y=Axis(label="rank correlation", line=0.0),
        series=series,
    )


def _regret(truth: Mapping[str, Sequence[float]], choice: WeightChoice) -> Table:
    """The weight that roll-outs choose, beside the best one by true reward."""
    name = {w: BASE if w == 0 else f"ecoc, w = {w:g}" for w in WEIGHTS}
    earned = {w: truth[name[w]][0] for w in WEIGHTS}
    best = max(earned, key=lambda w: earned[w])
    body: list[list[Cell | float]] = [
        [
            f"{point.w:g}" + " (chosen)" * (point.w == choice.w) + " (best)" * (point.w == best),
            earned[point.w],
            Number(value=point.ratio, low=point.low, high=point.high),
            point.ndcg,
            "no" if point.reasons else "yes",
        ]
        for point in choice.points
    ]
    title = "No weight could be chosen without the truth"
    if choice.w is not None:
        regret = 1 - earned[choice.w] / earned[best]
        title = f"The weight chosen without the truth, w = {choice.w:g}: regret {regret:.1%}"
    heads: list[Head] = ["w", ("true reward per step", 3, "high"), ("roll-out on validation, log = 1", 3)]
    return Table.of(
        "ope-choose-w",
        title,
        [*heads, "NDCG@10", "trusted"],
        body,
        note="Simulators were fitted on training data and started from validation histories; test data were not used."
        + "".join(f" Not chosen: {reason}." for reason in choice.reasons),
    )


OPE_TRUTH = Experiment("ope-truth", "Off-policy evaluation against the truth", jobs, section, needs_world=True)
