"""Sessions that the page plays: fair to both policies, true to the world or the simulator, and limited."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from page_case import hostile_run

import ecoc
from ecoc.batch import PAD
from ecoc.data.sequences import open_data
from ecoc.errors import InputError
from ecoc.model import Model
from ecoc.ope.rollout import InitialStates, open_initial_states, recent
from ecoc.ope.simulator import LENGTH, Simulator, SimulatorConfig, fit_simulator
from ecoc.serving import play as module
from ecoc.serving.engine import Served
from ecoc.serving.messages import RequestError
from ecoc.serving.play import MOST_USERS, WARM, PlayedPolicy, Player, Session, Step, default_weight, world_of
from ecoc.world import FEEDBACK, REWARDS, Market

Hostile = tuple[Path, Path]


def player_of(path: Path, data: Path | None = None) -> Player:
    player = Player(Served(ecoc.load(path)), data)
    assert player.playground.status != "fitting" or data is not None
    return player


def wait_for(player: Player) -> None:
    """Until its thread has opened the world or fitted the simulator."""
    assert player._thread is not None
    player._thread.join(20)


@pytest.fixture(scope="module")
def player(models: Path) -> Player:
    return player_of(models / "ecoc-bundle")


def steps_of(session: Session, name: str) -> list[Step]:
    return policy_of(session, name).steps


def policy_of(session: Session, name: str) -> PlayedPolicy:
    return next(policy for policy in session.policies if policy.name == name)


# ------------------------------------------------------------------------------------------------ built-in world


@pytest.mark.parametrize("w", [0.5, 20.0])
def test_each_step_shows_the_best_item_that_is_new(player: Player, w: float) -> None:
    """Slow reference: the list of the model after every step."""
    model = player.served.model
    views = {"blend": model.ranked_by("blend", w=w), "policy": model.ranked_by("policy")}
    for seed in range(3):
        session = player.play(w=w, users=1, seed=seed)
        assert [policy.name for policy in session.policies] == ["blend", "policy"]
        assert policy_of(session, "blend").w == w
        for name, view in views.items():
            history = [(step.item, step.feedback) for step in session.start]
            assert len(history) == WARM
            for step in steps_of(session, name):
                best = view.recommend([history], k=1, exclude_seen=True).items[0][0]
                assert step.item == best
                history.append((step.item, step.feedback))
            assert len(history) == 20


def test_rewards_add_up(player: Player) -> None:
    session = player.play(w=5, users=1, seed=1)
    for policy in session.policies:
        rewards = [step.reward for step in policy.steps]
        assert rewards == [REWARDS[FEEDBACK.index(step.feedback)] for step in policy.steps]
        assert policy.cumulative == pytest.approx(np.cumsum(rewards))
    titles = dict(zip(player.served.ids, player.served.titles, strict=True))
    assert all(step.title == titles[step.item] for step in [*session.start, *steps_of(session, "blend")])


def test_the_mean_is_over_users(player: Player) -> None:
    """Slow reference: the users of the same arena, summed by hand."""
    arena = player._arena
    assert arena is not None
    played = arena.play(player.served.model.ranked_by("blend", w=5), 30, 4)
    totals = [sum(played.rewards[user, : step + 1]) for step in range(17) for user in range(30)]
    means = np.array(totals).reshape(17, 30).mean(1)
    assert policy_of(player.play(w=5, users=30, seed=4), "blend").cumulative == pytest.approx(means, abs=1e-4)


def test_users_depend_on_the_seed_alone(player: Player) -> None:
    sessions = [player.play(w=w, users=1, seed=seed) for w, seed in ((1, 7), (100, 7), (1, 8))]
    assert sessions[0].start == sessions[1].start != sessions[2].start
    assert steps_of(sessions[0], "policy") == steps_of(sessions[1], "policy") != steps_of(sessions[2], "policy")
    assert player.play(w=1, users=1, seed=7) == sessions[0]


def is_paired(player: Player) -> bool:
    """Whether weight 0, which is the cloned policy, has the very sessions of the cloned policy."""
    session = player.play(w=0, users=MOST_USERS, seed=0)
    blend, policy = session.policies
    return blend.steps == policy.steps and blend.cumulative == policy.cumulative


def test_weight_0_plays_as_the_cloned_policy(player: Player) -> None:
    assert is_paired(player)


def test_luck_that_is_not_shared_would_be_noticed(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    player, random = player_of(models / "ecoc-bundle"), np.random.default_rng(0)
    respond = Market.respond

    def unfair(self: Market, state: Any, items: Any, luck: Any) -> Any:
        return respond(self, state, items, random.random(luck.shape, dtype=np.float32))

    monkeypatch.setattr(Market, "respond", unfair)
    assert not is_paired(player)


def test_a_bundle_plays_in_the_world_of_its_run(models: Path, player: Player) -> None:
    of_run = player_of(models / "ecoc")
    assert of_run.play(w=3, users=2, seed=5) == player.play(w=3, users=2, seed=5)
    assert player.playground.place == "the built-in world ‘bait’"
    assert player.playground.steps == 17


@pytest.mark.parametrize("name", ["supervised-bundle", "markov-bundle"])
def test_without_a_critic_there_is_one_policy(models: Path, name: str) -> None:
    player = player_of(models / name)
    assert default_weight(player.served.model) is None
    session = player.play(w=None, users=3, seed=0)
    assert [(policy.name, policy.w) for policy in session.policies] == [("policy", None)]


def test_the_weight_of_the_model_is_the_default(player: Player) -> None:
    assert policy_of(player.play(w=None, users=1, seed=0), "blend").w == default_weight(player.served.model) == 10.0


def test_sessions_are_limited(models: Path, player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    assert player.playground.most_users == MOST_USERS
    with pytest.raises(InputError, match=f"users: 101 is more than {MOST_USERS}"):
        player.play(w=1, users=101, seed=0)
    monkeypatch.setattr(module, "_MOST_SCORES", 200 * 17 * 5 + 1)
    assert player.playground.most_users == 5
    monkeypatch.setattr(module, "_MOST_SCORES", 1)
    assert player.playground.most_users == 1
    monkeypatch.setattr(module, "LONGEST", 4)
    short = player_of(models / "ecoc-bundle")
    assert len(policy_of(short.play(w=1, users=1, seed=0), "blend").cumulative) == 4


# ------------------------------------------------------------------------------------------------ simulator


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    return hostile_run(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def simulator(hostile: Hostile, one_thread: None) -> Simulator:
    """With feedback that leaves no event, so that it is played too."""
    return fit_simulator(open_data(hostile[0]), SimulatorConfig(negatives=1, members=2))


@pytest.fixture(scope="module")
def initial(hostile: Hostile, simulator: Simulator) -> InitialStates:
    return open_initial_states(open_data(hostile[0]), simulator, "test", users=20, warm=3, horizon=12, seed=0)


@torch.inference_mode()
def slow_session(
    simulator: Simulator, initial: InitialStates, model: Model, seed: int, *, exclude_seen: bool
) -> list[tuple[str, str, float]]:
    """One user's session: the whole history is read again at every step, and the list is the model's."""
    row = int(np.random.default_rng([seed, 9]).choice(len(initial.steps), 1, replace=False)[0])
    ids = ["", *model.vocab.all_ids()]
    events = [
        (int(item), int(code))
        for item, code in zip(initial.items[row], initial.feedback[row], strict=True)
        if item != PAD
    ]
    shown = {item for item, _ in events}
    member = seed % len(simulator.members)
    random = torch.Generator().manual_seed(seed)
    session = []
    for _ in range(int(initial.steps[row])):
        history = [(ids[item], simulator.names[code - 1]) for item, code in events]
        seen = [ids[item] for item in shown] if exclude_seen else []
        if len(seen) == simulator.items:
            break
        best = model.recommend([history], k=1, exclude=seen).items[0][0]
        item = ids.index(best)
        columns = [torch.tensor([column]) for column in zip(*events, strict=True)]
        state = simulator.members[member].after_history(recent(columns[0], columns[1], LENGTH))
        chances = simulator.chances(member, state, torch.tensor([item]))[0].tolist()
        luck, code = float(torch.rand(1, 1, generator=random)), 0
        while code < len(chances) - 1 and sum(chances[: code + 1]) < luck:
            code += 1
        session.append((best, simulator.names[code], round(float(simulator.mean_reward[item, code]), 4)))
        shown.add(item)
        if code != simulator.none:
            events.append((item, code + 1))
    return session


@pytest.fixture
def simulated(
    hostile: Hostile, simulator: Simulator, initial: InitialStates, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bool], Player]:
    def open_player(exclude_seen: bool) -> Player:
        arena = module._Simulated(simulator, initial, exclude_seen=exclude_seen)
        monkeypatch.setattr(module, "_fitted", lambda model, path: arena)
        player = player_of(hostile[1], hostile[0])
        assert player.playground.status == "ready"
        return player

    return open_player


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_simulated_sessions_agree_with_a_slow_one(
    simulated: Callable[[bool], Player], simulator: Simulator, initial: InitialStates, exclude_seen: bool
) -> None:
    player = simulated(exclude_seen)
    model = player.served.model
    feedback = set()
    for seed in range(8):
        session = player.play(w=2, users=1, seed=seed)
        for policy, view in zip(
            session.policies, (model.ranked_by("blend", w=2), model.ranked_by("policy")), strict=True
        ):
            steps = [(step.item, step.feedback, step.reward) for step in policy.steps]
            assert steps == slow_session(simulator, initial, view, seed, exclude_seen=exclude_seen)
            assert policy.cumulative == pytest.approx(np.cumsum([step.reward for step in policy.steps]), abs=1e-3)
            feedback |= {step.feedback for step in policy.steps}
    assert {"none"} < feedback


def test_simulated_sessions_are_paired(simulated: Callable[[bool], Player]) -> None:
    player = simulated(True)
    assert is_paired(player)
    sessions = [player.play(w=w, users=3, seed=1) for w in (1, 50)]
    assert sessions[0].start == sessions[1].start
    assert steps_of(sessions[0], "policy") == steps_of(sessions[1], "policy")
    assert "events per item" in " ".join(sessions[0].warnings)
    assert all(len(policy.cumulative) >= len(policy.steps) for policy in sessions[0].policies)


def test_a_simulator_that_is_being_fitted_is_asked_for_later(
    hostile: Hostile, simulator: Simulator, initial: InitialStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    arena = module._Simulated(simulator, initial, exclude_seen=True)

    def slow_fit(model: Model, path: Path) -> Any:
        assert path == hostile[0], "the run names its dataset"
        go_on.wait(20)
        return arena

    monkeypatch.setattr(module, "_fitted", slow_fit)
    player = Player(Served(ecoc.load(hostile[1])), None)
    states = [player.playground.status]
    with pytest.raises(RequestError, match="being fitted") as refusal:
        player.play(w=1, users=1, seed=0)
    assert (refusal.value.status, refusal.value.retry_after) == (503, 3)
    go_on.set()
    wait_for(player)
    states.append(player.playground.status)
    assert states == ["fitting", "ready"]


def test_why_no_session_can_be_played(
    models: Path, hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ecoc.export(hostile[1], tmp_path / "bundle")
    player = player_of(tmp_path / "bundle")
    assert world_of(player.served.model) is None
    assert player.playground.status == "off"
    with pytest.raises(InputError, match="ecoc serve MODEL --data DATA"):
        player.play(w=1, users=1, seed=0)
    other = player_of(tmp_path / "bundle", models / "data")
    wait_for(other)
    assert "trained on other data" in str(other.playground.reason)

    def broken(model: Model, path: Path) -> Any:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(module, "_fitted", broken)
    assert player_of(hostile[1], hostile[0]).playground.reason == (
        "No session can be played: ZeroDivisionError: a defect"
    )
