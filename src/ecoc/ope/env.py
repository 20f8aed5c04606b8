"""The fitted simulator as a Gymnasium environment: one session of one of its users."""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from ecoc.errors import InputError
from ecoc.ope.response import UserState
from ecoc.ope.rollout import InitialStates, recent
from ecoc.ope.simulator import Simulator

Seen = dict[str, NDArray[np.int64]]


class SimulatedUser(gymnasium.Env[Seen, np.int64]):
    """Shows items to a simulated user; `action` is an item's index, 1..n.

    Observed is the session so far, logged start included, as item indices and feedback codes + 1, padded with 0.
    `info` says what each member expects of the item, so that doubt can be charged.
    """

    def __init__(self, simulator: Simulator, starts: InitialStates, member: int | None = None) -> None:
        if member is not None and not 0 <= member < len(simulator.members):
            raise InputError(f"member {member}: the simulator has members 0 to {len(simulator.members) - 1}")
        self.simulator, self.starts, self.member = simulator, starts, member
        self._width = int(starts.items.shape[1] + starts.left.max())
        sizes = {"items": simulator.items + 1, "feedback": len(simulator.names) + 1}
        space: spaces.Space[Any] = spaces.Dict(
            {name: spaces.MultiDiscrete(np.full(self._width, size)) for name, size in sizes.items()}
        )
        self.observation_space = space
        self.action_space = spaces.Discrete(simulator.items, start=1)

    @torch.no_grad()
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin where a logged user stood."""
        super().reset(seed=seed, options=options)
        row = int(self.np_random.integers(len(self.starts.left)))
        members = len(self.simulator.members)
        self._user = int(self.np_random.integers(members)) if self.member is None else self.member
        rows = slice(row, row + 1)
        history = recent(self.starts.items[rows], self.starts.feedback[rows], self.starts.items.shape[1])
        self._moods: list[UserState] = [model.after_history(history) for model in self.simulator.members]
        self._items = history.items[0][history.items[0] != 0].tolist()
        given = history.feedback
        self._feedback = [] if given is None else given[0][: len(self._items)].tolist()
        self._left = int(self.starts.left[row])
        return self._seen(), {}

    @torch.no_grad()
    def step(self, action: np.int64) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Show an item; the reward is what the feedback that was drawn is worth."""
        if not 1 <= int(action) <= self.simulator.items:
            raise InputError(f"item {int(action)}: the simulator knows items 1 to {self.simulator.items}")
        item = torch.tensor([int(action)])
        simulator = self.simulator
        chances = [simulator.chances(k, mood, item)[0] for k, mood in enumerate(self._moods)]
        expected = [float(simulator.reward(chance, item[0])) for chance in chances]
        share = chances[self._user].double().numpy()
        given = int(self.np_random.choice(len(share), p=share / share.sum()))
        if given != simulator.none:
            code = torch.tensor([given + 1])
            members = zip(simulator.members, self._moods, strict=True)
            self._moods = [model.after_event(mood, item, code) for model, mood in members]
            self._items.append(int(action))
            self._feedback.append(given + 1)
        self._left -= 1
        reward = float(simulator.worth[int(action), given])
        info = {"feedback": simulator.names[given], "expected_rewards": expected}
        return self._seen(), reward, self._left <= 0, False, info

    def _seen(self) -> Seen:
        found = {key: np.zeros(self._width, np.int64) for key in ("items", "feedback")}
        found["items"][: len(self._items)] = self._items
        found["feedback"][: len(self._feedback)] = self._feedback
        return found
