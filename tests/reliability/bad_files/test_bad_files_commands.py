"""The same verdicts from the installed command, as a user starts it."""

from pathlib import Path

import pytest
from bad_case import Case, check, run_process
from corpus import CASES

STARTED = [case for case in CASES if case.process]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", STARTED, ids=lambda case: case.name)
def test_the_installed_command_gives_the_same_verdict(case: Case, tmp_path: Path) -> None:
    source = case.write(tmp_path)
    check(case, tmp_path, source, run_process(source, tmp_path / "work", case.options))


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 80
    assert len(STARTED) >= 25
    assert sum(case.where is None for case in CASES) >= 20
