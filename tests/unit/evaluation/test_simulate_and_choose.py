"""`ecoc simulate` and the choice of w: what they answer, what they trust, what they refuse, what they leave alone."""

import json
import math
import shutil
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

import ecoc
from ecoc.batch import History
from ecoc.cli.app import answer
from ecoc.data.loader import open_cases
from ecoc.data.sequences import Dataset
from ecoc.errors import ArtifactError, InputError
from ecoc.evaluation import fitting
from ecoc.evaluation import simulate as simulate_module
from ecoc.evaluation.choose import choose_w, chosen_point
from ecoc.evaluation.guards import imitation_losses, lacking, unskilled, usual_behaviour
from ecoc.evaluation.rollout import Played
from ecoc.evaluation.simulate import Play, Stage, controls, simulate, views
from ecoc.model import Model, load
from ecoc.pages import choose_page, simulate_page
from ecoc.policy import Policy
from ecoc.run import ACTING, Run, save_acting

SMALL = Play(users=30, horizon=5, members=2, penalty=4.0)
CONTROLS = ["logged", "random", "popular", "best item"]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def hasty() -> Iterator[None]:
    """Simulators of a few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_EPOCHS", 2)
        patch.setattr(fitting, "_ROUNDS", 4)
        yield


def trained(data: Dataset, path: Path, method: str, **train: Any) -> Path:
    config = {
        "encoder": {"dim": 8, "length": 8},
        "train": {"max_steps": 6, "threads": 1, "validation_cases": 50, **train},
    }
    ecoc.train(data, path, method=method, settings=config)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world and runs on it; tests copy what they change."""
    path = tmp_path_factory.mktemp("simulated")
    data = ecoc.prepare("world:small", path / "data", threads=1, events=2000, validation=0.2)
    for name in ("supervised", "ecoc"):
        trained(data, path / name, name)
    trained(data, path / "retrained", "ecoc", seed=1)
    trained(ecoc.prepare("world:small", path / "other_data", threads=1, events=400, seed=3), path / "other", "markov")
    return path


@pytest.fixture(scope="module")
def facts(made: Path) -> dict[str, Any]:
    return simulate([made / "supervised", made / "ecoc"], settings=SMALL)


