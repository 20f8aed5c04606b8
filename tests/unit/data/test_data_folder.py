import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from data_case import prepare_file, write_log

import ecoc
from ecoc.errors import InputError, ResourceError
from ecoc.storage.atomic import new_folder, parse_bytes


def ours(folder: Path) -> bool:
    return (folder / "ours").exists()


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", ["out", "with blank é", "a[1]", "deep/er/out"])
def test_a_folder_appears_whole_and_alone(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    with new_folder(target, overwrite=False, is_ours=ours) as scratch:
        (scratch / "ours").write_text("1")
        assert not target.exists()
    assert left_in(target) == ["ours"]
    assert left_in(target.parent) == [target.name]


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with new_folder(tmp_path / "out", overwrite=False, is_ours=ours) as scratch:
        (scratch / "ours").write_text("1")
    assert left_in(tmp_path / "out") == ["ours"]


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    message = "not empty; choose another or pass --overwrite"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "ours").write_text("old")
    with pytest.raises(InputError, match=message), new_folder(tmp_path / "out", overwrite=False, is_ours=ours):
        pytest.fail("it was entered")
    assert (tmp_path / "out" / "ours").read_text() == "old"


def test_overwrite_replaces_what_is_ours_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "theirs").write_text("dear")
    with pytest.raises(InputError, match="did not write"), new_folder(out, overwrite=True, is_ours=ours):
        pytest.fail("it was entered")
    assert (out / "theirs").read_text() == "dear"
    (out / "ours").write_text("old")
    with new_folder(out, overwrite=True, is_ours=ours) as scratch:
        (scratch / "ours").write_text("new")
        assert (out / "ours").read_text() == "old"
    assert (out / "ours").read_text() == "new"
    assert left_in(tmp_path) == ["out"]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("dear")
    for target in (tmp_path / "out", tmp_path / "out" / "below"):
        with pytest.raises(InputError), new_folder(target, overwrite=True, is_ours=ours):
            pytest.fail("it was entered")
    assert (tmp_path / "out").read_text() == "dear"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, InputError, SystemExit])
def test_an_interrupted_writer_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), new_folder(tmp_path / "out", overwrite=False, is_ours=ours) as scratch:
        (scratch / "ours").write_text("half")
        raise error
    assert left_in(tmp_path) == []


def test_an_interrupted_overwrite_leaves_the_old(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "ours").write_text("old")
    with pytest.raises(ValueError), new_folder(tmp_path / "out", overwrite=True, is_ours=ours):
        raise ValueError
    assert (tmp_path / "out" / "ours").read_text() == "old"
    assert left_in(tmp_path) == ["out"]


def test_a_full_disk_is_a_resource_error(tmp_path: Path) -> None:
    with (
        pytest.raises(ResourceError, match="No space left"),
        new_folder(tmp_path / "out", overwrite=False, is_ours=ours),
    ):
        raise OSError(28, "No space left on device")
    assert left_in(tmp_path) == []


def test_a_second_writer_is_told_who_writes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with new_folder(out, overwrite=False, is_ours=ours) as scratch:
        (scratch / "ours").write_text("1")
        with (
            pytest.raises(InputError, match=f"process {os.getpid()} is writing it now"),
            new_folder(out, overwrite=False, is_ours=ours),
        ):
            pytest.fail("it was entered")
    assert left_in(out) == ["ours"]


def test_a_lock_of_another_process_is_named_and_dies_with_it(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\nfrom ecoc.storage.atomic import new_folder\n"
        "with new_folder(pathlib.Path(sys.argv[1]), overwrite=False, is_ours=lambda folder: False) as scratch:\n"
        "    (scratch / 'half').write_text('1')\n    print('inside', flush=True)\n    sys.stdin.read()\n"
    )
    out = tmp_path / "out"
    command = [sys.executable, "-c", script, str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "inside\n"
        with (
            pytest.raises(InputError, match=f"process {other.pid} is writing"),
            new_folder(out, overwrite=False, is_ours=ours),
        ):
            pytest.fail("it was entered")
        other.kill()
    assert f".out.partial-{other.pid}" in left_in(tmp_path)
    with new_folder(out, overwrite=False, is_ours=ours) as scratch:
        (scratch / "ours").write_text("1")
    assert left_in(tmp_path) == ["out"]


@pytest.mark.parametrize("name", ["out", "a[1]", "st*r", "q?"])
def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path, name: str) -> None:
    (tmp_path / f".{name}.partial-999999").mkdir()
    (tmp_path / f".{name}.lock").write_text("999999")
    with new_folder(tmp_path / name, overwrite=False, is_ours=ours) as scratch:
        (scratch / "ours").write_text("1")
    assert left_in(tmp_path) == [name]


