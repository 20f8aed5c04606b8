"""Sessions played for the page: two rankings of one model meet the same users, step by step.

Both see the same start, and both draw the feedback of a step from the same random number. So a difference comes from
the items that were shown. A model that was trained in a built-in world plays there; another one in a simulator that is
fitted on its dataset.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray

from ecoc.batch import PAD
from ecoc.data.sequences import open_data
from ecoc.errors import EcocError, InputError
from ecoc.model import Model
from ecoc.ope.evaluator import session_protocol
from ecoc.ope.results import RolloutConfig
from ecoc.ope.rollout import InitialStates, SessionView, open_initial_states, policy_actor, recent
from ecoc.ope.simulator import LENGTH, Simulator, SimulatorConfig, fit_simulator
from ecoc.ope.trust import simulator_warnings
from ecoc.ope.truth import in_world
from ecoc.policies.value_policy import ValuePolicy
from ecoc.serving.engine import Served
from ecoc.serving.export import world_settings
from ecoc.serving.messages import RequestError
from ecoc.serving.sphere import short_title
from ecoc.world import FEEDBACK, REWARDS, Market, MarketConfig, MarketState, Observation
from ecoc.world.log import item_ids

MOST_USERS = 100
WARM = 3
"""Events of a session before the policies begin."""
LONGEST = 100
"""Steps of a session at most."""
_MOST_SCORES = 300_000_000  # of one policy in all its sessions: about a second
_MOST_INITIAL = 500  # logged sequences that simulated sessions start from

Ints = NDArray[np.int64]


class Step(Struct, frozen=True):
    """One item shown, what the user did, and the reward."""

    item: str
    title: str | None
    feedback: str
    reward: float


class PlayedPolicy(Struct, frozen=True):
    """A policy's sessions: cumulative reward after each step, as the mean over users; the steps of the first user."""

    name: Literal["blend", "policy"]
    w: float | None
    cumulative: list[float]
    steps: list[Step]


class Session(Struct, frozen=True):
    """Sessions of the same users with one or two policies. `start` are the first user's events before both."""

    place: str
    users: int
    seed: int
    start: list[Step]
    policies: list[PlayedPolicy]
    warnings: list[str]


class Playground(Struct, frozen=True):
    """Whether and where sessions can be played; `status` fitting: ask again in a moment."""

    status: Literal["ready", "fitting", "off"]
    place: str | None = None
    reason: str | None = None
    steps: int = 0
    most_users: int = 0


@dataclass(frozen=True)
class _Played:
    """Steps of one policy: [users, steps] each. Items are the model's, codes those of `names`."""

    items: Ints
    codes: Ints
    rewards: NDArray[np.float64]
    counted: NDArray[np.bool_]


class _Arena(Protocol):
    """Where sessions are played."""

    place: str
    warnings: list[str]
    names: Sequence[str]
    steps: int

    def start(self, users: int, seed: int) -> _Played:
        """The events before the policies begin."""

    def play(self, model: Model, users: int, seed: int) -> _Played:
        """Sessions of a policy after that start."""


class _World:
    """The built-in world that a model was trained in."""

    def __init__(self, market: Market, model: Model) -> None:
        self.market = market
        self.names: Sequence[str] = FEEDBACK
        self.warnings: list[str] = []
        self.place = f"the built-in world ‘{market.config.kind}’"
        self.warm = min(WARM, market.config.steps - 1)
        self.steps = min(LONGEST, market.config.steps - self.warm)
        self._index = model.vocab.indices(item_ids(market)).astype(np.int64)

    def start(self, users: int, seed: int) -> _Played:
        state, feedback, _ = self._begin(users, seed)
        return self._played(state.shown, feedback)

    def play(self, model: Model, users: int, seed: int) -> _Played:
        state, feedback, luck = self._begin(users, seed)
        policy, random = in_world(model, self.market), np.random.default_rng(seed)
        for step in range(self.warm, self.warm + self.steps):
            items = policy(Observation(state.shown, feedback, state), random)
            answer = self.market.respond(state, items, luck[step])
            state = self.market.advance(state, items, answer > 0)
            feedback = np.column_stack([feedback, answer])
        return self._played(state.shown[:, self.warm :], feedback[:, self.warm :])

    def _begin(self, users: int, seed: int) -> tuple[MarketState, NDArray[np.int8], NDArray[np.float32]]:
        """The users after the warm-up, their feedback so far, and the random number of every step."""
        random = np.random.default_rng([self.market.config.seed, 8, seed])
        state = self.market.start(users, random)
        luck = random.random((self.market.config.steps, users), dtype=np.float32)
        feedback = np.zeros((users, 0), np.int8)
        for step in range(self.warm):
            items = self.market.behave(state, random)
            answer = self.market.respond(state, items, luck[step])
            state = self.market.advance(state, items, answer > 0)
            feedback = np.column_stack([feedback, answer])
        return state, feedback, luck

    def _played(self, items: NDArray[np.int32], feedback: NDArray[np.int8]) -> _Played:
        rewards = np.asarray(REWARDS)[feedback]
        return _Played(self._index[items], feedback.astype(np.int64), rewards, np.ones(items.shape, np.bool_))


