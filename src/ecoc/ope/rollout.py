"""Policies played in a fitted simulator: what they earn step after step, and how far that leads from the log.

Every start is played once in each member: it answers, all members judge. What a policy's steps count is

    mean reward - penalty * max(0, doubt - the log's own doubt),     doubt = mean_steps sd_k E_k[reward]

so that a policy gains nothing by going where the members only guess, and loses nothing where they know as little of
the log itself. Luck depends on the seed alone, not on the policy.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecoc.batch import PAD, History
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.ope.response import UserState
from ecoc.ope.simulator import LENGTH, Simulator
from ecoc.policies.base import Policy

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_ROWS, _CELLS = 2048, 1 << 25  # sessions played at a time, and most chances of items kept at a time: 128 MB


@dataclass(frozen=True)
class SessionView:
    """What an actor sees of sessions at the same step."""

    items: Tensor  # [R, T]; PAD at the end, and where nothing was answered
    feedback: Tensor  # [R, T]; code + 1
    shown: Tensor  # [R, S]; what may not be shown again, PAD where short
    log_behaviour: Tensor  # [R, items], as the member that plays the session has it
    random: torch.Generator
    users: Tensor | None = None  # [R] as histories number them


Actor = Callable[[SessionView], Tensor]
"""Chooses an item for each session, [R]."""


def acting_by(policy: Policy) -> Actor:
    """A policy's best item."""

    def choose(scene: SessionView) -> Tensor:
        history = replace(recent(scene.items, scene.feedback, policy.length), users=scene.users)
        return policy.topk(policy.query(history), 1, exclude=scene.shown)[0].squeeze(1)

    return choose


def acting_by_score(score: Tensor) -> Actor:
    """The same order of items [V] for everyone."""

    def choose(scene: SessionView) -> Tensor:
        scores = score.expand(len(scene.shown), -1).scatter(1, scene.shown, -torch.inf)
        scores[:, PAD] = -torch.inf
        return scores.argmax(1)

    return choose


def acting_at_random(items: int) -> Actor:
    """Any item that may be shown."""

    def choose(scene: SessionView) -> Tensor:
        scores = torch.rand(len(scene.shown), items + 1, generator=scene.random).scatter_(1, scene.shown, -1.0)
        scores[:, PAD] = -1.0
        return scores.argmax(1)

    return choose


def acting_as_logged() -> Actor:
    """As the log, by the simulator's estimate of it; it may repeat itself."""

    def choose(scene: SessionView) -> Tensor:
        chances = scene.log_behaviour.exp()
        return torch.multinomial(chances, 1, generator=scene.random).squeeze(1) + PAD + 1

    return choose


@dataclass(frozen=True)
class InitialStates:
    """Where sessions begin: what was logged before, and how many steps they will have."""

    items: Tensor  # [U, L]; PAD after the end
    feedback: Tensor  # [U, L]
    left: Tensor  # [U]
    sequence: Ints  # [U]
    users: Tensor | None = None  # [U] number of a user who was learnt from, 0 of others

    def part(self, rows: slice) -> "InitialStates":
        """Some of them."""
        users = None if self.users is None else self.users[rows]
        return InitialStates(self.items[rows], self.feedback[rows], self.left[rows], self.sequence[rows], users)


def open_starts(
    data: Dataset, simulator: Simulator, split: str, *, users: int, warm: int, horizon: int, seed: int
) -> InitialStates:
    """The logged pasts of sequences of a split, with at least `warm` events, and a length as the log has them."""
    offsets, trained = np.asarray(data.offsets), np.asarray(data.train_lengths)
    whole = np.diff(offsets)
    if split == "test":
        past, chosen = np.maximum(trained, warm), whole > np.maximum(trained, warm)
    else:
        past, chosen = np.full(len(whole), warm), np.asarray(data.is_validation) & (trained > warm)
    found = np.flatnonzero(chosen)
    if not len(found):
        raise InputError(f"{data.path}: no sequence of the {split} split has more than {warm} events to start from")
    random = np.random.default_rng([seed, 4])
    found = np.sort(random.permutation(found)[:users])
    size = past[found]
    learnt = (trained[found] > 1) & ~np.asarray(data.is_validation)[found]
    steps = np.arange(size.max())
    inside = steps < size[:, None]
    events = np.where(inside, offsets[found][:, None] + steps, 0)
    return InitialStates(
        torch.from_numpy(np.where(inside, data.items[events], PAD).astype(np.int64)),
        torch.from_numpy(np.where(inside, data.feedback[events].astype(np.int64) + 1, 0)),
        torch.from_numpy(simulator.sample_left(size, horizon, random)),
        found,
        torch.from_numpy(np.where(learnt, found + 1, 0)),
    )


@dataclass(frozen=True)
class Rollouts:
    """What an actor did, by member, start and step; `counted` says which steps there were."""

    reward: Floats  # [K, U, T] mean over the members' judgement
    ensemble_std: Floats  # [K, U, T] its standard deviation
    log_behaviour: Floats  # [K, U, T] of what was shown
    items: Ints  # [K, U, T]
    counted: NDArray[np.bool_]  # [U, T]

    def totals(self, uncertainty_penalty: float = 0.0) -> tuple[Floats, Floats]:
        """Sum of what counts by member and start [K, U] if each step is charged, and steps [U]."""
        worth = (self.reward - uncertainty_penalty) * self.counted
        return worth.sum(2), self.counted.sum(1).astype(np.float64)

    def value(self, uncertainty_penalty: float = 0.0) -> float:
        """What a step counts."""
        total, steps = self.totals(uncertainty_penalty)
        return float(total.sum() / (len(total) * steps.sum()))

    @property
    def mean_doubt(self) -> float:
        """How much the members disagree about a step."""
        return float(self.ensemble_std[:, self.counted].mean())

    @property
    def distinct(self) -> int:
        """Items shown."""
        return len(np.unique(self.items[:, self.counted]))


