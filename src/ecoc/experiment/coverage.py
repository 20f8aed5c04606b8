"""How often the doubly robust interval contains the true value, over new logs of the same world."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ecoc.batch import History
from ecoc.experiment.context import Context
from ecoc.experiment.jobs import Arrays, Job
from ecoc.experiment.results import CoverageRow, CoverageRows, MixedRewards
from ecoc.experiment.variants import BASE, ECOC, VARIANTS
from ecoc.model import Model
from ecoc.ope.fitting import Episodes
from ecoc.ope.logged import DecisionScorer, LoggedDecisions, best_items
from ecoc.ope.simulator import SimulatorConfig, fit_members
from ecoc.ope.truth import in_world, mixed, sample_log
from ecoc.progress import ProgressCallback
from ecoc.reporting.document import Cell, Table
from ecoc.world import evaluate
from ecoc.world.market import FEEDBACK

REPEATS = 40
SHARES = (0.05, 0.1)
_SESSIONS, _WARM, _TRUTH_USERS = 2000, 3, 6000
_NEEDED = 4  # repeats that every plan keeps


def encoder_of(context: Context) -> str:
    """The encoder of this experiment: the first requested one."""
    return context.encoders(("sasrec",))[0]


def coverage_job(context: Context, depends: Mapping[str, Any], number: int) -> Job[CoverageRows]:
    """One new log: intervals for sessions in which a policy makes a share of the decisions."""

    def work(progress: ProgressCallback) -> tuple[CoverageRows, Arrays]:
        progress("new log", number, REPEATS)
        return CoverageRows(rows=_repeat(context, number, progress)), {}

    return Job(
        f"coverage/{encoder_of(context)}/{context.plan.steps}-steps/log-{number}",
        CoverageRows,
        work,
        lambda: {**depends, "sessions": _SESSIONS, "shares": list(SHARES)},
        seconds=20.0,
        wave=2,  # after the results that matter most
        priority=0 if number < _NEEDED else 2,
        method="coverage",
        encoder=encoder_of(context),
        seed=number,
    )


def mixed_truth_job(context: Context, depends: Mapping[str, Any]) -> Job[MixedRewards]:
    """True reward of such sessions."""

    def work(progress: ProgressCallback) -> tuple[MixedRewards, Arrays]:
        market, rewards = context.known_market, dict[str, float]()
        for number, (name, model) in enumerate(_models(context, progress).items()):
            progress("play in the world", number, 2)
            for share in SHARES:
                policy = mixed(market, in_world(model, market), share)
                rewards[f"{name} {share}"] = evaluate(market, policy, _TRUTH_USERS, seed=context.seeds[0]).reward
        return MixedRewards(rewards), {}

    return Job(
        f"mixed/{encoder_of(context)}/{context.plan.steps}-steps",
        MixedRewards,
        work,
        lambda: {**depends, "shares": list(SHARES), "users": _TRUTH_USERS},
        seconds=25.0,
        wave=1,
        method="truth",
        encoder=encoder_of(context),
    )


def _models(context: Context, progress: ProgressCallback) -> dict[str, Model]:
    encoder, seed = encoder_of(context), context.seeds[0]
    return {
        BASE: context.model(context.run(VARIANTS[BASE], encoder, seed), progress),
        "ecoc, w = 10": context.model(context.run(ECOC, encoder, seed), progress).ranked_by("blend", w=10.0),
    }


def _repeat(context: Context, number: int, progress: ProgressCallback) -> list[CoverageRow]:
    market, models = context.known_market, _models(context, progress)
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
    scorer = DecisionScorer(simulator, logged)
    rows = []
    for name, model in models.items():
        chosen = best_items(model.policy, logged, exclude_seen=True)
        views = {"estimated": scorer.decisions(chosen), "true": scorer.knowing(known).decisions(chosen)}
        rows += [
            CoverageRow.of(estimate, policy=name, share=share, propensity=kind)
            for share in SHARES
            for kind, decisions in views.items()
            for estimate in scorer.mixed_sessions(decisions, share, number)
        ]
    return rows


def _logged(items: Any, feedback: Any, reward: Any) -> LoggedDecisions:
    """Decisions of complete sessions of one length, after the warm-up."""
    count, steps = items.shape
    row, step = np.repeat(np.arange(count), steps - _WARM), np.tile(np.arange(steps - _WARM), count)
    end = step + _WARM
    past = np.arange(steps) < end[:, None]
    history = History(
        torch.from_numpy(np.where(past, items[row], 0)), torch.from_numpy(np.where(past, feedback[row], 0))
    )
    return LoggedDecisions(history, history.items, items[row, end], reward[row, end], row, row, step)


def coverage_table(repeats: Sequence[CoverageRows], truth: Mapping[str, float]) -> list[Table]:
    """Share of the repeats whose interval contains the true value; no table without repeats."""
    groups: dict[tuple[str, float, str, str], list[CoverageRow]] = {}
    for repeat in repeats:
        for row in repeat.rows:
            groups.setdefault((row.policy, row.share, row.propensity, row.estimator), []).append(row)
    if not groups or not truth:
        return []
    body: list[list[Cell | float]] = []
    for (policy, share, kind, estimator), rows in groups.items():
        true_value = truth[f"{policy} {share}"]
        means: list[Any] = [
            true_value,
            np.mean([row.value for row in rows]),
            np.mean([row.high - row.low for row in rows]),
            np.mean([row.ess for row in rows]),
            100 * np.mean([row.low <= true_value <= row.high for row in rows]),
        ]
        body.append([f"{policy}, {share:.0%} of decisions", estimator, kind, *map(float, means)])
    return [
        Table.of(
            "ope-coverage",
            f"95 % intervals close to the logging policy, over {len(repeats)} logs of {_SESSIONS:,} sessions",
            [
                "policy",
                "estimator",
                "propensity",
                ("true value", 3),
                ("mean estimate", 3),
                ("mean width", 3, "low"),
                ("effective sessions", 0),
                ("contains the true value, %", 0),
            ],
            body,
            groups=[f"{row[0]}" for row in body],
            note="The policy makes a share of the decisions, the logging policy the others. Propensities are estimated"
            " from the log, or are the true ones of the world.",
        )
    ]
