"""Tensor files in the safetensors format."""

import hashlib
import math
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoc.errors import ArtifactError
from ecoc.storage.trusted.files import LARGEST_FILE, compare_digest, open_regular
from ecoc.storage.trusted.text import parse_json, printable

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST_HEADER = 4 << 20  # bytes
_MOST_TENSORS = 10_000
_LONGEST_NAME = 200
_MOST_AXES = 8
_DTYPES = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool"},
    **{"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8"},
}


def load_tensors(
    path: Path, *, sha256: str | None, largest: int = LARGEST_FILE, mapped: bool = False
) -> tuple[dict[str, "Tensor"], str]:
    """The tensors of a safetensors file, and its SHA-256, which must be `sha256` if that is given.

    The tensors share one copy of the file, which must fit the machine's memory. If `mapped`, they are views of a
    private map instead: processes share its pages, and a change of a tensor stays in its process.
    """
    content: bytearray | mmap.mmap
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with open_regular(path, largest=largest if mapped else min(largest, memory)) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size < 8:
            raise ArtifactError(f"{path}: {size} bytes, too short for a tensor file")
        if mapped:
            content = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_COPY)
        else:
            content = bytearray(size)
            if stream.readinto(content) != size:
                raise ArtifactError(f"{path}: changes while it is read; try again")
    digest = hashlib.sha256(content).hexdigest()
    compare_digest(path, digest, sha256)
    try:
        return _tensors(content), digest
    except (ValueError, TypeError, KeyError) as error:
        raise ArtifactError(f"{path}: not a readable tensor file ({printable(str(error))[:100]})") from None


def _tensors(content: bytearray | mmap.mmap) -> dict[str, "Tensor"]:
    import torch

    length = int.from_bytes(content[:8], "little")
    first = 8 + length
    if length > min(_LARGEST_HEADER, len(content) - 8):
        raise ValueError(f"a header of {length:,} bytes")
    header = parse_json(bytes(content[8:first]), most_values=20 * _MOST_TENSORS)
    if not isinstance(header, dict) or len(header) > _MOST_TENSORS:
        raise ValueError(f"the header is no object of at most {_MOST_TENSORS:,} tensors")
    header.pop("__metadata__", None)
    tensors, position = {}, 0
    for name, entry in sorted(header.items(), key=lambda pair: _whole_numbers(pair[1]["data_offsets"], 2)):
        if len(name) > _LONGEST_NAME or printable(name) != name:
            raise ValueError(f"a tensor is called '{name[:40]}'")
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
            raise ValueError(f"tensor '{name}' has no known type")
        dtype = getattr(torch, _DTYPES[entry["dtype"]])
        shape = _whole_numbers(entry["shape"], None)
        begin, end = entry["data_offsets"]
        count = math.prod(shape)
        if begin != position or end - begin != count * dtype.itemsize or first + end > len(content):
            raise ValueError(f"the place of tensor '{name}' does not fit its shape, its neighbours or the file")
        position = end
        if not count:
            tensors[name] = torch.empty(shape, dtype=dtype)
            continue
        if dtype == torch.bool and bool((_view(content, torch.uint8, first + begin, count) > 1).any()):
            raise ValueError(f"tensor '{name}' holds bytes that are neither true nor false")
        tensors[name] = _view(content, dtype, first + begin, count).reshape(shape)
    if first + position != len(content):
        raise ValueError("bytes follow the last tensor")
    return tensors


def _whole_numbers(values: object, count: int | None) -> list[int]:
    is_list = isinstance(values, list) and (len(values) == count if count is not None else len(values) <= _MOST_AXES)
    if not is_list or any(type(value) is not int or value < 0 for value in values):  # type: ignore[attr-defined]
        raise ValueError("a shape or a place is no list of whole numbers")
    return values  # type: ignore[return-value]


def _view(content: bytearray | mmap.mmap, dtype: Any, offset: int, count: int) -> "Tensor":
    import torch

    if offset % dtype.itemsize:  # as foreign writers may place it; kernels expect numbers at multiples of their size
        copied = bytearray(content[offset : offset + count * dtype.itemsize])
        return torch.frombuffer(copied, dtype=dtype, count=count)
    return torch.frombuffer(content, dtype=dtype, offset=offset, count=count)
