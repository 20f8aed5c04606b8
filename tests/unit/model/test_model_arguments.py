"""What a Model may be asked: kinds of histories, ids and feedback, histories in words; anything else is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from model_case import ITEMS, folder_of_runs, loaded, parts, some_histories

import ecoc
from ecoc.errors import InputError
from ecoc.model import Event, Model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    return loaded(folder_of_runs(tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ecoc.Dataset:
    return ecoc.open_data(folder_of_runs(tmp_path_factory.getbasetemp()) / "data")


@pytest.fixture
def sasrec(models: dict[str, Model]) -> Model:
    return models["sasrec"]


def test_histories_may_be_any_iterables(sasrec: Model) -> None:
    expected = sasrec.recommend([["i1", "i2"]]).items
    assert sasrec.recommend(iter([("i1", "i2", "zz")])).items == expected
    assert sasrec.recommend([np.array(["i1", "i2"])]).items == expected
    assert sasrec.recommend(np.array([["i1", "i2"]])).items == expected
    assert sasrec.recommend([pd.Series(["i1", "i2"], index=[7, 9])]).items == expected
    assert sasrec.recommend(pd.Series([["i1", "i2"]])).items == expected
    assert sasrec.recommend((item for item in pair) for pair in [("i1", "i2")]).items == expected
    assert sasrec.recommend([("i1", "i2")]).items == expected  # a tuple as a history is no pair


def test_numbers_of_numpy_count_as_numbers(sasrec: Model) -> None:
    assert sasrec.recommend([["i1"]], k=np.int64(3)).items == sasrec.recommend([["i1"]], k=3).items  # type: ignore[arg-type]
    assert sasrec.similar(["i1"], k=np.int32(3)).items == sasrec.similar(["i1"], k=3).items  # type: ignore[arg-type]


def test_the_old_name_of_ranked_by_warns(sasrec: Model) -> None:
    with pytest.warns(DeprecationWarning, match=r"Model\.by is now Model\.ranked_by"):
        assert sasrec.by("policy").recommend([["i1"]]).items == sasrec.recommend([["i1"]]).items


def test_recommendations_are_a_frame(sasrec: Model) -> None:
    lists = sasrec.recommend([["i1"], [], ["i2"]], k=3)
    frame = lists.to_frame()
    assert list(frame.columns) == ["history", "rank", "item", "score", "value"]
    assert frame["history"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert frame["rank"].tolist() == [1, 2, 3] * 3
    assert frame["item"].tolist() == [item for items in lists.items for item in items]
    assert frame["score"].tolist() == [score for scores in lists.scores for score in scores]
    assert frame["value"].isna().all()
    assert len(lists) == 3
    assert sasrec.recommend([]).to_frame().empty


def test_users_are_answered_by_their_latest_sequence(sasrec: Model, data: ecoc.Dataset) -> None:
    users = [sequence.user for sequence in data][:5]
    by_user = sasrec.recommend_users(data, iter(users), k=4)
    latest = [data.user(user)[-1] for user in users]
    histories = [list(zip(sequence.items, sequence.feedback, strict=True)) for sequence in latest]
    assert by_user.items == sasrec.recommend(histories, k=4).items
    assert by_user.users == users
    assert by_user.to_frame()["user"].tolist() == [user for user in users for _ in range(4)]
    assert sasrec.recommend_users(data.path, users, k=4).items == by_user.items


def test_what_a_user_saw_in_any_sequence_is_left_out(sasrec: Model, data: ecoc.Dataset, tmp_path: Path) -> None:
    split = ecoc.prepare(
        data.to_frame(), tmp_path / "data", user="user", item="item", time="time", session_gap="60s", threads=1
    )
    user = next(sequence.user for sequence in split if len(split.user(sequence.user)) > 2)
    sequences = split.user(user)
    seen = {item for sequence in sequences for item in sequence.items}
    latest = max(sequences, key=lambda sequence: int(sequence.times[-1]))
    assert seen > set(latest.items)
    plain = sasrec.recommend_users(split, [user], k=len(ITEMS))
    assert plain.items == sasrec.recommend([latest.items], k=len(ITEMS)).items
    left = sasrec.recommend_users(split, [user], k=len(ITEMS), exclude_seen=True).items[0]
    assert set(left) == set(ITEMS) - seen
    assert sasrec.recommend_users(split, [user], k=2, only=["i1"]).items == [["i1"]]


def test_numbers_stand_for_ids_of_the_same_text(sasrec: Model) -> None:
    expected = sasrec.recommend([["17", "99"]], exclude=["17"])
    for history in ([17, 99], np.array([17, 99]), [(17, None), 99]):
        found = sasrec.recommend([history], exclude=[17])  # type: ignore[list-item]
        assert found.items == expected.items
        assert found.unknown == [["99"]]
    assert sasrec.similar([17], k=3).items == sasrec.similar(["17"], k=3).items  # type: ignore[list-item]


def test_feedback_of_a_history_counts(sasrec: Model) -> None:
    events: list[Any] = ["i3", ("i3", "buy"), ("i3", "view"), ("i3", None)]
    plain, bought, viewed, none = (sasrec.recommend([[event]], k=5).scores[0] for event in events)
    assert plain == none
    assert bought != pytest.approx(viewed, rel=1e-6)
    assert bought != pytest.approx(plain, rel=1e-6)
    pair = ["i3", "buy"]  # as JSON has it
    assert sasrec.recommend([[pair]], k=5).scores[0] == pytest.approx(bought)  # type: ignore[list-item]


def test_methods_without_feedback_take_pairs_too(models: dict[str, Model]) -> None:
    for name in ("popular", "recent", "markov"):
        assert models[name].recommend([[("i3", "buy")]]).items == models[name].recommend([["i3"]]).items


@pytest.mark.parametrize("given", ["bying", "Buy", "", "view "])
def test_an_unknown_feedback_is_named_and_its_item_counts(sasrec: Model, given: str) -> None:
    found = sasrec.recommend([["i1"], [("i3", given)]])
    assert found.unknown_feedback == [[], [given]]
    assert found.items[1] == sasrec.recommend([["i3"]]).items[0]


@pytest.mark.parametrize("given", [3, True, 1.5, ["buy"], {"buy": 1}])
def test_a_feedback_that_is_no_text_is_an_input_error(sasrec: Model, given: Any) -> None:
    with pytest.raises(InputError, match="feedback: "):
        sasrec.recommend([["i1"], [("i3", given)]])


WRONG: dict[str, Callable[[Model], Any]] = {
    "plain text": lambda model: model.recommend("i1"),
    "plain text as a history": lambda model: model.recommend(["i1", "i2"]),
    "plain text beside a list": lambda model: model.recommend([["i1"], "i2"]),
    "bytes as a history": lambda model: model.recommend([b"i1"]),  # type: ignore[list-item]
    "no histories": lambda model: model.recommend(None),  # type: ignore[arg-type]
    "None as a history": lambda model: model.recommend([["i1"], None]),  # type: ignore[list-item]
    "a number for histories": lambda model: model.recommend(5),  # type: ignore[arg-type]
    "a number as a history": lambda model: model.recommend([5]),  # type: ignore[list-item]
    "None as an item": lambda model: model.recommend([[None]]),  # type: ignore[list-item]
    "bool as an item": lambda model: model.recommend([[True]]),  # type: ignore[list-item]
    "numpy bool as an item": lambda model: model.recommend([[np.True_]]),  # type: ignore[list-item]
    "float as an item": lambda model: model.recommend([[1.0]]),  # type: ignore[list-item]
    "NaN as an item": lambda model: model.recommend([[float("nan")]]),  # type: ignore[list-item]
    "bytes as an item": lambda model: model.recommend([[b"i1"]]),  # type: ignore[list-item]
    "four values": lambda model: model.recommend([[("i1", "buy", 3, 4)]]),  # type: ignore[list-item]
    "an empty event": lambda model: model.recommend([[()]]),  # type: ignore[list-item]
    "a mapping as an event": lambda model: model.recommend([[{"item": "i1"}]]),  # type: ignore[list-item]
    "bool in a pair": lambda model: model.recommend([[(True, "buy")]]),  # type: ignore[list-item]
    "k = 0": lambda model: model.recommend([["i1"]], k=0),
    "k below 0": lambda model: model.recommend([["i1"]], k=-1),
    "k = True": lambda model: model.recommend([["i1"]], k=True),
    "k as text": lambda model: model.recommend([["i1"]], k="3"),  # type: ignore[arg-type]
    "k as float": lambda model: model.recommend([["i1"]], k=3.0),  # type: ignore[arg-type]
    "k = None": lambda model: model.recommend([["i1"]], k=None),  # type: ignore[arg-type]
    "k = 0 and no histories": lambda model: model.recommend([], k=0),
    "plain text to exclude": lambda model: model.recommend([["i1"]], exclude="i1"),
    "plain text as only": lambda model: model.recommend([["i1"]], only="i1"),
    "None to exclude": lambda model: model.recommend([["i1"]], exclude=None),  # type: ignore[arg-type]
    "a number as only": lambda model: model.recommend([["i1"]], only=5),  # type: ignore[arg-type]
    "a list in exclude": lambda model: model.recommend([["i1"]], exclude=[["i1"]]),  # type: ignore[list-item]
    "bool in only": lambda model: model.recommend([["i1"]], only=[True]),  # type: ignore[list-item]
    "similar to plain text": lambda model: model.similar("i1"),
    "similar to None": lambda model: model.similar(None),  # type: ignore[arg-type]
    "similar to [None]": lambda model: model.similar([None]),  # type: ignore[list-item]
    "similar to a pair": lambda model: model.similar([("i1", "buy")]),  # type: ignore[list-item]
    "similar, k = 0": lambda model: model.similar(["i1"], k=0),
    "similar, k = True": lambda model: model.similar(["i1"], k=True),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_argument_is_an_input_error(sasrec: Model, wrong: str) -> None:
    with pytest.raises(InputError):
        WRONG[wrong](sasrec)


@pytest.mark.parametrize("item", ["", " ", "\0", "i1 ", "I1", "i" * 100_000, "0", "-1", "\ud800", "PAD"])
def test_any_text_may_be_an_id_that_is_not_known(sasrec: Model, item: str) -> None:
    found = sasrec.recommend([[item, "i1"]], k=3, exclude=[item])
    assert found.unknown == [[item]]
    assert found.items == sasrec.recommend([["i1"]], k=3).items
    assert sasrec.similar([item]).unknown == [[item]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" , ,, ", []),
        ("i1", ["i1"]),
        ("i1,i2:buy", ["i1", ("i2", "buy")]),
        (" i1 ,\ti2:buy ", ["i1", ("i2", "buy")]),
        ("two words", ["two words"]),
        ("two words:cart", [("two words", "cart")]),
        ("a:b", ["a:b"]),
        ("a:b:buy", [("a:b", "buy")]),
        ("x:buy", ["x:buy"]),  # an item's whole id
        ("x:buy:buy", [("x:buy", "buy")]),
        ("i0:view", ["i0:view"]),  # an item's id, although i0 is one too
        ("i1:sold", [("i1", "sold")]),  # an unknown feedback, which the answer names
        ("i1:", ["i1"]),
        (":buy", [":buy"]),
        ("i1:Buy", [("i1", "Buy")]),
        ("zz:buy", [("zz", "buy")]),
        ("i1,i1", ["i1", "i1"]),
        ("17", ["17"]),
    ],
)
def test_a_history_in_words(sasrec: Model, text: str, expected: list[Event]) -> None:
    assert sasrec.parse_history(text) == expected
    sasrec.recommend([sasrec.parse_history(text)], k=1)


def test_parsing_gives_back_what_was_written(sasrec: Model) -> None:
    for history in some_histories(30, seed=9):
        words = [item if given is None else f"{item}:{given}" for item, given in map(parts, history)]
        expected = [
            event for event, word in zip(history, words, strict=True) if isinstance(event, str) or word not in ITEMS
        ]
        words = [
            word for event, word in zip(history, words, strict=True) if isinstance(event, str) or word not in ITEMS
        ]
        assert sasrec.parse_history(",".join(words)) == expected
