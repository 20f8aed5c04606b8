"""Watcher: what long work tells about how far it is."""

from typing import Protocol


class ProgressCallback(Protocol):
    """Is told a stage's name, how much is done, how much there is (0 if unknown), and what else is worth seeing."""

    def __call__(self, stage: str, done: float, total: float, /, note: str = "") -> None:
        """Take note."""


def no_progress(stage: str, done: float, total: float, /, note: str = "") -> None:
    """Nobody looks."""