def test_leftovers_of_other_targets_stay(tmp_path: Path) -> None:
    (tmp_path / ".stark.partial-999999").mkdir()
    with new_folder(tmp_path / "st*k", overwrite=False, is_ours=ours) as scratch:
        (scratch / "ours").write_text("1")
    assert left_in(tmp_path) == [".stark.partial-999999", "st*k"]


def test_what_was_moved_aside_and_not_replaced_goes_back(tmp_path: Path) -> None:
    (tmp_path / ".out.old-999999").mkdir()
    (tmp_path / ".out.old-999999" / "ours").write_text("old")
    with pytest.raises(ValueError), new_folder(tmp_path / "out", overwrite=True, is_ours=ours):
        raise ValueError
    assert (tmp_path / "out" / "ours").read_text() == "old"


def test_a_free_lock_file_is_taken_over(tmp_path: Path) -> None:
    with (tmp_path / ".out.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with (
            pytest.raises(InputError, match="is writing it now"),
            new_folder(tmp_path / "out", overwrite=False, is_ours=ours),
        ):
            pytest.fail("it was entered")
    with new_folder(tmp_path / "out", overwrite=False, is_ours=ours):
        pass
    assert left_in(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4GB", 4 * 10**9),
        ("512MiB", 512 << 20),
        ("1.5g", 1_500_000_000),
        ("1000", 1000),
        (" 2 kib ", 2048),
        ("0", 0),
        ("1TB", 10**12),
        ("1tib", 1 << 40),
        ("7b", 7),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GB", "4XB", "-1GB", "1e9", "4 G B", "4ib", "nan", "9" * 400, "0x10", "1.GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a size|is too large"):
        parse_bytes(text)


LOG = [("a", "x", 1), ("a", "y", 2), ("a", "x", 3)]


def test_prepare_refuses_a_folder_that_holds_something(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", LOG)
    first = prepare_file(log, tmp_path / "out")
    with pytest.raises(InputError, match="--overwrite"):
        prepare_file(log, tmp_path / "out")
    again = prepare_file(log, tmp_path / "out", overwrite=True, split="leave-one-out")
    assert again.checksum != first.checksum
    assert left_in(tmp_path) == ["log.csv", "out"]


def _web_page(out: Path) -> None:
    out.mkdir()
    (out / "manifest.json").write_text('{"name": "My web page", "icons": []}')


def _with_notes(out: Path) -> None:
    prepare_file(write_log(out.parent / "old.csv", LOG), out)


@pytest.mark.parametrize("make", [_web_page, _with_notes])
def test_overwrite_never_removes_what_prepare_did_not_write(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "out")
    (tmp_path / "out" / "thesis.txt").write_text("dear")
    with pytest.raises(InputError, match="did not write"):
        prepare_file(write_log(tmp_path / "log.csv", LOG), tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "thesis.txt").read_text() == "dear"


@pytest.mark.parametrize("text", ["u,i,t\n", "u,i,t\na,x,never\n", "x,y\n1,2\n", ""])
def test_a_failed_prepare_leaves_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(InputError, match=r"log\.csv"):
        prepare_file(tmp_path / "log.csv", tmp_path / "out")
    assert left_in(tmp_path) == ["log.csv"]


def test_an_interrupted_prepare_leaves_nothing(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", LOG)
    seen = []

    def stop(stage: str, done: float, total: float) -> None:
        seen.append(stage)
        if stage == "writing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_file(log, tmp_path / "out", progress=stop)
    assert seen == ["reading", "numbering", "sorting", "filtering", "writing"]
    assert left_in(tmp_path) == ["log.csv"]


@pytest.mark.parametrize(
    ("option", "message"), [({"memory": "1MB"}, "at least 256MiB"), ({"threads": 0}, "threads: expected .* 1 or more")]
)
def test_limits_that_cannot_work_are_refused(option: dict[str, object], message: str, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", LOG)
    with pytest.raises(InputError, match=message):
        prepare_file(log, tmp_path / "out", **option)
    with pytest.raises(InputError, match="source: no path given"):
        ecoc.prepare([], tmp_path / "out")
