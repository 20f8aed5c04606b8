"""What the rows of a table are trained with: the same for all but for what makes them differ."""

from typing import Any

import pytest

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.data.store import map_arrays
from ecoc.errors import InputError
from ecoc.experiment import EXPERIMENTS, paper
from ecoc.experiment.ablation import ABLATED
from ecoc.experiment.variants import (
    BASE,
    BATCH_TARGETS,
    ECOC,
    MIXED,
    PAPER,
    PAPER_DATA,
    PATIENCE,
    READINGS,
    VARIANTS,
    Length,
    settings,
    variant_of,
    with_controls,
)
from ecoc.runs.config import RunConfig, compose
from ecoc.runs.presets import presets
from ecoc.training.cost import StepCost, measure


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return ecoc.prepare("world:small", tmp_path_factory.mktemp("world") / "data", events=2_000, seed=3)


def of_source(data: Dataset, source: str) -> Dataset:
    """The same data as if they came from one of the paper's."""
    manifest = data.manifest.model_copy(update={"source": source})
    return Dataset(data.path, manifest, map_arrays(data.path, manifest.counts))


HUNDRED = Length(100)


def config(name: str, data: Dataset, encoder: str = "sasrec", length: Length = HUNDRED) -> RunConfig:
    return settings(variant_of(name), encoder, data, length=length, seed=2)


def common(name: str, data: Dataset, length: Length) -> tuple[dict[str, Any], int]:
    """What must be alike in all rows of a table, and the number of targets a run learns from at most."""
    train = config(name, data, length=length).train
    alike = {key: getattr(train, key) for key in ("validation_cases", "patience", "min_history", "monitor", "seed")}
    return alike, (train.max_steps or 0) * train.batch_targets


NAMES = [variant.name for variant in with_controls([*VARIANTS.values(), MIXED, *READINGS])]


@pytest.mark.parametrize("source", ["world", *PAPER_DATA])
@pytest.mark.parametrize("length", [Length(100), Length(100, until_converged=True, validate_every=7)])
def test_all_methods_are_validated_alike_and_learn_from_as_many_targets(
    data: Dataset, source: str, length: Length
) -> None:
    alike, most = common("supervised", of_source(data, source), length)
    assert most == 100 * BATCH_TARGETS
    assert alike["patience"] == (PATIENCE if length.until_converged else 0)
    for name in NAMES:
        other, targets = common(name, of_source(data, source), length)
        assert other == alike
        assert abs(targets - most) < 512, name  # at most one step of the largest batch
        train = config(name, of_source(data, source), length=length).train
        interval = 20 if not length.until_converged else 7
        assert (train.validate_every or 0) * train.batch_targets == pytest.approx(interval * BATCH_TARGETS, rel=0.06)


def test_every_method_but_the_plain_one_has_averaged_weights(data: Dataset) -> None:
    averaged = {name: config(name, data).train.ema for name in VARIANTS if VARIANTS[name].method != "ecoc"}
    assert averaged.pop("supervised") == 0
    assert set(averaged.values()) == {0.02}
    assert config("ecoc", data).train.ema == 0  # it averages its own, at the same rate
    assert config("ecoc", data).values()["method"]["tau"] == 0.02


@pytest.mark.parametrize("name", ["ecoc-paper", "ecoc-released"])
def test_a_named_setting_is_its_preset_and_nothing_else(data: Dataset, name: str) -> None:
    """But for what all rows of a table have in common, and the form of L_BC for a small catalogue."""
    preset = name.removeprefix("ecoc-")
    row = config(name, data, "nextitnet").values()
    file = compose(preset=preset, encoder="nextitnet", method="ecoc").values()
    shared = {"max_steps", "validate_every", "validation_cases", "patience", "min_history", "keep", "threads", "seed"}
    assert row["encoder"] == file["encoder"]
    assert {key for key in row["train"] if row["train"][key] != file["train"][key]} <= shared
    changed = {key: row["method"][key] for key in row["method"] if row["method"][key] != file["method"][key]}
    assert changed == ({"loss": "full", "n2": 0} if preset == "paper" else {})


def test_a_control_differs_from_its_method_in_the_method_alone(data: Dataset) -> None:
    for name in ("ecoc-paper", "ecoc-released"):
        row, control = (config(each, data).values() for each in (name, variant_of(name).control))
        assert control["encoder"] == row["encoder"]
        differing = {key for key in row["train"] if row["train"][key] != control["train"][key]}
        assert differing <= {"ema", "weight_decay"}
        assert control["train"]["ema"] == row["method"]["tau"]
        assert control["method"]["loss"] == row["method"]["loss"]
        decays = row["train"]["weight_decay"] if row["method"]["decay_actor"] else 0
        assert control["train"]["weight_decay"] == decays, "the L2 penalty of the actor"


def test_mixing_the_papers_losses_with_our_training_has_a_name_of_its_own(data: Dataset) -> None:
    mixed, paper_row, ours = (config(name, data).values() for name in ("ecoc-paper-losses", "ecoc-paper", "ecoc"))
    assert mixed["method"] == paper_row["method"]
    assert mixed["encoder"] == ours["encoder"]
    assert {key for key in ours["train"] if ours["train"][key] != mixed["train"][key]} == {"reward_scale"}


def test_the_paper_setting_is_the_papers(data: Dataset) -> None:
    values = config("ecoc-paper", data).values()
    assert {key: values["method"][key] for key in ("alpha", "beta", "gamma", "n1", "dc", "critic")} == {
        "alpha": 5.0,
        "beta": 1.0,
        "gamma": 0.5,
        "n1": 500,
        "dc": 1.0,
        "critic": "shared",
    }
    train = values["train"]
    assert (train["lr"], train["batch_targets"], train["weight_decay"]) == (1e-3, 256, 1e-5)
    assert values["train"]["reward_scale"] == "none"
    assert values["method"]["loss"] == "full"  # 200 items: fewer than its 10,000 negatives
    assert config("ecoc-paper", of_source(data, "rl4rs")).values()["method"]["alpha"] == 8.0


def test_on_the_papers_data_all_encoders_have_its_sizes(data: Dataset) -> None:
    assert set(PAPER_DATA) <= set(presets())
    for name in ("sqn", "ecoc", "ecoc-paper"):
        encoder = config(name, of_source(data, "rl4rs")).encoder
        assert (encoder.dim, encoder.length) == (32, 8)
    default = config("ecoc", of_source(data, "yelp")).values()
    assert default["train"]["reward_scale"] == "auto"
    assert default["method"]["critic"] == "tower"


def test_each_ablation_differs_from_its_full_variant_in_one_setting(data: Dataset) -> None:
    changed: dict[str, Any] = {}
    for variant in ABLATED:
        full = PAPER if variant.preset == PAPER.preset else ECOC
        if variant.name in (BASE, PAPER.control, full.name):
            continue
        ours, theirs = (settings(each, "sasrec", data, length=HUNDRED).values() for each in (variant, full))
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
