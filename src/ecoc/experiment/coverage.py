"""How often the doubly robust interval holds the truth, over fresh logs of the same world."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from ecoc.batch import History
from ecoc.experiment.context import Context
from ecoc.experiment.jobs import Arrays
from ecoc.experiment.jobs import Cell as Work
from ecoc.experiment.variants import BASE, ECOC, VARIANTS
from ecoc.model import Model
from ecoc.ope.fitting import Episodes
from ecoc.ope.logged import DecisionScorer, LoggedDecisions, best_items
from ecoc.ope.simulator import SimulatorConfig, fit_members
from ecoc.ope.truth import in_world, mixed, sample_log
from ecoc.progress import ProgressCallback
from ecoc.reporting.document import Cell, Column, Number, Table
from ecoc.world import evaluate
from ecoc.world.market import FEEDBACK

REPEATS = 40
SHARES = (0.05, 0.1)
_SESSIONS, _WARM, _TRUTH_USERS = 2000, 3, 6000
_NEEDED = 4  # repeats that no budget takes away


def encoder_of(context: Context) -> str:
    """Estimators are judged with one encoder: the first asked for."""
    return context.encoders(("sasrec",))[0]


def coverage_cell(context: Context, depends: Mapping[str, Any], number: int) -> Work:
    """One fresh log: the intervals of sessions in which a share of the decisions is a policy's."""

    def work(watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
        watch("a fresh log", number, REPEATS)
        return {"rows": _repeat(context, number, watch)}, {}

    return Work(
        f"coverage/{encoder_of(context)}/{context.plan.steps}-steps/log-{number}",
        work,
        lambda: {**depends, "sessions": _SESSIONS, "shares": list(SHARES)},
        seconds=20.0,
        stage=2,  # after what everyone looks at first
        rank=0 if number < _NEEDED else 2,
        method="coverage",
        encoder=encoder_of(context),
        seed=number,
    )


def mixed_truth_cell(context: Context, depends: Mapping[str, Any]) -> Work:
    """What such sessions really earn."""

    def work(watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
        market, found = context.known_market, {}
        for number, (name, model) in enumerate(_models(context, watch).items()):
            watch("play in the world", number, 2)
            for share in SHARES:
                policy = mixed(market, in_world(model, market), share)
                found[f"{name} {share}"] = evaluate(market, policy, _TRUTH_USERS, seed=context.seeds[0]).reward
        return found, {}

    return Work(
        f"mixed/{encoder_of(context)}/{context.plan.steps}-steps",
        work,
        lambda: {**depends, "shares": list(SHARES), "users": _TRUTH_USERS},
        seconds=25.0,
        stage=1,
        method="truth",
        encoder=encoder_of(context),
    )


def _models(context: Context, watch: ProgressCallback) -> dict[str, Model]:
    encoder, seed = encoder_of(context), context.seeds[0]
    return {
        BASE: context.model(context.run(VARIANTS[BASE], encoder, seed), watch),
        "ecoc, w = 10": context.model(context.run(ECOC, encoder, seed), watch).ranked_by("blend", w=10.0),
    }


def _repeat(context: Context, number: int, watch: ProgressCallback) -> list[dict[str, Any]]:
    market, models = context.known_market, _models(context, watch)
    log = sample_log(market, _SESSIONS, seed=number)
    place = in_world(models[BASE], market)
    items, feedback = place.index[log.items].astype(np.int64), log.feedback.astype(np.int64) + 1
    rewards = torch.from_numpy(log.reward.astype(np.float32))
    count, steps = items.shape
    wanted = torch.ones(count, steps - 1, dtype=torch.bool)
    episodes = Episodes(torch.from_numpy(items), torch.from_numpy(feedback), rewards, wanted, np.arange(count))
    simulator = fit_members(
        episodes,
        context.data.counts.items,
        list(FEEDBACK),
        np.full(count, steps),
        SimulatorConfig(members=1, seed=number),
    )
    logged = _logged(items, feedback, log.reward.astype(np.float64))
    known = log.chance[:, _WARM:].reshape(-1)
    witness = DecisionScorer(simulator, logged)
    rows = []
    for name, model in models.items():
        chosen = best_items(model.policy, logged, exclude_seen=True)
        views = {"estimated": witness.decisions(chosen), "true": witness.knowing(known).decisions(chosen)}
        rows += [
            {"policy": name, "share": share, "propensity": kind, **asdict(one)}
            for share in SHARES
            for kind, decisions in views.items()
            for one in witness.mixed_sessions(decisions, share, number)
        ]
    return rows


def _logged(items: Any, feedback: Any, reward: Any) -> LoggedDecisions:
    """Decisions of whole sessions of one length, after the warm-up."""
    count, steps = items.shape
    row, step = np.repeat(np.arange(count), steps - _WARM), np.tile(np.arange(steps - _WARM), count)
    end = step + _WARM
    past = np.arange(steps) < end[:, None]
    history = History(
        torch.from_numpy(np.where(past, items[row], 0)), torch.from_numpy(np.where(past, feedback[row], 0))
    )
    return LoggedDecisions(history, history.items, items[row, end], reward[row, end], row, row, step)


def coverage_table(repeats: Sequence[Mapping[str, Any]], truth: Mapping[str, float]) -> list[Table]:
    """Share of the repeats whose interval holds the truth; none without repeats."""
    found: dict[tuple[str, float, str, str], list[Mapping[str, Any]]] = {}
    for one in repeats:
        for row in one["rows"]:
            found.setdefault((row["policy"], row["share"], row["propensity"], row["estimator"]), []).append(row)
    if not found or not truth:
        return []
    body: list[list[Cell]] = []
    for (policy, share, kind, estimator), rows in found.items():
        really = truth[f"{policy} {share}"]
        holds = float(np.mean([row["low"] <= really <= row["high"] for row in rows]))
        body.append(
            [
                f"{policy}, {share:.0%} of decisions",
                estimator,
                kind,
                Number(value=really),
                Number(value=float(np.mean([row["value"] for row in rows]))),
                Number(value=float(np.mean([row["high"] - row["low"] for row in rows]))),
                Number(value=float(np.mean([row["ess"] for row in rows]))),
                Number(value=100 * holds),
            ]
        )
    return [
        Table(
            id="ope-coverage",
            title=f"95 % intervals for policies near the log's, over {len(repeats)} logs of {_SESSIONS:,} sessions",
            columns=[
                Column(name="policy"),
                Column(name="estimator"),
                Column(name="propensity"),
                Column(name="truth", digits=3),
                Column(name="mean estimate", digits=3),
                Column(name="mean width", better="low", digits=3),
                Column(name="sessions it rests on", digits=0),
                Column(name="holds the truth, %", digits=0),
            ],
            rows=body,
            groups=[f"{row[0]}" for row in body],
            note="The policy makes a share of the decisions, the logging policy the others. Propensities are estimated"
            " from the log, or the true ones of the world.",
        )
    ]
