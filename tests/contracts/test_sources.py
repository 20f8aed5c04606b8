"""Contracts of every source in the registry, on small files in its true raw format."""

import dataclasses
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_logs import UNSHUFFLED, WRITERS
from raw_rows import Case
from slow_reference import slow_prepare

import ecoc
from ecoc.data.schema import Reason
from ecoc.data.sources import SOURCES, BadRows, Fields, Reader, Source
from ecoc.data.sources.taobao import Taobao
from ecoc.errors import InputError
from ecoc.testing import check_source
from ecoc.testing.sources import SOURCE_CHECKS, PreparedFiles, SourceCase, leaks, read_files

VARIANTS = [(source, variant) for source in WRITERS for variant in WRITERS[source]]
SHUFFLED = [pair for pair in VARIANTS if pair[0] not in UNSHUFFLED]


@dataclass(frozen=True)
class Prepared:
    """A raw dataset, where it was prepared to, and what lies there."""

    source: str
    case: Case
    contract: SourceCase

    @property
    def files(self) -> PreparedFiles:
        return self.contract.files

    def again(self, name: str, **options: Any) -> Path:
        return self.contract.prepare(name, **options)


def contract_of(source: str, case: Case, folder: Path) -> SourceCase:
    paths = case.source if isinstance(case.source, list) else [case.source]
    return SourceCase(source, paths, folder, {"bad_rows": "skip", **case.options})


def run(source: str, case: Case, out: Path, **options: Any) -> Path:
    return contract_of(source, case, out.parent).prepare(out.name, **options)


def written(source: str, variant: str, folder: Path, shuffle: int | None = None) -> Case:
    folder.mkdir()
    return WRITERS[source][variant](folder, None if shuffle is None else random.Random(shuffle))


@pytest.fixture(scope="module", params=VARIANTS, ids=" ".join)
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    source, variant = request.param
    folder = tmp_path_factory.mktemp(source)
    case = written(source, variant, folder / "raw")
    return Prepared(source, case, contract_of(source, case, folder))


def test_every_source_has_a_raw_file_to_be_tested_with() -> None:
    assert set(SOURCES) == set(WRITERS)
    assert all(WRITERS.values())


@pytest.mark.parametrize("contract", SOURCE_CHECKS)
def test_every_source_keeps_every_contract(prepared: Prepared, contract: str) -> None:
    SOURCE_CHECKS[contract](prepared.contract)


def test_every_event_is_that_of_a_slow_preparation(prepared: Prepared) -> None:
    expected = slow_prepare(prepared.case)
    assert prepared.files.sequences() == expected.sequences
    assert prepared.files.names == list(expected.sequences)
    assert prepared.files.manifest["cut"] == expected.cut
    assert prepared.files.manifest["feedback"]["names"] == list(prepared.case.feedback)
    assert prepared.files.manifest["time_unit"] == prepared.case.time_unit
    tied = read_files(prepared.again("tied", ties="item"))
    assert tied.sequences() == slow_prepare(prepared.case, ties="item").sequences


def test_the_data_exercise_the_rules(prepared: Prepared) -> None:
    """A contract on rows that no rule touches would hold for any code."""
    expected = slow_prepare(prepared.case)
    assert expected.dropped.get("unseen_in_train") or prepared.source == "world"
    assert expected.dropped.get("duplicate") or prepared.case.dedup == "none"
    assert expected.dropped.get("rare_item") or prepared.case.min_item_support == 1
    assert expected.dropped.get("short_sequence") or prepared.source in {"rl4rs", "world"}
    assert sum(length for _, length in expected.sequences.values()) > 100
    assert sum(len(events) - length for events, length in expected.sequences.values()) > 10


def test_rows_in_are_rows_kept_and_rows_dropped_by_reason(prepared: Prepared) -> None:
    manifest, expected = prepared.files.manifest, slow_prepare(prepared.case)
    assert manifest["rows_in"] == prepared.case.rows_in
    assert manifest["dropped"] == expected.dropped
    assert list(manifest["dropped"]) == [str(reason) for reason in Reason if reason in expected.dropped]


