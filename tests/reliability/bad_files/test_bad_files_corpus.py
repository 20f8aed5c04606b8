"""Promise 8: a wrong file gives exit 2 and one line that says where, what and what to do; an odd one is read right."""

from pathlib import Path

import pytest
from bad_case import Case, check, check_accepted, check_listed, run_here
from corpus import CASES

ROW_FAULTS = [case for case in CASES if case.skip is not None]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_file_gives_one_line_and_an_odd_one_is_read(case: Case, tmp_path: Path) -> None:
    source = case.write(tmp_path)
    check(case, tmp_path, source, run_here(source, tmp_path / "work", case.options))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", ROW_FAULTS, ids=lambda case: case.name)
def test_skipped_rows_are_counted_by_reason_and_listed_by_line(case: Case, tmp_path: Path) -> None:
    assert case.skip is not None
    assert case.where is not None
    source = case.write(tmp_path)
    answer = run_here(source, tmp_path / "work", (*case.options, "--bad-rows", "skip"))
    check_accepted(answer, case.skip.dropped)
    check_listed(answer.facts, tmp_path / case.where.rpartition(":")[0], case.skip.lines)
