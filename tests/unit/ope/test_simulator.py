"""Windows, fitted members and what a simulator says of itself, against loops and logs with a known answer."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ope_case import TINY, Ints, episodes_of, log_of, tiny_simulator

import ecoc
from ecoc.batch import PAD, History
from ecoc.errors import InputError
from ecoc.ope import fitting, simulator
from ecoc.ope.fitting import Episodes, fit, open_episodes
from ecoc.ope.response import ResponseConfig
from ecoc.ope.results import FitOn
from ecoc.ope.rollout import InitialStates, fixed_actor, roll_out
from ecoc.ope.simulator import Simulator, SimulatorConfig, fit_members, fit_simulator

BAIT, LIKED, ITEMS, STEPS = 1, 2, 5, 8
AFTER_BAIT = 0.03
CHANCE = {BAIT: 0.6, LIKED: 0.9}  # of a click, before any bait; 0.4 for the others


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps of training."""
    monkeypatch.setattr(fitting, "_EPOCHS", 2)
    monkeypatch.setattr(fitting, "_ROUNDS", 2)


def planted(sequences: int, seed: int = 0) -> Episodes:
    """Items at random; once BAIT was shown, hardly anything is clicked."""
    rng = np.random.default_rng(seed)
    items = rng.integers(1, ITEMS + 1, (sequences, STEPS))
    clicked = np.zeros_like(items)
    for row in range(sequences):
        for step in range(STEPS):
            worn = BAIT in items[row, :step]
            chance = AFTER_BAIT if worn else CHANCE.get(int(items[row, step]), 0.4)
            clicked[row, step] = rng.random() < chance
    return episodes_of(items, clicked)


def slow_targets(lengths: list[int], first: Ints, stop: Ints) -> set[int]:
    """Every event asked for that has an earlier one in its sequence."""
    found, begin = set(), 0
    for k, length in enumerate(lengths):
        for event in range(begin + 1, begin + length):
            if first[k] <= event < stop[k]:
                found.add(event)
        begin += length
    return found


def told(episodes: Episodes) -> list[tuple[list[int], int]]:
    """Each target as its past and itself, where item e + 1 is event e."""
    cases = []
    for items, wanted in zip(episodes.items.tolist(), episodes.wanted.tolist(), strict=True):
        cases += [(items[: step + 1], items[step + 1]) for step, is_target in enumerate(wanted) if is_target]
    return cases


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_target_is_explained_once_after_what_really_preceded_it(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    window = data.draw(st.integers(1, 5))
    begin = np.cumsum([0, *lengths])
    log = log_of([range(begin[k] + 1, begin[k + 1] + 1) for k in range(len(lengths))])
    first = np.array([begin[k] + data.draw(st.integers(0, n)) for k, n in enumerate(lengths)])
    stop = np.array([data.draw(st.integers(int(first[k]), int(begin[k + 1]))) for k in range(len(lengths))])
    expected = slow_targets(lengths, first, stop)
    if not expected:
        with pytest.raises(InputError, match="another split"):
            open_episodes(log, first, stop, length=window, most=1000, seed=0)
        return
    found = open_episodes(log, first, stop, length=window, most=1000, seed=0)
    assert sorted(target for _, target in told(found)) == sorted(event + 1 for event in expected)
    for past, target in told(found):
        place = int(np.searchsorted(begin, target - 1, side="right")) - 1
        assert past == list(range(target - len(past), target)), "consecutive events, up to the target"
        assert past[0] > begin[place], "of the same sequence"
        assert 1 <= len(past) <= window
    row, column = np.nonzero(found.items.numpy())
    event = found.items.numpy()[row, column] - 1
    assert (found.feedback.numpy()[row, column] == event % 3 + 1).all()
    assert (found.reward.numpy()[row, column] == event + 0.5).all()
    assert (found.feedback.numpy()[found.items.numpy() == PAD] == 0).all()
    assert not (found.wanted & (found.items[:, 1:] == PAD)).any()
    owner = np.searchsorted(begin, found.items[:, 0].numpy() - 1, side="right") - 1
    assert (owner == found.sequence).all()


def test_the_latest_targets_have_the_longest_pasts() -> None:
    log = log_of([range(1, 8)])
    found = open_episodes(log, np.array([0]), np.array([7]), length=4, most=100, seed=0)
    assert found.items.tolist() == [[3, 4, 5, 6, 7], [1, 2, 3, PAD, PAD]]
    assert found.wanted.tolist() == [[True] * 4, [True, True, False, False]]
    assert found.history.items.tolist() == [[3, 4, 5, 6], [1, 2, 3, PAD]]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 9), min_size=1, max_size=8), st.integers(1, 60), st.integers(0, 3))
