"""The terminal: progress on standard error, results on standard output, signals as exit codes."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol


class Watcher(Protocol):
    """Is told a stage's name, how much is done and how much there is (0 if unknown)."""

    def __call__(self, stage: str, done: float, total: float, /) -> None:
        """Take note."""


class Terminated(BaseException):
    """SIGTERM, raised like KeyboardInterrupt so that everything cleans up after itself."""


def listen_for_sigterm() -> None:
    """Turn SIGTERM into an exception; a second one ends the process at once."""

    def once(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, once)


@contextmanager
def progress(quiet: bool) -> Iterator[Watcher]:
    """A bar with share and time left on a terminal, a line a stage elsewhere, nothing if quiet."""
    if quiet:
        yield lambda stage, done, total: None
    elif sys.stderr.isatty():
        yield from _bar()
    else:
        yield _Lines()


def _bar() -> Iterator[Watcher]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = TextColumn("{task.description:<10}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %")
    with Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("", total=None)
        current = ""

        def watch(stage: str, done: float, total: float) -> None:
            nonlocal current
            if stage != current:
                bar.reset(task, description=stage)
                current = stage
            bar.update(task, completed=done, total=total or None)

        yield watch


class _Lines:
    """Plain lines: each stage when it begins, and a share every few seconds."""

    _EVERY = 5.0

    def __init__(self) -> None:
        self._stage = ""
        self._last = 0.0

    def __call__(self, stage: str, done: float, total: float, /) -> None:
        now = time.monotonic()
        if stage == self._stage and now - self._last < self._EVERY:
            return
        share = f" {done / total:.0%}" if total and done else ""
        print(f"{stage}{share}", file=sys.stderr, flush=True)
        self._stage, self._last = stage, now
