"""Times in requests: of the dataset, of the caller, or none."""

import csv
from pathlib import Path

import numpy as np
import pytest

import ecoc
from ecoc.data import loader
from ecoc.data.sequences import Dataset
from ecoc.model import Event, Model

pytestmark = pytest.mark.usefixtures("one_thread")
ENCODER = {"dim": 8, "length": 5, "feedback": True, "hidden_times": 0.5}
LATE = 1_600_000_000 + 10**8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with pauses from seconds to weeks, and hstu trained on it with its times and with its order alone."""
    path, rng = tmp_path_factory.mktemp("times"), np.random.default_rng(1)
    times = 1_600_000_000 + np.exp(rng.uniform(0, 12, 600)).astype(int).cumsum()
    with (path / "log.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["user", "item", "ts", "event"])
        writer.writerows((f"u{rng.integers(30)}", f"i{rng.integers(20)}", time, "view") for time in times.tolist())
    for name, time_format in (("timed", "auto"), ("ordered", "order")):
        data = ecoc.prepare(
            path / "log.csv",
            path / f"{name}-data",
            user="user",
            item="item",
            time="ts",
            feedback="event",
            reward={"view": 1},
            time_format=time_format,
            split="leave-one-out",
            threads=1,
        )
        config = {"encoder": ENCODER, "train": {"max_steps": 30, "lr": 0.02, "threads": 1}}
        ecoc.train(data, path / name, encoder="hstu", config=config)
    config = {"encoder": {"dim": 8, "length": 5}, "train": {"max_steps": 5, "threads": 1}}
    ecoc.train(path / "timed-data", path / "sasrec", config=config)
    return path


@pytest.fixture(scope="module")
def hstu(folder: Path) -> Model:
    return ecoc.load(folder / "timed")


@pytest.fixture(scope="module")
def data(folder: Path) -> Dataset:
    return ecoc.open_data(folder / "timed-data")


def test_users_are_answered_by_the_times_of_the_dataset(hstu: Model, data: Dataset) -> None:
    users = [data.sequence(k).user for k in range(4)]
    sequences = [data.user(user)[0] for user in users]
    timed = [list(zip(s.items, s.feedback, s.times.tolist(), strict=True)) for s in sequences]
    by_user, by_history = hstu.recommend_users(data, users, k=6), hstu.recommend(timed, k=6)
    assert by_user.items == by_history.items
    assert by_user.scores == by_history.scores
    plain = hstu.recommend([list(zip(s.items, s.feedback, strict=True)) for s in sequences], k=6)
    assert plain.scores != by_user.scores


def test_the_time_of_the_request_matters_and_is_that_of_the_last_event_by_default(hstu: Model, data: Dataset) -> None:
    sequence = data.sequence(0)
    last = int(sequence.times[-1])
    default = hstu.recommend_users(data, [sequence.user])
    assert hstu.recommend_users(data, [sequence.user], time=last).scores == default.scores
    later = hstu.recommend_users(data, [sequence.user], time=last + 90 * 86_400)
    assert later.scores != default.scores
    timed = list(zip(sequence.items, sequence.feedback, sequence.times.tolist(), strict=True))
    assert hstu.recommend([timed], time=last + 90 * 86_400).scores == later.scores


def test_histories_with_and_without_times_are_answered_as_if_alone(hstu: Model) -> None:
    timed: list[Event] = [("i1", "view", LATE), ("i2", None, LATE + 60)]
    rows: list[list[Event]] = [["i1", "i2"], timed, [], [("i3", None, 5.5), "i4"]]
    together = hstu.recommend(rows, k=5)
    for place, row in enumerate(rows):
        alone = hstu.recommend([row], k=5)
        assert alone.items[0] == together.items[place]
        assert alone.scores[0] == pytest.approx(together.scores[place], abs=1e-5)


def test_a_request_time_without_times_of_events_changes_nothing(hstu: Model) -> None:
    assert hstu.recommend([["i1", "i2"]], time=LATE).scores == hstu.recommend([["i1", "i2"]]).scores


def test_an_encoder_without_times_ignores_them(folder: Path) -> None:
    sasrec = ecoc.load(folder / "sasrec")
    timed = [[("i1", None, LATE), ("i2", None, LATE + 1)]]
    assert sasrec.recommend(timed, time=2 * LATE).scores == sasrec.recommend([["i1", "i2"]]).scores


def test_a_dataset_that_has_only_an_order_gives_no_times(folder: Path) -> None:
    ordered, data = ecoc.load(folder / "ordered"), ecoc.open_data(folder / "ordered-data")
    sequence = data.sequence(0)
    by_user = ordered.recommend_users(data, [sequence.user], time=LATE)
    plain = ordered.recommend([list(zip(sequence.items, sequence.feedback, strict=True))])
    assert by_user.items == plain.items
    assert by_user.scores == plain.scores


def test_evaluation_reads_the_times(data: Dataset, hstu: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = ecoc.evaluate(hstu, data)
    monkeypatch.setattr(loader, "in_seconds", lambda times, unit: np.zeros_like(times))
    assert ecoc.evaluate(hstu, data).metrics != timed.metrics