class _Simulated:
    """A simulator fitted on the dataset of a model. A session starts from a logged history of a random user."""

    def __init__(self, simulator: Simulator, initial: InitialStates, *, exclude_seen: bool) -> None:
        self.simulator, self.initial, self.exclude_seen = simulator, initial, exclude_seen
        self.names: Sequence[str] = simulator.names
        self.warnings = simulator_warnings(simulator.quality)
        self.place = "a simulator of users that was fitted on the log"
        self.steps = min(LONGEST, int(initial.steps.max()))

    def _rows(self, users: int, seed: int) -> Ints:
        random = np.random.default_rng([seed, 9])
        count = len(self.initial.steps)
        return random.choice(count, users, replace=users > count)

    def start(self, users: int, seed: int) -> _Played:
        rows = self._rows(users, seed)
        items, codes = self.initial.items[rows], self.initial.feedback[rows] - 1
        is_event = items != PAD
        rewards = self.simulator.mean_reward[items, codes.clamp(min=0)].double() * is_event
        return _Played(items.numpy(), codes.numpy(), rewards.numpy(), is_event.numpy())

    @torch.inference_mode()
    def play(self, model: Model, users: int, seed: int) -> _Played:
        simulator, rows = self.simulator, torch.from_numpy(self._rows(users, seed))
        items, feedback = self.initial.items[rows], self.initial.feedback[rows]
        shown = items if self.exclude_seen else items[:, :0]
        numbers = None if self.initial.users is None else self.initial.users[rows]
        member = seed % len(simulator.members)
        response = simulator.members[member]
        state = response.after_history(recent(items, feedback, LENGTH))
        actor, nothing = policy_actor(model.policy), torch.zeros(0)
        random = torch.Generator().manual_seed(seed)
        left = self.initial.steps[rows]
        if self.exclude_seen:
            known = [len(set(row) - {PAD}) for row in items.tolist()]
            left = torch.minimum(left, simulator.items - torch.tensor(known))
        chosen_items, codes, rewards = [], [], []
        for _ in range(self.steps):
            view = SessionView(items, feedback, shown, nothing, random, numbers)
            chosen = actor(view).clamp(min=PAD + 1)  # sessions that have ended go on uncounted
            chances = simulator.chances(member, state, chosen)
            draw = torch.rand(users, 1, generator=random)
            given = (chances.cumsum(1) < draw).sum(1).clamp(max=chances.shape[1] - 1)
            stays = torch.ones_like(given, dtype=torch.bool) if simulator.none is None else given != simulator.none
            state = response.after_event(state, chosen, (given + 1) * stays).where(stays, state)
            items = torch.cat([items, (chosen * stays)[:, None]], 1)
            feedback = torch.cat([feedback, ((given + 1) * stays)[:, None]], 1)
            shown = torch.cat([shown, chosen[:, None]], 1) if self.exclude_seen else shown
            chosen_items.append(chosen)
            codes.append(given)
            rewards.append(simulator.mean_reward[chosen, given].double())
        counted = torch.arange(self.steps) < left[:, None]
        return _Played(
            torch.stack(chosen_items, 1).numpy(),
            torch.stack(codes, 1).numpy(),
            torch.stack(rewards, 1).numpy(),
            counted.numpy(),
        )


