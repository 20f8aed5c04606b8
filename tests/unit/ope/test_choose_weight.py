"""The choice of w: how it is made, kept, acted on and overruled, and that the test split has no say in it."""

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from simulate_case import SMALL, hasty, rows, simulated_runs

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.errors import ArtifactError, InputError
from ecoc.model import load
from ecoc.ope import evaluator as evaluator_module
from ecoc.ope.choose_weight import choose_weight, chosen_point
from ecoc.ope.evaluator import RolloutEvaluator
from ecoc.ope.results import WeightPoint
from ecoc.ope.simulate import simulate
from ecoc.reporting.text import weight_text
from ecoc.runs.folder import ACTING, Run, save_acting

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True, scope="module")
def few_steps() -> Iterator[None]:
    with hasty():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_runs(tmp_path_factory.getbasetemp())


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of the run with a critic."""
    return Path(shutil.copytree(made / "ecoc", tmp_path / "ecoc"))


def point_at(w: float, reward: float, trusted: bool) -> WeightPoint:
    return WeightPoint(
        w=w,
        reward=reward,
        trusted=trusted,
        reasons=[] if trusted else ["a reason"],
        ratio=1.0,
        low=1.0,
        high=1.0,
        unpenalised=reward,
        ensemble_std=0.0,
        items_shown=1,
        ndcg=0.1,
    )


@hypothesis_settings(max_examples=200)
@given(st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=1, max_size=7))
def test_the_smallest_trusted_weight_near_the_best_is_chosen(found: list[tuple[float, bool]]) -> None:
    points = [point_at(float(w), reward, trusted) for w, (reward, trusted) in enumerate(found)]
    chosen = chosen_point(points)
    allowed = [point for point in points if point.trusted or point.w == 0]
    best = max(point.reward for point in allowed)
    assert chosen in allowed, "what is not trusted is never chosen, but for w = 0"
    assert chosen.reward >= best - 0.02 * abs(best)
    for point in allowed:
        if point.w < chosen.w:
            assert point.reward < best - 0.02 * abs(best), "a smaller one would have done"


def test_the_choice_by_hand() -> None:
    def choice(*points: tuple[float, float, bool]) -> float:
        return float(chosen_point([point_at(*point) for point in points]).w)

    assert choice((0, 1.0, True), (1, 1.5, True), (2, 1.52, True), (5, 9.0, False)) == 1
    assert choice((0, 1.0, False), (1, 1.5, False)) == 0, "nothing can be trusted: the cloned policy"
    assert choice((0, 0.99, True), (1, 1.0, True)) == 0
    assert choice((0, -1.0, True), (1, -0.99, True), (2, -0.5, True)) == 2


def test_a_choice_is_kept_and_acted_on(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator_module, "simulator_warnings", lambda _: [])
    found = choose_weight(run, weights=(5.0, 1.0), config=SMALL)
    assert [point.w for point in found.points] == [0.0, 1.0, 5.0], "w = 0 is always looked at"
    kept = json.loads((run / ACTING).read_text())
    assert (kept["rank_by"], kept["w"], kept["evidence"]) == ("blend", found.w, found.model_dump(exclude={"picture"}))
    assert load(run).policy.ranking_mode == f"blend-w{found.w:g}"
    assert found.settings.fit_on == "train"
    assert found.simulator.fit_on == "train"
    for point in found.points:
        keys = set(point.model_dump())
        assert {"reward", "ratio", "low", "high", "trusted", "reasons", "ndcg@10", "items_shown"} <= keys
    assert f"chosen: w = {found.w:g}" in weight_text(found)


def test_simulators_that_know_too_little_choose_nothing(run: Path) -> None:
    found = choose_weight(run, weights=(5.0,), config=SMALL)
    assert found.w is None
    assert found.reasons == found.points[0].reasons[: len(found.reasons)]
    assert not (run / ACTING).exists()
    assert load(run).policy.ranking_mode == "blend-w10", "as before"
    page = weight_text(found)
    assert f"not chosen, the run ranks as before: {found.reasons[0]}" in page
    assert "chosen: w" not in page


def test_nothing_is_chosen_for_a_run_unless_it_is_to_be_kept(run: Path) -> None:
    choose_weight(run, weights=(2.0,), config=replace(SMALL, members=1), save=False)
    assert not (run / ACTING).exists()
    assert load(run).policy.ranking_mode == "blend-w10"


def test_a_run_without_a_critic_has_no_weight(made: Path) -> None:
    with pytest.raises(InputError, match="supervised has no critic"):
        choose_weight(made / "supervised", config=SMALL)


def test_the_chosen_weight_can_be_overruled(run: Path) -> None:
    save_acting(Run(run), "blend", 3.0, {})
    model = load(run)
    assert model.policy.ranking_mode == "blend-w3"
    assert model.ranked_by("policy").policy.ranking_mode == "policy"
    assert model.ranked_by("blend", w=7).policy.ranking_mode == "blend-w7"
    assert model.ranked_by("blend").policy.ranking_mode == "blend-w3"
    assert ecoc.evaluate(run, rank_by="policy", untrained=False).ranking_mode == "policy"
    assert ecoc.evaluate(run, untrained=False).ranking_mode == "blend-w3"
    plain = rows(simulate([run], rank_by="policy", config=replace(SMALL, members=1)))
    assert plain["ecoc"].ranking_mode == "policy"


def test_a_choice_changes_what_is_recommended(run: Path) -> None:
    history = [[load(run).vocab.ids(np.array([1]))[0]]]
    before = load(run).ranked_by("blend", w=0).recommend(history, k=5)
    save_acting(Run(run), "blend", 0.0, {})
    assert (
        load(run).recommend(history, k=5).items
        == before.items
        == load(run).ranked_by("policy").recommend(history, 5).items
    )


def test_other_weights_do_not_act_by_a_choice_made_for_these(run: Path, made: Path, tmp_path: Path) -> None:
    save_acting(Run(run), "blend", 3.0, {})
    retrained = shutil.copytree(made / "retrained", tmp_path / "retrained")
    shutil.copy(run / ACTING, retrained / ACTING)
    assert load(retrained).policy.ranking_mode == "blend-w10"
    plain = shutil.copytree(made / "supervised", tmp_path / "supervised")
    save_acting(Run(plain), "blend", 3.0, {})
    assert load(plain).policy.ranking_mode == "policy", "there is nothing to blend"


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{",
        "[]",
        "{}",
        "null",
        "[" * 100_000,
        {"w": -1},
        {"w": "much"},
        {"w": None},
        {"w": math.nan},
        {"w": math.inf},
        {"w": [1]},
        {"rank_by": "policy"},
        {"rank_by": None},
        {"w": 2e6},
    ],
)
def test_a_broken_choice_is_said_so(run: Path, broken: str | dict[str, Any]) -> None:
    save_acting(Run(run), "blend", 3.0, {})
    text = broken
    if not isinstance(broken, str):
        text = json.dumps(json.loads((run / ACTING).read_text()) | broken)
    assert isinstance(text, str)
    (run / ACTING).write_text(text)
    with pytest.raises(ArtifactError, match=r"acting\.json.*choose again, or remove it"):
        load(run)


def of_the_test_split(data: Dataset) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which events."""
    place = np.arange(len(data.items)) - np.repeat(np.asarray(data.offsets)[:-1], np.diff(data.offsets))
    return np.asarray(place >= np.repeat(np.asarray(data.train_lengths), np.diff(data.offsets)))