def test_most_leaves_out_whole_sequences_and_no_more_than_needed(lengths: list[int], most: int, seed: int) -> None:
    begin = np.cumsum([0, *lengths])
    log = log_of([range(begin[k] + 1, begin[k + 1] + 1) for k in range(len(lengths))])
    found = open_episodes(log, begin[:-1], begin[1:], length=4, most=most, seed=seed)
    kept = np.unique(found.sequence)
    targets = [length - 1 for length in lengths]
    assert int(found.wanted.sum()) == sum(targets[k] for k in kept)
    total = sum(targets[k] for k in kept)
    assert total >= min(most, sum(targets))
    assert any(total - targets[k] < most for k in kept), "one less would have been enough otherwise"


def test_what_a_simulator_is_fitted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Episodes] = []

    def keep(episodes: Episodes, *_: object) -> Simulator:
        seen.append(episodes)
        return tiny_simulator(3)

    monkeypatch.setattr(simulator, "fit_members", keep)
    log = log_of([range(1, 7), range(7, 10), range(10, 14)], trained=[4, 3, 0])
    asked: dict[FitOn, list[int]] = {
        "log": [2, 3, 4, 5, 6, 8, 9, 11, 12, 13],
        "train": [2, 3, 4, 8, 9],
        "test": [5, 6, 11, 12, 13],
    }
    for fit_on, expected in asked.items():
        fit_simulator(log, SimulatorConfig(fit_on, length=3))
        assert sorted(target for _, target in told(seen[-1])) == expected, fit_on
        if fit_on == "train":
            items = seen[-1].items
            assert not set(items[items != PAD].tolist()) & {5, 6, 10, 11, 12, 13}, "not even as a past"
    pasts = {target: past for past, target in told(seen[-1])}
    assert pasts[5] == [3, 4] or pasts[5] == [2, 3, 4], "a test target is explained by the training part before it"


