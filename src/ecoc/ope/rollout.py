"""Roll-outs: policies that act step by step in a fitted ensemble of simulated users.

Each initial state is rolled out once per member k. That member draws the feedback; all members predict the reward.
The reward of a policy is

    mean reward - penalty * max(0, D(policy) - D(logging policy)),     D = mean over steps of sd_k E_k[reward]

so a policy gains nothing from steps where the members disagree, and loses nothing where they disagree as much about
the log itself. Random draws depend on the seed alone, not on the policy.
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
_ROWS, _CELLS = 2048, 1 << 25  # sessions rolled out at a time, and most probabilities in memory at a time: 128 MB


@dataclass(frozen=True)
class SessionView:
    """Sessions at the same step, as an actor sees them."""

    items: Tensor  # [R, T]; PAD at the end, and where an item left no event
    feedback: Tensor  # [R, T]; code + 1
    shown: Tensor  # [R, S]; items that may not be shown again, PAD where short
    log_behaviour: Tensor  # [R, items], log-probabilities by the member that rolls out the session
    random: torch.Generator
    users: Tensor | None = None  # [R], numbered as in histories


Actor = Callable[[SessionView], Tensor]
"""Chooses an item for each session, [R]."""


def policy_actor(policy: Policy) -> Actor:
    """Shows the item that a policy ranks first."""

    def choose(view: SessionView) -> Tensor:
        history = replace(recent(view.items, view.feedback, policy.length), users=view.users)
        return policy.topk(policy.query(history), 1, exclude=view.shown)[0].squeeze(1)

    return choose


def fixed_actor(score: Tensor) -> Actor:
    """Orders items by one score [V], the same for everyone."""

    def choose(view: SessionView) -> Tensor:
        scores = score.expand(len(view.shown), -1).scatter(1, view.shown, -torch.inf)
        scores[:, PAD] = -torch.inf
        return scores.argmax(1)

    return choose


def random_actor(items: int) -> Actor:
    """Shows a random item among those that may be shown."""

    def choose(view: SessionView) -> Tensor:
        scores = torch.rand(len(view.shown), items + 1, generator=view.random).scatter_(1, view.shown, -1.0)
        scores[:, PAD] = -1.0
        return scores.argmax(1)

    return choose


def logging_actor() -> Actor:
    """Acts like the logging policy, by the simulator's estimate; it may repeat items."""

    def choose(view: SessionView) -> Tensor:
        chances = view.log_behaviour.exp()
        return torch.multinomial(chances, 1, generator=view.random).squeeze(1) + PAD + 1

    return choose


@dataclass(frozen=True)
class InitialStates:
    """States that roll-outs start from: logged histories, and how many steps follow."""

    items: Tensor  # [U, L]; PAD after the end
    feedback: Tensor  # [U, L]
    steps: Tensor  # [U] of the session to come
    sequence: Ints  # [U]
    users: Tensor | None = None  # [U] number of a user in the training split, 0 of others

    def part(self, rows: slice) -> "InitialStates":
        """Some of them."""
        users = None if self.users is None else self.users[rows]
        return InitialStates(self.items[rows], self.feedback[rows], self.steps[rows], self.sequence[rows], users)


def open_initial_states(
    data: Dataset, simulator: Simulator, split: str, *, users: int, warm: int, horizon: int, seed: int
) -> InitialStates:
    """Histories of at least `warm` events of a split; session lengths are drawn from those of the log."""
    offsets, trained = np.asarray(data.offsets), np.asarray(data.train_lengths)
    whole = np.diff(offsets)
    if split == "test":
        past, chosen = np.maximum(trained, warm), whole > np.maximum(trained, warm)
    else:
        past, chosen = np.full(len(whole), warm), np.asarray(data.is_validation) & (trained > warm)
    sequences = np.flatnonzero(chosen)
    if not len(sequences):
        raise InputError(f"{data.path}: no sequence of the {split} split has more than {warm} events to start from")
    random = np.random.default_rng([seed, 4])
    sequences = np.sort(random.permutation(sequences)[:users])
    size = past[sequences]
    is_trained = (trained[sequences] > 1) & ~np.asarray(data.is_validation)[sequences]
    steps = np.arange(size.max())
    inside = steps < size[:, None]
    events = np.where(inside, offsets[sequences][:, None] + steps, 0)
    return InitialStates(
        torch.from_numpy(np.where(inside, data.items[events], PAD).astype(np.int64)),
        torch.from_numpy(np.where(inside, data.feedback[events].astype(np.int64) + 1, 0)),
        torch.from_numpy(simulator.sample_remaining(size, horizon, random)),
        sequences,
        torch.from_numpy(np.where(is_trained, sequences + 1, 0)),
    )


@dataclass(frozen=True)
class Rollouts:
    """Steps of an actor, by member, initial state and step; `counted` marks the steps of each session."""

    reward: Floats  # [K, U, T] mean of the members' predictions
    ensemble_std: Floats  # [K, U, T] standard deviation of the predictions
    log_behaviour: Floats  # [K, U, T] log-probability that the log shows the item
    items: Ints  # [K, U, T]
    counted: NDArray[np.bool_]  # [U, T]

    def totals(self, uncertainty_penalty: float = 0.0) -> tuple[Floats, Floats]:
        """Reward minus a penalty per step, summed by member and initial state [K, U]; number of steps [U]."""
        penalised = (self.reward - uncertainty_penalty) * self.counted
        return penalised.sum(2), self.counted.sum(1).astype(np.float64)

    def value(self, uncertainty_penalty: float = 0.0) -> float:
        """Reward per step, minus a penalty."""
        total, steps = self.totals(uncertainty_penalty)
        return float(total.sum() / (len(total) * steps.sum()))

    @property
    def mean_ensemble_std(self) -> float:
        """Mean disagreement of the members per step."""
        return float(self.ensemble_std[:, self.counted].mean())

    @property
    def distinct(self) -> int:
        """Number of different items shown."""
        return len(np.unique(self.items[:, self.counted]))


