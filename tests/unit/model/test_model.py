"""Model: lists of outside ids, checked against scoring everything by hand, and that asking changes nothing."""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from model_case import ITEMS, LENGTH, NAMES, VECTORS, folder_of_runs, loaded, parts, some_histories

import ecoc
from ecoc.batch import History
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.methods import untrained
from ecoc.model import Event, Model, load
from ecoc.policies.ranking import Query
from ecoc.reporting.text import recommendations_json

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of_runs(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def data(folder: Path) -> Dataset:
    return ecoc.open_data(folder / "data")


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Model]:
    return loaded(folder)


@pytest.fixture(params=NAMES)
def model(request: pytest.FixtureRequest, models: dict[str, Model]) -> Model:
    return models[str(request.param)]


@pytest.fixture
def sasrec(models: dict[str, Model]) -> Model:
    return models["sasrec"]


def known(model: Model, history: Sequence[Event]) -> list[tuple[int, int]]:
    """Index and feedback code of the events that the model can know."""
    found = []
    for item, given in map(parts, history):
        index = model.vocab.find(item)
        if index is not None:
            found.append((index, 0 if given is None else model.run.result.feedback.index(given) + 1))
    return found


def slow(
    model: Model, history: Sequence[Event], k: int, banned: Sequence[str] = (), only: Sequence[str] | None = None
) -> tuple[list[str], list[float]]:
    """Score every item for one history, sort with Python."""
    events = known(model, history)
    if events:
        items, feedback = (torch.tensor([column]) for column in zip(*events[-model.policy.length :], strict=True))
        with torch.inference_mode():
            scores = model.policy.scores(model.policy.query(History(items, feedback)), 1, model.policy.items + 1)[0]
        values = scores.tolist()
    else:
        values = model.vocab.popularity()[1:].tolist()
    names = model.vocab.ids(np.arange(1, len(model.vocab) + 1))
    left = [i for i in range(len(names)) if names[i] not in banned and (only is None or names[i] in only)]
    left.sort(key=lambda i: (-values[i], i))
    return [names[i] for i in left[:k]], [values[i] for i in left[:k]]


def test_a_batch_answers_as_its_histories_one_by_one(model: Model) -> None:
    histories = some_histories(60)
    together = model.recommend(histories, k=len(ITEMS))
    assert len(together.items) == len(together.scores) == len(together.unknown) == len(histories)
    for place, history in enumerate(histories):
        alone = model.recommend([history], k=len(ITEMS))
        assert alone.items[0] == together.items[place]
        assert alone.scores[0] == pytest.approx(together.scores[place], rel=1e-4, abs=1e-6)
        assert alone.unknown[0] == together.unknown[place]


def test_lists_are_all_items_scored_and_sorted_ties_by_index(model: Model) -> None:
    for history in some_histories(40, seed=1):
        items, scores = slow(model, history, k=9)
        found = model.recommend([history], k=9)
        assert found.items == [items]
        assert found.scores[0] == pytest.approx(scores, rel=1e-5, abs=1e-6)
        assert found.scores[0] == sorted(found.scores[0], reverse=True)


def test_every_option_at_once_leaves_what_it_should(model: Model) -> None:
    rng = random.Random(5)
    for history in some_histories(40, seed=2):
        exclude = [*rng.sample(ITEMS, 5), "nowhere"]
        only = [*rng.sample(ITEMS, 15), "nowhere", ITEMS[0], ITEMS[0]]
        banned = [*exclude, *(item for item, _ in map(parts, history))]
        items, scores = slow(model, history, 7, banned, only)
        found = model.recommend([history, []], k=7, exclude_seen=True, exclude=exclude, only=only)
        assert found.items[0] == items
        assert found.scores[0] == pytest.approx(scores, rel=1e-5, abs=1e-6)
        assert found.items[1] == slow(model, [], 7, exclude, only)[0]


def test_more_histories_than_a_chunk(models: dict[str, Model]) -> None:
    for name in ("sasrec", "markov"):
        model, histories = models[name], some_histories(2500, seed=7)
        found = model.recommend(histories, k=4, exclude_seen=True)
        assert len(found.items) == len(found.scores) == len(found.unknown) == 2500
        for place in (0, 1, 1022, 1023, 1024, 1025, 2047, 2048, 2049, 2499):
            alone = model.recommend([histories[place]], k=4, exclude_seen=True)
            assert found.items[place] == alone.items[0]
            assert found.unknown[place] == alone.unknown[0]


def test_a_whole_chunk_without_any_history(model: Model) -> None:
    found = model.recommend([[]] * 1030 + [["i3"]], k=3)
    assert all(items == found.items[0] for items in found.items[:1030])
    assert found.items[1030] == model.recommend([["i3"]], k=3).items[0]


