"""Stopwatch: where the time of a step goes, by part."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Wall seconds by part; parts do not nest."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Time a part."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - started
