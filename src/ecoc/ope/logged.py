"""Logged decisions as a fitted simulator sees them: what was shown, how likely that was, what it was worth."""

from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecoc.batch import History
from ecoc.data.loader import histories, open_cases
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.ranks import everything_before
from ecoc.ope.estimators import Decisions, Estimate, SessionLog, calibrated, sessions
from ecoc.ope.response import ResponseModel, UserState
from ecoc.ope.rollout import recent
from ecoc.ope.simulator import LENGTH, Simulator
from ecoc.policies.base import Policy

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_ROWS, _CELLS = 1024, 1 << 24  # decisions at a time, and most chances of items kept at a time


@dataclass(frozen=True)
class LoggedDecisions:
    """Decisions of whole sessions, in order."""

    history: History  # [N, L] what preceded each
    before: Tensor  # [N, E] every item of its past, PAD where short
    items: Ints  # [N] shown
    reward: Floats  # [N]
    user: Ints  # [N]
    session: Ints  # [N] number of its session
    step: Ints  # [N] place in its session


def open_logged(
    data: Dataset,
    *,
    warm: int,
    horizon: int,
    most: int,
    seed: int,
    length: int = LENGTH,
    exclude_seen: bool = True,
) -> LoggedDecisions:
    """Test events after at least `warm` others, of as many sequences as hold `most` of them.

    Histories hold `length` events: as many as the policy that reads most. Whole pasts are kept to exclude them only.
    """
    cases = open_cases(data, "test", min_history=warm, most=0, seed=seed)
    if not len(cases):
        raise InputError(f"{data.path}: no test event has {warm} events before it; prepare with another split")
    sequences, session, counts = np.unique(cases.sequence, return_inverse=True, return_counts=True)
    step = np.arange(len(cases)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = np.random.default_rng([seed, 5]).permutation(len(sequences))
    kept = np.zeros(len(sequences), bool)
    kept[order[: np.searchsorted(np.cumsum(np.minimum(counts[order], horizon)), most) + 1]] = True
    rows = np.flatnonzero(kept[session] & (step < horizon))
    cases = cases.part(rows)
    _, session = np.unique(cases.sequence, return_inverse=True)
    reward = np.asarray(data.rewards[cases.event], np.float64)
    items = np.asarray(data.items[cases.event], np.int64)
    before = everything_before(data, cases) if exclude_seen else np.zeros((len(cases), 0), np.int64)
    return LoggedDecisions(
        histories(data, cases, length),
        torch.from_numpy(before),
        items,
        reward,
        data.users[cases.sequence],
        session,
        step[rows],
    )


@torch.inference_mode()
def best_items(policy: Policy, logged: LoggedDecisions, *, exclude_seen: bool) -> Ints:
    """What a policy would have shown, [N]."""
    policy.train(False)
    found = []
    for first in range(0, len(logged.items), _ROWS):
        rows = torch.arange(first, min(first + _ROWS, len(logged.items)))
        history = logged.history.rows(rows)
        latest = recent(history.items, _feedback(history), policy.length)
        query = policy.query(replace(latest, users=history.users))
        found.append(policy.topk(query, 1, exclude=logged.before[rows] if exclude_seen else None)[0].squeeze(1))
    chosen: Ints = torch.cat(found).numpy()
    return chosen


def _feedback(history: History) -> Tensor:
    return torch.zeros_like(history.items) if history.feedback is None else history.feedback


class DecisionScorer:
    """A simulator's view of logged decisions, kept so that every policy is asked about cheaply."""

    @torch.no_grad()
    def __init__(self, simulator: Simulator, logged: LoggedDecisions) -> None:
        self.simulator, self.logged = simulator, logged
        history = recent(logged.history.items, _feedback(logged.history), LENGTH)
        self._moods = [_moods(model, history) for model in simulator.members]
        self.model = self.value(logged.items)
        self._known: Floats | None = None
        step = max(1, min(_ROWS, _CELLS // simulator.items))
        rows = [slice(first, first + step) for first in range(0, len(logged.items), step)]
        self._total = [  # [N] a member
            torch.cat([simulator.shown_total(k, mood.rows(row)) for row in rows]) for k, mood in enumerate(self._moods)
        ]

    @torch.no_grad()
    def chance(self, items: Ints) -> Floats:
        """How likely the log was to show items [N] at the logged states, by the members' mean."""
        shown = torch.from_numpy(items)
        each = [
            (self.simulator.shown_score(k, mood, shown) - total).exp()
            for k, (mood, total) in enumerate(zip(self._moods, self._total, strict=True))
        ]
        return torch.stack(each).mean(0).double().numpy()

    @torch.no_grad()
    def value(self, items: Ints) -> Floats:
        """Expected reward of showing items [N] at the logged states."""
        found = np.zeros(len(items))
        for first in range(0, len(items), _ROWS):
            rows = slice(first, first + _ROWS)
            found[rows] = self._value(rows, torch.from_numpy(items[rows])).double().numpy()
        return found

    def _value(self, rows: slice, items: Tensor) -> Tensor:
        simulator = self.simulator
        each = [
            simulator.reward(simulator.chances(k, mood.rows(rows), items), items) for k, mood in enumerate(self._moods)
        ]
        return torch.stack(each).mean(0)

    def knowing(self, chance: Floats) -> "DecisionScorer":
        """The same with the true propensities [N] of what was shown."""
        view = copy(self)
        view._known = chance
        return view

    def decisions(self, chosen: Ints) -> Decisions:
        """A policy that shows `chosen` [N]."""
        happened = chosen == self.logged.items
        weight = happened / (calibrated(self.chance(chosen), happened) if self._known is None else self._known)
        return Decisions(self.logged.reward, weight, self.model, self.value(chosen), self.logged.user)

    def mixed_sessions(self, d: Decisions, share: float, seed: int) -> list[Estimate]:
        """What sessions would have earned a step had a policy made a share of the decisions, at random.

        Where the log still decides, q of what it showed stands for the mean of q over what it might have shown: right
        on average whatever its propensities are, and most of its noise is that of w q, which is taken off.
        """
        weight = 1 - share + share * d.weight
        value = (1 - share) * self.model + share * d.policy_model
        return sessions(self._log(weight, value), seed=seed)

    def _log(self, weight: Floats, value: Floats) -> SessionLog:
        row, column = self.logged.session, self.logged.step
        shape = row.max() + 1, column.max() + 1

        def placed(values: Floats) -> Floats:
            table = np.zeros(shape)
            table[row, column] = values
            return table

        counted = np.zeros(shape, bool)
        counted[row, column] = True
        user = np.zeros(shape[0], np.int64)
        user[row] = self.logged.user
        return SessionLog(placed(self.logged.reward), placed(weight), placed(self.model), placed(value), counted, user)


def _moods(model: ResponseModel, history: History) -> UserState:
    hidden, stock = [], []
    for first in range(0, len(history.items), _ROWS):
        found = model.after_history(history.rows(torch.arange(first, min(first + _ROWS, len(history.items)))))
        hidden.append(found.hidden)
        stock.append(found.stock)
    return UserState(torch.cat(hidden), torch.cat(stock))
