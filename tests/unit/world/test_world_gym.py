import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import ecoc.world.gym as adapter


def make(**options: Any) -> adapter.MarketEnv:
    env = gymnasium.make("ecoc/Market-v0", **options).unwrapped
    assert isinstance(env, adapter.MarketEnv)
    return env


@pytest.mark.parametrize("world", ["world:bait:small", "world:satiation:small"])
def test_environment_passes_gymnasiums_own_check(world: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(world=world))


def test_a_session_ends_after_its_last_step_and_shows_what_was_seen() -> None:
    env = make(world_seed=2, items=50)
    seen, _ = env.reset(seed=0)
    assert not seen["items"].any()
    for step in range(20):
        before = seen
        seen, reward, terminated, truncated, info = env.step(np.int64(step))
        assert seen["items"][: step + 1].tolist() == list(range(1, step + 2))
        assert not before["items"][step]
        assert seen["feedback"][step] == reward
        assert terminated == (step == 19)
        assert not truncated
        assert 0 < info["expected_reward"] < 3
    assert len(env.render().splitlines()) == 20


@pytest.mark.parametrize(
    "imports",
    [
        "import ecoc.world, gymnasium",
        "import gymnasium, ecoc.world",
        "import gymnasium, ecoc.world.gym",
        "import ecoc.world.gym, gymnasium",
        "import ecoc, gymnasium, ecoc.world",
        "import gymnasium.spaces, ecoc.world, gymnasium",
    ],
)
def test_the_environment_is_registered_in_any_order_of_imports(imports: str) -> None:
    run(f"{imports}; gymnasium.make('ecoc/Market-v0', world='world:small').reset(seed=0)")


@pytest.mark.parametrize("imports", ["import gymnasium", "import ecoc, gymnasium", "import gymnasium, ecoc.world"])
def test_gymnasium_imports_the_module_that_the_id_names(imports: str) -> None:
    run(f"{imports}; gymnasium.make('ecoc.world.gym:ecoc/Market-v0', world='world:small').reset(seed=0)")
    run(f"{imports}; gymnasium.make_vec('ecoc.world.gym:ecoc/Market-v0', num_envs=2).reset(seed=0)")


def test_importing_ecoc_changes_nothing_in_the_import_system() -> None:
    run(
        "import sys; before = list(sys.meta_path), list(sys.path_hooks); import ecoc.world;"
        "assert before == (sys.meta_path, sys.path_hooks), sys.meta_path"
    )


def test_the_world_works_without_gymnasium() -> None:
    run(
        "import sys; sys.modules['gymnasium'] = None; import ecoc.world;"
        "ecoc.world.Market(ecoc.world.parse_world('world:small'))"
    )


def run(script: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_vector_environment_runs_many_sessions_and_starts_anew() -> None:
    env = gymnasium.make_vec("ecoc/Market-v0", num_envs=64, world="world:bait")
    assert isinstance(env.unwrapped, adapter.MarketVectorEnv)
    seen, _ = env.reset(seed=1)
    assert env.observation_space.contains(seen)
    for step in range(20):
        actions = env.action_space.sample()
        seen, rewards, terminated, truncated, _ = env.step(actions)
        assert env.observation_space.contains(seen)
        assert np.array_equal(seen["items"][:, step], actions + 1)
        assert np.array_equal(seen["feedback"][:, step], rewards)
        assert np.all(terminated == (step == 19))
        assert not truncated.any()
    seen, rewards, terminated, _, _ = env.step(env.action_space.sample())
    assert not seen["items"].any()
    assert not rewards.any()
    assert not terminated.any()


def test_vector_environment_repeats_with_its_seed() -> None:
    rewards = []
    for _ in range(2):
        env = gymnasium.make_vec("ecoc/Market-v0", num_envs=16)
        env.reset(seed=3)
        rewards.append(np.stack([env.step(np.full(16, item))[1] for item in range(10)]))
    assert np.array_equal(rewards[0], rewards[1])
    assert rewards[0].any()