@torch.no_grad()
def roll_out(simulator: Simulator, actor: Actor, initial: InitialStates, *, exclude_seen: bool, seed: int) -> Rollouts:
    """Let an actor act from every initial state in every member; a session ends when every item was shown."""
    if exclude_seen:
        initial = replace(initial, steps=torch.minimum(initial.steps, simulator.items - _distinct(initial.items)))
        if not int(initial.steps.max()):
            raise InputError("every item was shown to every user; let policies repeat items")
    chunk = max(1, min(_ROWS, _CELLS // simulator.items) // len(simulator.members))
    parts = []
    for first in range(0, len(initial.steps), chunk):
        rows = slice(first, first + chunk)
        parts.append(
            _roll_out_part(simulator, actor, initial.part(rows), int(initial.steps.max()), exclude_seen, [seed, first])
        )
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts], axis=1)
        for name in ("reward", "ensemble_std", "log_behaviour", "items")
    }
    return Rollouts(**joined, counted=np.concatenate([part.counted for part in parts]))


def _distinct(items: Tensor) -> Tensor:
    """How many different items each row holds, [U]."""
    ordered = items.sort(1).values
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return (is_first & (ordered != PAD)).sum(1)


def _roll_out_part(
    simulator: Simulator, actor: Actor, initial: InitialStates, steps: int, exclude_seen: bool, seed: list[int]
) -> Rollouts:
    members, users = len(simulator.members), len(initial.steps)
    feedback_random, actor_random = (
        torch.Generator().manual_seed(int(np.random.default_rng([*seed, k]).integers(2**62))) for k in (0, 1)
    )
    items, feedback = initial.items.repeat(members, 1), initial.feedback.repeat(members, 1)  # [R, L], member by member
    shown = items if exclude_seen else torch.zeros(len(items), 0, dtype=torch.int64)
    numbers = None if initial.users is None else initial.users.repeat(members)
    first = recent(items, feedback, LENGTH)
    states = [model.after_history(first) for model in simulator.members]  # each member has a state of every session
    steps_of: dict[str, list[Tensor]] = {"reward": [], "ensemble_std": [], "log_behaviour": [], "items": []}
    for _ in range(steps):
        logs = _own(simulator, states, users)
        view = SessionView(items, feedback, shown, logs, actor_random, numbers)
        chosen = actor(view).clamp(min=PAD + 1)  # sessions that have ended go on uncounted
        chances = torch.stack([simulator.chances(k, state, chosen) for k, state in enumerate(states)])  # [K, R, C]
        rewards = simulator.reward(chances, chosen)  # [K, R]
        own = chances.view(members, members, users, -1).diagonal(dim1=0, dim2=1).permute(2, 0, 1).flatten(0, 1)
        draw = torch.rand(len(items), 1, generator=feedback_random)
        given = (own.cumsum(1) < draw).sum(1).clamp(max=own.shape[1] - 1)  # [R]
        stays = torch.ones_like(given, dtype=torch.bool) if simulator.none is None else given != simulator.none
        after = [
            model.after_event(state, chosen, (given + 1) * stays)
            for model, state in zip(simulator.members, states, strict=True)
        ]
        states = [new.where(stays, old) for new, old in zip(after, states, strict=True)]
        items = torch.cat([items, (chosen * stays)[:, None]], 1)
        feedback = torch.cat([feedback, ((given + 1) * stays)[:, None]], 1)
        shown = torch.cat([shown, chosen[:, None]], 1) if exclude_seen else shown
        steps_of["reward"].append(rewards.mean(0))
        steps_of["ensemble_std"].append(rewards.std(0, correction=0) if members > 1 else torch.zeros_like(rewards[0]))
        steps_of["log_behaviour"].append(logs.gather(1, chosen[:, None] - PAD - 1).squeeze(1))
        steps_of["items"].append(chosen)
    shaped = {
        name: torch.stack(values, 1).view(members, users, steps).double().numpy() for name, values in steps_of.items()
    }
    counted = (torch.arange(steps) < initial.steps[:, None]).numpy()
    return Rollouts(
        shaped["reward"], shaped["ensemble_std"], shaped["log_behaviour"], shaped["items"].astype(np.int64), counted
    )


def _own(simulator: Simulator, states: list[UserState], users: int) -> Tensor:
    """Log behaviour in each session by the member that rolls it out, [R, items]."""
    rows = [slice(k * users, (k + 1) * users) for k in range(len(states))]
    return torch.cat(
        [simulator.log_behaviour(k, state.rows(row)) for k, (state, row) in enumerate(zip(states, rows, strict=True))]
    )


def recent(items: Tensor, feedback: Tensor, length: int) -> History:
    """The last `length` events, oldest first; a row without events gets item 1."""
    known = items != PAD
    order = (~known).sort(dim=1, stable=True).indices  # those there to the front
    count = known.sum(1, keepdim=True)
    place = (count - length).clamp(min=0) + torch.arange(min(length, items.shape[1]))
    order = order.gather(1, place.clamp(max=items.shape[1] - 1))
    inside = place < count
    kept = (items.gather(1, order) * inside).index_put_(((count == 0).squeeze(1), torch.tensor(0)), torch.tensor(1))
    return History(kept, feedback.gather(1, order) * inside)
