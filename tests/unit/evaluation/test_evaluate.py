"""`ecoc.evaluate`: what is judged, what the answer holds, and that nothing else changes it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evaluate_case import ITEMS, fresh_copies, judged_runs, kept, prepared, slow_means, trained

import ecoc
from ecoc.data.loader import open_cases
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.evaluation.metrics import NAMES
from ecoc.evaluation.ranks import is_seen
from ecoc.evaluation.results import Baseline, EvaluationResult
from ecoc.evaluation.statistics import bootstrap
from ecoc.model import load

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judged_runs(tmp_path_factory.getbasetemp())


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    return fresh_copies(made, tmp_path)


@pytest.fixture
def data(made: Path) -> Dataset:
    return ecoc.open_data(made / "data")


def untimed(found: EvaluationResult) -> dict[str, Any]:
    return found.model_dump(exclude={"seconds"})


def test_metrics_are_means_over_the_kept_ranks(runs: Path, data: Dataset) -> None:
    found = ecoc.evaluate(runs / "sasrec")
    tensors = kept(runs / "sasrec")
    assert found.metrics == pytest.approx(slow_means(tensors["rank"].numpy()))
    assert found.cases == len(tensors["rank"]) == data.counts.test_targets
    sequence = tensors["sequence"].numpy()
    assert found.users == len({data.sequence(int(number)).user for number in sequence})
    assert found.items == ITEMS
    cases = open_cases(data, "test", min_history=1, most=0, seed=0)
    assert np.array_equal(tensors["event"].numpy(), cases.event)
    assert np.array_equal(sequence, cases.sequence)
    assert set(found.metrics) == set(found.intervals) == set(NAMES)
    for name, (low, high) in found.intervals.items():
        assert 0 <= low <= found.metrics[name] <= high <= 1
    json.dumps(found.model_dump(), allow_nan=False)


def test_seen_and_new_targets_are_a_partition(runs: Path, data: Dataset) -> None:
    found = ecoc.evaluate(runs / "sasrec")
    ranks = kept(runs / "sasrec")["rank"].numpy()
    seen = is_seen(data, open_cases(data, "test", min_history=1, most=0, seed=0))
    assert found.seen.cases == seen.sum() > 0
    assert found.new.cases == (~seen).sum() > 0
    assert found.seen.metrics == pytest.approx(slow_means(ranks[seen]))
    assert found.new.metrics == pytest.approx(slow_means(ranks[~seen]))
    rows: list[EvaluationResult | Baseline] = [found, *found.untrained]
    for row in rows:
        for name in NAMES:
            assert row.seen.metrics and row.new.metrics
            blended = sum(part.cases * part.metrics[name] for part in (row.seen, row.new) if part.metrics)
            assert blended / found.cases == pytest.approx(row.metrics[name])


def test_untrained_rows_are_what_their_own_runs_get(runs: Path) -> None:
    rows = {row.name: row for row in ecoc.evaluate(runs / "sasrec").untrained}
    assert list(rows) == ["popular", "recent", "markov"]
    for name in ("popular", "markov"):
        alone = ecoc.evaluate(runs / name, untrained=False)
        assert alone.untrained == []
        assert alone.model_dump(include=set(Baseline.model_fields)) == rows[name].model_dump(exclude={"name"})


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
    assert found.split == "validation"
    assert found.cases == len(expected)
    assert found.metrics == pytest.approx(slow_means(tensors["rank"].numpy()))
    assert not (runs / "sasrec/evaluations/test.json").exists()


def test_min_history_of_the_run_decides_what_is_judged(runs: Path, data: Dataset) -> None:
    found = ecoc.evaluate(runs / "later", untrained=False)
    tensors = kept(runs / "later", "test-after-3")
    past = tensors["event"].numpy() - np.asarray(data.offsets)[tensors["sequence"].numpy()]
    assert past.min() >= 3
    everything = open_cases(data, "test", min_history=1, most=0, seed=0)
    expected = everything.event - np.asarray(data.offsets)[everything.sequence] >= 3
    assert found.cases == expected.sum() < len(everything)


def test_a_sample_depends_on_its_seed_only(runs: Path) -> None:
    whole = ecoc.evaluate(runs / "sasrec", untrained=False)
    first = ecoc.evaluate(runs / "sasrec", max_cases=40, seed=3, untrained=False)
    events = kept(runs / "sasrec", "test-max-40-seed-3")["event"].tolist()
    assert first.cases == len(set(events)) == 40
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
    assert more.metrics == whole.metrics


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

    cases = ecoc.evaluate(runs / "sasrec", progress=watch).cases
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
    assert (found.cases, found.users) == (45, 9)
    ranks = kept(run)["rank"].numpy()
    values = np.array([[float(rank <= 10) for rank in ranks]])
    owners = np.array([sorted(set(names)).index(names[number]) for number in kept(run)["sequence"].tolist()])
    by_user, by_sequence = bootstrap(values, owners)[0], bootstrap(values, np.arange(45))[0]
    assert found.intervals["hr@10"] == pytest.approx(by_user.tolist())
    assert by_user.tolist() != pytest.approx(by_sequence.tolist())
    compared = ecoc.compare([run], untrained=False)
    assert (compared.cases, compared.users) == (45, 9)


def test_sequences_of_single_users_number_them(data: Dataset) -> None:
    assert data.users.tolist() == list(range(len(data)))


def test_excluded_targets_are_missed(runs: Path) -> None:
    found = ecoc.evaluate(runs / "sasrec", exclude_seen=True)
    rows: list[EvaluationResult | Baseline] = [found, *found.untrained]
    for row in rows:
        assert row.seen.metrics and row.new.metrics
        assert set(row.seen.metrics.values()) == {0.0}
        assert row.new.metrics["hr@20"] > 0


def test_who_has_seen_the_whole_catalogue_can_be_judged(tmp_path: Path) -> None:
    rows = [(f"u{k % 5}", f"i{k // 5 % 2}", 1_600_000_000 + k) for k in range(50)]
    run = trained(prepared(tmp_path / "data", rows), tmp_path / "run", "popular")
    found = ecoc.evaluate(run, exclude_seen=True, untrained=False)  # no item is left to list
    assert set(found.metrics.values()) == {0.0}
    assert found.coverage == 0
    json.dumps(found.model_dump(), allow_nan=False)


@pytest.mark.parametrize("exclude_seen", [False, True])
def test_a_note_says_that_recent_equals_popular_where_the_past_is_left_out(runs: Path, exclude_seen: bool) -> None:
    result = ecoc.evaluate(runs / "sasrec", exclude_seen=exclude_seen)
    popular, recent = (row.metrics for row in result.untrained[:2])
    noted = any("recent equals popular" in note for note in result.notes)
    assert (popular == recent) == noted == exclude_seen
    compared = ecoc.compare([runs / "sasrec"], exclude_seen=exclude_seen)
    assert any("recent equals popular" in note for note in compared.notes) == exclude_seen
    assert ecoc.evaluate(runs / "sasrec", exclude_seen=exclude_seen, untrained=False).notes == []


def test_a_result_prints_as_a_table_and_becomes_a_frame(runs: Path) -> None:
    result = ecoc.evaluate(runs / "sasrec", metrics=["hr@10", "ndcg@5"], exclude_seen=True)
    heading, columns, *lines = str(result).splitlines()
    assert heading == f"EvaluationResult: {runs / 'sasrec'}, test split, {result.cases} cases of {result.users} users"
    assert columns.split() == ["policy", "hr@10", "ndcg@5"]
    assert [line.split()[0] for line in lines[:4]] == ["sasrec", "popular", "recent", "markov"]
    assert lines[0].split()[1] == f"{result.metrics['hr@10']:.4f}"
    assert lines[4:] == [f"  {note}" for note in result.notes]
    assert repr(result) == f"<{heading}>"
    frame = result.to_frame()
    assert list(frame.columns) == ["policy", "ranking_mode", "metric", "value", "low", "high"]
    assert frame["value"].tolist()[:2] == list(result.metrics.values())
    assert (frame["low"][0], frame["high"][0]) == result.intervals["hr@10"]
    assert frame["low"][2:].isna().all()
    compared = ecoc.compare([runs / "sasrec"], max_cases=30)
    assert compared.to_table().num_rows == len(compared.pairs) == 9
    assert "markov" in str(compared)


def without_repeats(folder: Path) -> Dataset:
    """A log in which nobody takes an item twice."""
    events = [(user, (7 * user + k) % 60, 100 * k + user) for user in range(40) for k in range(9)]
    rows = [(f"u{user}", f"i{item}", 1_600_000_000 + second) for user, item, second in events]
    return prepared(folder / "data", rows, split="leave-one-out", validation=0.2)


def test_seen_items_are_left_out_by_default_as_in_training(tmp_path: Path) -> None:
    data = without_repeats(tmp_path)
    run = trained(data, tmp_path / "run", "sasrec")
    other = trained(data, tmp_path / "other", "markov", exclude_seen=False)
    config = ecoc.Run(run).config()
    assert config.train.exclude_seen
    by_default, without_seen = ecoc.evaluate(run), ecoc.evaluate(run, exclude_seen=True)
    assert by_default.exclude_seen
    assert by_default.metrics == without_seen.metrics != ecoc.evaluate(run, exclude_seen=False).metrics
    assert any("--keep-seen" in note for note in by_default.notes)
    assert not any("--keep-seen" in note for note in without_seen.notes)
    assert ecoc.compare([run]).exclude_seen
    assert not ecoc.evaluate(other).exclude_seen
    with pytest.raises(InputError, match=r"differ in train\.exclude_seen; pass --exclude-seen or --keep-seen"):
        ecoc.compare([run, other])
    assert not ecoc.compare([run, other], exclude_seen=False).exclude_seen


def test_validation_leaves_out_seen_items_as_the_setting_says(tmp_path: Path) -> None:
    data = without_repeats(tmp_path)
    for exclude_seen in (False, True):
        path = trained(data, tmp_path / str(exclude_seen), "sasrec", exclude_seen=exclude_seen, counts="off")
        validated = ecoc.Run(path).result.validation
        ranked = ecoc.evaluate(path, split="validation", exclude_seen=exclude_seen).metrics
        assert validated == pytest.approx(ranked)
