"""Logged decisions, and how a simulator sees them, against loops over the log one event at a time."""

import csv
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import ecoc
from ecoc.batch import PAD, History
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.model import load
from ecoc.ope.estimators import SessionLog, calibrated, sessions
from ecoc.ope.logged import DecisionScorer, LoggedDecisions, best_items, open_logged
from ecoc.ope.response import ResponseConfig, ResponseModel
from ecoc.ope.simulator import LENGTH as LOOKS_BACK
from ecoc.ope.simulator import Simulator
from ecoc.policies.base import Policy
from ecoc.policies.ranking import Query

LENGTH, ITEMS, EVENTS = 5, 20, 800
NAMES = ("sasrec", "ssept", "popular", "markov")  # ssept reads users
WARM, HORIZON = 3, 4


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log full of repeats, with sequences from one test event to more than encoders read, and runs on it."""
    path = tmp_path_factory.mktemp("logged")
    rng = np.random.default_rng(8)
    with (path / "log.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["user", "item", "ts", "event"])
        for time in range(EVENTS):
            user = 0 if time % 8 == 0 else rng.geometric(0.08) % 40
            item = (time if time < ITEMS else rng.geometric(0.12)) % ITEMS
            writer.writerow([f"u{user}", f"i{item}", 1_600_000_000 + time, ["view", "cart", "buy"][rng.integers(3)]])
    data = ecoc.prepare(
        path / "log.csv",
        path / "data",
        user="user",
        item="item",
        time="ts",
        feedback="event",
        reward={"view": 0, "cart": 1, "buy": 3},
        split="time:0.7",
        validation=0.3,
        threads=1,
    )
    train = {"max_steps": 10, "threads": 1}
    for name in NAMES[:2]:
        encoder = {"dim": 8, "length": LENGTH, "feedback": True}
        ecoc.train(data, path / name, encoder=name, config={"encoder": encoder, "train": train})
    for name in NAMES[2:]:
        ecoc.train(data, path / name, method=name, config={"encoder": {"length": LENGTH}, "train": train})
    return path


@pytest.fixture(scope="module")
def data(folder: Path) -> Dataset:
    return ecoc.open_data(folder / "data")


@pytest.fixture(scope="module")
def policies(folder: Path) -> dict[str, Policy]:
    return {name: load(folder / name).policy for name in NAMES}


@pytest.fixture(scope="module")
def everything(data: Dataset) -> LoggedDecisions:
    return open_logged(data, warm=WARM, horizon=HORIZON, most=10**6, seed=0)


@pytest.fixture(scope="module")
def simulator(data: Dataset) -> Simulator:
    """Two members that were never fitted: what they say is as good as any to add up."""
    torch.manual_seed(3)
    feedback = list(data.manifest.feedback.names)
    members = [
        ResponseModel(data.counts.items, len(feedback), ResponseConfig(dim=8, hidden=8, lasting=4, width=8)).eval()
        for _ in range(2)
    ]
    for member in members:
        torch.nn.init.normal_(member.shown_bias)
        torch.nn.init.normal_(member.bias.weight)
    worth = torch.rand(data.counts.items + 1, len(feedback)) + torch.tensor([0.0, 1.0, 3.0])
    return Simulator(members, worth, feedback, np.diff(data.offsets), 1.3)


@pytest.fixture(scope="module")
def witness(simulator: Simulator, everything: LoggedDecisions) -> DecisionScorer:
    return witness_of(simulator, everything)


def witness_of(simulator: Simulator, logged: LoggedDecisions) -> DecisionScorer:
    return DecisionScorer(simulator, logged)


class Past:
    """One decision with all that preceded it, by outside ids."""

    def __init__(self, data: Dataset, sequence: int, place: int) -> None:
        row = data.sequence(sequence)
        indices = [data.vocab.item(item).index for item in row.items]
        codes = [data.manifest.feedback.names.index(name) + 1 for name in row.feedback]
        self.items, self.codes = indices[:place], codes[:place]
        self.item, self.reward, self.sequence = indices[place], float(row.rewards[place]), sequence
        is_learnt = row.train_length > WARM and not row.is_validation
        self.user = sequence + 1 if is_learnt else 0

    def history(self, length: int) -> History:
        return History(
            torch.tensor([self.items[-length:]]), torch.tensor([self.codes[-length:]]), torch.tensor([self.user])
        )


def slow_sessions(data: Dataset, horizon: int = HORIZON) -> list[list[Past]]:
    found = []
    for number in range(len(data)):
        row = data.sequence(number)
        places = [place for place in range(len(row)) if place >= row.train_length and place >= WARM][:horizon]
        if places:
            found.append([Past(data, number, place) for place in places])
    return found


@pytest.fixture(scope="module")
def pasts(data: Dataset) -> list[Past]:
    return [past for session in slow_sessions(data) for past in session]


def slow_best(policy: Policy, past: Past, *, exclude_seen: bool) -> int:
    with torch.inference_mode():
        scores = policy.train(False).scores(policy.query(past.history(policy.length)), 1, policy.items + 1)[0].tolist()
    allowed = [item for item in range(1, policy.items + 1) if not (exclude_seen and item in past.items)]
    return max(allowed, key=lambda item: (scores[item - 1], -item)) if allowed else PAD


# The log


def test_sessions_are_the_test_events_in_order(data: Dataset, everything: LoggedDecisions) -> None:
    whole = slow_sessions(data)
    expected = [(past, number, step) for number, session in enumerate(whole) for step, past in enumerate(session)]
    assert len(expected) == len(everything.items) > 60
    assert len({len(session) for session in whole}) > 2, "sessions of several lengths"
    assert max(len(past.items) for past, _, _ in expected) > LOOKS_BACK, "pasts longer than what is read"
    for row, (past, number, step) in enumerate(expected):
        assert (everything.session[row], everything.step[row]) == (number, step)
        assert (everything.items[row], everything.reward[row]) == (past.item, past.reward)
        assert everything.user[row] == data.users[past.sequence]
        count = int(everything.history.lengths[row])
        assert everything.history.items[row, :count].tolist() == past.items[-LOOKS_BACK:]
        assert everything.history.feedback is not None
        assert everything.history.feedback[row].tolist()[:count] == past.codes[-LOOKS_BACK:]
        assert [item for item in everything.before[row].tolist() if item != PAD] == past.items


@pytest.mark.parametrize("horizon", [1, 2, 1000])
def test_sessions_end_at_the_horizon(data: Dataset, horizon: int) -> None:
    found = open_logged(data, warm=WARM, horizon=horizon, most=10**6, seed=0)
    whole = slow_sessions(data, horizon)
    assert found.items.tolist() == [past.item for session in whole for past in session]
    assert np.bincount(found.session).tolist() == [len(session) for session in whole]
    assert found.step.max() == max(map(len, whole)) - 1 <= horizon - 1


@pytest.mark.parametrize("most", [1, 10, 40])
def test_only_as_many_whole_sessions_are_kept_as_are_needed(
    data: Dataset, everything: LoggedDecisions, most: int
) -> None:
    found = open_logged(data, warm=WARM, horizon=HORIZON, most=most, seed=0)
    assert most <= len(found.items) < most + HORIZON
    whole = {session[0].sequence: [past.item for past in session] for session in slow_sessions(data)}
    kept = [found.items[found.session == number].tolist() for number in range(found.session.max() + 1)]
    users = [int(found.user[found.session == number][0]) for number in range(len(kept))]
    by_user = {int(data.users[sequence]): items for sequence, items in whole.items()}
    assert kept == [by_user[user] for user in users]
    assert users == sorted(users)
    assert len(kept) < everything.session.max() + 1
    again = open_logged(data, warm=WARM, horizon=HORIZON, most=most, seed=0)
    assert (again.items == found.items).all()
    others = [open_logged(data, warm=WARM, horizon=HORIZON, most=most, seed=seed).user.tolist() for seed in range(1, 6)]
    assert any(other != found.user.tolist() for other in others)


def test_a_log_without_such_decisions_is_refused(data: Dataset) -> None:
    with pytest.raises(InputError, match="no test event has 1000 events before it"):
        open_logged(data, warm=1000, horizon=HORIZON, most=100, seed=0)


# What a policy would have shown


@pytest.mark.parametrize("exclude_seen", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_best_items_are_the_policys_own_one_by_one(
    policies: dict[str, Policy], everything: LoggedDecisions, pasts: list[Past], name: str, exclude_seen: bool
) -> None:
    chosen = best_items(policies[name], everything, exclude_seen=exclude_seen)
    assert chosen.tolist() == [slow_best(policies[name], past, exclude_seen=exclude_seen) for past in pasts]
    seen = [item in past.items for item, past in zip(chosen.tolist(), pasts, strict=True)]
    assert any(seen) != exclude_seen, "nothing seen is chosen if that is asked, something is if not"


class Oldest(Policy):
    """Shows the oldest item it is told of."""

    def __init__(self, items: int, length: int) -> None:
        super().__init__()
        self.items, self.length = items, length

    def query(self, history: History) -> Query:
        return Query(history.items[:, :1].float())

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        return -(torch.arange(first, last) - query.vector).abs()

    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        return -(items - query.vector).abs(), torch.zeros_like(items, dtype=torch.float32)

    def vectors(self) -> Tensor | None:
        return None


@pytest.mark.parametrize("length", [1, 3, 50])
def test_a_policy_is_told_of_as_many_events_as_it_reads(
    data: Dataset, everything: LoggedDecisions, pasts: list[Past], length: int
) -> None:
    policy = Oldest(data.counts.items, length)
    assert best_items(policy, everything, exclude_seen=False).tolist() == [past.items[-length:][0] for past in pasts]


def test_a_policy_that_reads_more_than_most_is_told_of_more(data: Dataset, pasts: list[Past]) -> None:
    found = open_logged(data, warm=WARM, horizon=HORIZON, most=10**6, seed=0, length=70)
    policy = Oldest(data.counts.items, 70)
    assert max(len(past.items) for past in pasts) > 70
    assert best_items(policy, found, exclude_seen=False).tolist() == [past.items[-70:][0] for past in pasts]


# What a simulator says of it


def slow_chances(simulator: Simulator, past: Past) -> list[Tensor]:
    """Of every item to be shown, by member."""
    with torch.no_grad():
        history = past.history(LOOKS_BACK)
        return [
            simulator.log_behaviour(k, model.after_history(history))[0].exp()
            for k, model in enumerate(simulator.members)
        ]


def slow_value(simulator: Simulator, past: Past, item: int) -> float:
    total = 0.0
    with torch.no_grad():
        for model in simulator.members:
            logits = model.answers(model.after_history(past.history(LOOKS_BACK)), torch.tensor([item]))[0]
            shares = torch.softmax(logits / simulator.temperature, -1)
            total += sum(
                float(share) * float(worth) for share, worth in zip(shares, simulator.mean_reward[item], strict=True)
            )
    return total / len(simulator.members)


def test_chances_are_the_members_mean_and_sum_to_one(witness: DecisionScorer, pasts: list[Past]) -> None:
    shown = np.array([past.item for past in pasts])
    other = shown % ITEMS + 1
    chance, of_other = witness.chance(shown), witness.chance(other)
    for row, past in enumerate(pasts):
        parts = slow_chances(witness.simulator, past)
        for part in parts:
            assert len(part) == witness.simulator.items
            assert float(part.sum()) == pytest.approx(1, abs=1e-5)
        mean = torch.stack(parts).mean(0)
        assert chance[row] == pytest.approx(float(mean[past.item - 1]), rel=1e-4)
        assert of_other[row] == pytest.approx(float(mean[other[row] - 1]), rel=1e-4)
    assert np.unique(chance.round(6)).size > 30


def test_values_are_expected_rewards(witness: DecisionScorer, pasts: list[Past]) -> None:
    assert witness.model == pytest.approx([slow_value(witness.simulator, past, past.item) for past in pasts], rel=1e-4)
    other = np.array([(past.item + row) % ITEMS + 1 for row, past in enumerate(pasts)])
    slow = [slow_value(witness.simulator, past, int(item)) for past, item in zip(pasts, other, strict=True)]
    assert witness.value(other) == pytest.approx(slow, rel=1e-4)


def half_agreed(everything: LoggedDecisions) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """What a policy might have shown: every other decision as logged."""
    chosen = everything.items % ITEMS + 1
    chosen[::2] = everything.items[::2]
    return chosen


def test_decisions_weigh_what_the_policy_would_have_shown(witness: DecisionScorer, everything: LoggedDecisions) -> None:
    chosen = half_agreed(everything)
    found = witness.decisions(chosen)
    chance = calibrated(witness.chance(chosen), chosen == everything.items)
    for row, item in enumerate(chosen.tolist()):
        assert found.weight[row] == pytest.approx(1 / chance[row] if item == everything.items[row] else 0.0)
    assert 0 < np.count_nonzero(found.weight) < len(found.weight)
    assert (found.reward == everything.reward).all()
    assert (found.user == everything.user).all()
    assert (found.model == witness.model).all()
    assert (found.policy_model == witness.value(chosen)).all()


def test_known_propensities_take_the_place_of_estimated_ones(
    witness: DecisionScorer, everything: LoggedDecisions
) -> None:
    before, known = witness.decisions(everything.items).weight, np.linspace(0.1, 0.9, len(everything.items))
    view = witness.knowing(known)
    assert view.decisions(everything.items).weight == pytest.approx(1 / known)
    assert (witness.decisions(everything.items).weight == before).all()
    assert (view.model == witness.model).all()


def test_policies_with_no_share_of_the_decisions_earn_what_was_logged(
    witness: DecisionScorer, everything: LoggedDecisions
) -> None:
    for view in (witness, witness.knowing(np.linspace(0.1, 0.9, len(everything.items)))):
        found = {one.estimator: one for one in view.mixed_sessions(view.decisions(half_agreed(everything)), 0.0, 0)}
        for name in ("snips", "dr", "switch"):
            assert found[name].value == pytest.approx(float(everything.reward.mean()), rel=1e-9), name
            assert found[name].ess == pytest.approx(everything.session.max() + 1)


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_sessions_mix_the_log_and_the_policy(
    witness: DecisionScorer, everything: LoggedDecisions, share: float
) -> None:
    chosen = half_agreed(everything)
    value, chance = witness.value(chosen), calibrated(witness.chance(chosen), chosen == everything.items)
    shape = int(everything.session.max()) + 1, int(everything.step.max()) + 1
    reward, weight, model, mixed = (np.zeros(shape) for _ in range(4))
    counted = np.zeros(shape, bool)
    for row in range(len(chosen)):
        at = everything.session[row], everything.step[row]
        ratio = 1 / chance[row] if chosen[row] == everything.items[row] else 0.0
        reward[at], model[at], counted[at] = everything.reward[row], witness.model[row], True
        weight[at] = (1 - share) * 1 + share * ratio
        mixed[at] = (1 - share) * witness.model[row] + share * value[row]
    slow = sessions(SessionLog(reward, weight, model, mixed, counted), seed=5)
    for one, other in zip(witness.mixed_sessions(witness.decisions(chosen), share, 5), slow, strict=True):
        assert list(asdict(one).values())[1:] == pytest.approx(list(asdict(other).values())[1:], rel=1e-9)


def test_sessions_of_one_user_are_one_observation(simulator: Simulator, everything: LoggedDecisions) -> None:
    alone = replace(everything, user=np.zeros_like(everything.user))
    witness = witness_of(simulator, alone)
    for one in witness.mixed_sessions(witness.decisions(half_agreed(everything)), 0.1, 0):
        assert one.low == pytest.approx(one.value) == one.high


def test_nothing_depends_on_how_many_decisions_are_read_at_a_time(
    witness: DecisionScorer, policies: dict[str, Policy], everything: LoggedDecisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = best_items(policies["sasrec"], everything, exclude_seen=True)
    monkeypatch.setattr("ecoc.ope.logged._ROWS", 7)
    assert (best_items(policies["sasrec"], everything, exclude_seen=True) == chosen).all()
    again = witness_of(witness.simulator, everything)
    assert again.chance(everything.items) == pytest.approx(witness.chance(everything.items), rel=1e-5)
    assert again.model == pytest.approx(witness.model, rel=1e-5)
    assert again.value(chosen) == pytest.approx(witness.value(chosen), rel=1e-5)


def test_asking_about_one_policy_leaves_the_next_alone(witness: DecisionScorer, everything: LoggedDecisions) -> None:
    chosen = half_agreed(everything)
    first = witness.decisions(chosen)
    witness.mixed_sessions(witness.decisions(everything.items), 0.3, 0)
    again = witness.decisions(chosen)
    assert (again.weight == first.weight).all()
    assert (again.policy_model == first.policy_model).all()
