"""The weight of the counts term: chosen on validation, kept in the run, applied by the model."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from training_case import CONFIG, config, small_data

import ecoc
from ecoc.data.loader import open_cases, open_train_sequences
from ecoc.data.sequences import Dataset
from ecoc.errors import ArtifactError, InputError
from ecoc.experiment.recorded import recorded
from ecoc.experiment.variants import Length, settings, variant_of
from ecoc.policies.counts import PolicyWithCounts, Transitions
from ecoc.runs.config import open_preset
from ecoc.runs.presets import presets
from ecoc.runs.result import CountsChoice
from ecoc.training import counts as choice_module
from ecoc.training.counts import choose_counts_weight

pytestmark = pytest.mark.usefixtures("one_thread")

ITEMS = 40


def chained(folder: Path, *, validation: float = 0.3) -> Dataset:
    """A log in which item n is followed by item n + 1, nine times out of ten."""
    draw = np.random.default_rng(0)
    rows = []
    for user in range(120):
        item = int(draw.integers(ITEMS))
        for time in range(12):
            rows.append((f"u{user}", f"i{item}", time + 1))
            item = (item + 1) % ITEMS if draw.random() < 0.9 else int(draw.integers(ITEMS))
    users, items, times = zip(*rows, strict=True)
    log = pa.table({"user": users, "item": items, "time": times})
    columns: dict[str, Any] = {"user": "user", "item": "item", "time": "time", "time_format": "order"}
    return ecoc.prepare(log, folder, threads=1, split="leave-one-out", validation=validation, **columns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("counts")


@pytest.fixture(scope="module")
def data(folder: Path) -> Dataset:
    return chained(folder / "chained")


@pytest.fixture(scope="module")
def noise(folder: Path, write_log: Callable[..., Path]) -> Dataset:
    return small_data(folder, write_log)


@pytest.fixture(scope="module")
def run(folder: Path, data: Dataset) -> ecoc.Run:
    return ecoc.train(data, folder / "run", config=config())


@pytest.fixture(scope="module")
def plain(folder: Path, data: Dataset) -> ecoc.Run:
    return ecoc.train(data, folder / "plain", config=config(counts="off"))


def counts_file(run: ecoc.Run) -> Path:
    return run.checkpoints / "counts.safetensors"


def test_counts_that_win_on_validation_are_part_of_the_model(data: Dataset, run: ecoc.Run, plain: ecoc.Run) -> None:
    chosen = run.result.counts
    assert chosen is not None and chosen.without_counts is not None and chosen.with_best_weight is not None
    assert chosen.weight == chosen.best_weight
    assert chosen.weight > 0
    assert chosen.with_best_weight > chosen.without_counts + 0.2
    assert f"counts: weight {chosen.weight:g} chosen on validation, ndcg@20 0." in (run.path / "log.txt").read_text()
    assert isinstance(run.model.policy, PolicyWithCounts)
    assert run.model.recommend([["i7"], ["i20", "i3"]], k=1).items == [["i8"], ["i4"]]
    ndcg = {each.name: ecoc.evaluate(each.model, untrained=False).metrics["ndcg@10"] for each in (run, plain)}
    assert ndcg["run"] > ndcg["plain"] + 0.2
    assert run.result.weights_sha256 == plain.result.weights_sha256, "training is the same"


def test_off_leaves_no_trace(plain: ecoc.Run) -> None:
    assert plain.result.counts is None
    assert "counts" not in plain.result.values()
    assert not counts_file(plain).exists()
    assert not isinstance(plain.model.policy, PolicyWithCounts)


def test_counts_of_noise_are_not_used(noise: Dataset, tmp_path: Path) -> None:
    run = ecoc.train(noise, tmp_path / "run", config=config())
    chosen = run.result.counts
    assert chosen is not None and chosen.cases > 0
    assert chosen.weight == 0
    assert str(chosen).startswith("off: no weight improves validation")
    assert not counts_file(run).exists()
    assert not isinstance(run.model.policy, PolicyWithCounts)


def test_why_counts_are_off_is_said() -> None:
    chosen = CountsChoice(weight=0, monitor="hr@5", without_counts=0.25, best_weight=0.5, with_best_weight=0.26)
    assert str(chosen) == "off: no weight improves validation significantly (hr@5 0.2500, 0.2600 with weight 0.5)"
    none = chosen.model_copy(update={"best_weight": 0.0, "with_best_weight": 0.25})
    assert str(none) == "off: no weight improves validation (hr@5 0.2500 without counts)"


def test_without_held_out_sequences_there_is_nothing_to_choose_on(tmp_path: Path) -> None:
    run = ecoc.train(chained(tmp_path / "data", validation=0.0), tmp_path / "run", config=config())
    assert str(run.result.counts) == "off: no sequences are held out to choose on"
    assert not isinstance(run.model.policy, PolicyWithCounts)


def test_a_given_weight_is_taken(data: Dataset, tmp_path: Path) -> None:
    run = ecoc.train(data, tmp_path / "run", config=config(counts=0.75))
    policy = run.model.policy
    assert isinstance(policy, PolicyWithCounts)
    assert (policy.weight, str(run.result.counts)) == (0.75, "weight 0.75, as set")
    zero = ecoc.train(data, tmp_path / "zero", config=config(counts=0))
    assert not isinstance(zero.model.policy, PolicyWithCounts)


@pytest.mark.parametrize("value", ["on", -1, 1001, math.nan, math.inf])
def test_a_wrong_weight_is_refused(data: Dataset, tmp_path: Path, value: object) -> None:
    with pytest.raises(InputError, match=r"train\.counts|'counts'|counts"):
        ecoc.train(data, tmp_path / "run", config=config(counts=value))


def test_counts_are_those_of_training_events_alone(data: Dataset, run: ecoc.Run) -> None:
    policy = run.model.policy
    assert isinstance(policy, PolicyWithCounts)
    expected = Transitions.count(open_train_sequences(data), data.counts.items)
    for name, tensor in expected.state_dict().items():
        assert tensor.equal(policy.transitions.state_dict()[name])
    held_out = sum(np.asarray(data.train_lengths)[np.asarray(data.is_validation)])
    assert len(open_train_sequences(data).items) == sum(data.train_lengths) - held_out > 0


@pytest.mark.parametrize("method", ["ecoc", "sqn", "prl", "neural_lcb"])
def test_every_trained_method_may_have_counts(data: Dataset, tmp_path: Path, method: str) -> None:
    run = ecoc.train(data, tmp_path / "run", method=method, config=config(counts=4))
    assert isinstance(run.model.policy, PolicyWithCounts)
    answer = run.model.recommend([["i7", "i3"]], k=5, exclude_seen=True, only=["i3", "i4", "i5"])
    assert sorted(answer.items[0]) == ["i4", "i5"]
    assert 0 <= ecoc.evaluate(run.model, max_cases=20, exclude_seen=True).metrics["hr@10"] <= 1


def test_an_untrained_method_has_none(data: Dataset, tmp_path: Path) -> None:
    run = ecoc.train(data, tmp_path / "run", method="markov")
    assert run.result.counts is None
    assert not isinstance(run.model.policy, PolicyWithCounts)


def test_the_cloned_policy_of_ecoc_has_the_counts_of_supervised_training(data: Dataset, tmp_path: Path) -> None:
    given = {**CONFIG, "train": {**CONFIG["train"], "act_with": "ema"}}
    ours = ecoc.train(data, tmp_path / "ecoc", method="ecoc", config=given)
    averaged = {**given, "train": {**given["train"], "ema": ours.config().values()["method"]["tau"]}}
    theirs = ecoc.train(data, tmp_path / "supervised", config=averaged)
    assert ours.result.counts == theirs.result.counts
    histories = [["i7"], ["i20", "i3"], ["i1", "i2", "i9"]]
    assert [*ours.model.ranked_by("policy").recommend(histories)] == [*theirs.model.recommend(histories)]
    assert ours.model.ranked_by("blend", w=0).recommend(histories).items == theirs.model.recommend(histories).items


def test_a_run_that_was_killed_before_its_result_ends_the_same(data: Dataset, tmp_path: Path) -> None:
    run = ecoc.train(data, tmp_path / "run", method="ecoc", config=config())
    before, saved = run.result, counts_file(run).read_bytes()
    (run.path / "result.json").unlink()
    again = ecoc.train(data, tmp_path / "run", resume=True)
    assert (again.result.counts, again.result.weights_sha256) == (before.counts, before.weights_sha256)
    assert counts_file(again).read_bytes() == saved


def test_changed_missing_or_forged_counts_are_refused(data: Dataset, tmp_path: Path) -> None:
    run = ecoc.train(data, tmp_path / "run", config=config(counts=1))
    original, result = counts_file(run).read_bytes(), (run.path / "result.json").read_bytes()
    counts_file(run).write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    with pytest.raises(ArtifactError, match="checksum"):
        ecoc.load(run.path)
    counts_file(run).unlink()
    with pytest.raises(ArtifactError, match=r"counts\.safetensors: missing"):
        ecoc.load(run.path)
    counts_file(run).write_bytes(original)
    for key, value, message in (
        ("sha256", "0" * 64, "other counts"),
        ("weight", -1, "result"),
        ("weight", 1e9, "result"),
    ):
        content = json.loads(result)
        content["counts"][key] = value
        (run.path / "result.json").write_text(json.dumps(content))
        with pytest.raises(ArtifactError, match=message):
            ecoc.load(run.path)


def test_the_choice_ranks_a_sample_of_many_cases(
    data: Dataset, plain: ecoc.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = open_cases(data, "validation", min_history=1, most=0, seed=0)
    policy = PolicyWithCounts(plain.model.policy, Transitions.count(open_train_sequences(data), ITEMS), 0.0)
    whole = choose_counts_weight(policy, data, cases, monitor="hr@1", exclude_seen=False)
    assert whole.cases == len(cases)
    monkeypatch.setattr(choice_module, "_CELLS", 50 * ITEMS)
    monkeypatch.setattr(choice_module, "_FEWEST", 20)
    assert choose_counts_weight(policy, data, cases, monitor="hr@1", exclude_seen=True).cases == 50


def test_experiments_and_presets_rank_without_counts(data: Dataset) -> None:
    for name in ("supervised", "ecoc", "ecoc-paper"):
        config = settings(variant_of(name), "sasrec", data, length=Length(10))
        assert config.train.counts == "off"
        assert "counts" not in recorded(config)["train"], "jobs of before are found"
    for preset in presets():
        assert open_preset(preset, encoder="sasrec", method="ecoc")["train"]["counts"] == "off"