def test_a_tenth_of_the_sequences_is_held_out(prepared: Prepared) -> None:
    files = prepared.files
    eligible = sum(train >= 2 for _, train in files.sequences().values())
    assert abs(files.manifest["counts"]["validation_sequences"] - 0.1 * eligible) <= 0.5 + 1e-9
    assert files.manifest["steps"][-1]["interactions"] == files.manifest["counts"]["interactions"]


def test_items_carry_what_the_source_knows_of_them(prepared: Prepared) -> None:
    known = 0
    for row in prepared.files.items:
        facts = prepared.case.facts.get(row["item"])
        found = {part: row[part] for part in ("title", "price", "category")}
        assert found == (dataclasses.asdict(facts) if facts else dict.fromkeys(found)), row["item"]
        known += facts is not None
    assert known > 5


def test_test_targets_keep_their_full_earlier_history(prepared: Prepared) -> None:
    """Before a test event stand all kept events of its user and sequence that came earlier, training ones included."""
    if prepared.case.split == "source":
        lengths = [(len(events), train) for events, train in prepared.files.sequences().values()]
        assert all(train in {0, length} and length in {7, 8, 9} for length, train in lengths)
        return
    expected, targets = slow_prepare(prepared.case), 0
    for key, (events, train) in prepared.files.sequences().items():
        whole, _ = expected.sequences[key]
        for place in range(max(1, train), len(events)):
            assert events[:place] == whole[:place]
            assert {event[3] for event in events[:train]} <= {event[3] for event in events[:place]}
            targets += train > 0
    assert targets or prepared.source == "world"


@pytest.mark.parametrize(("source", "variant"), SHUFFLED)
def test_shuffled_rows_give_the_same_bytes_when_items_break_ties(source: str, variant: str, tmp_path: Path) -> None:
    plain = run(source, written(source, variant, tmp_path / "raw"), tmp_path / "plain", ties="item")
    for seed in (1, 2):
        case = written(source, variant, tmp_path / f"raw{seed}", shuffle=seed)
        out = run(source, case, tmp_path / f"out{seed}", ties="item", threads=2)
        assert (out / "manifest.json").read_bytes() == (plain / "manifest.json").read_bytes()


def test_shuffled_rows_differ_when_the_file_breaks_ties(tmp_path: Path) -> None:
    """Else the test above could not fail."""
    plain = run("tmall", written("tmall", "csv", tmp_path / "raw"), tmp_path / "plain")
    out = run("tmall", written("tmall", "csv", tmp_path / "shuffled", shuffle=1), tmp_path / "out")
    assert (out / "manifest.json").read_bytes() != (plain / "manifest.json").read_bytes()


def test_every_container_of_one_log_gives_the_same_dataset(tmp_path: Path) -> None:
    manifests = set()
    for number, variant in enumerate(WRITERS["log"]):
        out = run("log", written("log", variant, tmp_path / f"raw{number}"), tmp_path / f"out{number}")
        manifests.add((out / "manifest.json").read_bytes())
    assert len(manifests) == 1


def test_rl4rs_splits_by_the_last_digit_of_the_session(tmp_path: Path) -> None:
    out = run("rl4rs", written("rl4rs", "slates", tmp_path / "raw"), tmp_path / "out")
    parts = {"train": set[int](), "test": set[int]()}
    for (user, _), (_, train) in read_files(out).sequences().items():
        parts["train" if train else "test"].add(int(user) % 10)
    assert parts == {"train": {0, 1, 2, 3, 4, 5}, "test": {6, 7, 8, 9}}


def _rl4rs_folder(folder: Path, *, item_row: str = "") -> Path:
    folder.mkdir()
    header = "timestamp@session_id@sequence_id@exposed_items@user_feedback@a@b@c@d\n"
    slate = "@1@1,2,3,4,5,6,7,8,9@0,0,1,0,0,0,0,0,0@1@1@1@1\n"
    (folder / "rl4rs_dataset_a_sl.csv").write_text(f"{header}1581696000@10{slate}1581696000@16{slate}")
    (folder / "rl4rs_dataset_a_rl.csv").write_text(f"{header}1581699999@10{slate}")
    items = "\n".join(f"{k} 0.5 {k}.5 1 0" for k in range(1, 10))
    (folder / "item_info.csv").write_text(f"item_id item_vec price location special_item\n{item_row}{items}")
    return folder


