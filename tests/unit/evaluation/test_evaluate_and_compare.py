"""`ecoc.evaluate` and `ecoc.compare`: what they answer, what they keep, what they refuse."""

import csv
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

import ecoc
from ecoc.data.loader import open_cases
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.evaluate import Options
from ecoc.evaluation.judge import is_seen
from ecoc.evaluation.metrics import NAMES
from ecoc.evaluation.statistics import bootstrap
from ecoc.model import load
from ecoc.storage import load_checkpoint, save_checkpoint

LENGTH, ITEMS = 6, 30
Row = tuple[str, str, int]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def prepared(path: Path, rows: Sequence[Row], **options: Any) -> Dataset:
    log = path.with_suffix(".csv")
    with log.open("w", newline="") as stream:
        csv.writer(stream).writerows([("user", "item", "ts"), *rows])
    return ecoc.prepare(log, path, user="user", item="item", time="ts", threads=1, **options)


def random_rows(users: int, items: int, rows: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    chosen = np.append(np.arange(items), rng.geometric(0.1, rows - items) % items)
    owners = rng.geometric(2 / users, rows) % users  # some come often, some twice
    return [
        (f"u{user}", f"i{item}", 1_600_000_000 + k)
        for k, (user, item) in enumerate(zip(owners.tolist(), chosen.tolist(), strict=True))
    ]


def trained(data: Dataset, path: Path, name: str, **train: Any) -> Path:
    encoder = {"length": LENGTH} | ({"dim": 8} if name == "sasrec" else {})
    settings = {"encoder": encoder, "train": {"max_steps": 10, "threads": 1, **train}}
    ecoc.train(data, path, method="supervised" if name == "sasrec" else name, settings=settings)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets and runs, never judged; tests copy what they change."""
    path = tmp_path_factory.mktemp("made")
    data = prepared(path / "data", random_rows(40, ITEMS, 600, seed=0), validation=0.2)
    trained(data, path / "sasrec", "sasrec")
    trained(data, path / "other", "sasrec", seed=1)
    trained(data, path / "later", "sasrec", min_history=3)
    trained(data, path / "markov", "markov")
    trained(data, path / "popular", "popular")
    foreign = prepared(path / "foreign_data", random_rows(40, ITEMS, 600, seed=1))
    trained(foreign, path / "foreign", "markov")
    tiny = prepared(path / "tiny_data", random_rows(15, 8, 150, seed=2))
    trained(tiny, path / "tiny", "markov")
    return path


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """Fresh copies of all runs."""
    for name in ("sasrec", "other", "later", "markov", "popular", "foreign", "tiny"):
        shutil.copytree(made / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def data(made: Path) -> Dataset:
    return ecoc.open_data(made / "data")


def kept(run: Path, name: str = "test") -> dict[str, Tensor]:
    return dict(load_file(run / "evaluations" / f"{name}.safetensors"))


def change_kept(run: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], None], name: str = "test") -> None:
    """Alter a kept evaluation, with a right checksum."""
    found = load_checkpoint(run / "evaluations", name)
    change(found.tensors, found.state)
    save_checkpoint(run / "evaluations", name, found.tensors, found.state)


def all_first(tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    tensors["rank"].fill_(1)


def slow_means(ranks: NDArray[np.float64]) -> dict[str, float]:
    sums = dict.fromkeys(NAMES, 0.0)
    for rank in ranks.tolist():
        for k in (5, 10, 20):
            if rank <= k:
                sums[f"hr@{k}"] += 1
                sums[f"mrr@{k}"] += 1 / rank
                sums[f"ndcg@{k}"] += 1 / np.log2(rank + 1)
    return {name: value / len(ranks) for name, value in sums.items()}


def untimed(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != "seconds"}


def by_name(found: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {run["name"]: run["metrics"] for run in found["runs"]}


def test_metrics_are_means_over_the_kept_ranks(runs: Path, data: Dataset) -> None:
    found = ecoc.evaluate(runs / "sasrec")
    tensors = kept(runs / "sasrec")
    assert found["metrics"] == pytest.approx(slow_means(tensors["rank"].numpy()))
    assert found["cases"] == len(tensors["rank"]) == data.counts.test_targets
    sequence = tensors["sequence"].numpy()
    assert found["users"] == len({data.sequence(int(number)).user for number in sequence})
    assert found["items"] == ITEMS
    cases = open_cases(data, "test", min_history=1, most=0, seed=0)
    assert np.array_equal(tensors["event"].numpy(), cases.event)
    assert np.array_equal(sequence, cases.sequence)
    assert set(found["metrics"]) == set(found["intervals"]) == set(NAMES)
    for name, (low, high) in found["intervals"].items():
        assert 0 <= low <= found["metrics"][name] <= high <= 1
    json.dumps(found, allow_nan=False)


def test_seen_and_new_targets_are_a_partition(runs: Path, data: Dataset) -> None:
    found = ecoc.evaluate(runs / "sasrec")
    ranks = kept(runs / "sasrec")["rank"].numpy()
    seen = is_seen(data, open_cases(data, "test", min_history=1, most=0, seed=0))
    assert found["seen"]["cases"] == seen.sum() > 0
    assert found["new"]["cases"] == (~seen).sum() > 0
    assert found["seen"]["metrics"] == pytest.approx(slow_means(ranks[seen]))
    assert found["new"]["metrics"] == pytest.approx(slow_means(ranks[~seen]))
    for row in [found, *found["untrained"]]:
        for name in NAMES:
            blended = sum(row[part]["cases"] * row[part]["metrics"][name] for part in ("seen", "new"))
            assert blended / found["cases"] == pytest.approx(row["metrics"][name])


def test_untrained_rows_are_what_their_own_runs_get(runs: Path) -> None:
    rows = {row["name"]: row for row in ecoc.evaluate(runs / "sasrec")["untrained"]}
    assert list(rows) == ["popular", "recent", "markov"]
    for name in ("popular", "markov"):
        alone = ecoc.evaluate(runs / name, untrained=False)
        assert alone["untrained"] == []
        assert {key: alone[key] for key in rows[name] if key != "name"} == {
            key: value for key, value in rows[name].items() if key != "name"
        }


def test_the_validation_split_holds_other_cases(runs: Path, data: Dataset) -> None:
    found = ecoc.evaluate(runs / "sasrec", split="validation", untrained=False)
    tensors = kept(runs / "sasrec", "validation")
    expected = [
        int(data.offsets[number]) + place
        for number in range(len(data))
        if data.is_validation[number]
        for place in range(1, int(data.train_lengths[number]))
    ]
    assert tensors["event"].tolist() == expected
    assert found["split"] == "validation"
    assert found["cases"] == len(expected)
    assert found["metrics"] == pytest.approx(slow_means(tensors["rank"].numpy()))
    assert not (runs / "sasrec/evaluations/test.json").exists()


def test_min_history_of_the_run_decides_what_is_judged(runs: Path, data: Dataset) -> None:
    found = ecoc.evaluate(runs / "later", untrained=False)
    tensors = kept(runs / "later", "test-after-3")
    past = tensors["event"].numpy() - np.asarray(data.offsets)[tensors["sequence"].numpy()]
    assert past.min() >= 3
    everything = open_cases(data, "test", min_history=1, most=0, seed=0)
    expected = everything.event - np.asarray(data.offsets)[everything.sequence] >= 3
    assert found["cases"] == expected.sum() < len(everything)


def test_a_sample_depends_on_its_seed_only(runs: Path) -> None:
    whole = ecoc.evaluate(runs / "sasrec", untrained=False)
    first = ecoc.evaluate(runs / "sasrec", max_cases=40, seed=3, untrained=False)
    events = kept(runs / "sasrec", "test-max-40-seed-3")["event"].tolist()
    assert first["cases"] == len(set(events)) == 40
    assert events == sorted(events)
    everything = kept(runs / "sasrec")
    assert set(events) <= set(everything["event"].tolist())
    rank_of = dict(zip(everything["event"].tolist(), everything["rank"].tolist(), strict=True))
    assert kept(runs / "sasrec", "test-max-40-seed-3")["rank"].tolist() == [rank_of[event] for event in events]
    assert untimed(ecoc.evaluate(runs / "sasrec", max_cases=40, seed=3, untrained=False)) == untimed(first)
    ecoc.evaluate(runs / "other", max_cases=40, seed=3, untrained=False)
    assert kept(runs / "other", "test-max-40-seed-3")["event"].tolist() == events
    ecoc.evaluate(runs / "sasrec", max_cases=40, seed=4, untrained=False)
    assert kept(runs / "sasrec", "test-max-40-seed-4")["event"].tolist() != events
    more = ecoc.evaluate(runs / "sasrec", max_cases=10**6, untrained=False)
    assert more["metrics"] == whole["metrics"]


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
        name: ecoc.evaluate(runs / "sasrec", untrained=False, **choice)["metrics"] for name, choice in choices.items()
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


def test_a_model_and_its_path_and_its_dataset_are_the_same(runs: Path, data: Dataset) -> None:
    expected = untimed(ecoc.evaluate(runs / "sasrec"))
    model = load(runs / "sasrec")
    model.policy.train()  # as a notebook may have left it
    before, count = torch.get_rng_state(), torch.get_num_threads()
    assert untimed(ecoc.evaluate(model, data)) == expected
    assert model.policy.training
    assert untimed(ecoc.evaluate(str(runs / "sasrec"), str(data.path))) == expected
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == count


def test_progress_reaches_the_end_of_each_stage(runs: Path) -> None:
    told: dict[str, tuple[float, float]] = {}

    def watch(stage: str, done: float, total: float, /, note: str = "") -> None:
        told[stage] = done, total

    cases = ecoc.evaluate(runs / "sasrec", progress=watch)["cases"]
    assert told == {f"rank {name}": (cases, cases) for name in ("sasrec", "popular", "recent", "markov")}


def test_users_are_resampled_not_their_sequences(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = [
        (f"u{user}", f"i{rng.integers(25)}", 1_600_000_000 + 100_000 * session + 60 * place)
        for user in range(9)
        for session in range(5)
        for place in range(6)
    ]
    data = prepared(tmp_path / "data", rows, session_gap="8h", split="leave-one-out", validation=0.1)
    assert len(data) == 45
    assert data.counts.users == 9
    names = [data.sequence(number).user for number in range(len(data))]
    assert len(set(data.users.tolist())) == 9
    assert len(set(zip(names, data.users.tolist(), strict=True))) == 9  # one number a name, one name a number
    run = trained(data, tmp_path / "run", "markov")
    found = ecoc.evaluate(run, untrained=False)
    assert (found["cases"], found["users"]) == (45, 9)
    ranks = kept(run)["rank"].numpy()
    values = np.array([[float(rank <= 10) for rank in ranks]])
    owners = np.array([sorted(set(names)).index(names[number]) for number in kept(run)["sequence"].tolist()])
    by_user, by_sequence = bootstrap(values, owners)[0], bootstrap(values, np.arange(45))[0]
    assert found["intervals"]["hr@10"] == pytest.approx(by_user.tolist())
    assert by_user.tolist() != pytest.approx(by_sequence.tolist())
    compared = ecoc.compare([run], untrained=False)
    assert (compared["cases"], compared["users"]) == (45, 9)


def test_sequences_of_single_users_number_them(data: Dataset) -> None:
    assert data.users.tolist() == list(range(len(data)))


def test_excluded_targets_are_missed(runs: Path) -> None:
    found = ecoc.evaluate(runs / "sasrec", exclude_seen=True)
    for row in [found, *found["untrained"]]:
        assert set(row["seen"]["metrics"].values()) == {0.0}
        assert row["new"]["metrics"]["hr@20"] > 0


@pytest.mark.parametrize("run", ["markov", "tiny"])  # tiny: a list of 10 is longer than the catalogue
@pytest.mark.parametrize("exclude_seen", [False, True])
def test_kept_ranks_give_the_same_metrics(runs: Path, run: str, exclude_seen: bool) -> None:
    fresh = ecoc.evaluate(runs / run, exclude_seen=exclude_seen, untrained=False)
    again = ecoc.compare([runs / run], exclude_seen=exclude_seen, untrained=False)["runs"][0]
    assert again["metrics"] == fresh["metrics"]
    assert slow_means(kept(runs / run, "test-exclude-seen" if exclude_seen else "test")["rank"].numpy()) == (
        pytest.approx(fresh["metrics"])
    )


def test_who_has_seen_the_whole_catalogue_can_be_judged(tmp_path: Path) -> None:
    rows = [(f"u{k % 5}", f"i{k // 5 % 2}", 1_600_000_000 + k) for k in range(50)]
    run = trained(prepared(tmp_path / "data", rows), tmp_path / "run", "popular")
    found = ecoc.evaluate(run, exclude_seen=True, untrained=False)  # no item is left to list
    assert set(found["metrics"].values()) == {0.0}
    assert found["coverage@10"] == 0
    json.dumps(found, allow_nan=False)


def test_compare_does_not_rank_again_what_was_evaluated(runs: Path) -> None:
    ecoc.evaluate(runs / "sasrec", untrained=False)
    change_kept(runs / "sasrec", all_first)
    found = by_name(ecoc.compare([runs / "sasrec", runs / "other"], untrained=False))
    assert found["sasrec"]["hr@5"] == found["sasrec"]["mrr@5"] == 1
    assert found["other"]["hr@5"] < 1
    change_kept(runs / "other", all_first)  # compare has kept it
    assert by_name(ecoc.compare([runs / "sasrec", runs / "other"], untrained=False))["other"]["hr@5"] == 1


def test_evaluate_always_ranks_again(runs: Path) -> None:
    expected = ecoc.evaluate(runs / "sasrec", untrained=False)["metrics"]
    change_kept(runs / "sasrec", all_first)
    assert ecoc.evaluate(runs / "sasrec", untrained=False)["metrics"] == expected
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
    expected = ecoc.evaluate(runs / "markov", untrained=False)["metrics"]
    change_kept(runs / "markov", all_first)
    change_kept(runs / "markov", change)
    assert by_name(ecoc.compare([runs / "markov"], untrained=False))["markov"] == expected
    assert slow_means(kept(runs / "markov")["rank"].numpy()) == pytest.approx(expected)  # and kept anew


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "gone"])
def test_a_damaged_kept_file_is_ranked_again(runs: Path, suffix: str, damage: str) -> None:
    expected = ecoc.evaluate(runs / "markov", untrained=False)["metrics"]
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
        assert found["runs"][0]["metrics"]["hr@5"] < 1
        assert found["runs"][0]["metrics"] == ecoc.evaluate(runs / "markov", untrained=False, **choice)["metrics"]


def test_differences_are_antisymmetric(runs: Path) -> None:
    there = ecoc.compare([runs / "sasrec", runs / "markov"], untrained=False, names=NAMES)
    back = ecoc.compare([runs / "markov", runs / "sasrec"], untrained=False, names=NAMES)
    assert by_name(there) == by_name(back)
    assert len(there["pairs"]) == len(back["pairs"]) == len(NAMES)
    means = by_name(there)
    for one, other in zip(there["pairs"], back["pairs"], strict=True):
        assert (one["a"], one["b"], one["metric"]) == (other["b"], other["a"], other["metric"])
        assert one["difference"] == pytest.approx(-other["difference"], abs=1e-12)
        assert one["difference"] == pytest.approx(means[one["a"]][one["metric"]] - means[one["b"]][one["metric"]])
        assert one["low"] == pytest.approx(-other["high"], abs=1e-12)
        assert one["high"] == pytest.approx(-other["low"], abs=1e-12)
        assert (one["p"], one["p_holm"]) == pytest.approx((other["p"], other["p_holm"]))


def test_a_run_against_itself_differs_in_nothing_and_names_are_numbered(runs: Path) -> None:
    found = ecoc.compare([runs / "markov", runs / "markov", runs / "markov"], names=NAMES)
    names = [run["name"] for run in found["runs"]]
    assert names == ["markov", "markov (2)", "markov (3)", "popular", "recent", "markov (4)"]
    same = [pair for pair in found["pairs"] if pair["b"].startswith("markov")]
    assert len(same) == (3 + 3) * len(NAMES)  # among the three, and each with the untrained one
    for pair in same:
        assert pair["difference"] == pair["low"] == pair["high"] == 0
        assert pair["p"] == pair["p_holm"] == 1


def test_a_run_may_bear_the_name_of_an_untrained_method(runs: Path) -> None:
    (runs / "sasrec").rename(runs / "recent")
    found = ecoc.compare([runs / "recent", runs / "popular"])
    assert [run["name"] for run in found["runs"]] == ["recent", "popular", "popular (2)", "recent (2)", "markov"]
    assert by_name(found)["popular"] == by_name(found)["popular (2)"]
    assert by_name(found)["recent"] != by_name(found)["recent (2)"]


def test_one_run_is_paired_with_the_untrained_only(runs: Path) -> None:
    found = ecoc.compare([runs / "sasrec"], names=["hr@5", "ndcg@20"])
    assert [(pair["a"], pair["b"], pair["metric"]) for pair in found["pairs"]] == [
        ("sasrec", name, metric) for name in ("popular", "recent", "markov") for metric in ("hr@5", "ndcg@20")
    ]
    alone = ecoc.compare([runs / "sasrec"], untrained=False)
    assert alone["pairs"] == []
    assert alone["runs"][0] == found["runs"][0]


def test_two_runs_are_paired_once_and_each_with_the_untrained(runs: Path) -> None:
    found = ecoc.compare([runs / "sasrec", runs / "other"])
    couples = {(pair["a"], pair["b"]) for pair in found["pairs"]}
    untrained = ("popular", "recent", "markov")
    assert couples == {("sasrec", "other")} | {(run, name) for run in ("sasrec", "other") for name in untrained}
    assert len(found["pairs"]) == 3 * len(couples)
    for pair in found["pairs"]:
        assert pair["low"] <= pair["difference"] <= pair["high"]
        assert 0 < pair["p"] <= pair["p_holm"] <= 1
    json.dumps(found, allow_nan=False)


def test_compare_and_evaluate_agree(runs: Path) -> None:
    found = ecoc.compare([runs / "sasrec"])
    expected = ecoc.evaluate(runs / "sasrec")
    rows = [{"name": "sasrec", **expected}, *expected["untrained"]]
    for one, other in zip(found["runs"], rows, strict=True):
        assert one == {key: other[key] for key in one}
    assert (found["cases"], found["users"], found["data"]) == (expected["cases"], expected["users"], expected["data"])


def test_compare_kept_and_fresh_are_the_same(runs: Path) -> None:
    fresh = ecoc.compare([runs / "sasrec", runs / "markov"], exclude_seen=True)
    assert ecoc.compare([runs / "sasrec", runs / "markov"], exclude_seen=True) == fresh


def test_untrained_rows_do_not_depend_on_the_order_of_runs(runs: Path, data: Dataset) -> None:
    settings = {"encoder": {"length": 2}, "train": {"threads": 1}}
    ecoc.train(data, runs / "short", method="markov", settings=settings)
    there = by_name(ecoc.compare([runs / "markov", runs / "short"]))
    back = by_name(ecoc.compare([runs / "short", runs / "markov"]))
    assert there == back


def test_runs_on_other_data_are_not_compared(runs: Path, made: Path) -> None:
    for pair in (("sasrec", "foreign"), ("foreign", "sasrec")):
        with pytest.raises(InputError, match="trained on other data"):
            ecoc.compare([runs / name for name in pair])
    with pytest.raises(InputError, match="trained on other data"):
        ecoc.evaluate(runs / "sasrec", made / "foreign_data")
    with pytest.raises(InputError, match="trained on other data"):
        ecoc.compare([runs / "sasrec"], ecoc.open_data(made / "foreign_data"))


def test_runs_with_other_min_history_are_not_compared(runs: Path) -> None:
    for pair in (("sasrec", "later"), ("later", "sasrec"), ("sasrec", "other", "later")):
        with pytest.raises(InputError, match="min_history"):
            ecoc.compare([runs / name for name in pair])


@pytest.mark.parametrize("last", ["later", "foreign"])
def test_what_cannot_be_compared_is_refused_before_any_work(runs: Path, last: str) -> None:
    with pytest.raises(InputError):
        ecoc.compare([runs / "sasrec", runs / last], untrained=False)
    assert not (runs / "sasrec/evaluations").exists()


@pytest.mark.parametrize("name", ["ndcg@7", "NDCG@10", "hr", "", "hr@10 "])
def test_an_unknown_metric_is_refused_before_runs_are_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"unknown metric .*hr@10"):
        ecoc.compare([tmp_path / "nowhere"], names=["hr@10", name])


def test_a_moved_dataset_is_asked_for(tmp_path: Path) -> None:
    data = prepared(tmp_path / "data", random_rows(10, 12, 100, seed=3))
    run = trained(data, tmp_path / "run", "markov")
    expected = ecoc.evaluate(run)
    moved = (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(InputError, match=r"no longer at .*--data"):
        ecoc.evaluate(run)
    with pytest.raises(InputError, match=r"no longer at .*--data"):
        ecoc.compare([run, run])
    found = ecoc.evaluate(run, moved)
    assert found["data"] == str(moved)
    assert found["metrics"] == expected["metrics"]
    assert ecoc.compare([run, run], moved)["cases"] == expected["cases"]


def test_a_split_without_cases_is_an_input_error(tmp_path: Path) -> None:
    data = prepared(tmp_path / "data", random_rows(10, 12, 100, seed=3), validation=0.0)
    run = trained(data, tmp_path / "run", "markov")
    with pytest.raises(InputError, match="validation split has no case"):
        ecoc.evaluate(run, split="validation")
    with pytest.raises(InputError, match="validation split has no case"):
        ecoc.compare([run], split="validation")
    assert not (run / "evaluations").exists()


@pytest.mark.parametrize(
    "choice",
    [
        {"split": "train"},
        {"split": "tset"},
        {"split": None},
        {"max_cases": -1},
        {"max_cases": -5},
        {"max_cases": 5, "seed": -1},
    ],
    ids=str,
)
def test_wrong_choices_are_input_errors_in_python_too(runs: Path, choice: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ecoc.evaluate(runs / "markov", untrained=False, **choice)
    with pytest.raises(InputError):
        ecoc.compare([runs / "markov"], untrained=False, **choice)
    assert not (runs / "markov/evaluations").exists()


def test_nothing_to_compare_is_an_input_error() -> None:
    with pytest.raises(InputError):
        ecoc.compare([])
