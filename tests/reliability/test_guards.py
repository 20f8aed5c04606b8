"""The tests of tampered folders can fail: with a guard taken away, the case that it stands against gets through."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tampered import (
    EMPTY_OBJECTS,
    Attempts,
    Tamper,
    change_tensors,
    edit,
    endless,
    fifo,
    link_out,
    put,
    read_tensors,
    sha,
    words_of,
)
from test_attack_bundles import ATTACKS
from test_tampered_datasets import TAMPERED as DATASETS
from test_tampered_runs import TAMPERED as RUNS

import ecoc
from ecoc.data.schema import STAMP
from ecoc.errors import ArtifactError

# Python text that takes a guard away in the child.
ANY_FILE = """
import ecoc.storage.trusted.files as files, ecoc.storage.trusted.tensors as tensors, ecoc.data.store as store
for module in (files, tensors, store):
    module.open_regular = lambda path, **options: path.open("rb")
"""
NO_CHECK_OF_VALUES = "import ecoc.data.store as store\nstore._check_files = lambda *arguments: None\n"
NO_LIMIT_OF_TEXT = "import ecoc.storage.trusted.tables as tables\ntables._EXPANSION = 10**6\n"
NO_LIMIT_OF_JSON = """
import ecoc.storage.trusted.text as text, ecoc.data.sequences as sequences
sequences._LARGEST_MANIFEST = 1 << 40
text.parse_json.__kwdefaults__["most_values"] = 1 << 40
"""
ANY_NUMBER = "import ecoc.policies.base as base\nbase.LARGEST_WEIGHT = float('inf')\n"
NO_CHECKSUM = """
import ecoc.storage.trusted.files as files, ecoc.storage.trusted.tensors as tensors
for module in (files, tensors):
    module.compare_digest = lambda *arguments: None
"""
RAW_TEXT = """
import ecoc.cli, ecoc.cli.app, ecoc.storage.trusted.tensors as tensors
ecoc.cli.printable = tensors.printable = lambda text, **options: text
tensors._LONGEST_NAME = 5
"""
ANY_FOLDER = "import ecoc.runs.folder as folder\nfolder.own_folder = lambda path: path\n"
KEYS_TWICE = "import ecoc.storage.trusted.text as text\ntext._object = dict\n"
ANY_LIST = "import ecoc.runs.bundle as bundle\nbundle.FILES = (*bundle.FILES, '/etc/passwd')\n"

WITHOUT: dict[str, tuple[str, str, str, str]] = {  # guard: kind of folder, case, command, Python text
    "links": ("run", "weights elsewhere", "recommend", ANY_FILE),
    "regular files": ("run", "weights in a FIFO", "recommend", ANY_FILE),
    "values of arrays": ("data", "item 10^9", "info", NO_CHECK_OF_VALUES),
    "length of text": ("data", "a title repeated to gigabytes", "info", NO_LIMIT_OF_TEXT),
    "size of JSON": ("data", "60 MB of {}", "info", NO_LIMIT_OF_JSON),
    "size of weights": ("run", "a weight of 3e38", "recommend", ANY_NUMBER),
    "checksums": ("bundle", "weights of another checksum", "recommend", NO_CHECKSUM),
    "control characters": ("bundle", "a tensor with an escape in its name", "recommend", RAW_TEXT),
    "folders": ("run", "checkpoints elsewhere", "recommend", ANY_FOLDER),
    "keys": ("bundle", "a key twice", "recommend", KEYS_TWICE),
    "names of files": ("bundle", "an absolute path", "recommend", ANY_LIST),
}


CASES: dict[str, dict[str, tuple[Tamper, str]]] = {
    "data": {name: (tamper, says) for name, (tamper, _, says) in DATASETS.items()},
    "run": {name: (tamper, says) for name, (tamper, _, says) in RUNS.items()},
    "bundle": ATTACKS,
}


@pytest.mark.parametrize("guard", WITHOUT)
def test_without_its_guard_a_case_gets_through(attempts: Attempts, tmp_path: Path, guard: str) -> None:
    kind, case, command, before = WITHOUT[guard]
    tamper, says = CASES[kind][case]
    folder = attempts.folder(kind, tmp_path)
    tamper(folder)
    assert attempts.problems(command, folder, says, before=before, seconds=4) != []
    shutil.rmtree(folder.parent)
    shutil.rmtree(folder.parent.parent / "outside")
    folder = attempts.folder(kind, tmp_path)
    tamper(folder)
    assert attempts.problems(command, folder, says) == []


# ------------------------------------------------------------------------------------------------------------- swap

SWAP = """
import os
import ecoc.storage.trusted.files as files, ecoc.storage.trusted.tensors as tensors, ecoc.data.store as store
open_regular = files.open_regular