def test_unknown_items_are_listed_in_order_and_change_nothing(model: Model) -> None:
    found = model.recommend([["zz", "i3", "yy", "zz", "i5"], ["i3", "i5"]], k=8)
    assert found.unknown == [["zz", "yy", "zz"], []]
    assert found.items[0] == found.items[1]
    assert found.scores[0] == pytest.approx(found.scores[1], rel=1e-6)


def test_unknown_items_do_not_use_up_the_length_that_is_read(sasrec: Model) -> None:
    history = ["i1", "i2", "i3", "i4", "i5", "i6"]
    found = sasrec.recommend([history, [*history, *["zz"] * 20]], k=8)
    assert found.items[0] == found.items[1]


def test_an_empty_history_is_answered_by_popularity(model: Model, data: Dataset) -> None:
    learnt = [
        item for row in data if not row.is_validation for item in row.items[: row.train_length]
    ]  # counted again, from the events
    found = model.recommend([[], ["zz"]], k=len(ITEMS))
    for items, scores in zip(found.items, found.scores, strict=True):
        counts = [learnt.count(item) for item in items]
        assert counts == sorted(counts, reverse=True)
        assert scores == pytest.approx([count / len(learnt) for count in counts], rel=1e-5)
        places = [model.vocab.find(item) for item in items]
        for i in range(len(items) - 1):
            assert counts[i] > counts[i + 1] or (places[i] or 0) < (places[i + 1] or 0)


def test_exclude_seen_reaches_beyond_what_the_encoder_reads(model: Model) -> None:
    history: list[Event] = [*ITEMS[:12], *(("i20", "buy") for _ in range(3 * LENGTH))]
    found = model.recommend([history, ["i20"]], k=len(ITEMS), exclude_seen=True)
    assert set(found.items[0]) == set(ITEMS) - {*ITEMS[:12], "i20"}
    assert set(found.items[1]) == set(ITEMS) - {"i20"}


def test_who_has_seen_everything_gets_an_empty_list(model: Model) -> None:
    found = model.recommend([ITEMS, ["i1"]], k=5, exclude_seen=True)
    assert not found.items[0] and not found.scores[0]
    assert len(found.items[1]) == len(found.scores[1]) == 5


def test_nothing_left_is_an_empty_list_not_an_error(model: Model) -> None:
    choices: list[dict[str, Any]] = [
        {"only": ["i3"], "exclude": ["i3"]},
        {"exclude": ITEMS},
        {"only": ["i4"], "exclude_seen": True},
    ]
    for choice in choices:
        found = model.recommend([["i4"], ["i4", "i5"]], k=5, **choice)
        assert found.items == [[], []]
        assert found.scores == [[], []]
        assert found.unknown == [[], []]


@pytest.mark.parametrize("only", [[], ["zz"]])
def test_only_without_a_known_item_is_an_error_not_an_empty_list(model: Model, only: list[str]) -> None:
    with pytest.raises(InputError, match="only: none of these items"):
        model.recommend([["i4"]], only=only)


def test_only_ignores_unknown_ids_and_repeats(model: Model) -> None:
    found = model.recommend([["i4"], []], k=10, only=["i3", "zz", "i5", "i3"])
    assert [set(items) for items in found.items] == [{"i3", "i5"}, {"i3", "i5"}]
    assert model.recommend([["i4"]], only=("i3" for _ in range(2))).items == [["i3"]]


def test_k_beyond_the_catalogue_is_the_catalogue(model: Model) -> None:
    for k in (len(ITEMS), len(ITEMS) + 1, 10**9, 10**30):
        found = model.recommend([["i4"], []], k=k)
        assert [sorted(items) for items in found.items] == [sorted(ITEMS)] * 2


def test_a_shorter_list_is_the_beginning_of_a_longer_one(model: Model) -> None:
    histories = some_histories(20, seed=4)
    whole = model.recommend(histories, k=len(ITEMS)).items
    for k in (1, 2, 11):
        assert model.recommend(histories, k=k).items == [items[:k] for items in whole]


def test_unpacks_to_items_and_scores(sasrec: Model) -> None:
    items, scores = sasrec.recommend([["i1"], ["i2"]], k=3)
    assert [len(row) for row in items] == [len(row) for row in scores] == [3, 3]
    assert all(type(item) is str for row in items for item in row)
    assert all(type(score) is float for row in scores for score in row)


def test_no_histories_no_lists(model: Model) -> None:
    found = model.recommend([])
    assert (found.items, found.scores, found.unknown) == ([], [], [])