def test_rl4rs_rows_of_the_item_table_are_not_rows_of_the_log(tmp_path: Path) -> None:
    folder = _rl4rs_folder(tmp_path / "raw", item_row="77 ragged\n")
    data = ecoc.prepare(folder, tmp_path / "out", format="rl4rs", bad_rows="skip", threads=1)
    assert data.manifest.rows_in == 27
    assert data.manifest.dropped == {}


def test_rl4rs_slates_of_two_files_stay_two_sequences(tmp_path: Path) -> None:
    """A sequence is one slate, also where the two logs use the same session and sequence ids."""
    data = ecoc.prepare(_rl4rs_folder(tmp_path / "raw"), tmp_path / "out", format="rl4rs", threads=1)
    assert [len(sequence) for sequence in data] == [9, 9, 9]


def _cup(folder: Path, rows: list[str], header: str = "row_id,portrait_1,exposed_items,labels") -> Path:
    folder.mkdir()
    (folder / "slates.csv").write_text("\n".join([header, *rows]) + "\n")
    items = "\n".join(f'{k},"0.1,0.2",{100 * k},{1 + k // 4}' for k in range(1, 12))
    (folder / "item_info_381.csv").write_text(f"item_id,item_vec,price,location\n{items}\n")
    return folder / "slates.csv"


CUP = ['10,1,"1,2,3,4,5,6,7,8,9","1,1,1,1,0,0,0,0,0"', '17,0,"2,3,4,5,6,7,8,9,1","0,1,1,0,0,0,0,0,0"']


def test_rl4rs_slates_of_the_cup_are_read_by_their_header(tmp_path: Path) -> None:
    data = ecoc.prepare(_cup(tmp_path / "raw", CUP), tmp_path / "out", format="rl4rs", threads=1)
    first, second = data
    assert (first.user, first.items, first.train_length) == ("10", list("123456789"), 9)
    assert first.feedback == ["buy"] * 4 + ["ignore"] * 5
    assert first.rewards.tolist() == [100, 200, 300, 400, 0, 0, 0, 0, 0]
    assert (second.user, second.items, second.train_length) == ("17", list("234567891"), 0)
    assert (data.item("9").price, data.item("9").category) == (900.0, "3")


