"""Off-policy evaluation against the truth: in a built-in world every policy's value is known, so estimators are judged.

Policies of many kinds are ranked by what they really earn and by each estimator, for logs of several sizes; the doubly
robust interval of policies near the log's is checked over fresh logs; the weight that roll-outs choose is compared
with the one that really is best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.coverage import REPEATS, coverage_cell, coverage_table, encoder_of, mixed_truth_cell
from ecoc.experiment.jobs import Arrays, JobResult
from ecoc.experiment.jobs import Cell as Work
from ecoc.experiment.reward import simulate_seconds
from ecoc.experiment.tables import caveats
from ecoc.experiment.variants import BASE, ECOC, VARIANTS, Variant
from ecoc.model import Model
from ecoc.ope.candidates import controls
from ecoc.ope.choose_weight import WEIGHTS, choose_weight
from ecoc.ope.results import LOGGED, RolloutConfig
from ecoc.ope.simulate import simulate
from ecoc.ope.truth import in_world, true_reward
from ecoc.progress import ProgressCallback
from ecoc.reporting.document import Axis, Cell, Column, Figure, Number, Point, Section, Series, Table
from ecoc.world import POLICIES, Evaluation, Observation, evaluate
from ecoc.world.market import Ints
from ecoc.world.policies import MarketPolicy, best_unseen

SIZES = (20_000, 60_000, 200_000)
_MYOPIC = ECOC.but("ecoc-gamma-0", changes={"gamma": 0.0})
_SHUFFLED = ECOC.but("ecoc-shuffled", train={"shuffle_rewards": True})
_VARIANTS: tuple[Variant, ...] = (VARIANTS["supervised"], VARIANTS[BASE], ECOC, _MYOPIC, _SHUFFLED, VARIANTS["prl"])
_TRUTH_USERS = 2000
_HEADLINE = "roll-out, charged (headline)"
_PLAIN = "roll-out, uncharged"
_ONE_STEP = "one-step ratio (the paper's)"
_TEST_ONLY = "roll-out, one simulator of the test split"
_NAMES = {"snips": "SNIPS, one decision", "dr": "DR, one decision", "switch": "switch, one decision"}


def models_of(context: Context, watch: ProgressCallback) -> dict[str, Model]:
    """Policies of many kinds from a handful of runs."""
    encoder, seed = encoder_of(context), context.seeds[0]
    run = {variant.name: context.model(context.run(variant, encoder, seed), watch) for variant in _VARIANTS}
    found = {name: run[name] for name in ("supervised", BASE, "prl")}
    found |= {f"ecoc, w = {w:g}": run["ecoc"].ranked_by("blend", w=w) for w in WEIGHTS if w}
    found["ecoc, rerank 20"] = run["ecoc"].ranked_by("rerank", m=20)
    found["ecoc, value alone"] = run["ecoc"].ranked_by("blend", w=1000.0)
    found["γ = 0, w = 10"] = run[_MYOPIC.name].ranked_by("blend", w=10.0)
    found["shuffled, w = 10"] = run[_SHUFFLED.name].ranked_by("blend", w=10.0)
    return {name: model.called(name) for name, model in found.items()}


def cells(context: Context) -> list[Work]:
    """The runs, the truth, an estimate for each size, the choice of w, and repeats of the interval."""
    if context.market is None:
        return []
    found = [context.run_cell(variant, encoder_of(context), context.seeds[0]) for variant in _VARIANTS]
    found += [_truth(context), _choice(context), mixed_truth_cell(context, _depends(context))]
    found += [_estimate(context, size) for size in sizes(context)]
    found.append(_estimate(context, sizes(context)[-1], alone=True))
    found += [coverage_cell(context, _depends(context), number) for number in range(REPEATS)]
    return found


def sizes(context: Context) -> list[int]:
    """Log sizes up to what there is."""
    events = context.data.counts.interactions
    return sorted({min(size, events) for size in SIZES})


def _depends(context: Context) -> dict[str, Any]:
    encoder, seed = encoder_of(context), context.seeds[0]
    return {"runs": [context.depends(context.run(variant, encoder, seed)) for variant in _VARIANTS]}


def _truth(context: Context) -> Work:
    def work(watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
        market, models = context.known_market, models_of(context, watch)
        found: dict[str, Evaluation] = {LOGGED: evaluate(market, POLICIES["logged"](market), _TRUTH_USERS)}
        found["random"] = evaluate(market, POLICIES["random"](market), _TRUTH_USERS)
        index = in_world(next(iter(models.values())), market).index
        for name, score in fixed_scores(context).items():
            found[name] = evaluate(market, _ordered(score[index]), _TRUTH_USERS)
        for number, (name, model) in enumerate(models.items()):
            watch("play in the world", number, len(models))
            found[name] = true_reward(model, market, _TRUTH_USERS)
        return {"rewards": {name: [one.reward, one.low, one.high] for name, one in found.items()}}, {}

    return Work(
        f"known/{encoder_of(context)}/{context.plan.steps}-steps",
        work,
        lambda: {**_depends(context), "users": _TRUTH_USERS},
        seconds=30.0,
        stage=1,
        method="truth",
        encoder=encoder_of(context),
    )


def fixed_scores(context: Context) -> dict[str, NDArray[np.float32]]:
    """The controls that show everyone the same, by the dataset's indices; [V] each."""
    found = controls(context.data)
    return {one.name: one.score.numpy() for one in found if one.score is not None}


