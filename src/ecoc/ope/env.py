"""The fitted simulator as a Gymnasium environment: an episode is a session of one simulated user."""

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

Observation = dict[str, NDArray[np.int64]]


class SimulatedUser(gymnasium.Env[Observation, np.int64]):
    """Shows items to a simulated user; `action` is an item's index, 1..n.

    The observation is the session so far, with its logged history, as item indices and feedback codes + 1, padded
    with 0. `info` holds the reward that each member expects of the item.
    """

    def __init__(self, simulator: Simulator, initial: InitialStates, member: int | None = None) -> None:
        if member is not None and not 0 <= member < len(simulator.members):
            raise InputError(f"member {member}: the simulator has members 0 to {len(simulator.members) - 1}")
        self.simulator, self.initial, self.member = simulator, initial, member
        self._width = int(initial.items.shape[1] + initial.steps.max())
        sizes = {"items": simulator.items + 1, "feedback": len(simulator.names) + 1}
        space: spaces.Space[Any] = spaces.Dict(
            {name: spaces.MultiDiscrete(np.full(self._width, size)) for name, size in sizes.items()}
        )
        self.observation_space = space
        self.action_space = spaces.Discrete(simulator.items, start=1)

    @torch.no_grad()
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start from the history of a logged user."""
        super().reset(seed=seed, options=options)
        row = int(self.np_random.integers(len(self.initial.steps)))
        members = len(self.simulator.members)
        self._user = int(self.np_random.integers(members)) if self.member is None else self.member
        rows = slice(row, row + 1)
        history = recent(self.initial.items[rows], self.initial.feedback[rows], self.initial.items.shape[1])
        self._states: list[UserState] = [model.after_history(history) for model in self.simulator.members]
        self._items = history.items[0][history.items[0] != 0].tolist()
        given = history.feedback
        self._feedback = [] if given is None else given[0][: len(self._items)].tolist()
        self._remaining = int(self.initial.steps[row])
        return self._observation(), {}

    @torch.no_grad()
    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Show an item; the reward is that of the feedback drawn."""
        if not 1 <= int(action) <= self.simulator.items:
            raise InputError(f"item {int(action)}: the simulator knows items 1 to {self.simulator.items}")
        item = torch.tensor([int(action)])
        simulator = self.simulator
        chances = [simulator.chances(k, state, item)[0] for k, state in enumerate(self._states)]
        expected = [float(simulator.reward(chance, item[0])) for chance in chances]
        share = chances[self._user].double().numpy()
        given = int(self.np_random.choice(len(share), p=share / share.sum()))
        if given != simulator.none:
            code = torch.tensor([given + 1])
            members = zip(simulator.members, self._states, strict=True)
            self._states = [model.after_event(state, item, code) for model, state in members]
            self._items.append(int(action))
            self._feedback.append(given + 1)
        self._remaining -= 1
        reward = float(simulator.mean_reward[int(action), given])
        info = {"feedback": simulator.names[given], "expected_rewards": expected}
        return self._observation(), reward, self._remaining <= 0, False, info

    def _observation(self) -> Observation:
        padded = {key: np.zeros(self._width, np.int64) for key in ("items", "feedback")}
        padded["items"][: len(self._items)] = self._items
        padded["feedback"][: len(self._feedback)] = self._feedback
        return padded