class Player:
    """Plays sessions of one model. On first use, a thread opens its world or fits a simulator."""

    def __init__(self, served: Served, data: Path | None, *, threads: int = 1) -> None:
        self.served, self._data, self._threads = served, data, threads
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._arena: _Arena | None = None
        self._reason: str | None = None

    @property
    def playground(self) -> Playground:
        """Where sessions can be played; begins to prepare it."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._open, name="ecoc-player", daemon=True)
                self._thread.start()
        self._thread.join(0.2)  # a world is there at once
        if self._arena is not None:
            most = max(1, min(MOST_USERS, _MOST_SCORES // (len(self.served.model.vocab) * self._arena.steps)))
            return Playground("ready", self._arena.place, None, self._arena.steps, most)
        if self._reason is not None:
            return Playground("off", reason=self._reason)
        return Playground("fitting", reason="The simulator is being fitted on the log. This takes a moment.")

    def play(self, *, w: float | None, users: int, seed: int) -> Session:
        """Play the blend with weight w beside the cloned policy; a model without a critic plays its only ranking."""
        ground, arena = self.playground, self._arena
        if ground.status == "fitting":
            raise RequestError(503, "fitting", ground.reason or "", retry_after=3)
        if arena is None:
            raise InputError(ground.reason or "")
        if users > ground.most_users:
            raise InputError(f"users: {users} is more than {ground.most_users}, the most for this catalogue")
        model = self.served.model
        views: list[tuple[Literal["blend", "policy"], float | None, Model]] = [
            ("policy", None, model.ranked_by("policy"))
        ]
        if model.policy.has_critic:
            w = default_weight(model) if w is None else w
            views.insert(0, ("blend", w, model.ranked_by("blend", w=w)))
        played = [
            PlayedPolicy(name, weight, _cumulative(steps := arena.play(view, users, seed)), self._steps(arena, steps))
            for name, weight, view in views
        ]
        start = self._steps(arena, arena.start(users, seed))
        return Session(arena.place, users, seed, start, played, arena.warnings)

    def _steps(self, arena: _Arena, played: _Played) -> list[Step]:
        """Of the first user."""
        ids, titles = self.served.ids, self.served.titles
        rows = zip(*(column[0][played.counted[0]].tolist() for column in (played.items, played.codes)), strict=True)
        rewards = played.rewards[0][played.counted[0]].tolist()
        return [
            Step(
                ids[item - 1] if item else "",
                short_title(titles[item - 1]) if item else None,
                arena.names[code] if code >= 0 else "",
                round(reward, 4),
            )
            for (item, code), reward in zip(rows, rewards, strict=True)
        ]

    def _open(self) -> None:
        torch.set_num_threads(self._threads)  # of this thread
        try:
            self._arena = self._opened()
        except EcocError as error:
            self._reason = " ".join(str(error).split())[:500]
        except Exception as error:  # the page must not wait for ever
            self._reason = f"No session can be played: {type(error).__name__}: {' '.join(str(error).split())[:300]}"

    def _opened(self) -> _Arena:
        model = self.served.model
        market = world_of(model)
        if market is not None:
            return _World(market, model)
        path = self._data or _data_of(model)
        if path is None:
            raise InputError(
                "Sessions need users who react. This model was not trained in a built-in world, and the server was "
                "started without a dataset. Start it with ecoc serve MODEL --data DATA to fit a simulator on DATA."
            )
        return _fitted(model, path)


def world_of(model: Model) -> Market | None:
    """The built-in world that a model was trained in; none if there is none, or its record is not there any more."""
    settings = world_settings(model)
    if settings is None:
        return None
    market = Market(MarketConfig.build(settings))
    return market if model.vocab.indices(item_ids(market)).any() else None


def default_weight(model: Model) -> float | None:
    """The weight w that the model ranks by; none without a critic."""
    policy = model.policy.without_counts
    return policy.w if isinstance(policy, ValuePolicy) else None


def _fitted(model: Model, path: Path) -> _Simulated:
    data = open_data(path)
    if data.checksum != _checksum(model):
        raise InputError(f"The model was trained on other data than {path}, so no simulator can be fitted for it.")
    config = RolloutConfig()
    exclude_seen, negatives = session_protocol(data, config)
    simulator = fit_simulator(data, SimulatorConfig(negatives=negatives))
    initial = open_initial_states(
        data, simulator, "test", users=_MOST_INITIAL, warm=config.warm, horizon=config.horizon, seed=0
    )
    return _Simulated(simulator, initial, exclude_seen=exclude_seen)


def _data_of(model: Model) -> Path | None:
    """Dataset of a run, if it is still there."""
    if model.bundle is not None or model.run.result.data is None:
        return None
    path = Path(model.run.result.data.path)
    return path if path.is_dir() else None


def _checksum(model: Model) -> str | None:
    """Fingerprint of the data that a model was trained on."""
    if model.bundle is not None:
        return model.bundle.record.data_sha256
    trained_on = model.run.result.data
    return None if trained_on is None else trained_on.checksum


def _cumulative(played: _Played) -> list[float]:
    """Mean over users of the reward up to each step; sessions that have ended earn nothing more."""
    steps = int(played.counted.sum(1).max())
    if not steps:
        raise InputError("Every item was shown to these users already; try another seed.")
    rewards = np.where(played.counted, played.rewards, 0.0)[:, :steps]
    return [round(total, 4) for total in np.cumsum(rewards.mean(0)).tolist()]