def swapping(path, **options):
    stream = open_regular(path, **options)
    if str(path) == {path!r} and os.path.exists({other!r}):
        os.replace({other!r}, path)
    return stream

for module in (files, tensors, store):
    module.open_regular = swapping
"""
# As it was once: hashed by its path, then opened again.
HASHED_BY_PATH = """
import ecoc.storage.checkpoint as checkpoint, ecoc.runs.bundle as bundle, ecoc.data.vocab as vocab
from ecoc.storage.trusted import file_sha256
for module, name in ((checkpoint, "load_tensors"), (bundle, "load_tensors"), (vocab, "read_table")):
    def twice(path, *, sha256, load=getattr(module, name), **options):
        assert file_sha256(path) == sha256
        return load(path, sha256=None, **options)
    setattr(module, name, twice)
"""


def other_weights(path: Path) -> None:
    """Item vectors of the opposite sign: another ranking, and a sound file of the same size."""
    header, data = read_tensors(path)
    content = bytearray(path.read_bytes())
    begin, end = (place + len(content) - len(data) for place in header["table"]["data_offsets"])
    content[begin:end] = (-np.frombuffer(bytes(content[begin:end]), np.float32)).tobytes()
    path.write_bytes(content)


def other_titles(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    pq.write_table(table.set_column(2, "title", pa.array(["swapped"] * len(table))), path)


SWAPPED: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "weights of a run": ("run", "checkpoints/best.safetensors", other_weights),
    "weights of a bundle": ("bundle", "policy.safetensors", other_weights),
    "items of a run": ("run", "items.parquet", other_titles),
}


@pytest.mark.parametrize("name", SWAPPED)
def test_a_file_that_is_swapped_after_it_was_opened_is_not_read(attempts: Attempts, tmp_path: Path, name: str) -> None:
    """What is hashed is what is parsed. Hashed by its path and opened again, the other file would be believed."""
    kind, file, change = SWAPPED[name]
    folder = attempts.folder(kind, tmp_path)
    words = [*words_of("recommend", folder, attempts.originals), "--json"]
    expected = attempts.forks.run(*words).stdout
    other = tmp_path / "other"

    def answer(before: str) -> str:
        shutil.copyfile(attempts.originals.data.parent / kind / file, other)
        change(other)
        swap = SWAP.format(path=str(folder / file), other=str(other))
        done = attempts.forks.run(*words, before=swap + before)
        assert done.code == 0, done
        assert not other.exists()  # it was swapped
        shutil.copyfile(attempts.originals.data.parent / kind / file, folder / file)
        return done.stdout

    assert json.loads(answer("")) == json.loads(expected)
    assert json.loads(answer(HASHED_BY_PATH)) != json.loads(expected)


# ------------------------------------------------------------------------------------------------------------ stamp


@pytest.fixture
def stamped(attempts: Attempts, tmp_path: Path) -> Path:
    """A dataset whose files have passed the check here."""
    folder = attempts.folder("data", tmp_path)
    (folder / STAMP).unlink()
    time.sleep(0.1)  # files that changed in the last moment are checked again
    ecoc.open_data(folder)
    assert (folder / STAMP).exists()
    return folder


def damage_in_place(path: Path) -> None:
    """Another item, in a file with the same size, inode and time of modification."""
    before = path.stat()
    with path.open("r+b") as stream:
        stream.seek(-4, os.SEEK_END)
        stream.write(np.int32(10**9).tobytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def damage_a_copy(path: Path) -> None:
    """The same in a file that takes the place of the other."""
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    damage_in_place(copy)
    copy.replace(path)


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4)


@pytest.mark.parametrize("damage", [damage_in_place, damage_a_copy, cut_off])
def test_damage_after_the_check_is_found(stamped: Path, damage: Callable[[Path], None]) -> None:
    damage(stamped / "items.npy")
    with pytest.raises(ArtifactError, match=r"items\.npy"):
        ecoc.open_data(stamped)


def test_a_stamp_that_names_sizes_and_times_alone_would_miss_it(attempts: Attempts, stamped: Path) -> None:
    """A broken variant: without the time of change and the inode, the damage stays unnoticed."""
    weak = """
