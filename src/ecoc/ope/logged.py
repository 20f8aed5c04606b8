"""Logged decisions with the simulator's estimates: the item shown, its probability, its expected reward."""

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
_ROWS, _CELLS = 1024, 1 << 24  # decisions at a time, and most probabilities in memory at a time


@dataclass(frozen=True)
class LoggedDecisions:
    """Logged decisions of whole sessions, in order."""

    history: History  # [N, L] events before each decision
    before: Tensor  # [N, E] all items of the user's past, PAD where short
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
    """Test events with at least `warm` events before them, of as many sequences as hold `most` such events.

    Histories hold `length` events, as many as the longest policy reads. Whole pasts are kept only to exclude them.
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
    """Item that a policy ranks first at each decision, [N]."""
    policy.train(False)
    parts = []
    for first in range(0, len(logged.items), _ROWS):
        rows = torch.arange(first, min(first + _ROWS, len(logged.items)))
        history = logged.history.rows(rows)
        latest = recent(history.items, _feedback(history), policy.length)
        query = policy.query(replace(latest, users=history.users))
        parts.append(policy.topk(query, 1, exclude=logged.before[rows] if exclude_seen else None)[0].squeeze(1))
    chosen: Ints = torch.cat(parts).numpy()
    return chosen


def _feedback(history: History) -> Tensor:
    return torch.zeros_like(history.items) if history.feedback is None else history.feedback


class DecisionScorer:
    """Probabilities and expected rewards of items at logged decisions; computed once, used for every policy."""

    @torch.no_grad()
    def __init__(self, simulator: Simulator, logged: LoggedDecisions) -> None:
        self.simulator, self.logged = simulator, logged
        history = recent(logged.history.items, _feedback(logged.history), LENGTH)
        self._states = [_user_states(model, history) for model in simulator.members]
        self.model = self.value(logged.items)
        self._known: Floats | None = None
        step = max(1, min(_ROWS, _CELLS // simulator.items))
        rows = [slice(first, first + step) for first in range(0, len(logged.items), step)]
        self._total = [  # [N] per member
            torch.cat([simulator.shown_total(k, state.rows(row)) for row in rows])
            for k, state in enumerate(self._states)
        ]

    @torch.no_grad()
    def chance(self, items: Ints) -> Floats:
        """Probability that the log shows items [N] at the logged states, mean over members."""
        shown = torch.from_numpy(items)
        each = [
            (self.simulator.shown_score(k, state, shown) - total).exp()
            for k, (state, total) in enumerate(zip(self._states, self._total, strict=True))
        ]
        return torch.stack(each).mean(0).double().numpy()

    @torch.no_grad()
    def value(self, items: Ints) -> Floats:
        """Expected reward of showing items [N] at the logged states."""
        values = np.zeros(len(items))
        for first in range(0, len(items), _ROWS):
            rows = slice(first, first + _ROWS)
            values[rows] = self._value(rows, torch.from_numpy(items[rows])).double().numpy()
        return values

    def _value(self, rows: slice, items: Tensor) -> Tensor:
        simulator = self.simulator
        each = [
            simulator.reward(simulator.chances(k, state.rows(rows), items), items)
            for k, state in enumerate(self._states)
        ]
        return torch.stack(each).mean(0)

    def knowing(self, chance: Floats) -> "DecisionScorer":
        """The same with the true propensities [N] of the logged items."""
        view = copy(self)
        view._known = chance
        return view

    def decisions(self, chosen: Ints) -> Decisions:
        """The decisions of a policy that shows `chosen` [N]."""
        happened = chosen == self.logged.items
        weight = happened / (calibrated(self.chance(chosen), happened) if self._known is None else self._known)
        return Decisions(self.logged.reward, weight, self.model, self.value(chosen), self.logged.user)

    def mixed_sessions(self, d: Decisions, share: float, seed: int) -> list[Estimate]:
        """Reward per step of sessions in which a policy makes a random share of the decisions.

        For the decisions that stay with the log, q of the logged item replaces the mean of q over the items the log
        might have shown. It is unbiased for any propensities; most of its noise is that of w q, which is subtracted.
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


def _user_states(model: ResponseModel, history: History) -> UserState:
    hidden, stock = [], []
    for first in range(0, len(history.items), _ROWS):
        part = model.after_history(history.rows(torch.arange(first, min(first + _ROWS, len(history.items)))))
        hidden.append(part.hidden)
        stock.append(part.stock)
    return UserState(torch.cat(hidden), torch.cat(stock))
