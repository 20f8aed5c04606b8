"""The terminal: progress on standard error, results on standard output, signals as exit codes."""

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from ecoc.errors import Terminated
from ecoc.storage.trusted import printable

if TYPE_CHECKING:
    from ecoc.progress import ProgressCallback


def listen_for_sigterm() -> None:
    """Turn SIGTERM into an exception; a second one ends the process at once."""

    def once(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, once)


class Interrupted(BaseException):
    """Ctrl-C, with a message; typer would turn KeyboardInterrupt into a silent exit."""


@contextmanager
def progress(quiet: bool, log: str | None = "ecoc") -> Iterator["ProgressCallback"]:
    """A bar with share and time left on a terminal, a line per stage elsewhere, nothing if quiet.

    Messages of the logger `log` are printed too, as plain lines on standard error, unless quiet.
    """
    try:
        if quiet:
            from ecoc.progress import no_progress

            yield no_progress
            return
        with nullcontext() if log is None else printed_log(log, lambda: sys.stderr):
            if sys.stderr.isatty():
                yield from _bar()
            else:
                yield _Lines()
    except KeyboardInterrupt as error:
        raise Interrupted(str(error) or "interrupted") from error


@contextmanager
def printed_log(name: str, stream: Callable[[], TextIO]) -> Iterator[None]:
    """Print the messages of a logger as plain lines, to the stream that `stream` returns at that moment."""
    logger, handler = logging.getLogger(name), _LineHandler(stream)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _LineHandler(logging.Handler):
    """Prints messages. The stream is asked for each time, because a progress bar may have replaced it."""

    def __init__(self, stream: Callable[[], TextIO]) -> None:
        super().__init__(logging.INFO)
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        warning = "warning: " if record.levelno >= logging.WARNING else ""
        print(printable(warning + record.getMessage(), keep="\n"), file=self._stream(), flush=True)


def _bar() -> Iterator["ProgressCallback"]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = TextColumn("{task.description:<10}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %")
    times = TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}")
    with Progress(*columns, *times, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, note="")
        current = ""

        def watch(stage: str, done: float, total: float, /, note: str = "") -> None:
            nonlocal current
            if stage != current:
                bar.reset(task, description=printable(stage))
                current = stage
            bar.update(task, completed=done, total=total or None, note=note)

        yield watch


class _Lines:
    """Plain lines: each stage when it begins, and every few seconds the share done, the time left and a note."""

    _EVERY = 5.0

    def __init__(self) -> None:
        self._stage = ""
        self._began = self._last = 0.0

    def __call__(self, stage: str, done: float, total: float, /, note: str = "") -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._began = now
        elif now - self._last < self._EVERY:
            return
        share = f" {done / total:.0%}" if total and done else ""
        left = (now - self._began) * (total - done) / done if share and now - self._began > 1 else 0.0
        eta = f", {left // 60:.0f}:{left % 60:02.0f} left" if left else ""
        line = f"{stage}{share}{eta}{', ' * bool(note)}{note}"
        print(printable(line), file=sys.stderr, flush=True)
        self._stage, self._last = stage, now