@pytest.fixture(scope="module")
def taught() -> Simulator:
    """Fitted on a log in which bait wears users out."""
    config = SimulatorConfig(members=2, model=ResponseConfig(dim=8, hidden=8, lasting=4, width=16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_EPOCHS", 6)
        patch.setattr(fitting, "_ROUNDS", 40)
        return fit_members(planted(260), ITEMS, ["ignore", "click"], np.full(260, STEPS), config)


def click_chance(taught: Simulator, past: list[int], item: int) -> float:
    """Mean over the members, after items that were ignored."""
    history = History(torch.tensor([past]), torch.ones(1, len(past), dtype=torch.int64))
    with torch.no_grad():
        found = [
            taught.chances(k, model.after_history(history), torch.tensor([item]))[0, 1]
            for k, model in enumerate(taught.members)
        ]
    return float(torch.stack(found).mean())


def test_members_learn_what_an_item_does_to_later_ones(taught: Simulator) -> None:
    fresh, worn = click_chance(taught, [3, 4], LIKED), click_chance(taught, [BAIT, 4, 3], LIKED)
    assert fresh > 0.7
    assert worn < 0.25
    assert click_chance(taught, [3, 4], LIKED) > click_chance(taught, [3, 4], 5) + 0.25, "what is liked"


def test_a_roll_out_shows_what_bait_costs(taught: Simulator) -> None:
    users = 20
    starts = InitialStates(
        torch.full((users, 2), 4),
        torch.ones(users, 2, dtype=torch.int64),
        torch.full((users,), 4),
        np.arange(users),
    )
    score = torch.zeros(ITEMS + 1)
    score[BAIT], score[LIKED] = 2, 1  # bait first, then what is liked
    baited = roll_out(taught, fixed_actor(score), starts, exclude_seen=True, seed=0).reward.mean((0, 1))
    score[BAIT] = -1
    honest = roll_out(taught, fixed_actor(score), starts, exclude_seen=True, seed=0).reward.mean((0, 1))
    assert baited[0] > 0.35, "bait pleases when it is shown"
    assert baited[1:].max() < 0.25, "and nothing pleases after it"
    assert honest[0] > 0.7
    assert honest.sum() > baited.sum() + 0.3


def test_it_is_calibrated_and_better_than_shares(taught: Simulator) -> None:
    assert taught.quality.log_loss < 0.8 * taught.quality.log_loss_of_shares
    assert taught.quality.calibration_error < 0.15
    assert abs(taught.quality.reward_error) < 0.35
    assert taught.quality.events == 13 * (STEPS - 1)
    assert taught.quality.members == 2


def test_same_seed_same_bits_and_another_seed_others(hasty: None) -> None:
    log, config = planted(30), SimulatorConfig(members=2, model=TINY)
    torch.manual_seed(1)
    one = fit_members(log, ITEMS, ["no", "yes"], np.full(30, STEPS), config)
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(1)), "no outside luck is used up"
    two = fit_members(log, ITEMS, ["no", "yes"], np.full(30, STEPS), config)
    assert one.quality == two.quality
    for a, b in zip(one.members, two.members, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    first, second = one.members
    assert not torch.equal(first.table.weight, second.table.weight), "members differ"
    other = fit_members(log, ITEMS, ["no", "yes"], np.full(30, STEPS), replace(config, seed=1))
    assert not torch.equal(other.members[0].table.weight, first.table.weight)


def test_held_out_sequences_are_shown_to_no_member(monkeypatch: pytest.MonkeyPatch, hasty: None) -> None:
    trained: list[set[int]] = []
    stopped: list[set[int]] = []
    judged: list[set[int]] = []
    quality = simulator._quality

    def watched(train: Episodes, held_out: Episodes, *args: object, **options: object) -> object:
        trained.append(set(train.sequence.tolist()))
        stopped.append(set(held_out.sequence.tolist()))
        return fit(train, held_out, *args, **options)  # type: ignore[arg-type]

    def judging(fitted: Simulator, episodes: Episodes, config: SimulatorConfig, **shares: float) -> object:
        judged.append(set(episodes.sequence.tolist()))
        return quality(fitted, episodes, config, **shares)

    monkeypatch.setattr(simulator, "fit", watched)
    monkeypatch.setattr(simulator, "_quality", judging)
    log = planted(40)
    twice = log.part(np.concatenate([np.arange(40), np.arange(40)]))  # two windows of every sequence
    fit_members(twice, ITEMS, ["no", "yes"], np.full(40, STEPS), SimulatorConfig(members=3, model=TINY))
    everyone = set.union(*trained)
    assert len(everyone) == 36
    assert len(judged[0]) == 2 and stopped == [stopped[0]] * 3 and len(stopped[0]) == 2
    assert not everyone & (judged[0] | stopped[0])
    assert not judged[0] & stopped[0]
    assert all(len(everyone - part) >= 5 for part in trained), "each leaves out a sixth"
    assert trained[0] != trained[1] != trained[2]


def test_worth_is_exact_where_a_feedback_always_pays_the_same() -> None:
    rng = np.random.default_rng(0)
    items, codes = rng.integers(1, 6, (50, 9)), rng.integers(0, 3, (50, 9))
    pays = np.array([0.0, 0.1, 3.7], np.float32)
    found = simulator._mean_rewards(episodes_of(items, codes, pays[codes]), 5, 4)
    assert torch.equal(found[:, :3], torch.from_numpy(pays).expand(6, -1))
    assert (found[:, 3] == 0).all(), "none is mean_reward nothing"


def test_amounts_are_drawn_to_the_mean_of_all_where_events_are_few() -> None:
    items = np.array([[1, 1, 1, 1, 2]])
    amounts = np.array([[99.0, 10, 20, 30, 4]], np.float32)  # the first is no target
    found = simulator._mean_rewards(episodes_of(items, np.zeros_like(items), amounts), 3, 1).squeeze(1)
    mean = (10 + 20 + 30 + 4) / 4
    assert found[1] == pytest.approx((10 + 20 + 30 + 5 * mean) / 8)
    assert found[2] == pytest.approx((4 + 5 * mean) / 6)
    assert found[3] == pytest.approx(mean), "an item without events"


def test_negatives_add_a_feedback_that_random_items_get(hasty: None) -> None:
    log = planted(30)
    config = SimulatorConfig(members=1, negatives=3, model=TINY)
    found = fit_members(log, ITEMS, ["no", "yes"], np.full(30, STEPS), config)
    assert found.names == ["no", "yes", "none"]
    assert found.none == 2
    assert (found.mean_reward[:, 2] == 0).all()
    assert found.quality.negatives == 3
    shares = found.quality.log_loss_of_shares
    assert found.quality.log_loss < shares + 0.7, "judged by answers alone, as there are no others in a log"
    plain = fit_members(log, ITEMS, ["no", "yes"], np.full(30, STEPS), SimulatorConfig(members=1, model=TINY))
    assert plain.none is None
    assert plain.names == ["no", "yes"]


def test_negatives_make_what_is_never_shown_unlikely_to_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_EPOCHS", 3)
    rng = np.random.default_rng(0)
    items = rng.integers(1, 3, (80, 5))  # only items 1 and 2 of 20 are ever answered
    config = SimulatorConfig(members=1, negatives=4, model=TINY)
    found = fit_members(episodes_of(items, np.ones_like(items)), 20, ["no", "yes"], np.full(80, 5), config)
    state = found.members[0].after_history(History(torch.tensor([[1, 2]]), torch.tensor([[2, 2]])))
    with torch.no_grad():
        answered = [float(1 - found.chances(0, state, torch.tensor([item]))[0, -1]) for item in (1, 9)]
    assert answered[0] > answered[1] + 0.3


def test_chances_of_no_answer_are_those_negatives_were_drawn_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the items have all the events: one in three meetings with them is an event, the others are negatives."""
    monkeypatch.setattr(fitting, "_EPOCHS", 4)
    items = np.random.default_rng(0).integers(1, 11, (150, 6))
    config = SimulatorConfig(members=1, negatives=4, model=TINY)
    found = fit_members(episodes_of(items, items % 2), 20, ["no", "yes"], np.full(150, 6), config)
    with torch.no_grad():
        state = found.members[0].after_history(History(torch.tensor([[1, 2]]), torch.tensor([[2, 1]])))
        none = [float(found.chances(0, state, torch.tensor([item]))[0, -1]) for item in range(1, 21)]
    assert np.mean(none[:10]) == pytest.approx(2 / 3, abs=0.1)
    assert np.mean(none[10:]) > 0.9


def test_temperature_undoes_over_confidence() -> None:
    torch.manual_seed(0)
    given = (torch.rand(4000) < 0.75).long()
    right = torch.tensor([0.25, 0.75]).log().expand(1, 4000, 2)
    for factor in (0.5, 1.0, 2.0):
        found = simulator._best_temperature(right * factor, given)
        assert found == pytest.approx(factor, rel=0.12)
    fitted = tiny_simulator(4, members=1)
    state = fitted.members[0].after_history(History(torch.tensor([[1, 2]]), torch.tensor([[1, 2]])))
    with torch.no_grad():
        warm = fitted.chances(0, state, torch.tensor([3]))
        fitted.temperature = 2.0
        cool = fitted.chances(0, state, torch.tensor([3]))
    assert torch.allclose(cool, torch.softmax(warm.log() / 2, -1), atol=1e-6)


def test_calibration_error_by_hand() -> None:
    chances = torch.tensor([[0.25, 0.75]]).repeat(8, 1)
    perfect = torch.tensor([0, 0, 1, 1, 1, 1, 1, 1])
    assert simulator._calibration_error(chances, perfect) == pytest.approx(0)
    all_ones = torch.ones(8, dtype=torch.int64)
    assert simulator._calibration_error(chances, all_ones) == pytest.approx(0.25)
    certain = torch.nn.functional.one_hot(perfect, 2).float()
    assert simulator._calibration_error(certain, perfect) == pytest.approx(0)
    assert simulator._calibration_error(1 - certain, perfect) == pytest.approx(1)
    two_bins = torch.cat([chances, torch.tensor([[0.5, 0.5]]).repeat(4, 1)])  # wrong by 1/2 in a third of the events
    given = torch.cat([perfect, torch.ones(4, dtype=torch.int64)])
    assert simulator._calibration_error(two_bins, given) == pytest.approx(0.5 / 3)


def test_steps_to_come_are_those_of_longer_sequences() -> None:
    lengths = [2, 3, 5, 5, 9]
    users = tiny_simulator(3, lengths=lengths)
    rng = np.random.default_rng(0)
    for past in range(1, 11):
        drawn = users.sample_remaining(np.full(4000, past), 6, rng)
        longer = [length - past for length in lengths if length > past] or [6]
        expected = np.bincount([min(left, 6) for left in longer], minlength=7) / len(longer)
        assert np.abs(np.bincount(drawn, minlength=7) / 4000 - expected).max() < 0.04, past
    assert users.sample_remaining(np.array([4, 1, 12]), 1, rng).tolist() == [1, 1, 1]


@pytest.mark.parametrize("sequences", [1, 2])
def test_too_few_sequences_are_refused(sequences: int) -> None:
    with pytest.raises(InputError, match=f"at least three sequences.*found {sequences}"):
        fit_members(planted(sequences), ITEMS, ["no", "yes"], np.array([STEPS]), SimulatorConfig(model=TINY))


def test_three_sequences_are_enough(hasty: None) -> None:
    found = fit_members(planted(3), ITEMS, ["no", "yes"], np.array([STEPS] * 3), SimulatorConfig(model=TINY))
    assert len(found.members) == 3


def test_a_log_with_a_feedback_called_none_takes_no_negatives() -> None:
    with pytest.raises(InputError, match="already has 'none'"):
        fit_members(planted(9), ITEMS, ["none", "yes"], np.array([9]), SimulatorConfig(negatives=1, model=TINY))


def test_a_log_may_call_its_own_feedback_none(tmp_path: Path, hasty: None) -> None:
    rng = np.random.default_rng(0)
    with (tmp_path / "log.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["user", "item", "ts", "event"])
        for time in range(300):
            writer.writerow([f"u{rng.integers(20)}", f"i{rng.integers(6)}", time, ["click", "none"][rng.integers(2)]])
    options: dict[str, Any] = {
        "user": "user",
        "item": "item",
        "time": "ts",
        "feedback": "event",
        "reward": {"click": 1, "none": 0},
    }
    data = ecoc.prepare(tmp_path / "log.csv", tmp_path / "data", threads=1, **options)
    found = fit_simulator(data, SimulatorConfig(members=1, model=TINY))
    assert found.none is None, "its users left an event in the log when they gave it"
    assert found.quality.events > 0
