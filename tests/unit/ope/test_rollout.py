"""Roll-outs beside a loop over users: who is shown what, what it counts, when it ends."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ope_case import NAMES, Ints, log_of, tiny_simulator
from torch import Tensor

from ecoc.batch import PAD, History
from ecoc.errors import InputError
from ecoc.ope import rollout
from ecoc.ope.rollout import (
    Actor,
    InitialStates,
    Rollouts,
    SessionView,
    fixed_actor,
    logging_actor,
    open_initial_states,
    policy_actor,
    random_actor,
    recent,
    roll_out,
)
from ecoc.ope.simulator import Simulator
from ecoc.policies.base import Policy
from ecoc.policies.ranking import Query

ITEMS = 12
WITH_NONE = (*NAMES, "none")


pytestmark = pytest.mark.usefixtures("one_thread")


def beginnings(users: int = 5, *, left: list[int] | None = None, seed: int = 0) -> InitialStates:
    """Pasts of one to three events."""
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 4, users)
    inside = torch.from_numpy(np.arange(3) < size[:, None])
    items = torch.from_numpy(rng.permuted(np.tile(np.arange(1, ITEMS + 1), (users, 1)), axis=1)[:, :3])
    given = torch.from_numpy(rng.integers(1, 4, (users, 3)))
    steps = torch.tensor(left) if left else torch.from_numpy(rng.integers(1, 6, users))
    return InitialStates(items * inside, given * inside, steps, np.arange(users))


class Recording:
    """Keeps every scene and acts as another."""

    def __init__(self, actor: Actor) -> None:
        self.actor, self.scenes = actor, list[SessionView]()

    def __call__(self, scene: SessionView) -> Tensor:
        self.scenes.append(scene)
        return self.actor(scene)


class Remembers(Policy):
    """Likes an item by what the last item and its feedback were, and keeps the histories it was asked about."""

    def __init__(self, items: int, length: int) -> None:
        super().__init__()
        self.items, self.length = items, length
        self.histories: list[History] = []

    def query(self, history: History) -> Query:
        self.histories.append(history)
        assert history.feedback is not None
        row = torch.arange(len(history.items))
        last = history.lengths - 1
        return Query((history.items[row, last] * 7 + history.feedback[row, last])[:, None].float())

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        return torch.sin(query.vector * torch.arange(first, last))

    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sin(query.vector * items), torch.zeros_like(items, dtype=torch.float32)

    def vectors(self) -> Tensor | None:
        return None


def slow_play(users: Simulator, starts: InitialStates, shown: Ints, given: Ints) -> tuple[list[float], list[float]]:
    """Reward and doubt of a session after session, event by event, of what was shown and answered [K, U, T]."""
    mean, ensemble_std = [], []
    for member, row in np.ndindex(shown.shape[:2]):
        size = int((starts.items[row] != PAD).sum())
        items, feedback = starts.items[row, :size].tolist(), starts.feedback[row, :size].tolist()
        for item, code in zip(shown[member, row].tolist(), given[member, row].tolist(), strict=True):
            history, asked = History(torch.tensor([items]), torch.tensor([feedback])), torch.tensor([item])
            worth = []
            for k, model in enumerate(users.members):
                chance = users.chances(k, model.after_history(history), asked)[0]
                worth.append(sum(float(chance[b]) * float(users.mean_reward[item, b]) for b in range(len(chance))))
            mean.append(float(np.mean(worth)))
            ensemble_std.append(float(np.std(worth)))
            if code:
                items.append(item)
                feedback.append(code)
    return mean, ensemble_std


@pytest.mark.parametrize("names", [NAMES, WITH_NONE])
def test_play_equals_a_loop_over_sessions(names: tuple[str, ...]) -> None:
    users, starts = tiny_simulator(ITEMS, members=3, names=names), beginnings(4, left=[1, 3, 4, 2])
    actor = Recording(random_actor(ITEMS))
    played = roll_out(users, actor, starts, exclude_seen=True, seed=1)
    last = Recording(random_actor(ITEMS))
    later = InitialStates(starts.items, starts.feedback, starts.steps + 1, starts.sequence)
    longer = roll_out(users, last, later, exclude_seen=True, seed=1)
    given = last.scenes[-1].feedback[:, 3:].view(3, 4, 4).numpy()  # what the steps before the last were answered
    assert (longer.items[:, :, :4] == played.items).all()
    with torch.no_grad():
        mean, ensemble_std = slow_play(users, starts, played.items, given)
    assert played.reward.ravel() == pytest.approx(np.array(mean), abs=1e-5)
    assert played.ensemble_std.ravel() == pytest.approx(np.array(ensemble_std), abs=1e-5)
    assert (given == 0).any() == (names == WITH_NONE)


def test_shapes_and_which_steps_count() -> None:
    users, starts = tiny_simulator(ITEMS, members=3), beginnings(5, left=[1, 4, 2, 4, 3])
    played = roll_out(users, random_actor(ITEMS), starts, exclude_seen=False, seed=0)
    for found in (played.reward, played.ensemble_std, played.log_behaviour, played.items):
        assert found.shape == (3, 5, 4)
    assert played.counted.tolist() == [[step < left for step in range(4)] for left in (1, 4, 2, 4, 3)]
    assert (played.ensemble_std >= 0).all() and (played.ensemble_std > 0).any()
    assert (played.log_behaviour < 0).all()
    assert played.items.dtype == np.int64
    assert (played.items >= 1).all() and (played.items <= ITEMS).all()


def test_one_member_has_no_doubt() -> None:
    played = roll_out(tiny_simulator(ITEMS, members=1), random_actor(ITEMS), beginnings(), exclude_seen=True, seed=0)
    assert (played.ensemble_std == 0).all()
    assert played.mean_ensemble_std == 0


@pytest.mark.parametrize("names", [NAMES, WITH_NONE])
@pytest.mark.parametrize("kind", ["policy", "score", "random"])
def test_nothing_is_shown_twice(kind: str, names: tuple[str, ...]) -> None:
    users, starts = tiny_simulator(ITEMS, names=names), beginnings(6, left=[6] * 6)
    actors: dict[str, Actor] = {
        "policy": policy_actor(Remembers(ITEMS, 3)),
        "score": fixed_actor(torch.arange(ITEMS + 1).float()),
        "random": random_actor(ITEMS),
    }
    played = roll_out(users, actors[kind], starts, exclude_seen=True, seed=0)
    for member, row in np.ndindex(2, 6):
        past = [item for item in starts.items[row].tolist() if item != PAD]
        seen = past + played.items[member, row].tolist()
        assert len(seen) == len(set(seen)), "`none` too is shown once"
        assert PAD not in seen


def test_with_repeats_allowed_a_fixed_order_shows_its_best_again_and_again() -> None:
    score = torch.zeros(ITEMS + 1)
    score[PAD], score[7] = 9, 1
    played = roll_out(tiny_simulator(ITEMS), fixed_actor(score), beginnings(), exclude_seen=False, seed=0)
    assert (played.items == 7).all()
    assert played.distinct == 1


@pytest.mark.parametrize("names", [NAMES, WITH_NONE])
def test_a_policy_acts_on_exactly_the_history_so_far(names: tuple[str, ...]) -> None:
    users, starts, policy = tiny_simulator(ITEMS, names=names), beginnings(5, left=[5] * 5), Remembers(ITEMS, 4)
    actor = Recording(policy_actor(policy))
    played = roll_out(users, actor, starts, exclude_seen=True, seed=3)
    final = actor.scenes[-1]
    for step, (scene, history) in enumerate(zip(actor.scenes, policy.histories, strict=True)):
        assert history.feedback is not None
        for place in range(10):
            member, row = divmod(place, 5)
            past = [(i, b) for i, b in zip(starts.items[row].tolist(), starts.feedback[row].tolist(), strict=True) if i]
            answers = final.feedback[place, 3 : 3 + step].tolist()
            shown = played.items[member, row, :step].tolist()
            past += [(item, code) for item, code in zip(shown, answers, strict=True) if code]
            expected = past[-4:]
            read = zip(history.items[place].tolist(), history.feedback[place].tolist(), strict=True)
            assert [event for event in read if event[0] != PAD] == expected
            assert scene.shown[place, 3:].tolist() == shown
    none_given = bool((final.feedback[:, 3:] == 0).any())
    assert none_given == (names == WITH_NONE), "`none` leaves no event"


def test_luck_depends_on_the_seed_alone() -> None:
    """Two actors that use up different luck of their own, and show the same items, get the same answers."""
    users, starts = tiny_simulator(ITEMS), beginnings(6, left=[4] * 6)
    score = torch.randn(ITEMS + 1, generator=torch.Generator().manual_seed(5))

    def wasteful(scene: SessionView) -> Tensor:
        torch.rand(17, generator=scene.random)
        torch.rand(5)
        return fixed_actor(score)(scene)

    plain, other = Recording(fixed_actor(score)), Recording(wasteful)
    one = roll_out(users, plain, starts, exclude_seen=True, seed=2)
    two = roll_out(users, other, starts, exclude_seen=True, seed=2)
    assert (one.reward == two.reward).all()
    assert torch.equal(plain.scenes[-1].feedback, other.scenes[-1].feedback)
    third = Recording(fixed_actor(score))
    roll_out(users, third, starts, exclude_seen=True, seed=3)
    assert not torch.equal(plain.scenes[-1].feedback, third.scenes[-1].feedback)


def test_answers_come_as_often_as_the_member_that_plays_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3000
    monkeypatch.setattr(rollout, "_ROWS", 2 * count)
    users = tiny_simulator(4, members=2, names=WITH_NONE)
    starts = InitialStates(
        torch.full((count, 1), 2), torch.full((count, 1), 3), torch.full((count,), 2), np.arange(count)
    )
    score = torch.tensor([0.0, 0, 0, 1, 0])
    actor = Recording(fixed_actor(score))
    roll_out(users, actor, starts, exclude_seen=False, seed=0)
    answers = actor.scenes[-1].feedback[:, 1].view(2, count)
    history = History(torch.tensor([[2]]), torch.tensor([[3]]))
    for k, model in enumerate(users.members):
        with torch.no_grad():
            chance = users.chances(k, model.after_history(history), torch.tensor([3]))[0]
        codes = torch.where(answers[k] == 0, 3, answers[k] - 1)
        seen = torch.bincount(codes, minlength=4) / count
        assert (seen - chance).abs().max() < 0.035


def test_the_log_is_sampled_by_the_behaviour_it_learnt() -> None:
    count = 4000
    users = tiny_simulator(5, members=2)
    starts = InitialStates(
        torch.full((count, 1), 2), torch.full((count, 1), 1), torch.ones(count).long(), np.arange(count)
    )
    played = roll_out(users, logging_actor(), starts, exclude_seen=False, seed=0)
    history = History(torch.tensor([[2]]), torch.tensor([[1]]))
    for k, model in enumerate(users.members):
        with torch.no_grad():
            chances = users.log_behaviour(k, model.after_history(history))[0].exp().numpy()
        assert chances.sum() == pytest.approx(1, abs=1e-5)
        seen = np.bincount(played.items[k, :, 0], minlength=6)[1:] / count
        assert np.abs(seen - chances).max() < 0.035
        assert played.log_behaviour[k, :, 0] == pytest.approx(np.log(chances[played.items[k, :, 0] - 1]), abs=1e-4)


def test_chance_shows_everything_that_may_be_shown_alike() -> None:
    count = 4000
    starts = InitialStates(
        torch.full((count, 1), 2), torch.full((count, 1), 1), torch.ones(count).long(), np.arange(count)
    )
    played = roll_out(tiny_simulator(5, members=1), random_actor(5), starts, exclude_seen=True, seed=0)
    seen = np.bincount(played.items.ravel(), minlength=6) / count
    assert seen[[0, 2]].tolist() == [0, 0]
    assert np.abs(seen[[1, 3, 4, 5]] - 0.25).max() < 0.03


def test_chunks_change_luck_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    users, starts = tiny_simulator(ITEMS), beginnings(7, left=[3, 2, 3, 1, 3, 3, 2])
    score = torch.randn(ITEMS + 1, generator=torch.Generator().manual_seed(5))
    whole = roll_out(users, fixed_actor(score), starts, exclude_seen=True, seed=0)
    monkeypatch.setattr(rollout, "_ROWS", 6)  # three sessions of two members at a time
    parts = roll_out(users, fixed_actor(score), starts, exclude_seen=True, seed=0)
    assert (whole.items == parts.items).all(), "a fixed order has no luck in what it shows"
    assert (whole.counted == parts.counted).all()
    assert parts.reward[:, :, 0] == pytest.approx(whole.reward[:, :, 0], abs=1e-6)
    assert parts.ensemble_std[:, :, 0] == pytest.approx(whole.ensemble_std[:, :, 0], abs=1e-6)
    alone = roll_out(users, fixed_actor(score), first(starts, 3), exclude_seen=True, seed=0)
    assert (parts.reward[:, :3] == alone.reward).all()


def first(starts: InitialStates, count: int) -> InitialStates:
    return InitialStates(starts.items[:count], starts.feedback[:count], starts.steps[:count], starts.sequence[:count])


def test_a_session_ends_when_every_item_was_shown() -> None:
    starts = InitialStates(torch.tensor([[1, 2]]), torch.tensor([[1, 1]]), torch.tensor([3]), np.arange(1))
    played = roll_out(tiny_simulator(3), random_actor(3), starts, exclude_seen=True, seed=0)
    assert played.items.tolist() == [[[3]], [[3]]], "item 3 is the only one left; three steps were asked for"
    assert played.counted.tolist() == [[True]]


def test_users_who_have_seen_everything_are_refused() -> None:
    starts = InitialStates(torch.tensor([[1, 2, 3]]), torch.tensor([[1, 1, 1]]), torch.tensor([3]), np.arange(1))
    with pytest.raises(InputError, match="every item was shown to every user; let policies repeat items"):
        roll_out(tiny_simulator(3), random_actor(3), starts, exclude_seen=True, seed=0)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 5))
def test_totals_and_values_equal_loops(seed: int, uncertainty_penalty: float) -> None:
    rng = np.random.default_rng(seed)
    shape = members, count, steps = tuple(rng.integers(1, 5, 3).tolist())
    reward, ensemble_std = rng.normal(size=shape), rng.random(shape)
    counted = np.arange(steps) < rng.integers(1, steps + 1, count)[:, None]
    played = Rollouts(reward, ensemble_std, -rng.random(shape), rng.integers(1, 9, shape), counted)
    total, number = played.totals(uncertainty_penalty)
    all_worth, all_steps, shown = 0.0, 0, set()
    for k, row in np.ndindex(members, count):
        worth = 0.0
        for step in range(steps):
            if counted[row, step]:
                worth += reward[k, row, step] - uncertainty_penalty
                shown.add(int(played.items[k, row, step]))
                all_steps += 1
        assert total[k, row] == pytest.approx(worth)
        assert number[row] == counted[row].sum()
        all_worth += worth
    assert played.value(uncertainty_penalty) == pytest.approx(all_worth / all_steps)
    assert played.distinct == len(shown)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 7).flatmap(
        lambda width: st.lists(st.lists(st.integers(0, 3), min_size=width, max_size=width), min_size=1, max_size=4)
    ),
    st.integers(1, 9),
)
def test_recent_keeps_the_last_events_that_are_there(rows: list[list[int]], length: int) -> None:
    items = torch.tensor(rows)
    feedback = torch.arange(1, items.numel() + 1).view(items.shape)
    found = recent(items, feedback, length)
    assert found.feedback is not None
    width = min(length, items.shape[1])
    for row, (read, codes) in enumerate(zip(rows, feedback.tolist(), strict=True)):
        events = [(item, code) for item, code in zip(read, codes, strict=True) if item != PAD][-length:]
        events = events or [(1, 0)]
        events += [(PAD, 0)] * (width - len(events))
        assert list(zip(found.items[row].tolist(), found.feedback[row].tolist(), strict=True)) == events


def test_test_sessions_start_where_training_ended() -> None:
    log = log_of([[1, 2, 3, 4, 5], [4, 5, 6], [7, 8, 9, 1], [2, 3]], trained=[3, 3, 0, 0])
    users = tiny_simulator(9, lengths=[5, 3, 4, 2])
    starts = open_initial_states(log, users, "test", users=9, warm=2, horizon=4, seed=0)
    assert starts.sequence.tolist() == [0, 2], "with an event to come after the training part and two events"
    assert starts.items.tolist() == [[1, 2, 3], [7, 8, PAD]]
    assert starts.feedback.tolist() == [[1, 2, 3], [3, 1, 0]]
    assert all(1 <= left <= 4 for left in starts.steps.tolist())


def test_validation_sessions_start_after_the_warm_up_and_never_reach_the_test_part() -> None:
    log = log_of(
        [[1, 2, 3, 4, 5], [4, 5, 6, 7], [7, 8, 9, 1], [2, 3, 4]],
        trained=[4, 3, 2, 3],
        validation=[True, False, True, True],
    )
    users = tiny_simulator(9, lengths=[5, 4, 4, 3])
    starts = open_initial_states(log, users, "validation", users=9, warm=2, horizon=4, seed=0)
    assert starts.sequence.tolist() == [0, 3]
    assert starts.items.tolist() == [[1, 2], [2, 3]]
    with pytest.raises(InputError, match="no sequence of the validation split has more than 4 events"):
        open_initial_states(log, users, "validation", users=9, warm=4, horizon=4, seed=0)


def test_users_are_a_seeded_sample() -> None:
    log = log_of([[1, 2, 3, 4]] * 50, trained=[2] * 50)
    users = tiny_simulator(4, lengths=[4] * 50)
    found = [
        open_initial_states(log, users, "test", users=10, warm=1, horizon=9, seed=seed).sequence for seed in (0, 0, 1)
    ]
    assert len(set(found[0].tolist())) == 10
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).any()
