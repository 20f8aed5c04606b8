import hashlib
import json
import pickle
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_case import prepare_file, write_log

import ecoc
from ecoc.batch import PAD
from ecoc.data.schema import ARRAYS
from ecoc.errors import ArtifactError, InputError
from ecoc.storage.atomic import json_bytes
from ecoc.storage.trusted import file_sha256

ROWS = [(f"ü{user:02}", f"i{(user * k) % 7}", 1_500_000_000 + 60 * k + user) for user in range(20) for k in range(1, 9)]
FILES = [*(f"{name}.npy" for name in ARRAYS), "items.parquet", "sequences.arrow"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    prepare_file(write_log(folder / "log.csv", ROWS), folder / "out", validation=0.1)
    return folder / "out"


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(original, tmp_path / "broken"))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest and give it a right checksum again, as someone with bad intentions would."""
    content = json.loads((folder / "manifest.json").read_bytes())
    change(content)
    content.pop("checksum", None)
    content["checksum"] = hashlib.sha256(json_bytes(content)).hexdigest()
    (folder / "manifest.json").write_bytes(json_bytes(content))


def replace(folder: Path, name: str, content: bytes) -> None:
    """Put another file in place, with its size and checksum in the manifest."""
    (folder / name).write_bytes(content)
    record = {"bytes": len(content), "sha256": file_sha256(folder / name)}
    rewrite(folder, lambda manifest: manifest["files"].update({name: record}))


def test_arrays_are_read_only_memory_maps(original: Path) -> None:
    data = ecoc.open_data(original)
    for name, dtype in ARRAYS.items():
        array = getattr(data, name)
        assert isinstance(array, np.memmap)
        assert array.dtype == np.dtype(dtype)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_what_went_in_comes_out_under_outside_ids(original: Path) -> None:
    data = ecoc.open_data(original)
    expected: dict[str, list[tuple[int, str]]] = {}
    for user, item, time in ROWS:
        expected.setdefault(user, []).append((time, item))
    found = {part.user: list(zip(part.times.tolist(), part.items, strict=True)) for part in data}
    assert found == {user: sorted(events) for user, events in expected.items()}
    assert list(found) == sorted(found, key=str.encode)
    assert len(data) == data.counts.sequences == 20
    for user in found:
        (part,) = data.user(user)
        assert part.user == user
        assert len(part) == len(part.items) == len(part.feedback) == len(part.rewards) == 8
        assert set(part.feedback) == {"event"}
    assert data.sequence(3).items == list(data)[3].items


@pytest.mark.parametrize("number", [-1, 20, 10**9])
def test_a_sequence_that_is_not_there_is_an_input_error(original: Path, number: int) -> None:
    with pytest.raises(InputError, match="number: expected a whole number, from 0 to 19; found"):
        ecoc.open_data(original).sequence(number)


@pytest.mark.parametrize("user", ["", "ü", "ü020", "zzz", "u01"])
def test_a_user_that_is_not_there_is_an_input_error(original: Path, user: str) -> None:
    with pytest.raises(InputError, match="no user"):
        ecoc.open_data(original).user(user)


def test_users_are_found_whatever_their_letters(tmp_path: Path) -> None:
    users = ["a", "B", "é", "z", "Z", "aa", "\U0001f600", "\uffee", "10", "9", "a b", "ß"]
    rows = [(user, "x", time) for user in users for time in (1, 2)]
    data = prepare_file(write_log(tmp_path / "log.csv", rows), tmp_path / "out", split="leave-one-out")
    assert {part.user for user in users for part in data.user(user)} == set(users)


def test_statistics_describe_the_events(original: Path) -> None:
    facts = ecoc.open_data(original).statistics()
    popularity = Counter(item for _, item, _ in ROWS)
    assert facts["sequence_length"] == {"mean": 8.0, "min": 8.0, "median": 8.0, "p90": 8.0, "max": 8.0}
    assert facts["events_per_item"]["max"] == max(popularity.values())
    assert facts["events_per_item"]["mean"] == pytest.approx(len(ROWS) / 7)
    assert facts["reward"] == {"mean": 1.0, "min": 1.0, "max": 1.0, "negative": 0}
    assert facts["feedback"] == {"event": len(ROWS)}
    assert facts["first_time"] == "2017-07-14T02:41:00Z"


def test_ids_and_indices_are_each_others_inverse(original: Path) -> None:
    vocab = ecoc.open_data(original).vocab
    indices = np.arange(1, len(vocab) + 1)
    assert vocab.indices(vocab.ids(indices)).tolist() == indices.tolist()
    assert vocab.indices(["i3", "nobody", "i3"]).tolist() == [vocab.find("i3"), PAD, vocab.find("i3")]
    assert vocab.indices([]).tolist() == vocab.ids(np.zeros(0, np.int32)) == []
    assert ("i3" in vocab, "nobody" in vocab) == (True, False)
    for wrong in ([0], [-1], [8], [1, 0]):
        with pytest.raises(InputError, match="item indices run from 1 to 7"):
            vocab.ids(np.array(wrong))
    for wrong_index in (0, -1, 8):
        with pytest.raises(InputError, match="item indices run from 1 to 7"):
            vocab.at(wrong_index)


def test_items_are_numbered_by_training_count_then_id(original: Path) -> None:
    data = ecoc.open_data(original)
    counts: Counter[str] = Counter()
    for part in data:
        counts.update(part.items[: part.train_length] if not part.is_validation else [])
    everything = [data.vocab.at(index) for index in range(1, len(data.vocab) + 1)]
    assert [item.id for item in everything] == sorted(
        {item for _, item, _ in ROWS}, key=lambda item: (-counts[item], item.encode())
    )
    assert [item.train_count for item in everything] == [counts[item.id] for item in everything]
    assert data.item("i3").index == data.vocab.find("i3")
    with pytest.raises(InputError, match=r"no item 'i33'.*did you mean 'i3'\?"):
        data.item("i33")


def test_equal_counts_are_numbered_by_the_bytes_of_the_id(tmp_path: Path) -> None:
    ids = ["b", "B", "é", "a", "10", "9", "Z"]
    rows = [("u", item, 1) for item in ids] + [("v", item, 1) for item in ids] + [("u", "a", 2), ("v", "a", 2)]
    data = prepare_file(write_log(tmp_path / "log.csv", rows), tmp_path / "out", split="leave-one-out")
    assert {data.vocab.at(index).train_count for index in range(1, 8)} == {2}
    assert data.vocab.ids(np.arange(1, 8)) == sorted(ids, key=str.encode)


def test_padding_never_occurs(original: Path) -> None:
    data = ecoc.open_data(original)
    assert data.items.min() == PAD + 1
    assert data.items.max() == data.counts.items


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_flipped_byte_in_any_file_is_found(folder: Path, name: str, place: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[{"first": 0, "middle": len(content) // 2, "last": -1}[place]] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ArtifactError) as caught:
        ecoc.open_data(folder, verify=True)
    assert caught.value.exit_code == 3
    assert name in str(caught.value)


def test_an_untouched_dataset_verifies(original: Path) -> None:
    ecoc.open_data(original, verify=True).verify()
    assert set(ecoc.open_data(original).manifest.files) == set(FILES)


@pytest.mark.parametrize("name", [f"{name}.npy" for name in ARRAYS])
def test_no_flip_in_the_head_of_an_array_gives_another_exception(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    for place in range(0, 128, 3):
        for bit in (1, 64):
            broken = bytearray(content)
            broken[place] ^= bit
            (folder / name).write_bytes(broken)
            try:
                ecoc.open_data(folder)
            except ArtifactError as error:
                assert name in str(error)


def _npz(folder: Path) -> bytes:
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        archive.writestr("items.npy", (folder / "items.npy").read_bytes())
    return (folder / "x.zip").read_bytes()


def _pickled(folder: Path) -> bytes:
    np.save(folder / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return (folder / "x.npy").read_bytes()


def _header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


FOREIGN: dict[str, Callable[[Path], bytes]] = {
    "pickled array": _pickled,
    "pickle": lambda folder: pickle.dumps([1, 2, 3]),
    "archive": _npz,
    "broken archive": lambda folder: _npz(folder)[:60],
    "empty": lambda folder: b"",
    "text": lambda folder: b"user,item\n",
    "other type": lambda folder: _header("{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}\n") + bytes(16),
    "too short": lambda folder: _header("{'descr': '<i4', 'fortran_order': False, 'shape': (9,)}\n") + bytes(16),
    "endless": lambda folder: _header(f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({10**30},)}}\n"),
    "negative": lambda folder: _header("{'descr': '<i4', 'fortran_order': False, 'shape': (-4,)}\n") + bytes(16),
    "two dimensions": lambda folder: _header("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2)}\n") + bytes(16),
    "unclosed header": lambda folder: _header("{'descr': ((((((((((((((((((((\n"),
    "deep header": lambda folder: _header("(" * 5000 + "\n"),
    "no shape": lambda folder: _header("{'descr': '<i4'}\n"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_array_is_an_artifact_error(folder: Path, kind: str) -> None:
    replace(folder, "items.npy", FOREIGN[kind](folder))
    with pytest.raises(ArtifactError, match=r"items\.npy"):
        ecoc.open_data(folder)


@pytest.mark.parametrize("name", ["items.parquet", "sequences.arrow"])
@pytest.mark.parametrize("content", [b"", b"PAR1PAR1", b"ARROW1\0\0ARROW1", b"text"])
def test_a_foreign_table_is_an_artifact_error(folder: Path, name: str, content: bytes) -> None:
    replace(folder, name, content)
    with pytest.raises(ArtifactError, match=name):
        ecoc.open_data(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_or_another_size_is_an_artifact_error(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes() + b"\0")
    with pytest.raises(ArtifactError, match=rf"{name}: \d+ bytes, the manifest says"):
        ecoc.open_data(folder)
    (folder / name).unlink()
    with pytest.raises(ArtifactError, match=f"{name}: missing"):
        ecoc.open_data(folder)


@pytest.mark.parametrize(
    "content",
    [b"", b"not json", b"\xff\xfe", b"[]", b"null", b"3", b"{}", b'{"format": "other"}', b"[" * 100_000, b"1" * 10_000]
    + [
        b'{"format": "ecoc-dataset", "version": %s}' % version for version in (b"0", b"2", b'"1"', b"null", b"[]", b"1")
    ],
)
def test_a_manifest_that_is_none_is_an_artifact_error(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        ecoc.open_data(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"extra": 1},
        {"rows_in": "many"},
        {"counts": {}},
        {"dropped": {"no_such_reason": 1}},
        {"files": {"../manifest.json": {"bytes": 1, "sha256": ""}}},
        {"files": {"/etc/passwd": {"bytes": 1, "sha256": ""}}},
        {"files": {"..": {"bytes": 1, "sha256": ""}}},
        {"files": {"": {"bytes": 1, "sha256": ""}}},
        {"files": {"a\0b": {"bytes": 1, "sha256": ""}}},
        {"files": {"x" * 300: {"bytes": 1, "sha256": ""}}},
        {"files": {"items.npy": {"bytes": -1, "sha256": ""}}},
    ],
)
def test_a_manifest_with_wrong_content_is_an_artifact_error(folder: Path, change: dict[str, Any]) -> None:
    rewrite(folder, lambda manifest: manifest.update(change))
    with pytest.raises(ArtifactError):
        ecoc.open_data(folder)


@pytest.mark.parametrize("key", ["interactions", "sequences"])
def test_counts_that_do_not_fit_the_arrays_are_an_artifact_error(folder: Path, key: str) -> None:
    rewrite(folder, lambda manifest: manifest["counts"].update({key: 7}))
    with pytest.raises(ArtifactError, match="contradict"):
        ecoc.open_data(folder)


def test_the_checksum_covers_the_manifest(folder: Path) -> None:
    content = json.loads((folder / "manifest.json").read_bytes())
    for path in (("rows_in",), ("counts", "users"), ("settings", "split"), ("feedback", "names")):
        changed = json.loads(json.dumps(content))
        place = changed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = {"split": "time:0.7", "names": ["thing"]}.get(path[-1], 3)
        (folder / "manifest.json").write_bytes(json_bytes(changed))
        with pytest.raises(ArtifactError, match="changed since it was written"):
            ecoc.open_data(folder, verify=True)


def test_a_folder_that_is_no_dataset_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ecoc prepare"):
        ecoc.open_data(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        ecoc.open_data(tmp_path / "nowhere")
