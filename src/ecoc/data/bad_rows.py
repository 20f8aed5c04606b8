"""Rows that cannot be used: each is refused or counted by a named reason, never lost."""

from collections import Counter
from pathlib import Path

from ecoc.data.schema import Reason
from ecoc.errors import InputError

_LISTED = 10


class BadRows:
    """Collects bad rows while a stretch of a log is read; `raise_or_record` then refuses the first of it, or lists it.

    `skip=False` refuses the first bad row in file order; `skip=True` counts all and lists the first ten. Rows are found
    bad in several places, one stretch at a time, so each place may list ten of its own before they are put in order.
    """

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.counts: Counter[Reason] = Counter()
        self.examples: list[str] = []
        self._fresh: list[tuple[int, int, str]] = []
        self._listed: Counter[str] = Counter()
        self._files: list[Path] = []

    def count(self, reason: Reason, rows: int) -> None:
        """Count bad rows; the first ones are also given to `example`."""
        if rows:
            self.counts[reason] += rows

    def room(self, place: str) -> int:
        """How many more examples the `place` where rows are found bad may give before the next `raise_or_record`."""
        most = _LISTED - len(self.examples) if self.skip else 1
        return max(0, most - self._listed[place])

    def example(self, place: str, path: Path, line: int, message: str) -> None:
        """One bad row; `message` says what was found and what was expected."""
        if path not in self._files:
            self._files.append(path)
        self._listed[place] += 1
        self._fresh.append((self._files.index(path), line, f"{path}:{line}: {message}"))

    def raise_or_record(self) -> None:
        """Refuse the first bad row since the last time, or list the first ones, in file order."""
        found = [text for _, _, text in sorted(self._fresh)]
        self._fresh.clear()
        self._listed.clear()
        if found and not self.skip:
            raise InputError(f"{found[0]}; fix the row or pass --bad-rows skip")
        self.examples += found[: _LISTED - len(self.examples)]
