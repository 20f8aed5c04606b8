"""Signals during training: the first makes the loop save and stop, the second ends the process at once."""

import signal
import threading
from types import FrameType
from typing import Any, Self

from ecoc.errors import Terminated


class Signals:
    """While open, SIGINT and SIGTERM only set `number`. Outside the main thread it does nothing."""

    def __init__(self) -> None:
        self.number = 0
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._old = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        for caught in self._old:
            signal.signal(caught, signal.SIG_DFL)

    def __exit__(self, *error: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def reraise(self) -> None:
        """Raise what the signal stands for, now that everything is saved."""
        if self.number:
            raise KeyboardInterrupt if self.number == signal.SIGINT else Terminated
