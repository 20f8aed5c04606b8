"""The simulator as a Gymnasium environment: its contract, its means, its end."""

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from ope_case import NAMES, tiny_simulator

from ecoc.batch import History
from ecoc.errors import InputError
from ecoc.ope.env import SimulatedUser
from ecoc.ope.rollout import InitialStates

WITH_NONE = (*NAMES, "none")


pytestmark = pytest.mark.usefixtures("one_thread")


def user(names: tuple[str, ...] = NAMES, *, member: int | None = None, left: tuple[int, ...] = (3, 4)) -> SimulatedUser:
    starts = InitialStates(
        torch.tensor([[1, 2, 3], [4, 0, 0]])[: len(left)],
        torch.tensor([[1, 2, 3], [1, 0, 0]])[: len(left)],
        torch.tensor(left),
        np.arange(len(left)),
    )
    return SimulatedUser(tiny_simulator(5, names=names), starts, member)


@pytest.mark.parametrize("names", [NAMES, WITH_NONE])
@pytest.mark.filterwarnings("ignore::UserWarning")  # the checker's advice on rendering and registration
def test_it_is_an_environment(names: tuple[str, ...]) -> None:
    check_env(user(names), skip_render_check=True)


def test_a_session_is_a_function_of_its_seed() -> None:
    def session(seed: int) -> list[object]:
        env = user(WITH_NONE)
        told: list[object] = [{key: value.tolist() for key, value in env.reset(seed=seed)[0].items()}]
        for _ in range(3):
            seen, reward, *_, info = env.step(np.int64(2))
            told += [{key: value.tolist() for key, value in seen.items()}, reward, info["feedback"]]
        return told

    assert session(4) == session(4)
    assert len({str(session(seed)) for seed in range(8)}) > 2


def test_mean_rewards_are_the_expected_ones() -> None:
    env = user(WITH_NONE, member=1, left=(1,))
    rewards, wanted = [], 0.0
    for seed in range(300):
        env.reset(seed=seed)
        _, reward, *_, info = env.step(np.int64(5))
        rewards.append(reward)
        wanted = info["expected_rewards"][1]
    simulator = env.simulator
    history = History(torch.tensor([[1, 2, 3]]), torch.tensor([[1, 2, 3]]))
    with torch.no_grad():
        chance = simulator.chances(1, simulator.members[1].after_history(history), torch.tensor([5]))[0]
    by_hand = sum(float(p) * float(w) for p, w in zip(chance, simulator.mean_reward[5], strict=True))
    assert wanted == pytest.approx(by_hand, abs=1e-5)
    assert np.mean(rewards) == pytest.approx(wanted, abs=4 * float(np.std(rewards)) / 300**0.5)
    assert set(np.round(rewards, 5)) <= set(np.round(simulator.mean_reward[5].double().numpy(), 5))


def test_a_session_ends_after_its_steps_and_shows_its_past() -> None:
    env = user(left=(3,))
    seen, _ = env.reset(seed=0)
    assert seen["items"].tolist() == [1, 2, 3, 0, 0, 0]
    assert seen["feedback"].tolist() == [1, 2, 3, 0, 0, 0]
    ended = []
    for item in (4, 5, 4):
        seen, _, terminated, truncated, info = env.step(np.int64(item))
        ended.append(terminated)
        assert not truncated
        assert len(info["expected_rewards"]) == 2
    assert ended == [False, False, True]
    assert seen["items"].tolist() == [1, 2, 3, 4, 5, 4]
    assert (seen["feedback"] > 0).all()


def test_what_leaves_no_event_is_not_seen_but_costs_a_step() -> None:
    env = user(WITH_NONE, left=(3,))
    for seed in range(30):
        env.reset(seed=seed)
        known = 3
        for step in range(3):
            seen, reward, terminated, _, info = env.step(np.int64(4))
            known += info["feedback"] != "none"
            assert np.count_nonzero(seen["items"]) == np.count_nonzero(seen["feedback"]) == known
            assert terminated == (step == 2)
            assert (reward == 0) == (info["feedback"] == "none")


def test_later_expectations_follow_what_happened() -> None:
    env = user(member=0, left=(4,))
    env.reset(seed=1)
    items, given = [1, 2, 3], [1, 2, 3]
    simulator = env.simulator
    for item in (4, 2, 5):
        history = History(torch.tensor([items]), torch.tensor([given]))
        _, _, _, _, info = env.step(np.int64(item))
        for k, model in enumerate(simulator.members):
            with torch.no_grad():
                chance = simulator.chances(k, model.after_history(history), torch.tensor([item]))
                wanted = float(simulator.reward(chance, torch.tensor([item])))
            assert info["expected_rewards"][k] == pytest.approx(wanted, abs=1e-5)
        items.append(item)
        given.append(simulator.names.index(info["feedback"]) + 1)


@pytest.mark.parametrize("item", [0, 6, -1])
def test_items_it_does_not_know_are_refused(item: int) -> None:
    env = user()
    env.reset(seed=0)
    with pytest.raises(InputError, match="knows items 1 to 5"):
        env.step(np.int64(item))


@pytest.mark.parametrize("member", [-1, 9])
def test_a_member_that_is_not_there_is_said(member: int) -> None:
    with pytest.raises(InputError, match=f"member {member}: the simulator has members 0 to"):
        user(member=member)
