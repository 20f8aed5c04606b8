"""The checks can fail: each deliberately broken variant of the code is caught; and bad rows do not cost the square."""

from pathlib import Path
from typing import Any

import pytest
from bad_case import LOG, Case, check, check_accepted, check_listed, run_here
from corpus import CASES
from corpus_sources import PRICES, RL4RS
from good_logs import csv_lines, file, files, joined

from ecoc.data.bad_rows import BadRows
from ecoc.data.delimited import Delimited
from ecoc.data.schema import Reason
from ecoc.data.text import TextFile

BY_NAME = {case.name: case for case in CASES}


def _judge(case: Case, folder: Path, skip: bool = False) -> None:
    """The whole judgement of one case, as the corpus tests make it."""
    source = case.write(folder)
    if not skip:
        check(case, folder, source, run_here(source, folder / "work", case.options))
        return
    assert case.skip is not None
    answer = run_here(source, folder / "work", (*case.options, "--bad-rows", "skip"))
    check_accepted(answer, case.skip.dropped)
    check_listed(answer.facts, source, case.skip.lines)


def test_right_code_passes_the_judgement(tmp_path: Path) -> None:
    (tmp_path / "skip").mkdir()
    _judge(BY_NAME["short row"], tmp_path)
    _judge(BY_NAME["short row"], tmp_path / "skip", skip=True)


def test_a_reader_that_lets_nul_through_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextFile, "_checked", lambda self, block: block)
    with pytest.raises(AssertionError, match="exit 0"):
        _judge(BY_NAME["NUL in a row"], tmp_path)


def test_bad_rows_that_are_not_counted_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: BadRows, reason: Reason, rows: int) -> None:
        pass

    monkeypatch.setattr(BadRows, "count", forget)
    with pytest.raises(AssertionError, match="malformed_row"):
        _judge(BY_NAME["short row"], tmp_path, skip=True)


def test_a_line_number_off_by_one_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Delimited.line_of
    monkeypatch.setattr(Delimited, "line_of", lambda self, row: right(self, row) + 1)
    with pytest.raises(AssertionError, match="does not start with"):
        _judge(BY_NAME["time impossible date"], tmp_path)


def test_a_folder_left_behind_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecoc.storage.atomic.shutil.rmtree", lambda path, ignore_errors=False: None)
    with pytest.raises(AssertionError, match="partial"):
        _judge(BY_NAME["short row"], tmp_path)


def test_an_error_that_is_not_ours_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: TextFile) -> str:
        raise ValueError("oops")

    monkeypatch.setattr(TextFile, "first_line", broken)
    with pytest.raises(AssertionError, match="exit 1"):
        _judge(BY_NAME["short row"], tmp_path)


def test_a_traceback_is_caught(tmp_path: Path) -> None:
    case = BY_NAME["short row"]
    source = case.write(tmp_path)
    answer = run_here(source, tmp_path / "work", (*case.options, "--debug"))
    with pytest.raises(AssertionError, match="Traceback"):
        check(case, tmp_path, source, answer)


def _counting(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
    """Count the calls of a method."""
    calls: list[str] = []
    right = getattr(owner, name)

    def counted(*arguments: Any, **settings: Any) -> Any:
        calls.append(name)
        return right(*arguments, **settings)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_a_thousand_broken_slates_are_not_each_looked_up_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = ["1500000000@1@1@1,2@0,0@1"] * 1000
    log = joined([*RL4RS, *broken])
    source = files({"rl4rs_dataset_a_sl.csv": log, "item_info.csv": PRICES}, "rl4rs_dataset_a_sl.csv")(tmp_path)
    calls = _counting(monkeypatch, Delimited, "_records")
    answer = run_here(source, tmp_path / "work", ("--format", "rl4rs", "--bad-rows", "skip"))
    check_accepted(answer, {"malformed_row": 1000})
    check_listed(answer.facts, source, range(12, 22))
    assert len(calls) < 50


@pytest.mark.parametrize("junk", [b"\0", b"\xff"], ids=["NUL", "not UTF-8"])
def test_a_thousand_undecodable_rows_do_not_each_open_the_file(
    junk: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = file("log.csv", joined(csv_lines()) + (junk + b",i1,1500000000,buy,1\n") * 1000)(tmp_path)
    calls = _counting(monkeypatch, TextFile, "__init__")
    answer = run_here(source, tmp_path / "work", (*LOG, "--bad-rows", "skip"))
    check_accepted(answer, {"malformed_row": 1000})
    check_listed(answer.facts, source, range(22, 32))
    assert len(calls) < 60
