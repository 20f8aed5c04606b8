"""What work costs: where the time of a step goes, by part, and the most memory a process had."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def peak_rss() -> int:
    """Most memory this process has had, in bytes; what `getrusage` says may be that of the one that started it."""
    try:
        lines = Path("/proc/self/status").read_text(errors="replace").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):  # no Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
