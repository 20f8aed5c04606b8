"""Rows that cannot be used: each is refused, or counted under a named reason."""

from collections import Counter
from pathlib import Path

from ecoc.data.schema import Reason
from ecoc.errors import InputError

_LISTED = 10


class BadRows:
    """Collects bad rows while a block of a log is read; `raise_or_record` then refuses the first one or lists them.

    `skip=False` refuses the first bad row in file order; `skip=True` counts all and lists the first ten. Several checks
    look at the same block, one after the other, so each may give ten examples before all are sorted by line.
    """

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.counts: Counter[Reason] = Counter()
        self.examples: list[str] = []
        self._fresh: list[tuple[int, int, str]] = []
        self._listed: Counter[str] = Counter()
        self._files: list[Path] = []

    def count(self, reason: Reason, rows: int) -> None:
        """Count bad rows; the caller also passes the first ones to `example`."""
        if rows:
            self.counts[reason] += rows

    def room(self, check: str) -> int:
        """Number of examples that `check` may still give before the next `raise_or_record`."""
        most = _LISTED - len(self.examples) if self.skip else 1
        return max(0, most - self._listed[check])

    def example(self, check: str, path: Path, line: int, message: str) -> None:
        """Add one bad row; `message` states what the row holds and what was expected."""
        if path not in self._files:
            self._files.append(path)
        self._listed[check] += 1
        self._fresh.append((self._files.index(path), line, f"{path}:{line}: {message}"))

    def raise_or_record(self) -> None:
        """Refuse the first bad row since the last call, or list the first ones, in file order."""
        messages = [text for _, _, text in sorted(self._fresh)]
        self._fresh.clear()
        self._listed.clear()
        if messages and not self.skip:
            raise InputError(f"{messages[0]}; fix the row or pass --bad-rows skip")
        self.examples += messages[: _LISTED - len(self.examples)]
