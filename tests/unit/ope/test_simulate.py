"""`ecoc simulate`: what it answers, what it refuses, what its page says."""

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulate_case import SMALL, hasty, played, rows, simulated_runs

import ecoc
from ecoc.cli.app import answer
from ecoc.errors import InputError
from ecoc.model import Model, load
from ecoc.ope.candidates import controls, views
from ecoc.ope.choose_weight import choose_weight
from ecoc.ope.evaluator import RolloutEvaluator, ratio_interval, session_protocol
from ecoc.ope.results import OneStepRatio, RolloutConfig, SimulationResult
from ecoc.ope.simulate import simulate
from ecoc.reporting.text import simulation_text

CONTROLS = ["logged", "random", "popular", "best item"]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True, scope="module")
def few_steps() -> Iterator[None]:
    with hasty():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_runs(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def facts(made: Path) -> SimulationResult:
    return simulate([made / "supervised", made / "ecoc"], config=SMALL)


@pytest.fixture(scope="module")
def stage(made: Path) -> RolloutEvaluator:
    evaluator: RolloutEvaluator = RolloutEvaluator.open(ecoc.open_data(made / "data"), SMALL, "test")
    return evaluator


def test_the_answer_keeps_its_keys(facts: SimulationResult) -> None:
    values = facts.model_dump()
    assert {"log_loss", "calibration_error", "reward_error"} <= set(values["simulator"])
    for keys in values["policies"]:
        assert {"name", "reward", "ratio", "low", "high", "reasons", "trusted", "one_step", "doubt"} <= set(keys)
    for row in facts.policies:
        assert row.trusted == (not row.reasons)
        assert row.low <= row.high
        assert set(row.one_step) == {"conditional"}, "a log with ignored items needs no negatives"
    for keys in values["estimators"]:
        assert {"policy", "estimator", "value", "low", "high", "ess"} <= set(keys)
    assert facts.starts <= SMALL.users
    assert 1 <= facts.steps <= SMALL.horizon


def test_the_answer_is_json_as_everyone_reads_it(facts: SimulationResult, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    answer(facts.model_dump(), "", as_json=True)
    assert json.loads(capsys.readouterr().out, parse_constant=refuse)["decisions"] == facts.decisions


def test_the_log_is_one_and_controls_stand_beside_every_run(facts: SimulationResult) -> None:
    found = rows(facts)
    assert list(found) == [*CONTROLS, "supervised", "ecoc", "ecoc, cloned policy"]
    log = found["logged"]
    assert (log.ratio, log.low, log.high) == (1.0, 1.0, 1.0)
    assert log.reward == log.unpenalised, "leaving the log is what costs"
    assert log.reasons == facts.reasons, "no figure can be trusted, or none has a reason of the simulators"
    assert log.trusted == (not facts.reasons)
    assert log.one_step["conditional"] == OneStepRatio(ratio=1.0, low=1.0, high=1.0)
    assert [row.kind for row in facts.policies] == ["control"] * 4 + ["run", "run", "control"]
    assert {row.policy for row in facts.estimators} == set(found) - {"logged"}
    for name, row in found.items():
        assert row.ratio == pytest.approx(row.reward / log.reward), name


def test_a_run_that_acts_on_its_value_stands_beside_its_cloned_policy(made: Path, facts: SimulationResult) -> None:
    found = rows(facts)
    assert found["ecoc"].ranking_mode == "blend-w10"
    assert found["ecoc, cloned policy"].ranking_mode == "policy"
    alone = rows(simulate([made / "ecoc"], rank_by="policy", config=SMALL))
    assert list(alone) == [*CONTROLS, "ecoc"], "a cloned policy needs no clone"
    assert alone["ecoc"].reward == found["ecoc, cloned policy"].reward
    assert alone["logged"] == found["logged"], "same seed, same bits"


def test_no_clone_unless_asked_for(made: Path) -> None:
    model = load(made / "ecoc")
    assert [one.name for one in views([model], cloned=False)] == ["ecoc"]
    both = views([model.called("a"), model.ranked_by("blend", w=3).called("b")], cloned=True)
    assert [one.name for one in both] == ["a", "a, cloned policy", "b", "b, cloned policy"]


def test_the_headline_is_the_mean_less_the_charge(made: Path, stage: RolloutEvaluator) -> None:
    [candidate] = views([load(made / "supervised")], cloned=False)
    played = stage.roll_out(candidate)
    uncharged, doubted, steps = 0.0, 0.0, 0
    for member, user, step in np.ndindex(played.reward.shape):
        if step < int(stage.initial.steps[user]):
            uncharged += float(played.reward[member, user, step])
            doubted += float(played.ensemble_std[member, user, step])
            steps += 1
    calm = replace(
        stage, reference=replace(stage.reference, ensemble_std=stage.reference.ensemble_std * 0 + 0.5 * doubted / steps)
    )
    found = calm.value_of(candidate, played)
    assert found.ensemble_std == pytest.approx(doubted / steps)
    assert found.unpenalised == pytest.approx(uncharged / steps)
    assert found.reward == pytest.approx(uncharged / steps - 4.0 * (doubted / steps - 0.5 * doubted / steps))
    free = replace(calm, config=replace(stage.config, penalty=0.0)).value_of(candidate, played)
    assert free.reward == free.unpenalised == found.unpenalised


def test_a_policy_is_not_charged_where_the_log_itself_is_in_doubt(made: Path, stage: RolloutEvaluator) -> None:
    [candidate] = views([load(made / "supervised")], cloned=False)
    played = stage.roll_out(candidate)
    wary = replace(
        stage,
        reference=replace(
            stage.reference, ensemble_std=stage.reference.ensemble_std * 0 + 2 * played.mean_ensemble_std
        ),
    )
    found = wary.value_of(candidate, played)
    assert found.reward == found.unpenalised
    assert found.uncertainty_penalty == 0


def test_an_interval_of_proportional_totals_has_no_width() -> None:
    base = np.random.default_rng(0).random((3, 20)) + 0.1
    low, high = ratio_interval((2 * base, np.ones(20)), (base, np.ones(20)), seed=0)
    assert low == pytest.approx(2)
    assert high == pytest.approx(2)
    noisy = base * np.random.default_rng(1).uniform(0.5, 1.5, base.shape)
    low, high = ratio_interval((noisy, np.ones(20)), (base, np.ones(20)), seed=0)
    assert low < noisy.sum() / base.sum() < high


def test_sessions_cut_short_change_no_interval_of_what_a_step_counts(made: Path, stage: RolloutEvaluator) -> None:
    """As of one who has been shown every item."""
    [candidate] = views([load(made / "supervised")], cloned=False)
    whole = played([[-1.0] * 4] * 6)
    short = replace(whole, counted=np.tile(np.arange(4) < 2, (6, 1)))
    found = replace(stage, reference=whole).value_of(candidate, short)
    assert (found.ratio, found.low, found.high) == (1.0, 1.0, 1.0)


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
        simulate([made / "supervised", twin], config=SMALL)
    with pytest.raises(InputError, match="at least one"):
        simulate([])


@pytest.mark.parametrize("name", CONTROLS)
def test_a_run_is_never_taken_for_a_control(made: Path, name: str) -> None:
    try:
        found = simulate([load(made / "supervised").called(name)], config=replace(SMALL, members=1))
    except InputError:
        return
    assert len(rows(found)) == len(found.policies)


def test_another_dataset_is_refused(made: Path) -> None:
    with pytest.raises(InputError, match="trained on other data"):
        simulate([made / "supervised"], made / "other_data", config=SMALL)
    with pytest.raises(InputError, match="other: was trained on other data"):
        simulate([made / "supervised", made / "other"], config=SMALL)
    with pytest.raises(InputError, match="trained on other data"):
        choose_weight(made / "ecoc", made / "other_data", config=SMALL)


def test_ways_to_act_that_no_run_has_are_refused(made: Path) -> None:
    with pytest.raises(InputError, match="no critic"):
        simulate([made / "supervised"], w=3.0, config=SMALL)


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
        RolloutConfig(**wrong)


def test_a_log_of_what_was_taken_up_gets_negatives(made: Path) -> None:
    data = ecoc.open_data(made / "data")
    assert session_protocol(data, SMALL) == (True, 0)
    data.rewards = np.asarray(data.rewards) + np.float32(1)
    assert session_protocol(data, SMALL) == (True, 4)
    data.rewards[::50] = 0
    assert session_protocol(data, SMALL) == (True, 4), "a few gifts among purchases say nothing of refusals"
    assert session_protocol(data, replace(SMALL, negatives=1, exclude_seen=False)) == (False, 1)
    data.items = np.ones_like(data.items)
    assert session_protocol(data, SMALL) == (False, 4), "a log full of repeats"


def test_the_paper_s_ratio_stands_beside_one_with_negatives(made: Path) -> None:
    found = simulate([made / "supervised"], config=replace(SMALL, members=1, negatives=2))
    assert all(set(row.one_step) == {"conditional", "with negatives"} for row in found.policies)
    assert found.simulator.negatives == 2
    page = simulation_text(found)
    assert "2 random items per event stand for what users did not take" in page


def test_pages_say_what_cannot_be_trusted(facts: SimulationResult) -> None:
    changed = facts.model_dump()
    changed["reasons"] = ["of all"]
    changed["policies"][1] |= {"reasons": [], "trusted": True}
    changed["policies"][3] |= {"reasons": ["of all"], "trusted": False}
    changed["policies"][4] |= {"reasons": ["of all", "a reason", "another"], "trusted": False}
    page = simulation_text(SimulationResult.model_validate(changed))
    assert page.count("No figure can be trusted: of all.") == 1
    assert "  not trusted: supervised: a reason; another" in page
    trust = {line.split()[0]: line for line in page.splitlines() if line.startswith("    ")}
    assert " no " in trust["logged"], "no figure can be trusted, so the log's cannot"
    assert " no " in trust["best"] and " no " in trust["supervised"] and " yes " in trust["random"]
    for name in rows(facts):
        assert name in page
    changed["reasons"], changed["policies"][0]["reasons"] = [], []
    page = simulation_text(SimulationResult.model_validate(changed))
    [logged] = [line for line in page.splitlines() if line.startswith("    logged")]
    assert " reference " in logged and " yes " not in logged, "it is 1 by definition"


def test_models_and_paths_are_taken_alike(made: Path, facts: SimulationResult) -> None:
    model: Model = load(made / "supervised")
    found = simulate([model.called("by another name")], str(made / "data"), config=SMALL)
    assert rows(found)["by another name"].reward == rows(facts)["supervised"].reward


def test_a_simulation_prints_as_a_table_and_becomes_a_frame(facts: SimulationResult) -> None:
    frame = facts.to_frame()
    assert frame["policy"].tolist() == list(rows(facts))
    assert frame["one_step, conditional"].tolist() == [row.one_step["conditional"].ratio for row in facts.policies]
    heading, _, *lines = str(facts).splitlines()
    assert heading.startswith(f"SimulationResult: {facts.data}, {facts.starts} users")
    assert ("no figure can be trusted" in heading) == bool(facts.reasons)
    assert len(lines) == len(facts.policies)
    assert facts.own_reasons(facts.logged) == []


def test_the_old_keyword_and_the_old_way_to_read_results_warn(made: Path, facts: SimulationResult) -> None:
    with pytest.warns(DeprecationWarning, match="config="):
        again = simulate([made / "supervised", made / "ecoc"], settings=SMALL)
    assert again.policies == facts.policies
    with pytest.warns(DeprecationWarning, match="ranking_mode"):
        assert facts.policies[5]["acting"] == "blend-w10"
