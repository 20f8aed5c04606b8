"""Sources: one raw format each. A new one needs one file and one line in `ecoc.registry`."""

from ecoc.data.bad_rows import BadRows
from ecoc.data.delimited import Delimited
from ecoc.data.readers import JsonLines, ParquetRows, Reader
from ecoc.data.sources.base import Feedback, Fields, PrepareConfig, Source, find_file
from ecoc.data.times import Epoch, Iso, Pattern, RowOrder
from ecoc.registry import Registry

__all__ = [
    "SOURCES",
    "BadRows",
    "Delimited",
    "Epoch",
    "Feedback",
    "Fields",
    "Iso",
    "JsonLines",
    "ParquetRows",
    "Pattern",
    "PrepareConfig",
    "Reader",
    "RowOrder",
    "Source",
    "find_file",
]

SOURCES: Registry[Source] = Registry("source")