def _ordered(score: NDArray[np.float32]) -> MarketPolicy:
    def choose(seen: Observation, rng: np.random.Generator, /) -> Ints:
        return best_unseen(np.tile(score, (len(seen.items), 1)), seen.items)

    return choose


def _settings(size: int, alone: bool) -> RolloutConfig:
    return RolloutConfig(fit_on="test", members=1, most_events=size) if alone else RolloutConfig(most_events=size)


def _estimate(context: Context, size: int, *, alone: bool = False) -> Work:
    settings = _settings(size, alone)

    def work(watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
        models = list(models_of(context, watch).values())
        return simulate(
            models, context.data, config=settings, cloned=False, save=False, progress=watch
        ).model_dump(), {}

    return Work(
        f"estimate/{encoder_of(context)}/{context.plan.steps}-steps/{'test-alone' if alone else f'{size}-events'}",
        work,
        lambda: {**_depends(context), "settings": asdict(settings)},
        seconds=simulate_seconds(context, 18, settings.members),
        stage=1,
        rank=0 if size == sizes(context)[-1] and not alone else 1,
        method="estimate",
        encoder=encoder_of(context),
    )


def _choice(context: Context) -> Work:
    def work(watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
        model = context.model(context.run(ECOC, encoder_of(context), context.seeds[0]), watch)
        return choose_weight(model, context.data, save=False, progress=watch).model_dump(), {}

    return Work(
        f"choice/{encoder_of(context)}/{context.plan.steps}-steps",
        work,
        lambda: {**_depends(context), "settings": asdict(RolloutConfig())},
        seconds=simulate_seconds(context, 8),
        stage=1,
        method="choose-w",
        encoder=encoder_of(context),
    )


def section(context: Context, results: Mapping[str, JobResult]) -> Section:
    """Policies by truth and estimate; estimators by error and rank; the interval; the weight."""
    truth = _facts(results, _truth(context)).get("rewards", {})
    whole = _facts(results, _estimate(context, sizes(context)[-1]))
    tables: list[Table] = []
    figures: list[Figure] = []
    if truth and whole:
        found = {size: _ratios(_facts(results, _estimate(context, size))) for size in sizes(context)}
        found = {size: ratios for size, ratios in found.items() if ratios}
        alone = _ratios(_facts(results, _estimate(context, sizes(context)[-1], alone=True)))
        if _HEADLINE in alone:
            found[sizes(context)[-1]][_TEST_ONLY] = alone[_PLAIN]
        tables = [_policies(context, truth, found[sizes(context)[-1]]), _estimators(context, truth, found)]
        figures = [*_scatter(truth, found[sizes(context)[-1]]), _by_size(truth, found)]
    depends = _depends(context)
    repeats = [_facts(results, coverage_cell(context, depends, number)) for number in range(REPEATS)]
    mixed = _facts(results, mixed_truth_cell(context, depends))
    tables += coverage_table([one for one in repeats if one], mixed)
    choice = _facts(results, _choice(context))
    if truth and choice:
        tables.append(_regret(truth, choice))
    return Section(
        id="ope-truth",
        title="Off-policy evaluation against the known truth",
        findings=_findings(truth, whole),
        text=[
            f"Every policy was played by {_TRUTH_USERS:,} users of the world the log is from: that is the truth. Each"
            " estimator saw the log alone. Ratios are to the log's own policy.",
            "A rank correlation of 1 means that choosing by the estimator is choosing by the truth; optimism is the"
            " mean of the estimated ratio less the true one.",
        ],
        tables=tables,
        figures=figures,
        caveats=caveats(
            context,
            cells(context),
            results,
            "The logging policy of the built-in worlds knows each user's hidden interest, which no log shows: items it"
            " chose look better than they would be if a learned policy chose them. This is why estimates are high.",
            "The charge for disagreement was set on world seeds 100 and 102 (both worlds), 101 (bait) and 0 (small):"
            " figures of these seeds are not a test of it.",
        ),
    )


def _findings(truth: Mapping[str, Sequence[float]], whole: Mapping[str, Any]) -> list[str]:
    """How well the headline and the paper's ratio rank the policies."""
    if not truth or not whole:
        return []
    true, ratios = _true_ratios(truth), _ratios(whole)
    headline, one_step = (rank_correlation(true, ratios[name]) for name in (_HEADLINE, _ONE_STEP))
    learned = [row for row in whole["policies"] if row["kind"] == "run"]
    trusted = sum(row["trusted"] for row in learned)
    return [
        f"Off-policy evaluation: the headline ranks {len(true)} policies with a rank correlation of {headline:+.2f} to"
        f" what they really earn, the paper's one-step ratio with {one_step:+.2f}. The headline's own guards trust"
        f" {trusted} of {len(learned)} figures of learned policies."
    ]


def _facts(results: Mapping[str, JobResult], cell: Work) -> dict[str, Any]:
    """What a cell found; nothing if it was left out, failed or was not run."""
    found = results.get(cell.name)
    return found.facts if found is not None and found.is_done else {}


def _ratios(facts: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Estimator -> policy -> ratio to the log."""
    if not facts:
        return {}
    rows = [row for row in facts["policies"] if row["name"] != LOGGED]
    base = next(row["reward"] for row in facts["policies"] if row["name"] == LOGGED)
    found = {
        _HEADLINE: {row["name"]: row["ratio"] for row in rows},
        _PLAIN: {row["name"]: row["unpenalised"] / base for row in rows},
        _ONE_STEP: {row["name"]: row["one_step"]["conditional"]["ratio"] for row in rows},
    }
    for row in facts["estimators"]:
        if row["of"] == "one decision" and row["estimator"] in _NAMES and row["ratio"] is not None:
            found.setdefault(_NAMES[row["estimator"]], {})[row["policy"]] = row["ratio"]
    return found


def _true_ratios(truth: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: values[0] / truth[LOGGED][0] for name, values in truth.items() if name != LOGGED}


def _policies(
    context: Context, truth: Mapping[str, Sequence[float]], found: Mapping[str, Mapping[str, float]]
) -> Table:
    true = _true_ratios(truth)
    order = sorted(true, key=lambda name: -true[name])
    shown = [_HEADLINE, _PLAIN, _ONE_STEP, _NAMES["dr"]]
    columns = [Column(name="policy"), Column(name="true reward a step", digits=3), Column(name="true ratio", digits=3)]
    columns += [Column(name=name, digits=3) for name in shown if name in found]
    body: list[list[Cell]] = []
    for name in order:
        value, low, high = truth[name]
        row: list[Cell] = [name, Number(value=value, low=low, high=high), Number(value=true[name])]
        estimates: list[Cell] = [_number(found[one].get(name)) for one in shown if one in found]
        body.append(row + estimates)
    note = f"The log's own policy really earns {truth[LOGGED][0]:.3f} a step."
    return Table(
        id="ope-policies", title=f"Truth and estimates on {context.title}", columns=columns, rows=body, note=note
    )


def _number(value: float | None) -> Number | None:
    return None if value is None else Number(value=value)


def rank_correlation(true: Mapping[str, float], estimated: Mapping[str, float]) -> float:
    """Spearman's, over the policies both know."""
    names = [name for name in true if name in estimated]
    return float(spearmanr([true[name] for name in names], [estimated[name] for name in names]).statistic)


def _estimators(
    context: Context, truth: Mapping[str, Sequence[float]], found: Mapping[int, Mapping[str, Mapping[str, float]]]
) -> Table:
    true, body, groups = _true_ratios(truth), list[list[Cell]](), list[str]()
    for size, estimators in found.items():
        for name, ratios in estimators.items():
            errors = np.array([ratios[policy] - true[policy] for policy in true if policy in ratios])
            best = max(ratios, key=lambda policy: ratios[policy])
            regret = 1 - true[best] / max(true.values())
            body.append(
                [
                    name,
                    f"{size:,}",
                    Number(value=rank_correlation(true, ratios)),
                    Number(value=float(errors.mean())),
                    Number(value=float(np.abs(errors).mean())),
                    best,
                    Number(value=100 * regret),
                ]
            )
            groups.append(f"{size:,} events")
    return Table(
        id="ope-estimators",
        title=f"Estimators judged by the truth on {context.title}: {len(true)} policies",
        columns=[
            Column(name="estimator"),
            Column(name="events"),
            Column(name="rank correlation", better="high", digits=3),
            Column(name="optimism", digits=3),
            Column(name="mean error", better="low", digits=3),
            Column(name="its choice"),
            Column(name="regret, %", better="low", digits=1),
        ],
        rows=body,
        groups=groups,
        note="Regret: how much less than the best policy the estimator's favourite really earns.",
    )


def _scatter(truth: Mapping[str, Sequence[float]], found: Mapping[str, Mapping[str, float]]) -> list[Figure]:
    true = _true_ratios(truth)
    figures = []
    for name, title in ((_HEADLINE, "ope-headline"), (_ONE_STEP, "ope-one-step")):
        points = [Point(x=true[policy], y=found[name][policy], label=policy) for policy in true]
        correlation = rank_correlation(true, found[name])
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


def _by_size(truth: Mapping[str, Sequence[float]], found: Mapping[int, Mapping[str, Mapping[str, float]]]) -> Figure:
    true = _true_ratios(truth)
    names = dict.fromkeys(name for estimators in found.values() for name in estimators if name != _TEST_ONLY)
    series = [
        Series(
            name=name,
            points=[
                Point(x=size, y=rank_correlation(true, estimators[name]))
                for size, estimators in found.items()
                if name in estimators
            ],
        )
        for name in names
    ]
    return Figure(
        id="ope-by-size",
        title="Rank correlation with the truth by log size",
        kind="lines",
        x=Axis(label="events of the log", log=True, ticks=[float(size) for size in found]),
        y=Axis(label="rank correlation", line=0.0),
        series=series,
    )


def _regret(truth: Mapping[str, Sequence[float]], choice: Mapping[str, Any]) -> Table:
    """The weight that roll-outs choose beside the one that really is best."""
    name = {w: BASE if w == 0 else f"ecoc, w = {w:g}" for w in WEIGHTS}
    earned = {w: truth[name[w]][0] for w in WEIGHTS}
    best = max(earned, key=lambda w: earned[w])
    body: list[list[Cell]] = [
        [
            f"{point['w']:g}" + " (chosen)" * (point["w"] == choice["w"]) + " (best)" * (point["w"] == best),
            Number(value=earned[point["w"]]),
            Number(value=point["ratio"], low=point["low"], high=point["high"]),
            Number(value=point["ndcg@10"]),
            "no" if point["reasons"] else "yes",
        ]
        for point in choice["points"]
    ]
    title = "No weight could be chosen without the truth"
    if choice["w"] is not None:
        regret = 1 - earned[choice["w"]] / earned[best]
        title = f"The weight chosen without the truth, w = {choice['w']:g}: regret {regret:.1%}"
    return Table(
        id="ope-choose-w",
        title=title,
        columns=[
            Column(name="w"),
            Column(name="true reward a step", better="high", digits=3),
            Column(name="roll-out on validation, log = 1", digits=3),
            Column(name="NDCG@10"),
            Column(name="trusted"),
        ],
        rows=body,
        note="Simulators fitted on the training part, played from validation histories; the test split was not used."
        + "".join(f" Not chosen: {reason}." for reason in choice["reasons"]),
    )


OPE_TRUTH = Experiment("ope-truth", "Off-policy evaluation against the truth", cells, section, needs_world=True)