import ecoc.data.store as store
stamp_of = store._stamp_of
def weak(manifest, files):
    stamp = stamp_of(manifest, files)
    return {**stamp, "files": {name: times[:2] + [0] for name, times in stamp["files"].items()}}
store._stamp_of = weak
"""
    words = words_of("info", stamped, attempts.originals)
    (stamped / STAMP).unlink()
    assert attempts.forks.run(*words, before=weak).code == 0
    damage_in_place(stamped / "items.npy")
    assert attempts.forks.run(*words, before=weak).code != 3
    assert attempts.forks.run(*words).code == 3


def test_the_stamp_saves_the_check_and_does_not_travel(attempts: Attempts, stamped: Path, tmp_path: Path) -> None:
    no_check = "import ecoc.data.store as store\ndef failing(*arguments):\n    raise SystemExit(77)\n"
    no_check += "store._check_files = failing\n"

    def code(folder: Path) -> int:
        return attempts.forks.run(*words_of("info", folder, attempts.originals), before=no_check).code

    assert code(stamped) == 0
    subprocess.run(["cp", "-a", stamped, tmp_path / "copy"], check=True)
    assert code(tmp_path / "copy") == 77
    edit(stamped / STAMP, lambda it: it.update(checks=0))
    assert code(stamped) == 77


# --------------------------------------------------------------------------------------------- results that are kept


def test_ranks_of_minus_five_are_ranked_again(attempts: Attempts, tmp_path: Path) -> None:
    """Kept ranks below 1 would count as hits."""
    run = attempts.folder("run", tmp_path)
    sound, _ = attempts.run("compare", run, seconds=60)
    (state,) = (run / "evaluations").glob("*.json")

    def negative(header: dict[str, dict[str, list[int]]], data: bytearray) -> None:
        begin, end = header["rank"]["data_offsets"]
        data[begin:end] = np.full((end - begin) // 8, -5.0).tobytes()

    change_tensors(state.with_suffix(".safetensors"), negative)
    edit(state, lambda it: it.update(sha256=sha(state.with_suffix(".safetensors"))))
    done, _ = attempts.run("compare", run, seconds=60)
    assert done.code == 0, done
    assert json.loads(done.stdout)["runs"] == json.loads(sound.stdout)["runs"]


@pytest.mark.parametrize("unreadable", [fifo, endless, link_out, lambda path: put(path, EMPTY_OBJECTS)])
def test_a_report_tells_of_a_saved_evaluation_that_cannot_be_read(
    attempts: Attempts, tmp_path: Path, unreadable: Tamper
) -> None:
    run = attempts.folder("run", tmp_path)
    unreadable(run / "evaluation.json")
    done, alarms = attempts.run("report", run)
    assert (done.code, done.stderr, alarms) == (0, "", [])
    page = next((run.parent).glob("page*")).read_text()
    assert "evaluation.json: " in page


def test_the_newest_sound_checkpoint_is_resumed_from_and_the_damage_told(attempts: Attempts, tmp_path: Path) -> None:
    run = attempts.folder("run", tmp_path)
    (run / "result.json").unlink()
    newest = max((run / "checkpoints").glob("step-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    done = attempts.forks.run("train", attempts.originals.data, "-o", run, "--resume")
    assert done.code == 0, done
    assert "passed over, an earlier checkpoint is used" in done.stderr
    assert "resumed at step 6 of 9" in done.stderr
