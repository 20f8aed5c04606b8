"""Ranks that an evaluation keeps: under which name, when they are used again and when they are not."""

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from evaluate_case import by_name, fresh_copies, judged_runs, kept, slow_means
from torch import Tensor

import ecoc
from ecoc.evaluation.evaluator import Options
from ecoc.storage.checkpoint import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judged_runs(tmp_path_factory.getbasetemp())


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    return fresh_copies(made, tmp_path)


def change_kept(run: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], None], name: str = "test") -> None:
    """Alter a kept evaluation, with a right checksum."""
    found = load_checkpoint(run / "evaluations", name)
    change(found.tensors, found.state)
    save_checkpoint(run / "evaluations", name, found.tensors, found.state)


def all_first(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    tensors["rank"].fill_(1)


def test_files_of_different_options_do_not_collide(runs: Path) -> None:
    choices: dict[str, dict[str, Any]] = {
        "test": {},
        "validation": {"split": "validation"},
        "test-exclude-seen": {"exclude_seen": True},
        "test-max-20-seed-0": {"max_cases": 20},
        "test-max-20-seed-1": {"max_cases": 20, "seed": 1},
        "validation-max-20-seed-1-exclude-seen": {
            "split": "validation",
            "max_cases": 20,
            "seed": 1,
            "exclude_seen": True,
        },
    }
    found = {
        name: ecoc.evaluate(runs / "sasrec", untrained=False, **choice).metrics for name, choice in choices.items()
    }
    names = {path.stem for path in (runs / "sasrec/evaluations").iterdir()}
    assert names == set(choices)
    for name in choices:
        assert load_checkpoint(runs / "sasrec/evaluations", name).state["metrics"] == found[name]


def test_every_choice_has_a_name_of_its_own() -> None:
    choices = list(product(("test", "validation"), (0, 1, 11), (False, True), (1, 2, 11), (0, 1, 11)))
    names: dict[str, tuple[Any, ...]] = {}
    for split, most, exclude_seen, min_history, seed in choices:
        name = Options(split, most, exclude_seen, min_history, seed).name
        means = (split, most, exclude_seen, min_history, seed if most else None)
        assert names.setdefault(name, means) == means


@pytest.mark.parametrize("run", ["markov", "tiny"])  # tiny: a list of 10 is longer than the catalogue
@pytest.mark.parametrize("exclude_seen", [False, True])
def test_kept_ranks_give_the_same_metrics(runs: Path, run: str, exclude_seen: bool) -> None:
    fresh = ecoc.evaluate(runs / run, exclude_seen=exclude_seen, untrained=False)
    again = ecoc.compare([runs / run], exclude_seen=exclude_seen, untrained=False).runs[0]
    assert again.metrics == fresh.metrics
    assert slow_means(kept(runs / run, "test-exclude-seen" if exclude_seen else "test")["rank"].numpy()) == (
        pytest.approx(fresh.metrics)
    )


def test_compare_does_not_rank_again_what_was_evaluated(runs: Path) -> None:
    ecoc.evaluate(runs / "sasrec", untrained=False)
    change_kept(runs / "sasrec", all_first)
    found = by_name(ecoc.compare([runs / "sasrec", runs / "other"], untrained=False))
    assert found["sasrec"]["hr@5"] == found["sasrec"]["mrr@5"] == 1
    assert found["other"]["hr@5"] < 1
    change_kept(runs / "other", all_first)  # compare has kept it
    assert by_name(ecoc.compare([runs / "sasrec", runs / "other"], untrained=False))["other"]["hr@5"] == 1


def test_evaluate_always_ranks_again(runs: Path) -> None:
    expected = ecoc.evaluate(runs / "sasrec", untrained=False).metrics
    change_kept(runs / "sasrec", all_first)
    assert ecoc.evaluate(runs / "sasrec", untrained=False).metrics == expected
    assert by_name(ecoc.compare([runs / "sasrec"], untrained=False))["sasrec"] == expected


def other_events(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    tensors["event"][0] += 1


def fewer_events(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    for name in ("event", "sequence", "rank"):
        tensors[name] = tensors[name][:-1]


def fewer_ranks(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    tensors["rank"] = tensors["rank"][:-1]


def other_weights(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    state["weights"] = "0" * 64


def other_data(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    state["data"] = "0" * 64


def without(key: str) -> Callable[[dict[str, Tensor], dict[str, Any]], None]:
    def change(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        tensors.pop(key, None)
        state.pop(key, None)

    return change


@pytest.mark.parametrize(
    "change",
    [
        other_events,
        fewer_events,
        fewer_ranks,
        other_weights,
        other_data,
        *(pytest.param(without(key), id=f"no {key}") for key in ("weights", "data", "lists", "event", "rank")),
    ],
)
def test_what_was_kept_of_something_else_is_ranked_again(
    runs: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], None]
) -> None:
    expected = ecoc.evaluate(runs / "markov", untrained=False).metrics
    change_kept(runs / "markov", all_first)
    change_kept(runs / "markov", change)
    assert by_name(ecoc.compare([runs / "markov"], untrained=False))["markov"] == expected
    assert slow_means(kept(runs / "markov")["rank"].numpy()) == pytest.approx(expected)  # and kept anew


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "gone"])
def test_a_damaged_kept_file_is_ranked_again(runs: Path, suffix: str, damage: str) -> None:
    expected = ecoc.evaluate(runs / "markov", untrained=False).metrics
    path = runs / "markov/evaluations" / f"test.{suffix}"
    content = path.read_bytes()
    middle = len(content) // 2
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(
            {
                "cut": content[:middle],
                "flip": content[:middle] + bytes([content[middle] ^ 0x80]) + content[middle + 1 :],
                "empty": b"",
            }[damage]
        )
    assert by_name(ecoc.compare([runs / "markov"], untrained=False))["markov"] == expected


def test_new_weights_are_ranked_again(runs: Path) -> None:
    ecoc.evaluate(runs / "sasrec", untrained=False)
    change_kept(runs / "sasrec", all_first)
    shutil.copytree(runs / "other/checkpoints", runs / "sasrec/checkpoints", dirs_exist_ok=True)
    shutil.copyfile(runs / "other/result.json", runs / "sasrec/result.json")  # as if trained again with another seed
    found = by_name(ecoc.compare([runs / "sasrec", runs / "other"], untrained=False))
    assert found["sasrec"] == found["other"]


def test_ranks_of_other_options_are_not_reused(runs: Path) -> None:
    ecoc.evaluate(runs / "markov", untrained=False)
    change_kept(runs / "markov", all_first)
    choices: list[dict[str, Any]] = [{"split": "validation"}, {"max_cases": 30}, {"exclude_seen": True}]
    for choice in choices:
        found = ecoc.compare([runs / "markov"], untrained=False, **choice)
        assert found.runs[0].metrics["hr@5"] < 1
        assert found.runs[0].metrics == ecoc.evaluate(runs / "markov", untrained=False, **choice).metrics


def test_compare_kept_and_fresh_are_the_same(runs: Path) -> None:
    fresh = ecoc.compare([runs / "sasrec", runs / "markov"], exclude_seen=True)
    assert ecoc.compare([runs / "sasrec", runs / "markov"], exclude_seen=True) == fresh