@pytest.fixture(scope="module")
def stage(made: Path) -> Stage:
    return Stage.open(ecoc.open_data(made / "data"), SMALL, "test")


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of the run with a critic."""
    return Path(shutil.copytree(made / "ecoc", tmp_path / "ecoc"))


def rows(facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in facts["policies"]}


def test_the_answer_keeps_its_keys(facts: dict[str, Any]) -> None:
    assert {"log_loss", "calibration_error", "reward_error"} <= set(facts["simulator"])
    for row in facts["policies"]:
        assert {"name", "reward", "ratio", "low", "high", "reasons", "trusted", "one_step"} <= set(row)
        assert row["trusted"] == (not row["reasons"])
        assert row["low"] <= row["high"]
        assert set(row["one_step"]) == {"conditional"}, "a log with ignored items needs no negatives"
    for row in facts["estimators"]:
        assert {"policy", "estimator", "value", "low", "high", "ess"} <= set(row)
    assert facts["starts"] <= SMALL.users
    assert 1 <= facts["steps"] <= SMALL.horizon


def test_the_answer_is_json_as_everyone_reads_it(facts: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    answer(facts, "", as_json=True)
    assert json.loads(capsys.readouterr().out, parse_constant=refuse)["decisions"] == facts["decisions"]


def test_the_log_is_one_and_controls_stand_beside_every_run(facts: dict[str, Any]) -> None:
    found = rows(facts)
    assert list(found) == [*CONTROLS, "supervised", "ecoc", "ecoc, cloned policy"]
    log = found["logged"]
    assert (log["ratio"], log["low"], log["high"]) == (1.0, 1.0, 1.0)
    assert log["reward"] == log["unpenalised"], "leaving the log is what costs"
    assert log["trusted"]
    assert log["one_step"]["conditional"] == {"ratio": 1.0, "low": 1.0, "high": 1.0}
    assert [row["kind"] for row in facts["policies"]] == ["control"] * 4 + ["run", "run", "control"]
    assert {row["policy"] for row in facts["estimators"]} == set(found) - {"logged"}
    for name, row in found.items():
        assert row["ratio"] == pytest.approx(row["reward"] / log["reward"]), name


def test_a_run_that_acts_on_its_value_stands_beside_its_cloned_policy(made: Path, facts: dict[str, Any]) -> None:
    found = rows(facts)
    assert found["ecoc"]["acting"] == "blend-w10"
    assert found["ecoc, cloned policy"]["acting"] == "policy"
    alone = rows(simulate([made / "ecoc"], rank_by="policy", settings=SMALL))
    assert list(alone) == [*CONTROLS, "ecoc"], "a cloned policy needs no clone"
    assert alone["ecoc"]["reward"] == found["ecoc, cloned policy"]["reward"]
    assert alone["logged"] == found["logged"], "same seed, same bits"


def test_no_clone_unless_asked_for(made: Path) -> None:
    model = load(made / "ecoc")
    assert [one.name for one in views([model], cloned=False)] == ["ecoc"]
    both = views([model.called("a"), model.by("blend", w=3).called("b")], cloned=True)
    assert [one.name for one in both] == ["a", "a, cloned policy", "b", "b, cloned policy"]


def test_the_headline_is_the_mean_less_the_charge(made: Path, stage: Stage) -> None:
    [candidate] = views([load(made / "supervised")], cloned=False)
    played = stage.played(candidate)
    uncharged, doubted, steps = 0.0, 0.0, 0
    for member, user, step in np.ndindex(played.reward.shape):
        if step < int(stage.starts.left[user]):
            uncharged += float(played.reward[member, user, step])
            doubted += float(played.doubt[member, user, step])
            steps += 1
    calm = replace(stage, reference=replace(stage.reference, doubt=stage.reference.doubt * 0 + 0.5 * doubted / steps))
    found = calm.facts(candidate, played)
    assert found["doubt"] == pytest.approx(doubted / steps)
    assert found["unpenalised"] == pytest.approx(uncharged / steps)
    assert found["reward"] == pytest.approx(uncharged / steps - 4.0 * (doubted / steps - 0.5 * doubted / steps))
    free = replace(calm, play=replace(stage.play, penalty=0.0)).facts(candidate, played)
    assert free["reward"] == free["unpenalised"] == found["unpenalised"]


def test_a_policy_is_not_charged_where_the_log_itself_is_in_doubt(made: Path, stage: Stage) -> None:
    [candidate] = views([load(made / "supervised")], cloned=False)
    played = stage.played(candidate)
    wary = replace(stage, reference=replace(stage.reference, doubt=stage.reference.doubt * 0 + 2 * played.mean_doubt))
    found = wary.facts(candidate, played)
    assert found["reward"] == found["unpenalised"]
    assert found["charge"] == 0


def test_an_interval_of_proportional_totals_has_no_width() -> None:
    base = np.random.default_rng(0).random((3, 20)) + 0.1
    low, high = simulate_module._ratio_interval((2 * base, np.ones(20)), (base, np.ones(20)), seed=0)
    assert low == pytest.approx(2)
    assert high == pytest.approx(2)
    noisy = base * np.random.default_rng(1).uniform(0.5, 1.5, base.shape)
    low, high = simulate_module._ratio_interval((noisy, np.ones(20)), (base, np.ones(20)), seed=0)
    assert low < noisy.sum() / base.sum() < high


def test_sessions_cut_short_change_no_interval_of_what_a_step_counts(made: Path, stage: Stage) -> None:
    """As of one who has been shown every item."""
    [candidate] = views([load(made / "supervised")], cloned=False)
    whole = played([[-1.0] * 4] * 6)
    short = replace(whole, counted=np.tile(np.arange(4) < 2, (6, 1)))
    found = replace(stage, reference=whole).facts(candidate, short)
    assert (found["ratio"], found["low"], found["high"]) == (1.0, 1.0, 1.0)


def test_controls_show_what_is_popular_and_what_pays(made: Path) -> None:
    data = ecoc.open_data(made / "data")
    named = {one.name: one for one in controls(data)}
    count, total = np.zeros(data.counts.items + 1), np.zeros(data.counts.items + 1)
    rewards = []
    for sequence in range(len(data)):
        if not data.is_validation[sequence]:
            begin = int(data.offsets[sequence])
            for event in range(begin, begin + int(data.train_lengths[sequence])):
                count[data.items[event]] += 1
                total[data.items[event]] += data.rewards[event]
                rewards.append(float(data.rewards[event]))
    popular, best = named["popular"].score, named["best item"].score
    assert popular is not None and best is not None
    assert int(popular.argmax()) == int(count.argmax())
    worth = (total + 5 * np.mean(rewards)) / (count + 5)
    assert int(best[1:].argmax()) == int(worth[1:].argmax())
    assert all(one.is_control for one in named.values())


def test_runs_of_one_name_are_refused(made: Path, tmp_path: Path) -> None:
    twin = shutil.copytree(made / "supervised", tmp_path / "supervised")
    with pytest.raises(InputError, match="two runs are called 'supervised'"):
        simulate([made / "supervised", twin], settings=SMALL)
    with pytest.raises(InputError, match="at least one"):
        simulate([])


@pytest.mark.parametrize("name", CONTROLS)
def test_a_run_is_never_taken_for_a_control(made: Path, name: str) -> None:
    try:
        found = simulate([load(made / "supervised").called(name)], settings=replace(SMALL, members=1))
    except InputError:
        return
    assert len(rows(found)) == len(found["policies"])


def test_another_dataset_is_refused(made: Path) -> None:
    with pytest.raises(InputError, match="trained on other data"):
        simulate([made / "supervised"], made / "other_data", settings=SMALL)
    with pytest.raises(InputError, match="other: was trained on other data"):
        simulate([made / "supervised", made / "other"], settings=SMALL)
    with pytest.raises(InputError, match="trained on other data"):
        choose_w(made / "ecoc", made / "other_data", settings=SMALL)


def test_ways_to_act_that_no_run_has_are_refused(made: Path) -> None:
    with pytest.raises(InputError, match="no critic"):
        simulate([made / "supervised"], w=3.0, settings=SMALL)


@pytest.mark.parametrize(
    "wrong",
    [
        {"users": 0},
        {"horizon": 0},
        {"warm": 0},
        {"members": 0},
        {"most_events": 0},
        {"penalty": -0.1},
        {"mix": 1.1},
        {"mix": math.nan},
        {"negatives": -1},
        {"fit_on": "tests"},
        {"penalty": math.nan},
        {"penalty": math.inf},
        {"seed": -1},
    ],
)
def test_wrong_settings_are_refused_before_any_work(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Play(**wrong)


def test_a_log_of_what_was_taken_up_gets_negatives(made: Path) -> None:
    data = ecoc.open_data(made / "data")
    assert simulate_module.habits(data, SMALL) == (True, 0)
    data.rewards = np.asarray(data.rewards) + np.float32(1)
    assert simulate_module.habits(data, SMALL) == (True, 4)
    assert simulate_module.habits(data, replace(SMALL, negatives=1, exclude_seen=False)) == (False, 1)
    data.items = np.ones_like(data.items)
    assert simulate_module.habits(data, SMALL) == (False, 4), "a log full of repeats"


def test_the_paper_s_ratio_stands_beside_one_with_negatives(made: Path) -> None:
    found = simulate([made / "supervised"], settings=replace(SMALL, members=1, negatives=2))
    assert all(set(row["one_step"]) == {"conditional", "with negatives"} for row in found["policies"])
    assert found["simulator"]["negatives"] == 2
    page = simulate_page(found)
    assert "2 items at random stand for what was not taken up" in page


# Guards


def played(log_behaviour: list[list[float]], reward: float = 1.0, doubt: float = 0.0) -> Played:
    """One member, every step counted."""
    logs = np.array([log_behaviour])
    shape = logs.shape
    items = np.ones(shape, np.int64)
    return Played(np.full(shape, reward), np.full(shape, doubt), logs, items, np.ones(shape[1:], bool))


USUAL = {"action": -5.0, "session": -4.0}


def test_what_the_log_hardly_shows_is_pointed_out() -> None:
    rare = played([[-1, -1, -1, -6], [-1, -1, -1, -1]])
    assert lacking(rare, USUAL) == [], "one in eight is fewer than a fifth"
    often = played([[-1, -1, -6, -6], [-1, -1, -1, -1]])
    assert lacking(often, USUAL) == ["25% of what it shows the log hardly ever shows there"]


def test_sessions_unlike_any_logged_one_are_pointed_out() -> None:
    odd = played([[-4.9] * 4, [-1] * 4, [-1] * 4])
    assert lacking(odd, USUAL) == ["33% of its sessions are unlike any logged one"]
    some = played([[-4.9] * 4, *([[-1.0] * 4] * 5)])
    assert lacking(some, USUAL) == []


def test_what_the_simulators_dispute_is_pointed_out() -> None:
    agreed, disputed = played([[-1.0]], 1.0, 0.19), played([[-1.0]], 1.0, 0.21)
    assert lacking(agreed, USUAL) == []
    assert lacking(disputed, USUAL) == ["the simulators dispute 21% of what it earns"]
    assert lacking(played([[-1.0]], -1.0, 0.19), USUAL) == []
    assert lacking(played([[-1.0]], 0.0, 0.1), USUAL) == ["the simulators dispute 100% of what it earns"]


def test_nobody_disputes_nothing() -> None:
    assert lacking(played([[-1.0]], 0.0, 0.0), USUAL) == []


def test_steps_after_the_end_are_not_looked_at() -> None:
    logs, counted = np.array([[[-1.0, -9.0], [-1.0, -1.0]]]), np.array([[True, False], [True, True]])
    doubt = np.array([[[0.0, 9.0], [0.0, 0.0]]])
    found = Played(np.ones((1, 2, 2)), doubt, logs, np.ones((1, 2, 2), np.int64), counted)
    assert lacking(found, USUAL) == []


def test_the_log_s_own_rarest_per_cent_is_what_counts_as_rare() -> None:
    logs = -np.arange(1.0, 1001).reshape(1, 100, 10)
    log = Played(logs * 0, logs * 0, logs, np.ones_like(logs, np.int64), np.ones((100, 10), bool))
    usual = usual_behaviour(log)
    assert (logs < usual["action"]).mean() == pytest.approx(0.01)
    assert (logs.mean(2) < usual["session"]).mean() == pytest.approx(0.01)


class Scored(Policy):
    """The same scores for everyone."""

    def __init__(self, score: Tensor) -> None:
        super().__init__()
        self.items, self.length, self.score = len(score) - 1, 4, score

    def query(self, history: History) -> Tensor:
        return torch.zeros(len(history.items), 1)

    def scores(self, query: Tensor, first: int, last: int) -> Tensor:
        return self.score[first:last].expand(len(query), -1)

    def scores_of(self, query: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        return self.score[items], torch.zeros_like(items, dtype=torch.float32)

    def vectors(self) -> Tensor | None:
        return None


def test_what_a_run_unlearnt_shows_in_its_imitation_loss(made: Path) -> None:
    data = ecoc.open_data(made / "data")
    cases = open_cases(data, "validation", min_history=1, most=2000, seed=0)
    target = np.asarray(data.items[cases.event])
    known = np.bincount(target, minlength=data.counts.items + 1) + 0.5
    share = torch.from_numpy(known / known[1:].sum()).log().float()
    found = imitation_losses(data, {"knows": Scored(share), "sharper": Scored(share * 3), "none": Scored(share * 0)})
    right = float(-share[torch.from_numpy(target.astype(np.int64))].mean())
    assert found["knows"]["loss"] == pytest.approx(right, rel=0.01)
    assert found["sharper"]["loss"] == pytest.approx(found["knows"]["loss"], rel=0.01), "at its best temperature"
    assert found["none"]["loss"] == pytest.approx(math.log(data.counts.items), rel=1e-4)
    best = min(row["loss"] for row in found.values())
    assert all(row["excess"] == pytest.approx(row["loss"] / best - 1) for row in found.values())
    assert found["none"]["excess"] > 0.03


def test_a_critic_s_run_is_judged_by_its_cloned_policy(made: Path) -> None:
    data, model = ecoc.open_data(made / "data"), load(made / "ecoc")
    found = imitation_losses(data, {"blend": model.by("blend", w=50).policy, "plain": model.by("policy").policy})
    assert found["blend"] == found["plain"]


def test_simulators_that_learnt_nothing_speak_against_every_figure() -> None:
    assert unskilled({"log_loss": 0.80, "log_loss_of_shares": 0.90}) == []
    assert len(unskilled({"log_loss": 0.86, "log_loss_of_shares": 0.90})) == 1
    assert unskilled({"log_loss": 0.0, "log_loss_of_shares": 0.0}) == []


def test_a_run_that_imitates_badly_is_not_trusted(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {"supervised": {"loss": 2.0, "excess": 0.031}, "ecoc": {"loss": 1.9, "excess": 0.029}}
    monkeypatch.setattr(simulate_module, "imitation_losses", lambda *_: losses)
    monkeypatch.setattr(simulate_module, "lacking", lambda *_: ["something"])
    monkeypatch.setattr(simulate_module, "unskilled", lambda *_: [])
    found = rows(simulate([made / "supervised", made / "ecoc"], settings=replace(SMALL, members=1)))
    assert found["supervised"]["reasons"] == ["something", "imitates the log 3.1% worse than the best run"]
    assert not found["supervised"]["trusted"]
    assert found["supervised"]["imitation_loss"] == 2.0
    assert found["ecoc"]["reasons"] == ["something"]
    assert found["logged"]["reasons"] == []


def test_pages_say_what_cannot_be_trusted(facts: dict[str, Any]) -> None:
    changed = deepcopy(facts)
    changed["policies"][4] |= {"reasons": ["a reason", "another"], "trusted": False}
    page = simulate_page(changed)
    assert "no: a reason; another" in page
    assert page.count("nothing speaks against it") >= 1
    for name in rows(facts):
        assert name in page


# The choice of w


Point = dict[str, Any]


@hypothesis_settings(max_examples=200)
@given(st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=1, max_size=7))
def test_the_smallest_trusted_weight_near_the_best_is_chosen(found: list[tuple[float, bool]]) -> None:
    points: list[Point] = [
        {"w": float(w), "reward": reward, "trusted": trusted} for w, (reward, trusted) in enumerate(found)
    ]
    chosen = chosen_point(points)
    allowed = [point for point in points if point["trusted"] or point["w"] == 0]
    best = max(point["reward"] for point in allowed)
    assert chosen in allowed, "what is not trusted is never chosen, but for w = 0"
    assert chosen["reward"] >= best - 0.02 * abs(best)
    for point in allowed:
        if point["w"] < chosen["w"]:
            assert point["reward"] < best - 0.02 * abs(best), "a smaller one would have done"


def test_the_choice_by_hand() -> None:
    def choice(*points: tuple[float, float, bool]) -> float:
        return float(chosen_point([{"w": w, "reward": r, "trusted": t} for w, r, t in points])["w"])

    assert choice((0, 1.0, True), (1, 1.5, True), (2, 1.52, True), (5, 9.0, False)) == 1
    assert choice((0, 1.0, False), (1, 1.5, False)) == 0, "nothing can be trusted: the cloned policy"
    assert choice((0, 0.99, True), (1, 1.0, True)) == 0
    assert choice((0, -1.0, True), (1, -0.99, True), (2, -0.5, True)) == 2


def test_a_choice_is_kept_and_acted_on(run: Path) -> None:
    found = choose_w(run, weights=(5.0, 1.0), settings=SMALL)
    assert [point["w"] for point in found["points"]] == [0.0, 1.0, 5.0], "w = 0 is always looked at"
    kept = json.loads((run / ACTING).read_text())
    assert (kept["rank_by"], kept["w"], kept["evidence"]) == ("blend", found["w"], found)
    assert load(run).policy.acting == f"blend-w{found['w']:g}"
    assert found["settings"]["fit_on"] == "train"
    assert found["simulator"]["fit_on"] == "train"
    for point in found["points"]:
        assert {"reward", "ratio", "low", "high", "trusted", "reasons", "ndcg@10", "items_shown"} <= set(point)
    assert f"chosen: w = {found['w']:g}" in choose_page(found)


def test_nothing_is_chosen_for_a_run_unless_it_is_to_be_kept(run: Path) -> None:
    choose_w(run, weights=(2.0,), settings=replace(SMALL, members=1), save=False)
    assert not (run / ACTING).exists()
    assert load(run).policy.acting == "blend-w10"


def test_a_run_without_a_critic_has_no_weight(made: Path) -> None:
    with pytest.raises(InputError, match="supervised has no critic"):
        choose_w(made / "supervised", settings=SMALL)


def test_the_chosen_weight_can_be_overruled(run: Path) -> None:
    save_acting(Run(run), "blend", 3.0, {})
    model = load(run)
    assert model.policy.acting == "blend-w3"
    assert model.by("policy").policy.acting == "policy"
    assert model.by("blend", w=7).policy.acting == "blend-w7"
    assert model.by("blend").policy.acting == "blend-w3"
    assert ecoc.evaluate(run, rank_by="policy", untrained=False)["acting"] == "policy"
    assert ecoc.evaluate(run, untrained=False)["acting"] == "blend-w3"
    plain = rows(simulate([run], rank_by="policy", settings=replace(SMALL, members=1)))
    assert plain["ecoc"]["acting"] == "policy"


def test_a_choice_changes_what_is_recommended(run: Path) -> None:
    history = [[load(run).vocab.ids(np.array([1]))[0]]]
    before = load(run).by("blend", w=0).recommend(history, k=5)
    save_acting(Run(run), "blend", 0.0, {})
    assert load(run).recommend(history, k=5).items == before.items == load(run).by("policy").recommend(history, 5).items


def test_other_weights_do_not_act_by_a_choice_made_for_these(run: Path, made: Path, tmp_path: Path) -> None:
    save_acting(Run(run), "blend", 3.0, {})
    retrained = shutil.copytree(made / "retrained", tmp_path / "retrained")
    shutil.copy(run / ACTING, retrained / ACTING)
    assert load(retrained).policy.acting == "blend-w10"
    plain = shutil.copytree(made / "supervised", tmp_path / "supervised")
    save_acting(Run(plain), "blend", 3.0, {})
    assert load(plain).policy.acting == "policy", "there is nothing to blend"


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
    settings = replace(SMALL, members=1)
    found = choose_w(load(made / "ecoc"), data, weights=(5.0,), settings=settings, save=False)
    return {key: found[key] for key in ("w", "points", "simulator")}


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
    stage = Stage.open(data, settings, "validation")
    assert (stage.exclude_seen, stage.simulator.none is None) == (True, what == "items")


def test_a_simulator_of_the_training_part_does_not_know_how_long_sequences_went_on(made: Path) -> None:
    data = ecoc.open_data(made / "data")
    data.train_lengths = np.minimum(np.asarray(data.train_lengths), 9)
    simulator = Stage.open(data, replace(SMALL, members=1, fit_on="train"), "validation").simulator
    assert simulator.lengths.max() == 9


def test_models_and_paths_are_taken_alike(made: Path, facts: dict[str, Any]) -> None:
    model: Model = load(made / "supervised")
    found = simulate([model.called("by another name")], str(made / "data"), settings=SMALL)
    assert rows(found)["by another name"]["reward"] == rows(facts)["supervised"]["reward"]
