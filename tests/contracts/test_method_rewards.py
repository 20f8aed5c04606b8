"""What methods are given to learn from: rewards, episode ends, places and returns of batches, against slow loops."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import TRAINED, lines, prepare, train, write_random, write_walks

import ecoc
from ecoc.batch import PAD, Batch
from ecoc.data.loader import Mode, Windows, open_train_sequences
from ecoc.data.rewards import RewardScaler, open_reward_scaler
from ecoc.data.sequences import Dataset
from ecoc.methods import METHODS

LENGTH = 6
REWARD = {"click": 1.0, "buy": 3.0, "refund": -6.0}
MODES: list[Mode] = ["random", "tile", "prefix"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Some sequences end in training, some in the test part, some are held out."""
    folder = tmp_path_factory.mktemp("rewards")
    return prepare(
        write_random(folder / "log.csv"), folder / "data", reward=REWARD, split="time:0.7", validation=0.2, min_length=1
    )


def windows(data: Dataset, mode: Mode = "tile", **options: Any) -> Windows:
    return Windows(data, LENGTH, batch=7, targets=0, mode=mode, seed=3, **{"min_history": 1, **options})


def batches(found: Windows) -> list[Batch]:
    return [found[step] for step in range(found.steps)]


def learnt_from(data: Dataset) -> list[tuple[int, int]]:
    """Sequence and event of everything that may be learned from."""
    return [
        (sequence, event)
        for sequence in range(len(data))
        if not data.is_validation[sequence]
        for event in range(int(data.offsets[sequence]), int(data.offsets[sequence]) + int(data.train_lengths[sequence]))
    ]


def targets(data: Dataset, batch: Batch) -> list[tuple[tuple[int, int], int, int]]:
    """Every target of a batch: its cell, its sequence, its event; by what the batch itself says of both."""
    assert batch.before is not None
    assert batch.history.users is not None
    found = []
    for b, t in (batch.target != PAD).nonzero().tolist():
        sequence = int(batch.history.users[b]) - 1
        event = int(data.offsets[sequence]) + int(batch.before[b, t])
        assert int(batch.target[b, t]) == int(data.items[event])
        assert int(batch.history.items[b, t]) == int(data.items[event - 1])
        found.append(((b, t), sequence, event))
    return found


def slow_size(data: Dataset, scale: str | float) -> float:
    """What rewards are divided by."""
    sizes = [abs(float(data.rewards[event])) for _, event in learnt_from(data)]
    return {"none": 1.0, "mean": sum(sizes) / len(sizes), "max": max(sizes)}[scale] if isinstance(scale, str) else scale


def test_the_log_has_every_case(data: Dataset) -> None:
    whole = np.asarray(data.train_lengths) == np.diff(data.offsets)
    used = ~np.asarray(data.is_validation) & (np.asarray(data.train_lengths) > LENGTH + 1)
    assert (whole & used).any()
    assert (~whole & used).any()
    assert np.asarray(data.is_validation).any()
    assert set(np.asarray(data.rewards).tolist()) == set(REWARD.values())


@pytest.mark.parametrize("scale", ["none", "mean", "max", 2.5])
@pytest.mark.parametrize("mode", MODES)
def test_rewards_are_divided_by_the_scale(data: Dataset, mode: Mode, scale: str | float) -> None:
    size = slow_size(data, scale)
    worth = open_reward_scaler(data, scale, shuffle=False, seed=0)
    count = 0
    for batch in batches(windows(data, mode, reward_scaler=worth)):
        expected = torch.zeros(batch.reward.shape)
        for cell, _, event in targets(data, batch):
            expected[cell] = float(data.rewards[event]) / size
            count += 1
        torch.testing.assert_close(batch.reward, expected)
    assert count > 100
    rewards = open_train_sequences(data, worth).rewards
    assert rewards is not None
    assert rewards.tolist() == pytest.approx([float(data.rewards[event]) / size for _, event in learnt_from(data)])


def test_scales_differ_and_the_largest_reward_is_then_one(data: Dataset) -> None:
    assert len({slow_size(data, scale) for scale in ("none", "mean", "max", 2.5)}) == 4
    worth = open_reward_scaler(data, "max", shuffle=False, seed=0)
    largest = max(float(batch.reward.abs().amax()) for batch in batches(windows(data, reward_scaler=worth)))
    assert largest == pytest.approx(1)


