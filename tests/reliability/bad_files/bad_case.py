"""What a case of the corpus is, how `ecoc prepare` is run on it, and what is checked of every answer."""

import contextlib
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from ecoc import cli

ECOC = Path(sys.executable).parent / "ecoc"
HANGS_AFTER = 60
KEEP_ALL = ("--min-length", "1", "--min-item-support", "1", "--split", "per-user:0.8")
COLUMNS = ("--user", "user", "--item", "item", "--time", "ts")
LOG = (*COLUMNS, "--feedback", "event", "--reward", "click=1,buy=3", *KEEP_ALL)
PRICED = (*COLUMNS, "--reward-column", "price", *KEEP_ALL)
PLAIN = (*COLUMNS, *KEEP_ALL)

Writer = Callable[[Path], Path]
"""Writes a case into a folder and returns what is given to the command."""


@dataclass(frozen=True)
class Skip:
    """What `--bad-rows skip` must say: rows by reason, and the lines listed (in any order)."""

    dropped: Mapping[str, int]
    lines: Sequence[int] = ()


@dataclass(frozen=True)
class Case:
    """One file and what `ecoc prepare` must say of it. `where` is None if the file is accepted.

    `where` begins the message, relative to the folder: `log.csv:7`, `log.csv` if no line can be named, or "" if the
    fault is in an option.
    """

    name: str
    write: Writer
    options: tuple[str, ...] = LOG
    where: str | None = None
    says: str = ""
    skip: Skip | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    rows_in: int | None = None
    process: bool = False


@dataclass(frozen=True)
class Answer:
    """How one run of the command ended."""

    code: int
    out: str
    err: str
    left: list[str]

    @property
    def facts(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


def arguments(source: Path, out: Path, options: Sequence[str]) -> list[str]:
    return ["prepare", str(source), "--out", str(out), "--threads", "1", "--json", "--quiet", *options]


def run_here(source: Path, work: Path, options: Sequence[str]) -> Answer:
    """The command line in this process: the same `main()`, without the start of an interpreter."""
    work.mkdir(exist_ok=True)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    before = signal.getsignal(signal.SIGTERM)
    code = 0
    try:
        with (
            mock.patch.object(sys, "argv", ["ecoc", *arguments(source, work / "out", options)]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            cli.main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    finally:
        signal.signal(signal.SIGTERM, before)
    return Answer(code, _text(out), _text(err), left_in(work))


def run_process(source: Path, work: Path, options: Sequence[str], **settings: Any) -> Answer:
    """The command as a user starts it; a hang is an error."""
    work.mkdir(exist_ok=True)
    done = subprocess.run(
        [ECOC, *arguments(source, work / "out", options)],
        capture_output=True,
        check=False,
        **{"stdin": subprocess.DEVNULL, "timeout": HANGS_AFTER, **settings},
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode(), left_in(work))


def left_in(work: Path) -> list[str]:
    return sorted(path.name for path in work.iterdir())


def check(case: Case, folder: Path, source: Path, answer: Answer) -> None:
    """The verdict of `--bad-rows fail`."""
    if case.where is None:
        check_accepted(answer, case.dropped)
        if case.rows_in is not None:
            rows = answer.facts["rows_in"]
            assert rows == case.rows_in, f"{rows} rows in, expected {case.rows_in}"
    else:
        check_refused(answer, expected_start(case.where, folder), case.says)


def expected_start(where: str, folder: Path) -> str:
    if not where:
        return ""
    return f"{folder / where}: "  # an absolute path stays what it is


def check_refused(answer: Answer, start: str, says: str) -> None:
    """Exit 2, one line that says where and what, and no trace of an output."""
    assert "Traceback" not in answer.err, answer.err
    assert answer.code == 2, f"exit {answer.code}: {answer.err}"
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert len(lines) == 1, answer.err
    assert lines[0].startswith(start), f"{lines[0]!r} does not start with {start!r}"
    assert re.search(says, lines[0][len(start) :]), f"{lines[0]!r} does not say {says!r}"
    assert len(lines[0]) < 1500, "a line nobody reads"
    assert answer.left == [], f"left behind: {answer.left}"


def check_accepted(answer: Answer, dropped: Mapping[str, int]) -> None:
    """Exit 0, a whole dataset and nothing beside it, and every row accounted for."""
    assert answer.code == 0, f"exit {answer.code}: {answer.err}"
    assert answer.err == "", answer.err
    assert answer.left == ["out"], f"left behind: {answer.left}"
    check_rows(answer.facts)
    found = answer.facts["dropped"]
    assert found == dict(dropped), f"dropped {found}, expected {dict(dropped)}; {answer.facts['bad_rows']}"


def check_rows(facts: Mapping[str, Any]) -> None:
    """Rows in = rows kept + rows dropped by reason."""
    kept, dropped = facts["counts"]["interactions"], sum(facts["dropped"].values())
    assert facts["rows_in"] == kept + dropped, f"{facts['rows_in']} rows in, {kept} kept, {facts['dropped']}"


def check_listed(facts: Mapping[str, Any], path: Path, lines: Sequence[int]) -> None:
    """The first bad rows are listed, each once, under its own line."""
    found = []
    for example in facts["bad_rows"]:
        match = re.match(re.escape(str(path)) + r":(\d+): \S", example)
        assert match, f"{example!r} does not name {path}"
        found.append(int(match[1]))
    assert sorted(found) == sorted(lines), f"listed {found}, expected {list(lines)}"


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()