@pytest.mark.parametrize("name", VECTORS)
def test_similar_is_the_cosine_order(models: dict[str, Model], name: str) -> None:
    model = models[name]
    vectors = model.policy.vectors()
    assert vectors is not None
    table = vectors.detach().double().numpy()[1:]
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    names = model.vocab.ids(np.arange(1, len(ITEMS) + 1))
    found = model.similar(names, k=len(ITEMS))
    for place, item in enumerate(names):
        cosine = unit @ unit[place]
        expected = [names[i] for i in np.argsort(-cosine, kind="stable") if i != place]
        assert item not in found.items[place]
        assert found.items[place] == expected
        assert found.scores[place] == pytest.approx(sorted(np.delete(cosine, place), reverse=True), abs=1e-5)
    assert model.similar(names, k=3).items == [items[:3] for items in found.items]
    assert found.unknown == [[]] * len(names)


def test_similar_to_unknown_items_is_an_empty_list_and_reported(sasrec: Model) -> None:
    found = sasrec.similar(["zz", "i3", "yy", "i3"], k=4)
    assert found.items[0] == found.items[2] == []
    assert found.scores[0] == found.scores[2] == []
    assert found.items[1] == found.items[3] == sasrec.similar(["i3"], k=4).items[0]
    assert found.unknown == [["zz"], [], ["yy"], []]
    assert sasrec.similar([]).items == []


def test_similar_needs_vectors(models: dict[str, Model]) -> None:
    for name in ("popular", "recent", "markov"):
        with pytest.raises(InputError, match="no item vectors"):
            models[name].similar(["i1"])


def test_titles_stand_beside_items(sasrec: Model) -> None:
    found = sasrec.recommend([["i1", "zz"]], k=len(ITEMS))
    (result,) = recommendations_json(sasrec, found)["results"]
    assert [entry["item"] for entry in result["items"]] == found.items[0]
    assert {entry["item"]: entry["title"] for entry in result["items"]} == {
        item: None if item == ITEMS[0] else f"The {item}" for item in ITEMS
    }
    assert result["unknown"] == ["zz"]


def test_answers_are_the_same_every_time(folder: Path, model: Model) -> None:
    histories = some_histories(50, seed=11)
    first = model.recommend(histories, exclude_seen=True)
    assert model.recommend(histories, exclude_seen=True) == first
    assert load(folder / model.name).recommend(histories, exclude_seen=True) == first


def test_global_randomness_and_threads_are_left_alone(folder: Path) -> None:
    for name in NAMES:
        torch.manual_seed(5)
        before, count = torch.get_rng_state(), torch.get_num_threads()
        model = load(folder / name)
        model.recommend(some_histories(30), exclude_seen=True)
        if name in VECTORS:
            model.similar(["i1"])
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == count


def test_a_loaded_model_is_at_rest(model: Model) -> None:
    assert not model.policy.training
    assert not any(module.training for module in model.policy.modules())


@pytest.mark.parametrize("name", NAMES)
def test_training_mode_changes_no_answer(folder: Path, name: str) -> None:
    model, histories = load(folder / name), some_histories(50, seed=12)
    expected = model.recommend(histories)
    model.policy.train()
    assert model.recommend(histories) == expected


def test_nothing_asked_is_changed(sasrec: Model) -> None:
    histories: list[list[Event]] = [["i1", "zz", ("i2", "buy")], []]
    exclude, only = ["i3", "zz"], ["i4", "i5", "i4"]
    sasrec.recommend(histories, exclude_seen=True, exclude=exclude, only=only)
    assert histories == [["i1", "zz", ("i2", "buy")], []]
    assert (exclude, only) == (["i3", "zz"], ["i4", "i5", "i4"])


@pytest.mark.parametrize("name", ["popular", "recent", "markov"])
def test_threads_that_share_a_model_do_not_get_each_others_scores(folder: Path, name: str) -> None:
    policy = load(folder / name).policy
    mine, other, stop = Query(torch.tensor([[1], [3]])), Query(torch.tensor([[5], [6], [7]])), len(ITEMS) + 1
    wanted = torch.arange(1, stop).repeat(2, 1)
    whole, chosen = policy.scores(mine, 1, stop), policy.scores_of(mine, wanted)[0]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        """Let another thread ask between any two lines of the policy."""
        if frame.f_code.co_filename != untrained.__file__:
            return None
        policy.scores(other, 1, stop)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = policy.scores(mine, 1, stop), policy.scores_of(mine, wanted)[0]
    finally:
        sys.settrace(before)
    assert torch.equal(found[0], whole)
    assert torch.equal(found[1], chosen)
