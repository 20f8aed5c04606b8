"""Policies that know the truth, an exact planner for small worlds, and the true reward of any policy.

A policy gets an `Observation`. Learned policies use its items and feedback; the policies here also read its `truth`,
so they serve as references. All but the logging policy never show an item twice in a session.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ecoc.errors import InputError
from ecoc.world.market import Floats, Ints, Market, MarketState

_LARGEST_PLAN = 20_000_000  # values computed at the last level: about a second


@dataclass(frozen=True)
class Observation:
    """What is known about n users at the same step: their sessions so far and, for reference policies, the truth."""

    items: Ints  # [n, t], oldest first
    feedback: NDArray[np.int8]  # [n, t]
    truth: MarketState


class MarketPolicy(Protocol):
    """A function that chooses an item for each of n users of a market."""

    def __call__(self, seen: Observation, rng: np.random.Generator, /) -> Ints:
        """Items to show. [n]."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """True reward of a policy, after the warm-up."""

    reward: float  # mean true reward per step
    low: float  # 95 % confidence interval of the mean over users
    high: float
    coverage: int  # distinct items shown
    tempting: float  # share of bait (or heavy) items among those shown
    per_step: NDArray[np.float64]  # [steps - warm] mean reward of each counted step
    per_user: NDArray[
        np.float64
    ]  # [users] mean reward per step; every policy meets the same users, so values are paired


def evaluate(market: Market, policy: MarketPolicy, users: int = 2000, *, seed: int = 0, warm: int = 3) -> Evaluation:
    """Simulate one session per user. The logging policy chooses the first `warm` steps, which do not count.

    The reward of a step is its expectation given the hidden state: the mean of the sampled reward, with less noise.
    Users, warm-up and random responses depend on `seed` alone, not on the policy.
    """
    if users < 1 or not 0 <= warm < market.config.steps:
        raise InputError(
            f"evaluate: users ({users}) must be positive and warm ({warm}) below {market.config.steps} steps"
        )
    shown = np.zeros(market.config.items, np.int64)
    per_user = np.empty(users)
    per_step = np.zeros(market.config.steps - warm)
    for index, first in enumerate(range(0, users, market.chunk)):
        count = min(market.chunk, users - first)
        streams = [np.random.default_rng([market.config.seed, stream, seed, index]) for stream in (3, 4)]
        rewards, items = _play(market, policy, count, warm, streams)
        per_user[first : first + count] = rewards.mean(axis=1, dtype=np.float64)
        per_step += rewards.sum(axis=0, dtype=np.float64) / users
        shown += np.bincount(items.ravel(), minlength=market.config.items)
    half = 1.96 * per_user.std(ddof=1) / users**0.5 if users > 1 else float("inf")
    mean = float(per_user.mean())
    return Evaluation(
        reward=mean,
        low=float(mean - half),
        high=float(mean + half),
        coverage=int(np.count_nonzero(shown)),
        tempting=float(shown[market.tempting].sum() / shown.sum()),
        per_step=per_step,
        per_user=per_user,
    )


def _play(
    market: Market, policy: MarketPolicy, count: int, warm: int, streams: list[np.random.Generator]
) -> tuple[Floats, Ints]:
    """Expected rewards and items of the counted steps, [count, steps - warm] each."""
    user_rng, policy_rng = streams
    state = market.start(count, user_rng)
    feedback = np.zeros((count, 0), np.int8)
    rewards = []
    for step in range(market.config.steps):
        seen = Observation(state.shown, feedback, state)
        items = market.behave(state, user_rng) if step < warm else policy(seen, policy_rng)
        rewards.append(market.expected_reward_of(state, items))
        state, answer, _ = market.step(state, items, user_rng)
        feedback = np.column_stack([feedback, answer])
    return np.stack(rewards[warm:], axis=1), state.shown[:, warm:]


def best_unseen(scores: Floats, shown: Ints) -> Ints:
    """Choose the highest score among items not yet shown; `scores` [n, items] is overwritten."""
    np.put_along_axis(scores, shown, -np.inf, axis=1)
    best: Ints = scores.argmax(axis=1).astype(np.int32)
    return best


def random(market: Market) -> MarketPolicy:
    """A random item not yet shown."""

    def choose(seen: Observation, rng: np.random.Generator) -> Ints:
        return best_unseen(rng.random((len(seen.items), market.config.items), dtype=np.float32), seen.items)

    return choose


def logged(market: Market) -> MarketPolicy:
    """The logging policy; it may show an item again."""
    return lambda seen, rng: market.behave(seen.truth, rng)


def popular(market: Market) -> MarketPolicy:
    """The same order for every user: by expected reward for a new user."""
    rng = np.random.default_rng([market.config.seed, 5])
    scores = np.mean([market.expected_reward(market.start(market.chunk, rng)).mean(axis=0) for _ in range(8)], axis=0)
    return lambda seen, rng: best_unseen(np.tile(scores, (len(seen.items), 1)), seen.items)


def myopic(market: Market) -> MarketPolicy:
    """The exact optimum for a horizon of one step."""
    return lambda seen, rng: best_unseen(market.expected_reward(seen.truth), seen.items)


def far_sighted(market: Market) -> MarketPolicy:
    """A simple far-sighted policy: it never shows bait and subtracts the cost of future wear from each item.

    A load of l lowers every click chance k steps from now by wear * l * boredom_decay^(k-1). Each such step counts as
    much as the best item now.
    """
    config = market.config
    bait = np.where(market.bait, np.float32(10), np.float32(0))

    def choose(seen: Observation, rng: np.random.Generator) -> Ints:
        reward = market.expected_reward(seen.truth)  # [n, items]
        left = config.steps - 1 - seen.items.shape[1]
        steps_worn = (1 - config.boredom_decay**left) / (1 - config.boredom_decay)
        cost = np.float32(config.wear * steps_worn) * market.load  # [items]
        reward -= cost * reward.max(axis=1, keepdims=True)
        return best_unseen(reward - bait, seen.items)

    return choose


def optimal(market: Market) -> MarketPolicy:
    """The exact optimum for the rest of the session; for worlds small enough to `plan`."""
    return lambda seen, rng: (
        plan(market, seen.truth, market.config.steps - seen.items.shape[1]).argmax(axis=1).astype(np.int32)
    )


def plan(market: Market, state: MarketState, horizon: int) -> Floats:
    """Value of each item: its expected reward now plus that of the best choices after it, `horizon` steps. [n, items].

    Exact: the next state depends on the item shown and on whether it was clicked, so each item has two branches. Items
    already shown have value -inf.
    """
    items = market.config.items
    if not 1 <= horizon <= items - state.shown.shape[1]:
        raise InputError(f"plan: horizon {horizon} does not fit a catalogue of {items} without repeats")
    if len(state) * items * (2 * items) ** (horizon - 1) > _LARGEST_PLAN:
        raise InputError(
            f"plan: {items} items over {horizon} steps are too many for an exact plan; use a smaller world"
        )
    return _plan(market, state, horizon)


def _plan(market: Market, state: MarketState, horizon: int) -> Floats:
    values = market.expected_reward(state)  # [n, items]
    if horizon > 1:
        n, items = values.shape
        click = market.click_chance(state)
        before = state.take(np.repeat(np.arange(n), items))  # n * items
        shown = np.tile(np.arange(items, dtype=np.int32), n)  # [n * items]
        for clicked, chance in ((True, click), (False, 1 - click)):
            after = market.advance(before, shown, np.full(n * items, clicked))
            values += chance * _plan(market, after, horizon - 1).max(axis=1).reshape(n, items)
    np.put_along_axis(values, state.shown, -np.inf, axis=1)
    return values


POLICIES: dict[str, Callable[[Market], MarketPolicy]] = {
    "random": random,
    "logged": logged,
    "popular": popular,
    "myopic": myopic,
    "far_sighted": far_sighted,
}