def test_rl4rs_drops_locked_rows_on_request(tmp_path: Path) -> None:
    log = _cup(tmp_path / "raw", CUP)
    data = ecoc.prepare(log, tmp_path / "out", format="rl4rs", threads=1, drop_locked=True)
    assert [sequence.items for sequence in data] == [list("123456"), list("234")]
    assert data.manifest.dropped == {Reason.DROPPED_FEEDBACK: 9}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('11,1,"1,2,3,4,5,6,7,8","1,1,1,1,0,0,0,0"', "slates.csv:4: not a slate of nine"),
        ('x,1,"1,2,3,4,5,6,7,8,9","1,1,1,1,0,0,0,0,0"', "slates.csv:4: not a slate of nine.*numeric session"),
        ('11,1,"1,2,3,4,5,6,7,8,9","1,1,1,1,0,0,0,0,2"', "slates.csv:4: feedback .*expected feedback 0 or 1"),
        ('11,1,"1,2,3,4,5,6,7,8,99","1,1,1,1,0,0,0,0,1"', "slates.csv:4: no finite reward"),
        ("11,1,1", "slates.csv:4: found 3 fields, expected 4"),
    ],
)
def test_a_broken_slate_of_the_cup_is_refused(row: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        ecoc.prepare(_cup(tmp_path / "raw", [*CUP, row]), tmp_path / "out", format="rl4rs", threads=1)
    assert not (tmp_path / "out").exists()


def test_rl4rs_prices_may_lie_elsewhere(tmp_path: Path) -> None:
    log = _cup(tmp_path / "raw", CUP)
    prices = log.with_name("item_info_381.csv").rename(tmp_path / "prices.csv")
    with pytest.raises(InputError, match=r"no item_info.csv beside the log; name the price table with --items"):
        ecoc.prepare(log, tmp_path / "out", format="rl4rs")
    with pytest.raises(InputError, match=r"nowhere.csv: no such file"):
        ecoc.prepare(log, tmp_path / "out", format="rl4rs", items=str(tmp_path / "nowhere.csv"))
    data = ecoc.prepare(log, tmp_path / "out", format="rl4rs", items=str(prices), threads=1)
    assert data.counts.interactions == 18
    assert "items" not in data.manifest.settings


def test_the_trivago_list_is_in_display_order_and_the_click_in_its_place(tmp_path: Path) -> None:
    log = tmp_path / "train.csv"
    log.write_text(
        "user_id,session_id,timestamp,step,action_type,reference,platform,city,device,current_filters,impressions,prices\n"
        'u,s,1541548800,1,interaction item image,7,FR,"A, B",mobile,,,\n'
        'u,s,1541548800,2,clickout item,5,FR,"A, B",mobile,,9|5|7,90|50|70\n'
        'u,s,1541548900,3,clickout item,4,FR,"A, B",mobile,,9|7,80|70\n'
        'u,s,1541548950,4,search for poi,Tower,FR,"A, B",mobile,,,\n'
    )
    data = ecoc.prepare(log, tmp_path / "out", format="trivago", threads=1, split="per-user:0.9", validation=0.0)
    (sequence,) = data
    assert sequence.items == ["7", "9", "5", "7", "9", "7"], "hotel 4 comes first after the split"
    assert sequence.feedback == ["look", "refused", "clickout", "refused", "refused", "refused"]
    assert [data.item(item).price for item in ("9", "5", "7")] == [80.0, 50.0, 70.0]
    assert data.item("9").category == "A, B"
    assert data.manifest.dropped == {Reason.DROPPED_BY_SOURCE: 1, Reason.UNSEEN_IN_TRAIN: 1}


@pytest.mark.parametrize(
    ("option", "left"), [("drop_1111", {"dropped_by_source": 2}), ("drop_cart", {"dropped_feedback": 1})]
)
def test_tmall_leaves_out_the_campaign_day_or_carts_on_request(
    option: str, left: dict[str, int], tmp_path: Path
) -> None:
    log = tmp_path / "user_log_format1.csv"
    rows = ["1,1,1,1,1,1110,0", "1,2,1,1,,1110,1", "1,1,1,1,1,1110,0", "1,1,1,1,1,1111,2", "1,2,1,1,1,1111,3"]
    log.write_text("\n".join(["user_id,item_id,cat_id,seller_id,brand_id,time_stamp,action_type", *rows]))
    options: dict[str, Any] = {"min_item_support": 1, "min_length": 1, "split": "per-user:0.9", option: True}
    data = ecoc.prepare(log, tmp_path / "out", format="tmall", threads=1, **options)
    dropped = {str(reason): count for reason, count in data.manifest.dropped.items() if reason != "unseen_in_train"}
    assert dropped == {**left, "duplicate": 1}


def test_yelp_code_rewards_follow_the_released_code(tmp_path: Path) -> None:
    case = written("yelp", "json", tmp_path / "raw")
    files = read_files(run("yelp", case, tmp_path / "out", reward_rule="code"))
    events = [event for events, _ in files.sequences().values() for event in events]
    assert {(feedback, reward) for _, feedback, reward, _ in events} == {
        (str(stars), -0.5 if stars >= 4 else -1.0) for stars in range(1, 6)
    }


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("test time", "a test time lies before the cut"),
        ("train time", "a training time does not lie before the cut"),
        ("test item", "a test item is outside the vocabulary"),
        ("vocabulary", "the vocabulary is not the items of the training parts"),
        ("twice", "a sequence occurs twice"),
        ("train count", "train_count counts something else than what is learnt from"),
    ],
)
def test_the_leak_check_finds_a_leak(fault: str, found: str, tmp_path: Path) -> None:
    files = read_files(run("taobao", written("taobao", "csv", tmp_path / "raw"), tmp_path / "out"))
    test, train = int(np.flatnonzero(~files.is_train)[0]), int(np.flatnonzero(files.is_train)[0])
    arrays, items, names = dict(files.arrays), [*files.items], [*files.names]
    if fault.endswith("time"):
        place = test if fault == "test time" else train
        arrays["times"] = arrays["times"].copy()
        arrays["times"][place] = files.manifest["cut"] + (-1 if fault == "test time" else 0)
    elif fault == "test item":
        arrays["items"] = arrays["items"].copy()
        arrays["items"][test] = len(items) + 1
    elif fault == "vocabulary":
        items.append({**items[-1], "index": len(items) + 1, "train_count": 0})
    elif fault == "twice":
        names[1] = names[0]
    else:
        items[0] = {**items[0], "train_count": items[0]["train_count"] + 1}
    assert found in leaks(dataclasses.replace(files, arrays=arrays, items=items, names=names))