def test_a_log_without_any_reward_is_left_as_it_is(tmp_path: Path) -> None:
    log = write_random(tmp_path / "log.csv")
    data = prepare(log, tmp_path / "data", reward=dict.fromkeys(REWARD, 0.0))
    for scale in ("mean", "max"):
        worth = open_reward_scaler(data, scale, shuffle=True, seed=0)
        assert worth.factor == 1
        assert all(not batch.reward.any() for batch in batches(windows(data, reward_scaler=worth)))


@pytest.mark.parametrize("scale", ["mean", 2.5])
def test_a_run_says_what_a_reward_of_one_is_worth(data: Dataset, tmp_path: Path, scale: str | float) -> None:
    run = train(data, tmp_path / "run", "sqn", train={"reward_scale": scale, "max_steps": 2})
    assert run.result.reward_unit == pytest.approx(slow_size(data, scale))


def test_shuffled_rewards_change_places_among_training_events_only(data: Dataset) -> None:
    worth, same, other = (open_reward_scaler(data, "none", shuffle=True, seed=seed) for seed in (5, 5, 6))
    assert worth.shuffled is not None
    assert same.shuffled is not None
    assert other.shuffled is not None
    events = [event for _, event in learnt_from(data)]
    raw, shuffled = np.asarray(data.rewards), worth.shuffled
    assert Counter(shuffled[events].tolist()) == Counter(raw[events].tolist())
    assert (shuffled[events] != raw[events]).mean() > 0.3
    others = np.setdiff1d(np.arange(len(raw)), events)
    assert np.array_equal(shuffled[others], raw[others])
    assert np.array_equal(shuffled, same.shuffled)
    assert not np.array_equal(shuffled, other.shuffled)


@pytest.mark.parametrize("mode", MODES)
def test_shuffled_rewards_leave_everything_else_as_it_is(data: Dataset, mode: Mode) -> None:
    plain, mixed = (
        batches(
            windows(data, mode, reward_scaler=open_reward_scaler(data, "max", shuffle=shuffle, seed=5), returns=True)
        )
        for shuffle in (False, True)
    )
    for one, two in zip(plain, mixed, strict=True):
        assert torch.equal(one.history.items, two.history.items)
        assert one.history.feedback is not None
        assert two.history.feedback is not None
        assert torch.equal(one.history.feedback, two.history.feedback)
        assert torch.equal(one.target, two.target)
        assert torch.equal(one.done, two.done)
    assert any(not torch.equal(one.reward, two.reward) for one, two in zip(plain, mixed, strict=True))
    check_returns(data, mixed, open_reward_scaler(data, "max", shuffle=True, seed=5))


def test_a_run_on_shuffled_rewards_learns_other_values(data: Dataset, tmp_path: Path) -> None:
    plan = {"max_steps": 6, "log_every": 1}
    plain, mixed = (
        list(lines(train(data, tmp_path / str(shuffle), "sqn", train={**plan, "shuffle_rewards": shuffle})))
        for shuffle in (False, True)
    )
    assert plain[0]["loss/bc"] == mixed[0]["loss/bc"], "items are the same"
    assert plain[0]["loss/td"] != mixed[0]["loss/td"]


@pytest.mark.parametrize("every", [0, 1, 3, 5])
@pytest.mark.parametrize("mode", MODES)
def test_episodes_end_with_the_sequence_and_at_every_so_many_events(data: Dataset, mode: Mode, every: int) -> None:
    ends = Counter[float]()
    for batch in batches(windows(data, mode, terminal_every=every)):
        expected = torch.zeros(batch.done.shape)
        for cell, sequence, event in targets(data, batch):
            number = event - int(data.offsets[sequence]) + 1  # of the event in its sequence, from 1
            is_end = event == int(data.offsets[sequence + 1]) - 1 or (every > 0 and number % every == 0)
            expected[cell] = float(is_end)
            ends[float(is_end)] += 1
        assert torch.equal(batch.done, expected)
    assert ends[1.0] > 0
    assert (ends[0.0] > 0) == (every != 1)


