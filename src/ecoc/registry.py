"""Registry: name -> class. An explicit table; outside packages join through entry points."""

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from ecoc.errors import InputError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """What there is of one kind, by the name used in flags, configs and reports.

    Installed packages add to it through the entry-point group `ecoc.<kind>s`; a built-in name cannot be taken over.
    """

    def __init__(self, kind: str, table: Mapping[str, type[T]]) -> None:
        self.kind = kind
        self._table = dict(table)

    def __iter__(self) -> Iterator[str]:
        yield from self._table
        yield from (point.name for point in self._outside() if point.name not in self._table)

    def __getitem__(self, name: str) -> type[T]:
        if name in self._table:
            return self._table[name]
        for point in self._outside():
            if point.name == name:
                found: type[T] = point.load()
                return found
        raise InputError(f"unknown {self.kind} '{name}'; {did_you_mean(name, self)}")

    def register(self, name: str, kind: type[T]) -> None:
        """Add a class for this process, as a script or a notebook does; a name that is taken is refused.

        A run that used it opens only where the class is registered again. A package uses an entry point instead.
        """
        if name in list(self):
            raise InputError(f"{self.kind} '{name}' exists already; choose another name")
        self._table[name] = kind

    def _outside(self) -> list[EntryPoint]:
        return list(entry_points(group=f"ecoc.{self.kind}s"))
