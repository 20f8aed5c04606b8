"""What a report was made with: machine, versions, date."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch


def made_with(threads: int | None = None) -> dict[str, str]:
    """Facts of a report; `threads`: how many were used, where that was chosen."""
    used = f", {threads} used" if threads is not None else ""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores{used}",
        "versions": f"ecoc {version('ecoc')}, torch {torch.__version__}, Python {platform.python_version()}",
        "date": datetime.now(UTC).date().isoformat(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
