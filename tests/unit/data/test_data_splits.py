import random
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_case import prepare_file, write_log
from hypothesis import given, settings
from hypothesis import strategies as st

import ecoc
from ecoc.data.split import choose_validation
from ecoc.errors import InputError


def a_log(folder: Path, *, users: int = 12, events: int = 20, ticks: int = 15, seed: int = 0) -> tuple[Path, list[Any]]:
    """Few items, so that all of them are in training, and few times, so that many are equal."""
    rng = random.Random(seed)
    rows = [
        (f"u{user:02}", f"i{rng.randrange(3)}", rng.randrange(ticks)) for user in range(users) for _ in range(events)
    ]
    rng.shuffle(rows)
    return write_log(folder / "log.csv", rows), rows


@pytest.mark.parametrize("share", ["0.5", "0.8", "0.25", ".9", "0.123"])
@pytest.mark.parametrize("ticks", [2, 15, 100_000])
def test_the_time_split_cuts_at_a_quantile_and_never_between_equal_times(
    share: str, ticks: int, tmp_path: Path
) -> None:
    log, rows = a_log(tmp_path, ticks=ticks)
    times = sorted(row[2] for row in rows)
    cut = times[int(Fraction(share) * len(times))]
    if cut == times[0]:
        with pytest.raises(InputError, match="leaves no training events"):
            prepare_file(log, tmp_path / "out", split=f"time:{share}")
        return
    data = prepare_file(log, tmp_path / "out", split=f"time:{share}")
    assert data.manifest.cut == cut
    for sequence in data:
        assert (sequence.times[: sequence.train_length] < cut).all()
        assert (sequence.times[sequence.train_length :] >= cut).all()
    assert data.counts.train == sum(time < cut for time in times)
    assert data.counts.test == sum(row[2] >= cut for row in rows)


def test_the_share_is_exact_where_floats_are_not(tmp_path: Path) -> None:
    """0.29 * 100 is 28.999999999999996 in floating point; the 29th of 100 times is meant."""
    assert int(0.29 * 100) == 28
    log = write_log(tmp_path / "log.csv", [("u", "x", k) for k in range(100)])
    assert prepare_file(log, tmp_path / "out", split="time:0.29").manifest.cut == 29
    assert prepare_file(log, tmp_path / "users", split="per-user:0.29").train_lengths.tolist() == [29]


@pytest.mark.parametrize("share", ["0.8", "0.5", "0.01"])
def test_the_per_user_split_takes_a_leading_share_and_at_least_one_event(share: str, tmp_path: Path) -> None:
    rows = [(f"u{user:02}", "x", time) for user in range(1, 15) for time in range(user)]
    data = prepare_file(
        write_log(tmp_path / "log.csv", rows), tmp_path / "out", split=f"per-user:{share}", min_length=1
    )
    assert {part.user: part.train_length for part in data} == {
        f"u{length:02}": max(1, int(Fraction(share) * length)) for length in range(1, 15)
    }
    assert data.manifest.cut is None


def test_leave_one_out_tests_the_last_event_only(tmp_path: Path) -> None:
    rows = [(f"u{user}", "x", time) for user in range(1, 6) for time in range(user)]
    data = prepare_file(write_log(tmp_path / "log.csv", rows), tmp_path / "out", split="leave-one-out", min_length=1)
    assert data.train_lengths.tolist() == [1, 1, 2, 3, 4]
    assert data.counts.test == data.counts.test_targets == 4


def test_a_source_without_a_split_of_its_own_says_so(tmp_path: Path) -> None:
    log, _ = a_log(tmp_path)
    with pytest.raises(InputError, match="source 'log' has no split of its own"):
        prepare_file(log, tmp_path / "out", split="source")
    with pytest.raises(InputError, match="no split of its own"):
        ecoc.prepare("world:small", tmp_path / "out", split="source", events=200)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "split", ["time", "time:", "time:1.0", "time:80", "time:0.8x", "random:0.8", "per-user:-0.5", ""]
)
def test_a_split_nobody_knows_is_refused(split: str, tmp_path: Path) -> None:
    log, _ = a_log(tmp_path)
    with pytest.raises(InputError, match="is not a split"):
        prepare_file(log, tmp_path / "out", split=split)


def test_a_split_without_training_is_refused(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", [("a", "x", 5), ("a", "y", 5)])
    with pytest.raises(InputError, match="leaves no training events"):
        prepare_file(log, tmp_path / "out", split="time:0.8")


def test_items_first_seen_after_the_cut_are_dropped_by_name(tmp_path: Path) -> None:
    rows = [
        ("a", "x", 1),
        ("a", "y", 2),
        ("b", "x", 3),
        ("b", "x", 4),
        ("a", "new", 5),
        ("c", "new", 5),
        ("c", "new", 6),
    ]
    data = prepare_file(write_log(tmp_path / "log.csv", rows), tmp_path / "out", split="time:0.6")
    assert data.manifest.dropped == {"unseen_in_train": 3}
    assert [part.user for part in data] == ["a", "b"]
    assert data.counts.users == data.counts.sequences == 2
    assert "new" not in data.vocab


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.floats(0, 0.99), st.integers(0, 2**63 - 1))
def test_validation_is_a_share_of_the_sequences_with_something_to_predict(
    lengths: list[int], share: float, seed: int
) -> None:
    train_lengths = np.array(lengths, dtype=np.int64)
    chosen = choose_validation(train_lengths >= 2, share, seed)
    assert chosen.sum() == round(share * int((train_lengths >= 2).sum()))
    assert (train_lengths[chosen] >= 2).all()
    assert np.array_equal(chosen, choose_validation(train_lengths >= 2, share, seed))


def test_validation_is_drawn_by_the_seed_and_apart_from_training(tmp_path: Path) -> None:
    log, _ = a_log(tmp_path, users=60, events=6)
    drawn: defaultdict[int, list[tuple[str, ...]]] = defaultdict(list)
    for number, seed in enumerate((0, 0, 1)):
        data = prepare_file(log, tmp_path / f"out{number}", validation=0.25, seed=seed)
        held_out = tuple(part.user for part in data if part.is_validation)
        drawn[seed].append(held_out)
        eligible = sum(part.train_length >= 2 for part in data)
        assert len(held_out) == data.counts.validation_sequences == round(0.25 * eligible)
        counts = data.counts
        assert counts.train + counts.validation + counts.test == counts.interactions
        assert counts.train_sequences + counts.validation_sequences == sum(part.train_length > 0 for part in data)
    assert drawn[0][0] == drawn[0][1] != drawn[1][0]


def test_no_validation_when_none_is_asked_for(tmp_path: Path) -> None:
    log, _ = a_log(tmp_path)
    assert not prepare_file(log, tmp_path / "out", validation=0.0).is_validation.any()
