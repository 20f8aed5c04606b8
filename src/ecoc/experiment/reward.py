"""RQ2: what policies earn, by off-policy evaluation: roll-outs in fitted simulators, the paper's ratio beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ecoc.evaluation.choose import choose_w
from ecoc.evaluation.simulate import LOGGED, Play, simulate
from ecoc.experiment.cells import Arrays, Found
from ecoc.experiment.cells import Cell as Work
from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.tables import bars, caveats, described, number
from ecoc.experiment.variants import BASE, ECOC, Variant, variant_of
from ecoc.model import Model
from ecoc.report.choice import choice_figure
from ecoc.report.document import Cell, Column, Figure, Number, Section, Table
from ecoc.watch import Watcher

ENCODERS = ("sasrec",)
_METHODS = ("supervised", BASE, "ecoc", "ecoc-paper", "sqn", "sa2c", "prl")
_FIT_SECONDS, _PLAY_SECONDS = 2.5e-4, 4.0  # an event and a member; a policy: as measured on one slow core

CAVEATS = [
    "The simulators know only what the log shows. Where the logging policy acted on something that is not in the log,"
    " they credit items with it, and every figure is too high alike; ranks suffer less than levels.",
    "The one-step ratio asks what a single recommendation at a logged state would earn. It rewards what pays now and"
    " wears off later, and in the built-in worlds ranks policies almost in reverse (reproduce ope-truth).",
    "Figures marked as not trusted rest on states or items the log hardly holds; do not choose by them.",
]


def variants(context: Context) -> list[Variant]:
    """The methods asked for, or the usual ones."""
    return [variant_of(name) for name in context.asked.methods or _METHODS]


def simulate_seconds(context: Context, policies: int, members: int = 3) -> float:
    """Estimate of one call of simulate."""
    events = min(context.data.counts.interactions, Play().most_events)
    return 2.0 + events * (members + 0.25) * _FIT_SECONDS + policies * _PLAY_SECONDS


def models_of(context: Context, chosen: Sequence[Variant], encoder: str, seed: int, watch: Watcher) -> list[Model]:
    """Every view of every variant, under its title."""
    return [
        model.called(title)
        for variant in chosen
        for title, model in context.views(context.run(variant, encoder, seed), watch).items()
    ]


def cells(context: Context) -> list[Work]:
    """The runs; a simulation and a choice of weight for each seed, the first one's first."""
    encoders, chosen = context.encoders(ENCODERS), variants(context)
    found = context.run_cells(chosen, encoders)
    if context.market is not None:
        found += [
            context.truth_cell(variant, encoder, seed)
            for variant in chosen
            for encoder in encoders
            for seed in context.seeds
        ]
    for encoder in encoders:
        for number_, seed in enumerate(context.seeds):
            found.append(_simulated(context, chosen, encoder, seed, rank=2 * (number_ > 0)))
        if ECOC in chosen:
            found.append(_weight(context, encoder, context.seeds[0]))
    return found


def _simulated(context: Context, chosen: Sequence[Variant], encoder: str, seed: int, *, rank: int) -> Work:
    settings = Play(seed=seed)

    def work(watch: Watcher) -> tuple[dict[str, Any], Arrays]:
        models = models_of(context, chosen, encoder, seed, watch)
        return simulate(models, context.data, settings=settings, cloned=False, progress=watch), {}

    return Work(
        f"simulate/{encoder}/{context.plan.steps}-steps/seed-{seed}",
        work,
        lambda: {"runs": _configs(context, chosen, encoder, seed), "settings": asdict(settings)},
        seconds=simulate_seconds(context, len(chosen) + 5),
        stage=1,
        rank=rank,
        method="simulate",
        encoder=encoder,
        seed=seed,
    )


def _weight(context: Context, encoder: str, seed: int) -> Work:
    settings = Play(seed=seed)

    def work(watch: Watcher) -> tuple[dict[str, Any], Arrays]:
        model = context.model(context.run(ECOC, encoder, seed), watch)
        return choose_w(model, context.data, settings=settings, save=False, progress=watch), {}

    return Work(
        f"choose-w/{encoder}/{context.plan.steps}-steps/seed-{seed}",
        work,
        lambda: {"runs": _configs(context, [ECOC], encoder, seed), "settings": asdict(settings)},
        seconds=simulate_seconds(context, 8),
        stage=1,
        method="choose-w",
        encoder=encoder,
        seed=seed,
    )


def _configs(context: Context, chosen: Sequence[Variant], encoder: str, seed: int) -> list[dict[str, Any]]:
    found = []
    for variant in chosen:
        values = context.run(variant, encoder, seed).config.values()
        values["train"].pop("threads")
        found.append({**values, "views": dict(variant.views)})
    return found


