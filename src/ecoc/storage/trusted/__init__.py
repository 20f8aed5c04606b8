"""The one place that opens files of a dataset, a run or a bundle. Nothing on disk is trusted.

A file is a regular file of limited size inside its folder; it is hashed and parsed from one descriptor, so it cannot be
exchanged in between. What it claims about itself is checked before memory is spent on it. Every refusal is an
`ArtifactError` in one line. Torch and Arrow are loaded only where they are needed: `ecoc prepare` starts without torch.
"""

from ecoc.storage.trusted.files import (
    LARGEST_FILE,
    file_sha256,
    is_there,
    open_regular,
    open_to_append,
    own_folder,
    read_bytes,
)
from ecoc.storage.trusted.tables import map_table, read_table
from ecoc.storage.trusted.tensors import load_tensors
from ecoc.storage.trusted.text import LARGEST_JSON, load_json, load_toml, parse_json, printable, printable_json

__all__ = [
    "LARGEST_FILE",
    "LARGEST_JSON",
    "file_sha256",
    "is_there",
    "load_json",
    "load_tensors",
    "load_toml",
    "map_table",
    "open_regular",
    "open_to_append",
    "own_folder",
    "parse_json",
    "printable",
    "printable_json",
    "read_bytes",
    "read_table",
]
