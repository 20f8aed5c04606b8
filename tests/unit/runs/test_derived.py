"""Settings derived from the data: each rule beside a slow reading of the log, and weaker than a person's settings."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.runs import derived
from ecoc.runs.config import RunConfig
from ecoc.runs.derived import Choice, as_settings, derive, in_effect

pytestmark = pytest.mark.usefixtures("one_thread")


def prepared(folder: Path, sequences: Sequence[Sequence[int]], **options: Any) -> Dataset:
    log = folder / "log.csv"
    with log.open("w", newline="") as stream:
        rows = [
            (f"u{user}", f"i{item}", 10_000 * user + k)
            for user, row in enumerate(sequences)
            for k, item in enumerate(row)
        ]
        csv.writer(stream).writerows([("user", "item", "ts"), *rows])
    chosen = {"split": "leave-one-out", "validation": 0.0, "time_format": "epoch-s", **options}
    return ecoc.prepare(log, folder / "data", user="user", item="item", time="ts", threads=1, **chosen)


def values(data: Dataset, *, encoder: str = "sasrec", method: str = "supervised") -> dict[str, Any]:
    sections = as_settings(derive(data, encoder=encoder, method=method))
    return {f"{section}.{key}": value for section, content in sections.items() for key, value in content.items()}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=30), st.sampled_from(["sasrec", "srgnn"]))
def test_the_length_is_the_least_multiple_of_ten_that_holds_nearly_all_events(lengths: list[int], encoder: str) -> None:
    longest = 100 if encoder == "sasrec" else 50
    places = [place for length in lengths for place in range(1, length + 1)]
    length = 10
    while length < longest and sum(place <= length for place in places) < 0.95 * len(places):
        length += 10
    assert derived._length(np.array(lengths), encoder).value == length


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=40), min_size=1, max_size=20))
def test_seen_items_are_left_out_where_less_than_a_hundredth_repeats(sequences: list[list[int]]) -> None:
    items = np.array([item for row in sequences for item in row])
    repeats = sum(item in row[:place] for row in sequences for place, item in enumerate(row))
    choice = derived._exclude_seen(items, np.array([len(row) for row in sequences]))
    assert choice.value == (repeats / len(items) < 0.01)
    assert f"{repeats / len(items):.1%} of the training events repeat" in choice.reason


def test_a_huge_log_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "_LOOKED_AT", 5)
    items, lengths = np.array([1, 2, 3, 4, 4, 4, 4]), np.array([3, 4])
    assert derived._exclude_seen(items, lengths).value
    assert not derived._exclude_seen(items[3:], lengths[1:]).value  # one sequence is always read


def test_every_choice_has_a_reason_and_suits_the_data(tmp_path: Path) -> None:
    data = prepared(tmp_path, [[1, 2, 3, 4], [2, 3, 4, 5], [5, 1, 2, 3]])
    choices = derive(data, encoder="sasrec", method="supervised")
    assert [str(choice) for choice in choices] == [
        "encoder.length = 10: 100% of the training events are among the first 10 of their sequence",
        "train.exclude_seen = true: 0.0% of the training events repeat an item of their sequence; validation and"
        " evaluation leave out the items of a user's past",
        "train.windows = shifted: an epoch is one pass over all training events",
        "train.max_epochs = 30: about 10,000,000 targets in total, in 5 to 30 passes over 9 events",
        "encoder.dropout = 0.3: only 1.8 training events per item",
    ]
    assert set(values(data, method="markov")) == {"encoder.length", "train.exclude_seen"}


@pytest.mark.parametrize(("events", "passes"), [(10, 30), (333_334, 30), (1_000_000, 10), (10**9, 5)])
def test_passes_give_about_the_same_number_of_targets(events: int, passes: int) -> None:
    assert as_settings(derived._schedule(events))["train"]["max_epochs"] == passes


def test_held_out_sequences_and_test_events_decide_nothing(tmp_path: Path) -> None:
    row = [*range(1, 30), 1, 1, 1, 1]
    data = prepared(tmp_path, [row] * 4, split="per-user:0.5")
    assert values(data)["train.exclude_seen"] is True
    assert values(data)["encoder.length"] == 20


def test_a_setting_of_a_person_is_stronger() -> None:
    choices = [Choice("encoder", "length", 10, "a"), Choice("train", "windows", "shifted", "b")]
    assert in_effect(choices, {}, {"encoder": {"length": 10}}) == choices[1:]
    assert in_effect(choices, {"train": {"lr": 1}}, {}) == choices
    assert not in_effect([Choice("train", "max_epochs", 9, "c")], {"train": {"max_steps": 5}})


def test_a_run_holds_what_was_derived_and_its_log_says_why(tmp_path: Path) -> None:
    data = prepared(tmp_path, [[1, 2, 3, 4], [2, 3, 4, 5], [5, 1, 2, 3]])
    given = {"encoder": {"dim": 4, "dropout": 0.25}, "train": {"max_steps": 2}}
    run = ecoc.train(data, tmp_path / "run", config=given)
    config, log = run.config(), (run.path / "log.txt").read_text()
    assert (config.encoder.length, config.encoder.dropout) == (10, 0.25)
    assert (config.train.windows, config.train.exclude_seen, config.train.max_epochs) == ("shifted", True, 30)
    assert "encoder.length = 10: " in log and "encoder.dropout" not in log and "max_epochs" not in log
    plain = RunConfig.build(given)
    assert ecoc.train(data, tmp_path / "plain", config=plain).config() == plain
    paper = ecoc.train(data, tmp_path / "paper", preset="paper", config={"train": {"max_steps": 2, "min_history": 1}})
    assert (paper.config().encoder.length, paper.config().train.exclude_seen) == (50, False)
