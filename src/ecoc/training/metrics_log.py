"""The journal of a run: metrics.jsonl for machines, log.txt for people, TensorBoard if asked."""

import json
import os
from pathlib import Path
from typing import Any

from ecoc.errors import InputError, ResourceError
from ecoc.runs.folder import LOG, METRICS


class MetricsLog:
    """Appends to the files of a run folder; `rewind` drops what a killed process wrote after its last checkpoint."""

    def __init__(self, folder: Path, *, tensorboard: bool) -> None:
        self._metrics, self._log = folder / METRICS, folder / LOG
        self._board: Any = _board(folder) if tensorboard else None

    def size(self) -> int:
        """Bytes of metrics.jsonl, flushed to disk."""
        try:
            if not self._metrics.exists():
                return 0
            descriptor = os.open(self._metrics, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                return os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ResourceError(f"{self._metrics}: {error.strerror}; check the disk, then pass --resume") from error

    def rewind(self, size: int) -> None:
        """Cut metrics.jsonl to `size` bytes."""
        if self._metrics.exists():
            os.truncate(self._metrics, size)

    def write(self, line: dict[str, Any]) -> None:
        """One line of metrics."""
        self._append(self._metrics, json.dumps(line))
        if self._board is not None:
            for key, value in _flat(line).items():
                self._board.add_scalar(key, value, line["step"])
            self._board.flush()

    def say(self, text: str) -> None:
        """One line of the log."""
        self._append(self._log, text)

    def _append(self, path: Path, text: str) -> None:
        try:
            with path.open("a", encoding="utf-8") as stream:
                stream.write(text + "\n")
        except OSError as error:
            raise ResourceError(f"{path}: {error.strerror}; free space, then pass --resume") from error


def _flat(line: dict[str, Any], prefix: str = "") -> dict[str, float]:
    result: dict[str, float] = {}
    for key, value in line.items():
        if isinstance(value, dict):
            result |= _flat(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            result[prefix + key] = float(value)
    return result


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("train.tensorboard needs tensorboard: pip install 'ecoc[track]'") from None
    return SummaryWriter(str(folder / "tensorboard"))
