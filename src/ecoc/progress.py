"""Progress of long work, reported through a callback."""

from typing import Protocol


class ProgressCallback(Protocol):
    """Called with the name of a stage, how much is done, the total (0 if unknown), and a note to show beside them."""

    def __call__(self, stage: str, done: float, total: float, /, note: str = "") -> None:
        """Show or record the progress."""


def no_progress(stage: str, done: float, total: float, /, note: str = "") -> None:
    """Ignore all progress."""