@torch.no_grad()
def play(simulator: Simulator, actor: Actor, starts: InitialStates, *, exclude_seen: bool, seed: int) -> Rollouts:
    """Play an actor from every start in every member; a session ends when every item was shown."""
    if exclude_seen:
        starts = replace(starts, left=torch.minimum(starts.left, simulator.items - _distinct(starts.items)))
        if not int(starts.left.max()):
            raise InputError("every item was shown to every user; let policies repeat items")
    chunk = max(1, min(_ROWS, _CELLS // simulator.items) // len(simulator.members))
    parts = []
    for first in range(0, len(starts.left), chunk):
        rows = slice(first, first + chunk)
        parts.append(_play(simulator, actor, starts.part(rows), int(starts.left.max()), exclude_seen, [seed, first]))
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts], axis=1)
        for name in ("reward", "ensemble_std", "log_behaviour", "items")
    }
    return Rollouts(**joined, counted=np.concatenate([part.counted for part in parts]))


def _distinct(items: Tensor) -> Tensor:
    """How many different items each row holds, [U]."""
    ordered = items.sort(1).values
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return (fresh & (ordered != PAD)).sum(1)


def _play(
    simulator: Simulator, actor: Actor, starts: InitialStates, steps: int, exclude_seen: bool, seed: list[int]
) -> Rollouts:
    members, users = len(simulator.members), len(starts.left)
    luck, choice = (
        torch.Generator().manual_seed(int(np.random.default_rng([*seed, k]).integers(2**62))) for k in (0, 1)
    )
    items, feedback = starts.items.repeat(members, 1), starts.feedback.repeat(members, 1)  # [R, L], member by member
    shown = items if exclude_seen else torch.zeros(len(items), 0, dtype=torch.int64)
    numbers = None if starts.users is None else starts.users.repeat(members)
    first = recent(items, feedback, LENGTH)
    moods = [model.after_history(first) for model in simulator.members]  # each remembers all sessions
    found: dict[str, list[Tensor]] = {"reward": [], "ensemble_std": [], "log_behaviour": [], "items": []}
    for _ in range(steps):
        logs = _own(simulator, moods, users)
        scene = SessionView(items, feedback, shown, logs, choice, numbers)
        chosen = actor(scene).clamp(min=PAD + 1)  # sessions that have ended go on uncounted
        chances = torch.stack([simulator.chances(k, mood, chosen) for k, mood in enumerate(moods)])  # [K, R, C]
        judged = simulator.reward(chances, chosen)  # [K, R]
        own = chances.view(members, members, users, -1).diagonal(dim1=0, dim2=1).permute(2, 0, 1).flatten(0, 1)
        draw = torch.rand(len(items), 1, generator=luck)
        given = (own.cumsum(1) < draw).sum(1).clamp(max=own.shape[1] - 1)  # [R]
        stays = torch.ones_like(given, dtype=torch.bool) if simulator.none is None else given != simulator.none
        after = [
            model.after_event(mood, chosen, (given + 1) * stays)
            for model, mood in zip(simulator.members, moods, strict=True)
        ]
        moods = [new.where(stays, old) for new, old in zip(after, moods, strict=True)]
        items = torch.cat([items, (chosen * stays)[:, None]], 1)
        feedback = torch.cat([feedback, ((given + 1) * stays)[:, None]], 1)
        shown = torch.cat([shown, chosen[:, None]], 1) if exclude_seen else shown
        found["reward"].append(judged.mean(0))
        found["ensemble_std"].append(judged.std(0, correction=0) if members > 1 else torch.zeros_like(judged[0]))
        found["log_behaviour"].append(logs.gather(1, chosen[:, None] - PAD - 1).squeeze(1))
        found["items"].append(chosen)
    shaped = {
        name: torch.stack(values, 1).view(members, users, steps).double().numpy() for name, values in found.items()
    }
    counted = (torch.arange(steps) < starts.left[:, None]).numpy()
    return Rollouts(
        shaped["reward"], shaped["ensemble_std"], shaped["log_behaviour"], shaped["items"].astype(np.int64), counted
    )


def _own(simulator: Simulator, moods: list[UserState], users: int) -> Tensor:
    """Log behaviour in each session as the member that plays it has it, [R, items]."""
    rows = [slice(k * users, (k + 1) * users) for k in range(len(moods))]
    return torch.cat(
        [simulator.log_behaviour(k, mood.rows(row)) for k, (mood, row) in enumerate(zip(moods, rows, strict=True))]
    )


def recent(items: Tensor, feedback: Tensor, length: int) -> History:
    """The last `length` events that are there, oldest first; a row without any has seen item 1."""
    known = items != PAD
    order = (~known).sort(dim=1, stable=True).indices  # those there to the front
    count = known.sum(1, keepdim=True)
    place = (count - length).clamp(min=0) + torch.arange(min(length, items.shape[1]))
    order = order.gather(1, place.clamp(max=items.shape[1] - 1))
    inside = place < count
    kept = (items.gather(1, order) * inside).index_put_(((count == 0).squeeze(1), torch.tensor(0)), torch.tensor(1))
    return History(kept, feedback.gather(1, order) * inside)
