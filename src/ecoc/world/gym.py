"""The marketplace as a Gymnasium environment, `ecoc/Market-v0`: what a recommender sees, one session per episode.

Importing `ecoc.world` registers it, so `gymnasium.make("ecoc.world.gym:ecoc/Market-v0")` needs no other import.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ecoc.world.log import item_ids
from ecoc.world.market import FEEDBACK, Market, MarketState
from ecoc.world.worlds import parse_world

Seen = dict[str, NDArray[np.int64]]


class _Sessions:
    """n sessions at the same step, used by both environments. In `seen` items are numbered from 1; 0 is padding."""

    def __init__(self, market: Market, n: int, rng: np.random.Generator) -> None:
        self.market = market
        self.state: MarketState = market.start(n, rng)
        self.seen: Seen = {key: np.zeros((n, market.config.steps), np.int64) for key in ("items", "feedback")}

    @property
    def step_count(self) -> int:
        return int(self.state.shown.shape[1])

    @property
    def is_over(self) -> bool:
        return self.step_count >= self.market.config.steps

    def show(self, items: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
        """Show items [n], record what a recommender sees, and return the rewards [n]."""
        place = self.step_count
        self.state, feedback, rewards = self.market.step(self.state, items.astype(np.int32), rng)
        self.seen = {key: value.copy() for key, value in self.seen.items()}  # earlier observations stay unchanged
        self.seen["items"][:, place] = items + 1
        self.seen["feedback"][:, place] = feedback
        return rewards.astype(np.float64)


def _observation_space(market: Market) -> spaces.Space[Any]:
    steps = market.config.steps
    return spaces.Dict(
        {
            "items": spaces.MultiDiscrete(np.full(steps, market.config.items + 1)),
            "feedback": spaces.MultiDiscrete(np.full(steps, 4)),
        }
    )


class MarketEnv(gymnasium.Env[Seen, np.int64]):
    """One user's session. `world` and its options are those of `parse_world`."""

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - gymnasium declares it so

    def __init__(
        self,
        world: str = "world:bait",
        world_seed: int = 0,
        items: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.market = Market(parse_world(world, seed=world_seed, items=items))
        self.render_mode = render_mode
        self._ids = item_ids(self.market)
        self.observation_space = _observation_space(self.market)
        self.action_space = spaces.Discrete(self.market.config.items)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Start the session of a new user."""
        super().reset(seed=seed, options=options)
        self._sessions = _Sessions(self.market, 1, self.np_random)
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Show the item `action`; the reward is 0, 1, 2 or 3 for ignore, click, favourite or buy."""
        expected = self.market.expected_reward_of(self._sessions.state, np.array([action], np.int32))
        rewards = self._sessions.show(np.array([action], np.int64), self.np_random)
        info = {"item": self._ids[action], "expected_reward": float(expected[0])}
        return self._seen(), float(rewards[0]), self._sessions.is_over, False, info

    def render(self) -> str:
        """The session so far as text, one line per step."""
        shown = zip(self._sessions.state.shown[0], self._seen()["feedback"], strict=False)
        return "\n".join(f"{FEEDBACK[answer]:9} {self.market.titles[item]}" for item, answer in shown)

    def _seen(self) -> Seen:
        return {key: value[0] for key, value in self._sessions.seen.items()}


class MarketVectorEnv(VectorEnv[Seen, NDArray[np.int64], NDArray[Any]]):
    """Many sessions at once, all at the same step; after the last step the next call starts new users."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - gymnasium declares it so

    def __init__(
        self, num_envs: int = 1, world: str = "world:bait", world_seed: int = 0, items: int | None = None
    ) -> None:
        self.market = Market(parse_world(world, seed=world_seed, items=items))
        self.num_envs = num_envs
        self.single_observation_space = _observation_space(self.market)
        self.single_action_space = spaces.Discrete(self.market.config.items)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Start the sessions of new users."""
        super().reset(seed=seed, options=options)
        self._sessions = _Sessions(self.market, self.num_envs, self.np_random)
        return self._sessions.seen, {}

    def step(self, actions: NDArray[np.int64]) -> tuple[Seen, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Show one item to each user."""
        never = np.zeros(self.num_envs, np.bool_)
        if self._sessions.is_over:
            seen, info = self.reset()
            return seen, np.zeros(self.num_envs), never, never.copy(), info
        rewards = self._sessions.show(np.asarray(actions, np.int64), self.np_random)
        return self._sessions.seen, rewards, np.full(self.num_envs, self._sessions.is_over), never, {}
