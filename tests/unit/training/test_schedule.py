import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoc.runs.config import TrainConfig
from ecoc.training.loop import step_seed
from ecoc.training.step import learning_rate

STEPS = 1000


def rates(steps: int = STEPS, **options: object) -> list[float]:
    config = TrainConfig.build({"lr": 0.01, "warmup": 100, **options})
    return [learning_rate(step, steps, config) for step in range(steps)]


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_the_warm_up_rises_in_equal_steps_to_the_full_rate(schedule: str) -> None:
    found = rates(warmup=40, schedule=schedule)
    assert found[:40] == pytest.approx([0.01 * (step + 1) / 40 for step in range(40)])
    assert found[39] == pytest.approx(0.01)
    assert found[40] == pytest.approx(0.01)


def test_a_warm_up_takes_a_tenth_of_the_run_at_most() -> None:
    assert rates(steps=50, warmup=100)[:6] == pytest.approx([0.002, 0.004, 0.006, 0.008, 0.01, 0.01])
    assert rates(steps=1, warmup=100) == pytest.approx([0.01])
    assert rates(steps=9, warmup=100)[0] == pytest.approx(0.01)


@pytest.mark.parametrize("warmup", [0, 100])
def test_without_a_schedule_the_rate_stays(warmup: int) -> None:
    assert set(rates(warmup=warmup, schedule="constant")[warmup:]) == {0.01}


@pytest.mark.parametrize("final", [0.0, 0.02, 0.5, 1.0])
def test_the_cosine_falls_to_its_final_share(final: float) -> None:
    found = rates(final_lr=final)
    assert found[100] == pytest.approx(0.01)
    assert found[550] == pytest.approx(0.01 * (1 + final) / 2)  # half way
    assert found[325] == pytest.approx(0.01 * (final + (1 - final) * (0.5 + math.sqrt(0.5) / 2)))
    assert found[-1] == pytest.approx(0.01 * final, abs=1e-7)
    assert all(later <= earlier for earlier, later in pairwise(found[100:]))
    config = TrainConfig.build({"lr": 0.01, "final_lr": final})
    assert learning_rate(STEPS, STEPS, config) == pytest.approx(0.01 * final)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 500),
    st.integers(0, 300),
    st.sampled_from(["cosine", "constant"]),
    st.floats(0, 1),
    st.floats(1e-6, 1.0),
)
def test_the_rate_is_never_above_its_height_nor_zero(
    steps: int, warmup: int, schedule: str, final: float, height: float
) -> None:
    found = rates(steps=steps, warmup=warmup, schedule=schedule, final_lr=final, lr=height)
    assert all(0 < rate <= height * (1 + 1e-12) for rate in found)
    top = found.index(max(found))
    assert top <= min(warmup, steps // 10)
    assert max(found) == pytest.approx(height)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(-1, 2**40)), min_size=2, max_size=30, unique=True))
def test_steps_and_seeds_have_seeds_of_their_own(pairs: list[tuple[int, int]]) -> None:
    found = [step_seed(seed, step) for seed, step in pairs]
    assert len(set(found)) == len(found)
    assert found == [step_seed(seed, step) for seed, step in pairs]
    assert all(0 <= value < 2**63 for value in found)


def test_neighbouring_steps_and_seeds_share_nothing() -> None:
    found = {step_seed(seed, step) for seed in range(50) for step in range(-1, 200)}
    assert len(found) == 50 * 201
    assert len({value % 256 for value in found}) == 256  # no pattern in the low bits
    for value in (min(found), max(found)):
        torch.Generator().manual_seed(value)
