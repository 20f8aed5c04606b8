"""A bundle: a folder with all that recommending needs, and nothing that can run code; docs/formats.md.

    bundle.json           what it is, its settings, and size and checksum of every other file
    items.parquet         the items
    policy.safetensors    the weights that rank; critic.safetensors those of the critic
    matrix.safetensors    what is computed from the weights once: the item matrix of each ranking mode
    counts.safetensors    the counts term, if the model has one
    encoder.onnx          the encoder, if it was exported
    items.index           the compressed item matrix, if one was built

Tensors are mapped: processes that serve one bundle share its pages.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from torch import Tensor

from ecoc.batch import Dims
from ecoc.config import Config
from ecoc.data.schema import GREATEST_UNIT, ITEMS
from ecoc.errors import ArtifactError, InputError
from ecoc.policies.counts import LARGEST_COUNTS_WEIGHT
from ecoc.policies.value_policy import LARGEST_W
from ecoc.storage.trusted import LARGEST_FILE, is_there, load_tensors, open_regular, parse_json, read_bytes
from ecoc.storage.trusted.files import compare_digest

BUNDLE = "bundle.json"
POLICY, CRITIC, MATRIX, TRANSITIONS = (f"{name}.safetensors" for name in ("policy", "critic", "matrix", "counts"))
ONNX, INDEX = "encoder.onnx", "items.index"
FILES = (ITEMS, POLICY, CRITIC, MATRIX, TRANSITIONS, ONNX, INDEX)
_REQUIRED = (ITEMS, POLICY, MATRIX)
_LARGEST = 4 << 20
_MOST_ITEMS = 1 << 31
_EXPORT_AGAIN = "export it again"
VERSION_DIGITS = 12


class FileEntry(Config):
    """Size and checksum of a file."""

    bytes: int = Field(ge=0, le=LARGEST_FILE)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class RankingEntry(Config):
    """How the model ranks if a request does not say."""

    rank_by: Literal["blend"] = "blend"
    w: float = Field(ge=0, le=LARGEST_W, allow_inf_nan=False)


class IndexPoint(Config):
    """How many candidates the index must give for a weight w of the value, and what it was measured to miss."""

    w: float = Field(ge=0, le=LARGEST_W, allow_inf_nan=False)
    factor: int = Field(ge=1, le=1024, description="candidates per item of a list")
    recall: float = Field(ge=0, le=1, allow_inf_nan=False, description="share of the exact best 20 among them")


class IndexEntry(Config):
    """The compressed items: product quantisation with 4 bits, and what was measured. Larger w are ranked exactly."""

    kind: Literal["pq4"] = "pq4"
    points: list[IndexPoint] = Field(min_length=1, max_length=100, description="in ascending order of w")


class BundleRecord(Config):
    """What bundle.json holds."""

    format: Literal["ecoc-bundle"] = "ecoc-bundle"
    version: Literal[1] = 1
    ecoc: str = Field(max_length=40, description="version that wrote it")
    name: str = Field(min_length=1, max_length=200)
    config: dict[str, Any] = Field(description="settings of the run")
    dims: Dims
    feedback: list[str] = Field(max_length=10_000)
    reward_unit: float = Field(1.0, gt=0, le=GREATEST_UNIT, allow_inf_nan=False)
    weights_sha256: str = Field(max_length=64, description="of the run's weights")
    data_sha256: str | None = Field(None, max_length=64, description="fingerprint of the training data")
    world: dict[str, Any] | None = Field(None, description="settings of the built-in world it was trained in")
    ranking: RankingEntry | None = Field(None, description="chosen ranking; none: the method's own")
    counts_weight: float = Field(0.0, ge=0, le=LARGEST_COUNTS_WEIGHT, allow_inf_nan=False)
    index: IndexEntry | None = None
    files: dict[str, FileEntry]


@dataclass(frozen=True)
class Bundle:
    """An opened bundle folder."""

    path: Path
    record: BundleRecord
    version: str

    def tensors(self, file: str) -> dict[str, Tensor]:
        """The tensors of a file, mapped, after its checksum was compared; none of it if the bundle has no such file."""
        if file not in self.record.files:
            return {}
        entry = self.record.files[file]
        tensors, _ = load_tensors(self.path / file, sha256=entry.sha256, largest=entry.bytes, mapped=True)
        return tensors

    def content(self, file: str, *, largest: int) -> bytes:
        """The content of a file that the bundle lists, after its checksum was compared."""
        content = read_bytes(self.path / file, largest=largest)
        compare_digest(self.path / file, hashlib.sha256(content).hexdigest(), self.record.files[file].sha256)
        return content


def is_bundle(path: Path) -> bool:
    """Whether a folder is meant as a bundle."""
    return is_there(path / BUNDLE)


def open_bundle(path: Path) -> Bundle:
    """Read and check bundle.json, and the sizes of the files it lists. Their checksums are compared at the reading."""
    file = path / BUNDLE
    content = read_bytes(file, largest=_LARGEST, folder=path)
    try:
        values = parse_json(content)
    except ValueError as error:
        raise ArtifactError(f"{file}: not readable as JSON ({error}); {_EXPORT_AGAIN}") from None
    if not isinstance(values, dict):
        raise ArtifactError(f"{file}: holds no JSON object; {_EXPORT_AGAIN}")
    if values.get("format") == "ecoc-bundle" and values.get("version") != 1:
        raise ArtifactError(f"{file}: version {str(values.get('version'))[:20]!r} of the format; this ecoc reads 1")
    try:
        record = BundleRecord.model_validate(values)
    except (ValidationError, InputError, OverflowError) as error:
        raise ArtifactError(f"{file}: not the description of a bundle ({_first(error)}); {_EXPORT_AGAIN}") from None
    strange = set(record.files) - set(FILES)
    missing = set(_REQUIRED) - set(record.files)
    if strange or missing:
        what = f"does not list {min(missing)}" if missing else "lists a file that no bundle has"
        raise ArtifactError(f"{file}: {what}; {_EXPORT_AGAIN}")
    weights = [point.w for point in record.index.points] if record.index is not None else []
    if (record.index is None) == (INDEX in record.files) or weights != sorted(set(weights)):
        raise ArtifactError(f"{file}: what it says of an index contradicts itself; {_EXPORT_AGAIN}")
    dims = record.dims
    if not 0 < dims.items < _MOST_ITEMS:
        raise ArtifactError(f"{file}: {dims.items} items; {_EXPORT_AGAIN}")
    if not (0 <= dims.users < _MOST_ITEMS and 0 <= dims.feedback < _MOST_ITEMS):
        raise ArtifactError(f"{file}: {dims.users} users and {dims.feedback} kinds of feedback; {_EXPORT_AGAIN}")
    for name, entry in record.files.items():
        with open_regular(path / name, largest=LARGEST_FILE) as stream:
            size = os.fstat(stream.fileno()).st_size
        if size != entry.bytes:
            raise ArtifactError(f"{path / name}: {size} bytes, {BUNDLE} says {entry.bytes}; {_EXPORT_AGAIN}")
    return Bundle(path, record, hashlib.sha256(content).hexdigest()[:VERSION_DIGITS])


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"'{'.'.join(str(step)[:40] for step in first['loc'])}': {first['msg']}"[:160]
    return str(error)[:160]
