from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
import torch
from data_case import prepare_file, write_log
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_case import KINDS, Past, dataset, logs

from ecoc.batch import PAD, Batch
from ecoc.data.loader import Mode, Windows, open_cases
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError

MODES: tuple[Mode, ...] = ("random", "tile", "shifted", "prefix")


pytestmark = pytest.mark.usefixtures("one_thread")


def open_windows(
    data: Dataset,
    mode: Mode,
    *,
    length: int = 4,
    batch: int = 3,
    targets: int = 700,
    min_history: int = 1,
    seed: int = 0,
    next_states: bool = False,
) -> Windows:
    return Windows(
        data,
        length,
        batch=batch,
        targets=targets,
        mode=mode,
        min_history=min_history,
        seed=seed,
        next_states=next_states,
    )


@dataclass(frozen=True)
class Row:
    """What a row of a batch should hold, told by a loop."""

    items: tuple[int, ...]
    feedback: tuple[int, ...]
    user: int
    target: tuple[int, ...]
    reward: tuple[float, ...]
    done: tuple[float, ...]


def expected_row(pasts: list[Past], sequence: int, first: int, stop: int, mode: Mode, min_history: int) -> Row:
    """The window of events first..stop-1, counted within the sequence; the last of them is only a target."""
    start = sum(past.events for past in pasts[:sequence])
    items, feedback, target, reward, done = [], [], [], [], []
    for place in range(first, stop - 1):
        event, after = start + place, start + place + 1
        items.append(event + 1)
        feedback.append(event % KINDS + 1)
        is_wanted = place + 1 >= min_history and (mode != "prefix" or place + 2 == stop)
        target.append(after + 1 if is_wanted else PAD)
        reward.append(after + 0.5 if is_wanted else 0.0)
        done.append(float(is_wanted and place + 1 == pasts[sequence].events - 1))
    return Row(tuple(items), tuple(feedback), sequence + 1, tuple(target), tuple(reward), tuple(done))


def rows_of(batch: Batch) -> list[Row]:
    """Rows without their padding, which is on the right and empty, and never a column too many."""
    history = batch.history
    assert history.feedback is not None
    assert history.users is not None
    assert batch.target.dtype == history.items.dtype == history.feedback.dtype == history.users.dtype == torch.int64
    assert batch.reward.dtype == batch.done.dtype == torch.float32
    grids = [grid.tolist() for grid in (history.items, history.feedback, batch.target, batch.reward, batch.done)]
    lengths = history.lengths.tolist()
    assert max(lengths) == history.items.shape[1]
    rows = []
    for number, (user, length) in enumerate(zip(history.users.tolist(), lengths, strict=True)):
        parts = [tuple(grid[number]) for grid in grids]
        assert not any(any(part[length:]) for part in parts)
        items, feedback, target, reward, done = (part[:length] for part in parts)
        rows.append(Row(items, feedback, user, target, reward, done))
    return rows


def epoch_of(windows: Windows, epoch: int) -> list[Row]:
    batches = [windows[step] for step in range(epoch * windows.steps, (epoch + 1) * windows.steps)]
    assert all(len(batch.target) == windows.batch for batch in batches[:-1])
    assert 1 <= len(batches[-1].target) <= windows.batch
    rows = [row for batch in batches for row in rows_of(batch)]
    assert sum(batch.transitions for batch in batches) == sum(item != PAD for row in rows for item in row.target)
    return rows


def learnt(pasts: list[Past], min_history: int) -> list[int]:
    return [k for k, past in enumerate(pasts) if not past.is_held_out and past.train > min_history]


def tiles(train: int, length: int) -> list[tuple[int, int]]:
    """Windows of at most length + 1 events side by side, from the end back; neighbours share an event."""
    found, stop = [], train
    while stop > 1:
        found.append((max(0, stop - length - 1), stop))
        stop -= length
    return found


def teaching(rows: list[Row]) -> Counter[Row]:
    """Those with a target; whether others are served is no business of these tests."""
    return Counter(row for row in rows if any(row.target))


