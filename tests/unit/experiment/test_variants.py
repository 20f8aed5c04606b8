"""What the rows of a table are trained with: the same for all but for what makes them differ."""

from typing import Any

import pytest

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.experiment import EXPERIMENTS, paper
from ecoc.experiment.ablation import ABLATED
from ecoc.experiment.cost import StepCost, measure
from ecoc.experiment.variants import BASE, ECOC, PAPER, PAPER_DATA, VARIANTS, settings, variant_of
from ecoc.runs.config import RunConfig
from ecoc.runs.presets import presets


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return ecoc.prepare("world:small", tmp_path_factory.mktemp("world") / "data", events=2_000, seed=3)


def of_source(data: Dataset, source: str) -> Dataset:
    """The same data as if they came from one of the paper's."""
    return Dataset(data.path, data.manifest.model_copy(update={"source": source}))


def config(name: str, data: Dataset, encoder: str = "sasrec") -> RunConfig:
    return settings(variant_of(name), encoder, data, steps=100, seed=2)


@pytest.mark.parametrize("source", ["world", *PAPER_DATA])
def test_all_methods_get_the_same_windows_steps_validations_and_encoder(data: Dataset, source: str) -> None:
    """Only how rewards are scaled, which weights act and how they are averaged may differ."""
    allowed = {"reward_scale", "ema", "act_with"}
    found = []
    for name in VARIANTS:
        values = config(name, of_source(data, source)).values()
        train = {key: value for key, value in values["train"].items() if key not in allowed}
        found.append((values["encoder"], train))
    assert all(one == found[0] for one in found)
    train = found[0][1]
    assert (train["max_steps"], train["validate_every"], train["patience"]) == (100, 20, 0)
    assert (train["seed"], train["threads"]) == (2, 1)


def test_every_method_but_the_plain_one_has_averaged_weights(data: Dataset) -> None:
    averaged = {name: config(name, data).train.ema for name in VARIANTS if name not in ("ecoc", "ecoc-paper")}
    assert averaged.pop("supervised") == 0
    assert set(averaged.values()) == {0.02}
    assert config("ecoc", data).train.ema == 0  # it averages its own, at the same rate
    assert config("ecoc", data).values()["method"]["tau"] == 0.02


def test_the_paper_setting_is_the_papers(data: Dataset) -> None:
    found = config("ecoc-paper", data).values()
    assert {key: found["method"][key] for key in ("alpha", "beta", "gamma", "n1", "dc", "critic")} == {
        "alpha": 5.0,
        "beta": 1.0,
        "gamma": 0.5,
        "n1": 500,
        "dc": 1.0,
        "critic": "shared",
    }
    assert found["train"]["reward_scale"] == "none"
    assert found["method"]["loss"] == "full"  # 200 items: fewer than its 10,000 negatives
    assert config("ecoc-paper", of_source(data, "rl4rs")).values()["method"]["alpha"] == 8.0


def test_on_the_papers_data_its_presets_are_common_ground(data: Dataset) -> None:
    assert set(PAPER_DATA) <= set(presets())
    found = config("sqn", of_source(data, "yelp")).values()
    assert (found["train"]["lr"], found["train"]["windows"], found["train"]["min_history"]) == (0.001, "tile", 5)
    assert found["encoder"]["dropout"] == 0.2
    assert found["train"]["ema"] == 0.005
    default = config("ecoc", of_source(data, "yelp")).values()
    assert default["train"]["reward_scale"] == "auto"
    assert default["method"]["critic"] == "tower"


def test_each_ablation_differs_from_its_full_variant_in_one_setting(data: Dataset) -> None:
    changed: dict[str, Any] = {}
    for variant in ABLATED:
        full = PAPER if variant.is_paper else ECOC
        if variant.name in (BASE, full.name):
            continue
        ours, theirs = (settings(one, "sasrec", data, steps=10).values() | {"views": None} for one in (variant, full))
        changed[variant.name] = {
            key: ours[part][key]
            for part in ("encoder", "method", "train")
            for key in ours[part]
            if ours[part][key] != theirs[part][key]
        }
    assert changed == {
        "ecoc-paper-no-bc": {"beta": 0.0},
        "ecoc-paper-no-reg": {"alpha": 0.0},
        "ecoc-paper-bpr": {"reg": "bpr"},
        "ecoc-paper-no-dc": {"dc": 0.0},
        "ecoc-gamma-0": {"gamma": 0.0},
        "ecoc-shuffled": {"shuffle_rewards": True},
    }


def test_an_unknown_method_is_told_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'supervised\\+ema'"):
        variant_of("supervised-ema")
    with pytest.raises(InputError, match="unknown method 'popular'"):
        variant_of("popular")  # it is in every table anyway


def test_a_pace_is_measured_and_kept(data: Dataset) -> None:
    found = measure(data, config("sa2c", data), repeat_seconds=0.01)
    assert StepCost.model_validate(found.model_dump()) == found
    assert 0 < found.cpu < 5
    assert found.epoch_seconds == found.cpu * found.epoch_steps
    assert found.case > 0
    assert found.parameters > 200 * 64


def test_the_papers_numbers_are_consistent_with_what_it_says_of_them() -> None:
    """Savings over SQN and costs over the backbone, recomputed from the rows."""
    for name, rows in paper.RESULTS.items():
        seconds = {(row.encoder, row.method): row.seconds for row in rows}
        encoders = {row.encoder for row in rows} - {"no encoder"}
        saved = [1 - seconds[one, "ECoC"] / seconds[one, "sqn"] for one in encoders]
        assert abs(100 * sum(saved) / len(saved) - paper.SAVINGS[name]) < 0.7
        costs = [seconds[one, "ECoC"] / seconds[one, "supervised"] for one in encoders]
        least, most = paper.COSTS[name]
        assert least - 0.06 < min(costs) <= max(costs) < most + 0.06
        assert len(rows) == 25


def test_the_table_of_experiments_is_named_by_its_keys() -> None:
    assert {name: one.name for name, one in EXPERIMENTS.items()} == {name: name for name in EXPERIMENTS}
    assert set(EXPERIMENTS) >= {"imitation", "efficiency", "ablation", "sensitivity", "normtest"}
