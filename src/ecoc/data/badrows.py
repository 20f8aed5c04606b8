"""Rows that cannot be used: each is refused or counted by a named reason, never lost."""

from collections import Counter

from ecoc.errors import InputError
from ecoc.schema import Reason

_LISTED = 10


class BadRows:
    """Collects bad rows. `skip=False` refuses the first one; `skip=True` counts all and lists the first ten."""

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.counts: Counter[Reason] = Counter()
        self.examples: list[str] = []

    def add(self, reason: Reason, where: str, message: str) -> None:
        """One bad row at `where` (file:line); `message` says what was found and what was expected."""
        self.example(where, message)
        self.count(reason, 1)

    def count(self, reason: Reason, rows: int) -> None:
        """Count bad rows; the first ones are also shown by `example`."""
        if rows:
            self.counts[reason] += rows

    def example(self, where: str, message: str) -> None:
        """Refuse, or list while there is room."""
        if not self.skip:
            raise InputError(f"{where}: {message}; fix the row or pass --bad-rows skip")
        if self.room:
            self.examples.append(f"{where}: {message}")

    @property
    def room(self) -> int:
        """How many more examples will be listed."""
        return max(0, _LISTED - len(self.examples))