@settings(max_examples=100, deadline=None)
@given(logs(), st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**63 - 1))
def test_tiles_make_every_event_but_the_first_a_target_once(
    pasts: list[Past], length: int, batch: int, min_history: int, seed: int
) -> None:
    if not learnt(pasts, min_history):
        return
    with dataset(pasts) as data:
        windows = open_windows(data, "tile", length=length, batch=batch, min_history=min_history, seed=seed)
        expected = [
            expected_row(pasts, k, first, stop, "tile", min_history)
            for k in learnt(pasts, min_history)
            for first, stop in tiles(pasts[k].train, length)
        ]
        wanted = Counter(
            sum(past.events for past in pasts[:k]) + place + 1
            for k in learnt(pasts, min_history)
            for place in range(min_history, pasts[k].train)
        )
        for epoch in (0, 1, 5):
            rows = epoch_of(windows, epoch)
            assert Counter(item for row in rows for item in row.target if item != PAD) == wanted
            assert teaching(rows) == teaching(expected)
            assert windows.targets == sum(wanted.values())


@settings(max_examples=100, deadline=None)
@given(logs(), st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**63 - 1))
def test_shifted_tiles_make_the_same_events_targets_once_in_as_many_windows(
    pasts: list[Past], length: int, batch: int, min_history: int, seed: int
) -> None:
    if not learnt(pasts, min_history):
        return
    with dataset(pasts) as data:
        windows = open_windows(data, "shifted", length=length, batch=batch, min_history=min_history, seed=seed)
        wanted = Counter(
            sum(past.events for past in pasts[:k]) + place + 1
            for k in learnt(pasts, min_history)
            for place in range(min_history, pasts[k].train)
        )
        fewest = sum(-(-(pasts[k].train - min_history) // length) for k in learnt(pasts, min_history))
        for epoch in (0, 1, 5):
            rows = epoch_of(windows, epoch)
            assert Counter(item for row in rows for item in row.target if item != PAD) == wanted
            assert len(rows) == windows.windows == fewest
            for row in rows:
                first = row.items[0] - 1 - sum(past.events for past in pasts[: row.user - 1])
                stop = first + len(row.items) + 1
                assert len(row.items) <= length
                assert row == expected_row(pasts, row.user - 1, first, stop, "shifted", min_history)
        assert windows.targets == sum(wanted.values())


def test_shifted_borders_lie_anywhere_that_needs_no_further_window_equally_often() -> None:
    with dataset([Past(9, 9)]) as data:  # 8 targets in 3 windows of at most 3: the last has 3 or 2
        windows = open_windows(data, "shifted", length=3, batch=3)
        borders = Counter(tuple(sorted(row.items[0] for row in epoch_of(windows, epoch))) for epoch in range(400))
    assert set(borders) == {(1, 3, 6), (1, 4, 7)}
    assert all(150 <= times <= 250 for times in borders.values())


@settings(max_examples=100, deadline=None)
@given(logs(), st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**63 - 1))
def test_prefixes_are_one_row_a_target_with_its_history(
    pasts: list[Past], length: int, batch: int, min_history: int, seed: int
) -> None:
    if not learnt(pasts, min_history):
        return
    with dataset(pasts) as data:
        windows = open_windows(data, "prefix", length=length, batch=batch, min_history=min_history, seed=seed)
        expected = Counter(
            expected_row(pasts, k, max(0, place - length), place + 1, "prefix", min_history)
            for k in learnt(pasts, min_history)
            for place in range(min_history, pasts[k].train)
        )
        for epoch in (0, 3):
            rows = epoch_of(windows, epoch)
            assert Counter(rows) == expected
            assert all(sum(item != PAD for item in row.target) == 1 and row.target[-1] != PAD for row in rows)
        assert windows.targets == windows.windows == len(rows)


@settings(max_examples=100, deadline=None)
@given(logs(), st.integers(2, 6), st.integers(1, 5), st.integers(1, 4))
def test_prefixes_with_next_states_also_read_their_target(
    pasts: list[Past], length: int, batch: int, min_history: int
) -> None:
    """The same rows as without, of histories one shorter; after them the target is read, with no target of its own."""
    if not learnt(pasts, min_history):
        return
    with dataset(pasts) as data:
        windows, plain = (
            open_windows(data, "prefix", length=most, batch=batch, min_history=min_history, next_states=reads)
            for most, reads in ((length, True), (length - 1, False))
        )
        rows = epoch_of(windows, 0)
        assert all(len(row.items) <= length and row.target[-1] == PAD for row in rows)
        assert all(row.items[-1] == row.target[-2] for row in rows)
        shortened = [
            Row(row.items[:-1], row.feedback[:-1], row.user, row.target[:-1], row.reward[:-1], row.done[:-1])
            for row in rows
        ]
        assert Counter(shortened) == Counter(epoch_of(plain, 0))
        assert windows.targets == plain.targets


def test_prefixes_with_next_states_need_room_for_two_events() -> None:
    with dataset([Past(4, 3, is_held_out=False)]) as data, pytest.raises(InputError, match=r"encoder\.length > 1"):
        open_windows(data, "prefix", length=1, next_states=True)


@settings(max_examples=100, deadline=None)
@given(logs(), st.integers(1, 6), st.integers(1, 5), st.integers(1, 3), st.integers(0, 2**63 - 1))
def test_random_windows_are_one_a_sequence(
    pasts: list[Past], length: int, batch: int, min_history: int, seed: int
) -> None:
    min_history = min(min_history, length)  # a window too short to reach a target is another test's
    if not learnt(pasts, min_history):
        return
    with dataset(pasts) as data:
        windows = open_windows(data, "random", length=length, batch=batch, min_history=min_history, seed=seed)
        assert windows.windows == len(learnt(pasts, min_history))
        for epoch in (0, 1, 7):
            rows = epoch_of(windows, epoch)
            assert sorted(row.user - 1 for row in rows) == learnt(pasts, min_history)
            for row in rows:
                k = row.user - 1
                first = row.items[0] - 1 - sum(past.events for past in pasts[:k])
                size = min(pasts[k].train, length + 1)
                assert 0 <= first <= pasts[k].train - size
                assert row == expected_row(pasts, k, first, first + size, "random", min_history)


def test_random_windows_begin_anywhere_they_fit_equally_often() -> None:
    with dataset([Past(9, 7), Past(3, 3), Past(20, 5)]) as data:
        windows = open_windows(data, "random", length=3, batch=2)
        begins: dict[int, Counter[int]] = {1: Counter(), 2: Counter(), 3: Counter()}
        for epoch in range(400):
            for row in epoch_of(windows, epoch):
                begins[row.user][row.items[0] - 1] += 1
    assert set(begins[1]) == {0, 1, 2, 3}
    assert set(begins[2]) == {9}
    assert set(begins[3]) == {12, 13}
    assert all(60 <= times <= 140 for times in begins[1].values())
    assert all(150 <= times <= 250 for times in begins[3].values())


def test_done_marks_the_true_end_of_a_sequence_and_not_of_its_training_part() -> None:
    with dataset([Past(3, 3), Past(4, 3)]) as data:
        (batch,) = [open_windows(data, "tile", length=9, batch=2)[0]]
    assert {row.user: row.done for row in rows_of(batch)} == {1: (0.0, 1.0), 2: (0.0, 0.0)}


def equal(one: Batch, other: Batch) -> bool:
    return rows_of(one) == rows_of(other)


@settings(max_examples=40, deadline=None)
@given(logs(), st.sampled_from(MODES), st.integers(0, 2**63 - 1), st.data())
def test_a_batch_is_a_function_of_seed_and_step(pasts: list[Past], mode: Mode, seed: int, data: st.DataObject) -> None:
    if not learnt(pasts, 1):
        return
    with dataset(pasts) as stored:
        one, other = (open_windows(stored, mode, batch=2, seed=seed) for _ in range(2))
        asked = range(3 * one.steps)
        first = {step: one[step] for step in asked}
        for step in data.draw(st.permutations(asked)):
            assert equal(other[step], first[step])


@pytest.mark.parametrize("mode", MODES)
def test_epochs_and_seeds_differ(mode: Mode) -> None:
    with dataset([Past(4 + k % 9, 4 + k % 9) for k in range(40)]) as data:
        windows, other = (open_windows(data, mode, batch=4, seed=seed) for seed in (0, 1))
        orders = [tuple(epoch_of(w, epoch)) for w in (windows, other) for epoch in range(4)]
        assert len(set(orders)) == 8
        if mode in ("tile", "prefix"):
            assert len({frozenset(Counter(order).items()) for order in orders}) == 1


@pytest.mark.parametrize("mode", MODES)
def test_windows_of_like_length_go_together(mode: Mode) -> None:
    """Little is padded: one long sequence does not make every batch long."""
    with dataset([Past(2 + k % 20, 2 + k % 20) for k in range(400)]) as data:
        windows = open_windows(data, mode, length=30, batch=20)
        cells = [(batch.history.items != PAD) for batch in (windows[step] for step in range(windows.steps))]
    assert sum(int(cell.sum()) for cell in cells) > 0.8 * sum(cell.numel() for cell in cells)


@settings(max_examples=60, deadline=None)
@given(logs(), st.sampled_from(MODES), st.integers(1, 40))
def test_the_batch_aims_at_a_number_of_targets(pasts: list[Past], mode: Mode, aim: int) -> None:
    if not learnt(pasts, 1):
        return
    with dataset(pasts) as data:
        windows = open_windows(data, mode, batch=0, targets=aim)
        rows = epoch_of(windows, 0)
        mean = windows.targets / windows.windows
        assert windows.targets == sum(item != PAD for row in rows for item in row.target)
        assert windows.windows == len(rows)
        assert windows.steps == -(-windows.windows // windows.batch)
        assert windows.batch in (1, windows.windows) or abs(windows.batch * mean - aim) <= mean


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pasts", [[Past(9, 2)], [Past(9, 9, True)], [Past(9, 0), Past(2, 2), Past(5, 5, True)]])
def test_nothing_to_learn_is_an_error(mode: Mode, pasts: list[Past]) -> None:
    with (
        dataset(pasts) as data,
        pytest.raises(InputError, match=r"no training sequence has more than 2 events, so no transition can be learnt"),
    ):
        open_windows(data, mode, min_history=2)


@pytest.mark.parametrize(
    ("mode", "length", "min_history", "events"),
    [
        ("tile", 50, 5, [53] * 100 + [20] * 300),
        ("tile", 2, 5, [6, 7, 8]),
        ("random", 3, 10, [11]),
        ("random", 3, 8, [12] * 9),
    ],
)
def test_every_batch_has_something_to_learn(mode: Mode, length: int, min_history: int, events: list[int]) -> None:
    """The mean over no targets is not a number, and ends the run as if it had diverged."""
    with dataset([Past(count, count) for count in events]) as data:
        windows = open_windows(data, mode, length=length, batch=0, targets=700, min_history=min_history)
        assert all(windows[step].transitions > 0 for step in range(5 * windows.steps))
        windows = open_windows(data, mode, length=length, batch=1, min_history=min_history)
        assert all(windows[step].transitions > 0 for step in range(5 * windows.steps))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A real one, from a log in which users come back to items."""
    rng = np.random.default_rng(0)
    rows = [
        (f"u{user:02}", f"i{rng.integers(12):02}", 100 * user + place, "bv"[place % 2])
        for user in range(30)
        for place in range(int(rng.integers(2, 25)))
    ]
    folder = tmp_path_factory.mktemp("loader")
    log = write_log(folder / "log.csv", rows, columns="u,i,t,event")
    return prepare_file(log, folder / "out", feedback="event", reward="b=3,v=0.5", split="per-user:0.7", validation=0.2)


@pytest.mark.parametrize("mode", MODES)
def test_windows_of_a_real_dataset_hold_its_training_events_only(prepared: Dataset, mode: Mode) -> None:
    windows = open_windows(prepared, mode, length=5, batch=8)
    names, vocab = prepared.manifest.feedback.names, prepared.vocab
    worth = {"b": 3.0, "v": 0.5}
    targets = Counter[str]()
    for row in epoch_of(windows, 0):
        sequence = prepared.sequence(row.user - 1)
        assert not sequence.is_validation
        read = list(zip(vocab.ids(np.array(row.items)), (names[code - 1] for code in row.feedback), strict=True))
        told = list(zip(sequence.items, sequence.feedback, strict=True))[: sequence.train_length]
        places = [at for at in range(len(told)) if told[at : at + len(read)] == read]
        assert places
        kinds = {told[at + len(read)][1] for at in places if at + len(read) < len(told)}
        assert row.reward[-1] in {worth[kind] for kind in kinds}
        targets.update(f"{row.user} {item}" for item in row.target if item != PAD)
    if mode != "random":
        assert targets == Counter(
            f"{k + 1} {item}"
            for k, part in enumerate(prepared)
            if not part.is_validation
            for item in vocab.indices(part.items[1 : part.train_length]).tolist()
        )


@pytest.mark.parametrize(("split", "choose"), [("test", lambda part: True), ("validation", lambda p: p.is_validation)])
def test_cases_of_a_real_dataset_count_as_its_manifest_says(
    prepared: Dataset, split: Literal["test", "validation"], choose: Callable[..., bool]
) -> None:
    cases = open_cases(prepared, split, min_history=1, most=0, seed=0)
    counts = prepared.counts
    assert counts.validation_sequences > 0
    assert len(cases) == (counts.test_targets if split == "test" else counts.validation - counts.validation_sequences)
    assert all(choose(prepared.sequence(k)) for k in set(cases.sequence.tolist()))
