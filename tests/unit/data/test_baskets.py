"""Baskets: prepared, split, trained on, validated and evaluated; no item of a basket is in another one's history."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_case import prepare_text
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_case import Past, basket_logs, dataset

import ecoc
from ecoc.batch import PAD, Batch, History
from ecoc.data.describe import summary
from ecoc.data.loader import Mode, Windows, histories, open_cases, open_train_sequences
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.ranks import everything_before
from ecoc.losses.returns import Transitions, lambda_returns

# ------------------------------------------------------------------------------------------------ slow reference


def basket_of(data: Dataset, event: int) -> tuple[int, int]:
    """First event of a basket and the one after its last, by walking."""
    sequence = max(k for k in range(len(data)) if data.offsets[k] <= event)
    first, stop = event, event + 1
    while first > data.offsets[sequence] and data.times[first - 1] == data.times[event]:
        first -= 1
    while stop < data.offsets[sequence + 1] and data.times[stop] == data.times[event]:
        stop += 1
    return first, stop


def expected_targets(pasts: list[Past], min_history: int, most: int | None) -> list[int]:
    """Training events with enough events before their basket; of each basket at most `most`."""
    targets, begin = [], 0
    for past in pasts:
        place = 0
        for size in past.baskets:
            if place >= min_history and place < past.train and not past.is_held_out:
                targets += [begin + place + k for k in range(size if most is None else min(size, most))]
            place += size
        begin += past.events
    return targets


def check_batch(data: Dataset, batch: Batch) -> list[int]:
    """Every target of a batch, checked by walking through the log; returns the events."""
    assert batch.state is not None
    assert batch.after is not None
    assert batch.before is not None
    targets = []
    for row, slot in (batch.target != PAD).nonzero().tolist():
        event = int(batch.target[row, slot]) - 1
        first, stop = basket_of(data, event)
        items = batch.history.items[row].tolist()
        state, after = int(batch.state[row, slot]), int(batch.after[row, slot])
        assert items[state] == first, "the state after the last event before the basket"
        assert items[: state + 1] == list(range(first - state, first + 1)), "and only earlier events before it"
        sequence = max(k for k in range(len(data)) if data.offsets[k] <= event)
        assert int(batch.before[row, slot]) == first - data.offsets[sequence]
        assert bool(batch.done[row, slot]) == (stop == data.offsets[sequence + 1])
        assert float(batch.reward[row, slot]) == 0.5 + event
        if after < len(items) and items[after] != PAD:
            assert items[after] == stop, "the state after the last event of the basket"
        targets.append(event)
    return targets


def windows(data: Dataset, length: int, mode: Mode, min_history: int, **options: Any) -> Windows:
    return Windows(data, length, batch=3, targets=0, mode=mode, min_history=min_history, seed=1, **options)


# ------------------------------------------------------------------------------------------------ training


@settings(max_examples=80, deadline=None)
@given(basket_logs(), st.integers(1, 6), st.sampled_from(["tile", "prefix", "random"]), st.integers(1, 3))
def test_the_state_before_a_basket_predicts_each_of_its_items(
    pasts: list[Past], length: int, mode: Mode, min_history: int
) -> None:
    with dataset(pasts) as data:
        expected = expected_targets(pasts, min_history, length if mode == "tile" else None)
        if not expected:
            with pytest.raises(InputError, match="no transition can be learnt"):
                windows(data, length, mode, min_history)
            return
        epoch = windows(data, length, mode, min_history)
        batches = [epoch[step] for step in range(epoch.steps)]
        targets = [event for batch in batches for event in check_batch(data, batch)]
        if mode == "random":
            assert set(targets) <= set(expected)
            assert all((batch.target != PAD).any(1).all() for batch in batches), "a window without a target is wasted"
        else:
            assert Counter(targets) == Counter(expected), "each exactly once"
            assert epoch.targets == len(expected)


def test_random_windows_reach_every_item_of_every_basket_over_the_epochs() -> None:
    pasts = [Past(14, 14, baskets=(3, 1, 4, 2, 4))]
    with dataset(pasts) as data:
        epoch = windows(data, 4, "random", 1)
        targets = {event for step in range(60) for event in check_batch(data, epoch[step])}
    assert targets == set(expected_targets(pasts, 1, None))


def test_a_dataset_of_baskets_of_one_gives_the_batches_of_one_without() -> None:
    plain = [Past(9, 7), Past(5, 5), Past(4, 2)]
    baskets = [Past(past.events, past.train, baskets=(1,) * past.events) for past in plain]
    with dataset(plain) as without, dataset(baskets) as of_one:
        for mode in ("tile", "prefix", "random"):
            options: dict[str, Any] = {"terminal_every": 3, "returns": True}
            first, second = (windows(data, 4, mode, 1, **options) for data in (without, of_one))
            assert (first.steps, first.targets) == (second.steps, second.targets)
            for step in range(2 * first.steps):
                a, b = first[step], second[step]
                for name in ("target", "reward", "done", "before", "returns"):
                    assert torch.equal(getattr(a, name), getattr(b, name)), (mode, name)
                assert torch.equal(a.state_positions(), b.state_positions())
                one, two = Transitions.of(a), Transitions.of(b)
                for name in ("position", "before", "is_whole"):
                    assert torch.equal(getattr(one, name), getattr(two, name)), (mode, name)
                rows = one.is_whole & (one.done == 0)
                assert torch.equal(one.after[rows], two.after[rows])


def test_transitions_of_a_basket_share_the_states_before_and_after_it() -> None:
    with dataset([Past(6, 6, baskets=(1, 2, 1, 2))]) as data:
        batch = windows(data, 5, "tile", 1)[0]
    transitions = Transitions.of(batch)
    assert transitions.item.tolist() == [2, 3, 4, 5, 6]
    assert transitions.before.tolist() == [0, 0, 2, 3, 3]
    assert transitions.after[:3].tolist() == [2, 2, 3]
    assert transitions.done.tolist() == [0, 0, 0, 1, 1]
    assert transitions.is_whole.all()
    value = torch.tensor([1.0, 2, 4, 8, 16])
    returns = lambda_returns(transitions, value, torch.zeros(5), 0.5, 1.0)
    one_step = transitions.reward + 0.5 * (1 - transitions.done) * value
    # item 3 ends where item 4 starts, and item 4 where item 5 starts; 2 and 3, 5 and 6 do not follow each other
    third = one_step[2] + 0.5 * one_step[3]
    assert returns.tolist() == pytest.approx(
        [float(part) for part in (one_step[0], one_step[1] + 0.5 * third, third, one_step[3], one_step[4])]
    )


def test_prefix_windows_that_read_their_target_are_refused() -> None:
    """The state after one item of a basket is not the state after the basket."""
    with dataset([Past(4, 4, baskets=(1, 2, 1))]) as data, pytest.raises(InputError, match=r"train\.windows=tile"):
        windows(data, 3, "prefix", 1, next_states=True)


def test_returns_of_a_basket_are_those_from_its_start() -> None:
    with dataset([Past(4, 4, baskets=(1, 2, 1))]) as data:
        batch = windows(data, 3, "tile", 1, returns=True)[0]
    assert batch.returns is not None
    assert batch.returns[0].tolist() == [1.5 + 2.5 + 3.5, 1.5 + 2.5 + 3.5, 3.5]


def test_pairs_lead_from_the_last_item_before_a_basket_to_each_of_its_items() -> None:
    with dataset([Past(5, 5, baskets=(2, 2, 1)), Past(3, 3, baskets=(1, 2))]) as data:
        before, after = open_train_sequences(data).pairs()
    assert list(zip(before.tolist(), after.tolist(), strict=True)) == [(2, 3), (2, 4), (4, 5), (6, 7), (6, 8)]


# ------------------------------------------------------------------------------------------------ evaluation


@settings(max_examples=80, deadline=None)
@given(basket_logs(), st.sampled_from(["test", "validation"]), st.integers(1, 3), st.integers(1, 5))
def test_the_history_of_a_case_stops_before_its_basket(
    pasts: list[Past], split: str, min_history: int, length: int
) -> None:
    with dataset(pasts) as data:
        cases = open_cases(data, split, min_history=min_history, most=0, seed=0)
        expected, begin = [], 0
        for past in pasts:
            place = 0
            for size in past.baskets:
                is_chosen = place >= past.train if split == "test" else past.is_held_out and place < past.train
                if is_chosen and place >= min_history:
                    expected += [(begin + place + k, begin, place) for k in range(size)]
                place += size
            begin += past.events
        assert cases.event.tolist() == [event for event, _, _ in expected]
        if not expected:
            return
        history, everything = histories(data, cases, length), everything_before(data, cases)
        for row, (_, first, place) in enumerate(expected):
            seen = list(range(first + 1, first + place + 1))
            assert [item for item in history.items[row].tolist() if item != PAD] == seen[-length:]
            assert [item for item in everything[row].tolist() if item != PAD] == seen


# ------------------------------------------------------------------------------------------------ preparation

SHOP = "u,i,t\n" + "".join(
    f"{user},{item},{day}\n"
    for user, days in {"a": ["12", "345", "16", "2"], "b": ["3", "14"], "c": ["126"]}.items()
    for day, items in enumerate(days, start=1)
    for item in items
)


@pytest.mark.parametrize(
    ("split", "train"),
    [
        ("leave-one-out", [7, 1, 3]),
        ("per-user:0.6", [2, 1, 3]),
        ("per-user:0.8", [5, 1, 3]),
        ("per-user:0.1", [2, 1, 3]),
    ],
)
def test_no_split_divides_a_basket(split: str, train: list[int], tmp_path: Path) -> None:
    data = prepare_text(tmp_path, SHOP, baskets=True, split=split)
    assert data.train_lengths.tolist() == train
    assert data.manifest.settings["baskets"] is True
    test = data.counts.test
    assert data.counts.test_targets == test == len(open_cases(data, "test", min_history=1, most=0, seed=0))


def test_test_targets_of_new_users_begin_with_their_second_basket(tmp_path: Path) -> None:
    log = "u,i,t\na,1,1\na,2,1\na,1,2\nb,1,9\nb,2,9\nb,1,10\nb,2,10\n"
    data = prepare_text(tmp_path, log, baskets=True, split="time:0.5")
    assert data.train_lengths.tolist() == [3, 0]
    assert data.counts.test_targets == 2 == len(open_cases(data, "test", min_history=1, most=0, seed=0))


def test_only_sequences_of_two_baskets_are_held_out(tmp_path: Path) -> None:
    log = "u,i,t\n" + "".join(f"u{k},{item},1\n" for k in range(20) for item in (1, 2)) + "u3,1,2\nu5,2,2\n"
    data = prepare_text(tmp_path, log, baskets=True, split="time:0.999", validation=0.5, min_length=1)
    assert data.counts.validation_sequences == 0, "the cut leaves one basket of each"
    data = prepare_text(tmp_path / "b", log + "u0,1,9\nu1,1,9\n", baskets=True, split="time:0.96", validation=0.5)
    assert {sequence.user for sequence in data if sequence.is_validation} <= {"u3", "u5"}
    assert data.counts.validation_sequences == 1


@pytest.mark.parametrize(("shared", "warns"), [(2, False), (4, True), (9, True)])
def test_prepare_warns_when_a_third_of_the_events_share_user_and_time(shared: int, warns: bool, tmp_path: Path) -> None:
    times = [*range(100, 100 + 9 - shared + 1), *[100] * (shared - 1)]
    log = "u,i,t\n" + "".join(f"a,{k},{time}\n" for k, time in enumerate(times))
    warnings = summary(prepare_text(tmp_path, log, split="leave-one-out"))["warnings"]
    assert bool(warnings) == warns
    if warns:
        assert f"{shared / 9:.0%} of the events share user and time" in warnings[0]
        assert "--baskets" in warnings[0]
    assert summary(prepare_text(tmp_path / "b", log, split="leave-one-out", baskets=True))["warnings"] == []


def test_baskets_without_shared_times_are_noticed(tmp_path: Path) -> None:
    log = "u,i,t\na,1,1\na,2,2\na,3,3\n"
    warnings = summary(prepare_text(tmp_path, log, baskets=True, split="leave-one-out"))["warnings"]
    assert warnings == ["no two events of a user have the same time, so there are no baskets"]
    with pytest.raises(InputError, match="baskets: it needs a time column"):
        prepare_text(tmp_path / "b", log, baskets=True, time=None, time_format="order")


# ------------------------------------------------------------------------------------------------ methods


@pytest.mark.parametrize("method", ["supervised", "ecoc", "sa2c", "prl", "neural_lcb", "markov"])
def test_methods_train_on_baskets(method: str, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    rows = [(u, i, day) for u in range(30) for day in range(5) for i in random.integers(0, 20, random.integers(1, 4))]
    log = "u,i,t\n" + "".join(f"{user},{item},{day}\n" for user, item, day in rows)
    data = prepare_text(tmp_path, log, baskets=True, split="leave-one-out", validation=0.2)
    config = {"encoder": {"dim": 8, "length": 6}, "train": {"max_steps": 3}}
    run = ecoc.train(data, tmp_path / "run", method=method, encoder="gru4rec", config=config)
    result = ecoc.evaluate(run.path, data)
    assert result.cases == data.counts.test_targets


def test_a_state_never_sees_the_basket_that_it_predicts() -> None:
    """Changing the items of a basket changes no state that predicts it."""
    with dataset([Past(9, 9, baskets=(2, 3, 2, 2))]) as data:
        batch = windows(data, 8, "tile", 1)[0]
    encoder = ecoc.encoders.ENCODERS["gru4rec"]
    network = encoder(encoder.Config(dim=8, length=8, dropout=0.0), ecoc.batch.Dims(20)).eval()
    table = torch.randn(21, 8, generator=torch.Generator().manual_seed(0))
    states = batch.states_before(network(network.embed(table, batch.history), batch.history))
    changed = torch.where((batch.history.items >= 3) & (batch.history.items <= 5), 20, batch.history.items)
    other = History(changed, batch.history.feedback, batch.history.users)
    again = batch.states_before(network(network.embed(table, other), other))
    assert batch.target[0].tolist() == [0, 3, 4, 5, 6, 7, 8, 9]
    assert torch.equal(states[:3], again[:3]), "the basket of items 3, 4 and 5"
    assert not torch.equal(states[3], again[3])
