"""Export: a finished run becomes a bundle, the folder that a server opens."""

import shutil
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from ecoc.arguments import StrPath, as_flag, as_path
from ecoc.data.schema import ITEMS
from ecoc.data.sequences import open_data
from ecoc.errors import EcocError
from ecoc.model import Model, load
from ecoc.policies.counts import PolicyWithCounts
from ecoc.result import Result
from ecoc.runs.bundle import (
    BUNDLE,
    CRITIC,
    INDEX,
    MATRIX,
    ONNX,
    POLICY,
    TRANSITIONS,
    BundleRecord,
    FileEntry,
    IndexEntry,
    RankingEntry,
)
from ecoc.serving.index import WORTHWHILE, ItemIndex, build_index
from ecoc.serving.onnx import write_onnx
from ecoc.storage.atomic import json_bytes, new_folder, write_whole
from ecoc.storage.checkpoint import safetensors_pieces
from ecoc.storage.trusted import file_sha256, is_there, printable

_OF_CRITIC = ("critic.", "cost")


class ExportResult(Result):
    """A bundle that was written."""

    bundle: str = Field(description="its folder")
    name: str
    version: str
    items: int
    bytes: int
    files: dict[str, int] = Field(description="bytes by file")
    index: IndexEntry | None = Field(None, description="what was measured of the index, if there is one")

    def __str__(self) -> str:
        lines = [f"{self.bundle}: {self.name} version {self.version}, {self.items:,} items, {_size(self.bytes)}"]
        lines += [f"  {name:20} {_size(size):>10}" for name, size in self.files.items()]
        if self.index is not None:
            measured = (f"w {point.w:g}: {point.recall:.3f} (x{point.factor})" for point in self.index.points)
            lines += [f"recall of the exact best 20 through the index: {', '.join(measured)}"]
            if self.items < WORTHWHILE:
                lines += [f"{self.items:,} items are few: without the index lists are exact and about as fast"]
        return "\n".join(map(printable, [*lines, f"serve it with: ecoc serve {self.bundle}"]))


def export(
    run: StrPath, out: StrPath, *, overwrite: bool = False, onnx: bool = False, index: bool = False
) -> ExportResult:
    """Write the model of a finished run as a bundle. Its ranking is the one that was chosen for the run.

    `onnx` adds the encoder as an ONNX graph, if onnxruntime lists the same items with it as torch does.
    `index` adds compressed items, which a server scans in place of the item matrix; for large catalogues.
    """
    model, target, onnx, index = load(run), as_path(out, "out"), as_flag(onnx, "onnx"), as_flag(index, "index")
    source = model.run  # refuses a bundle
    with new_folder(target, overwrite=as_flag(overwrite, "overwrite"), is_ours=_is_bundle) as folder:
        if onnx:
            write_onnx(model, folder)
        record = _write(model, folder, has_index=index)
        write_whole(folder / BUNDLE, [json_bytes(record.model_dump(mode="json"))])
    written = load(target, runtime="onnx" if onnx else "torch")  # what cannot be opened must not be left unsaid
    ItemIndex.open(written)
    files = {name: entry.bytes for name, entry in record.files.items()}
    return ExportResult(
        bundle=str(out),
        name=source.name,
        version=written.version,
        items=len(model.vocab),
        bytes=sum(files.values()),
        files=files,
        index=record.index,
    )


def _write(model: Model, folder: Path, *, has_index: bool) -> BundleRecord:
    result, counted = model.run.result, model.policy if isinstance(model.policy, PolicyWithCounts) else None
    policy = model.policy.without_counts
    weights = {name: tensor.contiguous() for name, tensor in policy.state_dict().items()}
    critic = {name: tensor for name, tensor in weights.items() if name.startswith(_OF_CRITIC) and policy.has_critic}
    with torch.inference_mode():
        finished = policy.finished()
    tensors: dict[str, dict[str, Tensor]] = {
        POLICY: {name: tensor for name, tensor in weights.items() if name not in critic},
        MATRIX: finished,
        **({CRITIC: critic} if critic else {}),
        **({TRANSITIONS: dict(counted.transitions.state_dict())} if counted is not None else {}),
    }
    entry = None
    if has_index:
        tensors[INDEX], entry = build_index(model)
    for name, content in tensors.items():
        write_whole(folder / name, safetensors_pieces(content))
    shutil.copyfile(model.run.path / ITEMS, folder / ITEMS)
    chosen = model.run.chosen_ranking()
    return BundleRecord(
        ecoc=version("ecoc"),
        name=model.name,
        config=model.config.values(),
        dims=result.dims,
        feedback=result.feedback,
        reward_unit=result.reward_unit,
        weights_sha256=result.weights_sha256,
        data_sha256=result.data.checksum if result.data is not None else None,
        world=world_settings(model),
        ranking=RankingEntry(w=chosen[1]) if chosen is not None else None,
        counts_weight=counted.weight if counted is not None else 0.0,
        index=entry,
        files={name: _entry(folder / name) for name in (ITEMS, *tensors, ONNX) if is_there(folder / name)},
    )


def world_settings(model: Model) -> dict[str, Any] | None:
    """Settings of the built-in world that the model was trained in: of its bundle, or of its data if they are there."""
    if model.bundle is not None:
        return model.bundle.record.world
    data = model.run.result.data
    with suppress(EcocError, OSError):
        if data is not None:
            manifest = open_data(data.path).manifest
            world = manifest.settings.get("world")
            return world if isinstance(world, dict) and manifest.checksum == data.checksum else None
    return None


def _entry(path: Path) -> FileEntry:
    return FileEntry(bytes=path.stat().st_size, sha256=file_sha256(path))


def _is_bundle(folder: Path) -> bool:
    return (folder / BUNDLE).is_file()


def _size(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count = count // 1000
    return f"{count} GB"