def check_returns(data: Dataset, found: list[Batch], worth: RewardScaler) -> None:
    rewards = np.asarray(data.rewards if worth.shuffled is None else worth.shuffled, np.float64) * worth.factor
    stops = {sequence: event + 1 for sequence, event in learnt_from(data)}
    for batch in found:
        assert batch.returns is not None
        expected = torch.zeros(batch.returns.shape)
        for cell, sequence, event in targets(data, batch):
            expected[cell] = sum(rewards[later] for later in range(event, stops[sequence]))
        torch.testing.assert_close(batch.returns, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", ["none", "mean"])
@pytest.mark.parametrize("mode", MODES)
def test_returns_are_what_followed_in_training(data: Dataset, mode: Mode, scale: str) -> None:
    worth = open_reward_scaler(data, scale, shuffle=False, seed=0)
    check_returns(data, batches(windows(data, mode, reward_scaler=worth, returns=True)), worth)
    assert all(batch.returns is None for batch in batches(windows(data, mode, reward_scaler=worth)))


@pytest.mark.parametrize("least", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_every_target_knows_how_many_events_came_before_it(data: Dataset, mode: Mode, least: int) -> None:
    """`targets` finds each one by that number; none of tile and prefix is missed or taken twice."""
    found = Counter(
        event for batch in batches(windows(data, mode, min_history=least)) for _, _, event in targets(data, batch)
    )
    wanted = {event for sequence, event in learnt_from(data) if event - int(data.offsets[sequence]) >= least}
    assert set(found) <= wanted
    assert set(found.values()) == {1}
    if mode != "random":
        assert set(found) == wanted
    for batch in batches(windows(data, mode, min_history=least)):
        assert batch.before is not None
        assert not batch.before[batch.target == PAD].any()
        assert not batch.reward[batch.target == PAD].any()
        assert not batch.done[batch.target == PAD].any()


@pytest.mark.parametrize("name", TRAINED)
def test_every_method_learns_from_prefix_windows(data: Dataset, tmp_path: Path, name: str) -> None:
    assert train(data, tmp_path / "run", name, train={"windows": "prefix", "max_steps": 2}).result.steps == 2


def test_methods_that_look_ahead_say_so() -> None:
    ahead = {name for name in TRAINED if METHODS[name].needs_next}
    assert ahead == {"ecoc", "sqn", "sa2c", "sdac_sr", "sdac_dc"}
    assert {name for name in TRAINED if METHODS[name].needs_returns} == {"prl"}


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Of every sequence two events are training, and more follow: a batch of one holds one transition without s'."""
    folder = tmp_path_factory.mktemp("cut")
    return prepare(
        write_walks(folder / "log.csv"), folder / "data", reward=REWARD, split="per-user:0.125", validation=0.0
    )


SETTINGS: dict[str, dict[str, Any]] = {name: {} for name in TRAINED} | {
    "ecoc, paper": {"critic": "shared", "dc": 1.0, "trace": 0.0, "dueling": False, "xi": "gumbel", "backup": "sample"},
}


@pytest.mark.parametrize("case", SETTINGS)
def test_a_step_without_a_known_outcome_leaves_finite_numbers(cut: Dataset, tmp_path: Path, case: str) -> None:
    plan = {"batch": 1, "max_steps": 3, "log_every": 1}
    run = train(cut, tmp_path / "run", case.partition(",")[0], train=plan, method=SETTINGS[case])
    assert len(lines(run)) == 3


def priced(folder: Path, outliers: int, size: float) -> Dataset:
    """2,000 amounts up to 4, some of them `size`; with a negative number of outliers, as many of two kinds only."""
    rng = np.random.default_rng(0)
    worth = np.linspace(1, 4, 2000) if outliers >= 0 else np.full(2000, 4.0)
    worth[: abs(outliers)] = size
    rows = [f"u{k % 50},i{rng.integers(9)},{k},{value}\n" for k, value in enumerate(rng.permutation(worth))]
    (folder / "log.csv").write_text("user,item,time,paid\n" + "".join(rows))
    columns: dict[str, Any] = {"user": "user", "item": "item", "time": "time", "reward_column": "paid"}
    return ecoc.prepare(folder / "log.csv", folder / "data", validation=0, split="leave-one-out", **columns)


@pytest.mark.parametrize(
    ("outliers", "size", "divisor", "is_cut"),
    [(0, 0.0, 4.0, False), (1, 39.0, 39.0, False), (1, 4e5, 4.0, True), (40, 4e5, 4e5, False), (-1, 80.0, 80.0, False)],
)
def test_a_few_outliers_do_not_dwarf_all_other_rewards(
    tmp_path: Path, outliers: int, size: float, divisor: float, is_cut: bool
) -> None:
    data = priced(tmp_path, outliers, size)
    worth = open_reward_scaler(data, "auto", shuffle=False, seed=0)
    events = np.arange(len(data.items))
    found, raw = worth.of(data, events), np.asarray(data.rewards)
    assert np.allclose(found, np.clip(raw / divisor, -1, 1) if is_cut else raw / divisor, rtol=2e-3)
    assert ("clipped" in str(worth)) == is_cut
    assert found.max() == pytest.approx(1)
