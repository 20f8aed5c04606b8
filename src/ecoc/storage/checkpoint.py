"""Checkpoints: a tensor file and its JSON file. A checkpoint is valid once its JSON file exists."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ecoc.errors import ArtifactError, TrainingError
from ecoc.storage.atomic import cleaned, json_bytes, put_in_place, remove_abandoned, write_aside
from ecoc.storage.trusted import load_json, load_tensors

_DTYPES = {
    **{torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32"},
    **{torch.uint8: "U8", torch.bool: "BOOL"},
}
_LOGGER = logging.getLogger(__name__)

R = TypeVar("R")


@dataclass(frozen=True)
class Checkpoint:
    """Tensors and state read from disk, with the checksum of the tensor file."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]
    sha256: str


class NotFiniteError(TrainingError):
    """A tensor to save holds a number that is not finite."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(f"{path}: not saved, because '{name}' holds a number that is not finite")
        self.name = name


def save_checkpoint(folder: Path, name: str, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> str:
    """Write `name`.safetensors and then `name`.json into `folder`; return the tensor file's SHA-256.

    A tensor with a number that is not finite is refused.
    """
    for key, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise NotFiniteError(folder / name, key)
    paths = folder / f"{name}.safetensors", folder / f"{name}.json"
    with cleaned(paths):
        digest = write_aside(paths[0], safetensors_pieces(tensors))
        write_aside(paths[1], [json_bytes({**state, "sha256": digest})])
        for path in paths:  # once both are on disk, so that a full disk leaves the checkpoint before intact
            put_in_place(path)
    return digest


def load_checkpoint(folder: Path, name: str) -> Checkpoint:
    """Read a checkpoint and verify its checksum."""
    state = load_json(folder / f"{name}.json", remedy="not a readable checkpoint")
    digest = state.pop("sha256", None)
    if not isinstance(digest, str):
        raise ArtifactError(f"{folder / name}.json: not a readable checkpoint (it names no checksum)")
    tensors, _ = load_tensors(folder / f"{name}.safetensors", sha256=digest)
    return Checkpoint(tensors, state, digest)


def load_latest(folder: Path) -> Checkpoint | None:
    """The newest valid checkpoint of a run; none if it has no checkpoint yet.

    A damaged checkpoint is passed over with a warning. If all are damaged, that is an error: to begin again without a
    word would throw the work away.
    """
    return _newest(folder, load_checkpoint)


def latest_state(folder: Path) -> dict[str, Any] | None:
    """The JSON of the newest checkpoint, without reading its tensors; none if it has no checkpoint yet."""
    return _newest(folder, lambda folder, name: load_json(folder / f"{name}.json", remedy="not a readable checkpoint"))


def _newest(folder: Path, load: Callable[[Path, str], R]) -> R | None:
    errors: list[ArtifactError] = []
    for name in sorted((path.stem for path in folder.glob("step-*.json")), reverse=True):
        try:
            opened = load(folder, name)
        except ArtifactError as error:
            errors.append(error)
            continue
        for damage in errors:
            _LOGGER.warning("%s; passed over, an earlier checkpoint is used", damage)
        return opened
    if errors:
        raise ArtifactError(f"{errors[0]}; no checkpoint is left to resume from: restore one, or pass --overwrite")
    return None


def latest_name(folder: Path) -> str | None:
    """Name of the newest checkpoint; it is not read."""
    return max((path.stem for path in folder.glob("step-*.json")), default=None)


def name_of(step: int) -> str:
    """Name of the checkpoint of step `step`."""
    return f"step-{step:012d}"


def keep_last(folder: Path, count: int) -> None:
    """Remove all but the newest `count` checkpoints, and partial files of a killed process."""
    for stem in sorted(path.stem for path in folder.glob("step-*.json"))[:-count]:
        (folder / f"{stem}.json").unlink(missing_ok=True)
        (folder / f"{stem}.safetensors").unlink(missing_ok=True)
    remove_partial(folder)


def remove_partial(folder: Path) -> None:
    """Remove temporary files of killed processes, and tensor files without their JSON file."""
    remove_abandoned(folder)
    for path in folder.glob("step-*.safetensors"):
        if not path.with_suffix(".json").exists():
            path.unlink(missing_ok=True)


def safetensors_pieces(tensors: Mapping[str, Tensor]) -> Iterable[bytes | memoryview]:
    """The safetensors format, piece by piece without a copy: saving a large table needs no second one in memory."""
    header: dict[str, Any] = {}
    position = 0
    for key, tensor in sorted(tensors.items()):
        end = position + tensor.numel() * tensor.element_size()
        header[key] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for key in sorted(tensors):
        yield np.ascontiguousarray(tensors[key].detach().numpy()).reshape(-1).view(np.uint8).data
