"""What a run records: metrics.jsonl for programs, log.txt and the logger `ecoc.training` for people, TensorBoard."""

import json
import logging
import os
from pathlib import Path
from typing import Any

from ecoc.errors import ArtifactError, InputError, ResourceError
from ecoc.runs.folder import LOG, METRICS
from ecoc.runs.metrics import flat
from ecoc.storage.trusted import open_to_append, printable

_LOGGER = logging.getLogger("ecoc.training")


class MetricsLog:
    """Appends to the files of a run folder; `rewind` drops what a killed process wrote after its last checkpoint."""

    def __init__(self, folder: Path, *, tensorboard: bool) -> None:
        self._metrics, self._log = folder / METRICS, folder / LOG
        self._board: Any = _board(folder) if tensorboard else None

    def size(self) -> int:
        """Bytes of metrics.jsonl, flushed to disk."""
        try:
            with open_to_append(self._metrics) as stream:
                os.fsync(stream.fileno())
                return os.fstat(stream.fileno()).st_size
        except OSError as error:
            raise ResourceError(f"{self._metrics}: {error.strerror}; check the disk, then pass --resume") from error

    def rewind(self, size: int) -> None:
        """Cut metrics.jsonl to `size` bytes."""
        with open_to_append(self._metrics) as stream:
            if not 0 <= size <= os.fstat(stream.fileno()).st_size:
                raise ArtifactError(f"{self._metrics}: shorter than when its checkpoint was saved; pass --overwrite")
            stream.truncate(size)

    def write(self, line: dict[str, Any]) -> None:
        """Append a line of metrics."""
        self._append(self._metrics, json.dumps(line))
        if self._board is not None:
            for name, value in flat(line).items():
                if not isinstance(value, bool):
                    self._board.add_scalar(name, float(value), line["step"])
            self._board.flush()

    def info(self, text: str) -> None:
        """Log what the user should read once."""
        self._append(self._log, printable(text))
        _LOGGER.info(text)

    def warn(self, text: str) -> None:
        """Log a warning."""
        self._append(self._log, f"warning: {printable(text)}")
        _LOGGER.warning(text)

    def detail(self, text: str) -> None:
        """Log what repeats; the logger has it at level DEBUG."""
        self._append(self._log, printable(text))
        _LOGGER.debug(text)

    def _append(self, path: Path, text: str) -> None:
        try:
            with open_to_append(path) as stream:
                stream.write(f"{text}\n".encode())
        except OSError as error:
            raise ResourceError(f"{path}: {error.strerror}; free space, then pass --resume") from error


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("train.tensorboard needs tensorboard: pip install 'ecoc[track]'") from None
    return SummaryWriter(str(folder / "tensorboard"))