def section(context: Context, results: Mapping[str, Found]) -> Section:
    """A table and bars for each encoder, the choice of the weight."""
    chosen, tables, figures = variants(context), [], []
    for encoder in context.encoders(ENCODERS):
        done = [results[_simulated(context, chosen, encoder, seed, rank=0).name] for seed in context.seeds]
        facts = [one.facts for one in done if one.is_done]
        if not facts:
            continue
        earned = _earned(context, results, chosen, encoder)
        tables.append(_table(context, facts, earned, encoder))
        figures += _figures(facts, encoder)
        weight = results.get(_weight(context, encoder, context.seeds[0]).name) if ECOC in chosen else None
        if weight is not None and weight.is_done:
            figure = choice_figure(weight.facts)
            title = f"{figure.title}, {encoder}: w = {weight.facts['w']:g} was chosen"
            figures.append(figure.model_copy(update={"id": f"choose-w-{encoder}", "title": title}))
    return Section(
        id="reward",
        title="Reward: what policies would earn",
        text=[
            described(context),
            "Each policy is played step after step, from logged test histories, in an ensemble of user simulators"
            " fitted on the log; the log's own policy, estimated, is played in the same simulators and is 1. A policy"
            " is charged four times the standard deviation of the simulators' opinions of each step.",
            *_quality(results),
        ],
        tables=tables,
        figures=figures,
        caveats=caveats(context, cells(context), results, *CAVEATS),
    )


def _quality(results: Mapping[str, Found]) -> list[str]:
    found = [one.facts for name, one in results.items() if name.startswith("simulate/") and one.is_done]
    if not found:
        return []
    quality = found[0]["simulator"]
    return [
        f"The simulators on {quality['events']:,} held-out events: log-loss {quality['log_loss']:.4f} against"
        f" {quality['log_loss_of_shares']:.4f} of the feedback's shares alone, calibration error"
        f" {quality['calibration_error']:.4f}, reward error {quality['reward_error']:+.1%}."
    ]


def _rows(facts: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """What each policy got, a seed each."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in facts:
        for row in one["policies"]:
            found.setdefault(row["name"], []).append(row)
    return found


def _earned(
    context: Context, results: Mapping[str, Found], chosen: Sequence[Variant], encoder: str
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    if context.market is None:
        return found
    for variant in chosen:
        for seed in context.seeds:
            one = results.get(context.truth_cell(variant, encoder, seed).name)
            if one is None:
                continue
            for title, view in one.facts.get("views", {}).items():
                found.setdefault(title, []).append(view["reward"])
    return found


def _interval(rows: Sequence[Mapping[str, Any]]) -> Number:
    """Mean over seeds; the interval of a single seed, or that of the seeds' mean widened by their spread."""
    ratios = np.array([row["ratio"] for row in rows])
    half = np.mean([(row["high"] - row["low"]) / 2 for row in rows]) / len(rows) ** 0.5
    spread = 1.96 * ratios.std(ddof=1) / len(rows) ** 0.5 if len(rows) > 1 else 0.0
    reach = float(np.hypot(half, spread))
    return Number(value=float(ratios.mean()), low=float(ratios.mean() - reach), high=float(ratios.mean() + reach))


def _table(
    context: Context, facts: Sequence[Mapping[str, Any]], earned: Mapping[str, Sequence[float]], encoder: str
) -> Table:
    columns = [
        Column(name="policy"),
        Column(name="roll-out, log = 1", better="high", digits=3),
        Column(name="uncharged", digits=3),
        Column(name="one-step ratio (the paper's)", digits=3),
        Column(name="items shown", digits=0),
        *[Column(name="true reward a step", better="high", digits=3)] * bool(earned),
        Column(name="can it be trusted"),
    ]
    body: list[list[Cell]] = []
    for name, rows in _rows(facts).items():
        base = [one["policies"][0]["reward"] for one in facts]
        uncharged = np.mean([row["unpenalised"] / unit for row, unit in zip(rows, base, strict=True)])
        step = np.mean([row["one_step"]["conditional"]["ratio"] for row in rows])
        reasons = list(dict.fromkeys(text for row in rows for text in row["reasons"]))
        truth: list[Cell] = [number(earned.get(name, []))] if earned else []
        body.append(
            [
                name,
                _interval(rows),
                Number(value=float(uncharged)),
                Number(value=float(step)),
                Number(value=float(np.mean([row["items_shown"] for row in rows]))),
                *truth,
                ("no: " + "; ".join(reasons))[:300] if reasons else "nothing speaks against it",
            ]
        )
    return Table(
        id=f"reward-{encoder}",
        title=f"Off-policy evaluation on {context.title}, {encoder}",
        columns=columns,
        rows=body,
        note=f"{facts[0]['starts']:,} users, {facts[0]['steps']:.1f} steps each, {len(facts)} seed(s); intervals over"
        " users, simulators and seeds.",
    )


def _figures(facts: Sequence[Mapping[str, Any]], encoder: str) -> list[Figure]:
    rows = {name: found for name, found in _rows(facts).items() if name != LOGGED}
    rolled = [(encoder, name, _interval(found)) for name, found in rows.items()]
    stepped = [
        (encoder, name, Number(value=float(np.mean([row["one_step"]["conditional"]["ratio"] for row in found]))))
        for name, found in rows.items()
    ]
    drawn = [
        bars(f"reward-rollout-{encoder}", f"Roll-out reward, {encoder}", "roll-out reward, log = 1", rolled),
        bars(f"reward-one-step-{encoder}", f"One-step reward ratio, {encoder}", "one-step ratio, log = 1", stepped),
    ]
    return [
        figure.model_copy(update={"y": figure.y.model_copy(update={"line": 1.0})})
        for figure in drawn
        if figure is not None
    ]


REWARD = Experiment("reward", "Reward", cells, section)