def chosen_on(made: Path, data: Dataset) -> dict[str, Any]:
    config = replace(SMALL, members=1)
    found = choose_weight(load(made / "ecoc"), data, weights=(5.0,), config=config, save=False)
    return found.model_dump(include={"w", "points", "simulator"})


def test_rewards_of_the_test_split_do_not_bear_on_the_choice(made: Path) -> None:
    data = ecoc.open_data(made / "data")
    before = chosen_on(made, data)
    assert chosen_on(made, data) == before, "same seed, same bits"
    changed = of_the_test_split(data)
    assert 0 < changed.sum() < len(changed)
    data.rewards = np.where(changed, 100 * np.asarray(data.rewards), data.rewards)
    data.feedback = np.where(changed, 3 - np.asarray(data.feedback), data.feedback)
    assert chosen_on(made, data) == before


@pytest.mark.parametrize("what", ["items", "rewards"])
def test_nothing_of_the_test_split_decides_how_validation_is_played(made: Path, what: str) -> None:
    data = ecoc.open_data(made / "data")
    changed = of_the_test_split(data)
    if what == "items":
        data.items = np.where(changed, np.int32(1), data.items)
    else:  # a log of what was taken up, but for the test split
        data.rewards = np.where(changed, data.rewards, np.asarray(data.rewards) + 1).astype(np.float32)
    settings = replace(SMALL, members=1, fit_on="train")
    stage = RolloutEvaluator.open(data, settings, "validation")
    assert (stage.exclude_seen, stage.simulator.none is None) == (True, what == "items")


def test_a_simulator_of_the_training_part_does_not_know_how_long_sequences_went_on(made: Path) -> None:
    data = ecoc.open_data(made / "data")
    data.train_lengths = np.minimum(np.asarray(data.train_lengths), 9)
    simulator = RolloutEvaluator.open(data, replace(SMALL, members=1, fit_on="train"), "validation").simulator
    assert simulator.lengths.max() == 9