def test_the_accounting_check_finds_a_lost_row(tmp_path: Path) -> None:
    case = written("taobao", "csv", tmp_path / "raw")
    assert isinstance(case.source, Path)
    case.source.write_bytes(case.source.read_bytes().split(b"\n", 1)[1])
    manifest = json.loads((run("taobao", case, tmp_path / "out") / "manifest.json").read_bytes())
    assert manifest["rows_in"] == case.rows_in - 1


class IsNotRepeatable(Taobao):
    """Rewards change from run to run."""

    runs = 0

    def __init__(self, config: Any, paths: list[str]) -> None:
        super().__init__(config, paths)
        IsNotRepeatable.runs += 1
        rewards = dict(Taobao.feedback.rewards or {}) | {"click": float(IsNotRepeatable.runs)}
        self.feedback = dataclasses.replace(Taobao.feedback, rewards=rewards)


class ReadsNothing(Taobao):
    """Has no files."""

    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        raise InputError("there is nothing to read")


class Crashes(Taobao):
    """Does not look whether a path is there."""

    def __init__(self, config: Any, paths: list[str]) -> None:
        for path in paths:
            next(Path(path).parent.iterdir())
        super().__init__(config, paths)


BROKEN: dict[type[Source], str] = {
    IsNotRepeatable: "differ between two runs",
    ReadsNothing: "the files cannot be prepared: there is nothing to read",
    Crashes: "a missing path raises FileNotFoundError",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_source_is_caught(kind: type[Source], tmp_path: Path) -> None:
    case = written("taobao", "csv", tmp_path / "raw")
    assert isinstance(case.source, Path)
    with pytest.raises(AssertionError, match=f"{kind.__name__}: .*{BROKEN[kind]}"):
        check_source(kind, case.source, bad_rows="skip", **case.options)
    assert f"checked_{kind.__name__.lower()}" not in list(SOURCES)


def test_a_right_source_passes(tmp_path: Path) -> None:
    case = written("taobao", "csv", tmp_path / "raw")
    assert isinstance(case.source, Path)
    check_source(Taobao, case.source, bad_rows="skip", **case.options)


@pytest.mark.parametrize(
    ("contract", "fault"),
    [
        ("Rows in are rows kept and rows dropped, by reason", "rows"),
        ("Counts are those of the written events", "counts"),
        ("Events of a sequence are in order of time", "times"),
        ("Equal feedback has an equal reward where the source says so", "rewards"),
        ("Nothing leaks from test to training", "split"),
    ],
)
def test_wrong_files_are_caught_by_the_check_that_states_it(contract: str, fault: str, tmp_path: Path) -> None:
    case = contract_of("taobao", written("taobao", "csv", tmp_path / "raw"), tmp_path)
    arrays, manifest = {name: array.copy() for name, array in case.files.arrays.items()}, dict(case.files.manifest)
    if fault == "rows":
        manifest["rows_in"] += 1
    elif fault == "counts":
        manifest["counts"] = {**manifest["counts"], "users": 3}
    elif fault == "split":
        arrays["train_lengths"][0] = 10**6
    else:
        arrays[fault][0] += 10**6
    wrong = dataclasses.replace(case)
    wrong.__dict__["files"] = dataclasses.replace(case.files, arrays=arrays, manifest=manifest)
    SOURCE_CHECKS[contract](case)
    with pytest.raises(AssertionError):
        SOURCE_CHECKS[contract](wrong)
