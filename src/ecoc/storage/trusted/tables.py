"""Parquet and Arrow files as tables that take little more memory than their files."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoc.errors import ArtifactError
from ecoc.storage.trusted.files import mapped_file
from ecoc.storage.trusted.text import printable

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 1 << 16  # rows
_MOST_ROW_GROUPS = 10_000
_ENCODINGS = frozenset({"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
_EXPANSION, _SPARE = 8, 64 << 20  # a table may take this many times its file, and so many bytes more


def read_table(
    path: Path, *, columns: Mapping[str, "pa.DataType"], most_rows: int, largest: int, sha256: str | None = None
) -> "pa.Table":
    """A Parquet file of exactly these columns, numbers and text, which takes little more memory than its file.

    Text stays encoded until its length is known: a file of kilobytes may repeat one long text millions of times.
    """
    import pyarrow as pa
    import pyarrow.parquet

    with mapped_file(path, sha256, largest) as content:
        limit = _EXPANSION * len(content) + _SPARE
        texts = [name for name, kind in columns.items() if kind == pa.string()]
        schema = pa.schema(dict(columns))
        try:
            file = pa.parquet.ParquetFile(
                pa.py_buffer(content), read_dictionary=texts, pre_buffer=False, thrift_container_size_limit=1_000_000
            )
            _check_metadata(file, schema, most_rows, limit)
            batches = []
            for batch in file.iter_batches(_BATCH, use_threads=False):
                arrays = [_plain(batch.column(name)) for name in columns]
                limit -= sum(array.nbytes for array, _ in arrays) + sum(length for _, length in arrays)
                if limit < 0:
                    raise ValueError("its text takes far more memory than the file")
                batches.append(pa.record_batch([_decoded(array) for array, _ in arrays], schema=schema))
            return pa.Table.from_batches(batches, schema)
        except KeyError:  # of a column that has no such leaf
            raise ArtifactError(f"{path}: not a readable table ({_other_columns(schema)})") from None
        except (pa.ArrowException, OSError, ValueError, TypeError) as error:
            raise ArtifactError(f"{path}: not a readable table ({printable(str(error))[:100]})") from None


def _other_columns(schema: "pa.Schema") -> str:
    return f"its columns are not {', '.join(schema.names)} with their types"


def _check_metadata(file: Any, schema: "pa.Schema", most_rows: int, limit: int) -> None:
    import pyarrow as pa

    metadata = file.metadata
    types = {
        field.name: field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        for field in file.schema_arrow
    }
    if list(types.items()) != [(field.name, field.type) for field in schema]:
        raise ValueError(_other_columns(schema))
    if not 0 <= metadata.num_rows <= most_rows or metadata.num_row_groups > _MOST_ROW_GROUPS:
        raise ValueError(f"{metadata.num_rows:,} rows, expected at most {most_rows:,}")
    width = sum(8 if field.type == pa.string() else field.type.bit_width // 8 for field in schema)
    claimed = 0
    for place in range(metadata.num_row_groups):
        for column in range(len(schema)):
            chunk = metadata.row_group(place).column(column)
            claimed += max(chunk.total_uncompressed_size, 0)
            if chunk.compression not in ("SNAPPY", "UNCOMPRESSED"):  # others compress zeros by a factor of thousands
                raise ValueError(f"compressed with {chunk.compression}, expected SNAPPY")
            if not _ENCODINGS.issuperset(chunk.encodings):  # differences between texts make few bytes long texts
                raise ValueError(f"encoded with {', '.join(chunk.encodings)}")
    if max(width * metadata.num_rows, claimed) > limit:
        raise ValueError("its rows take far more memory than the file")


def _plain(array: "pa.Array") -> tuple["pa.Array", int]:
    """A column of a batch, checked, and the bytes that its text adds when it is decoded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array.validate(full=True)
    if not pa.types.is_dictionary(array.type):
        return array, 0
    array.dictionary.validate(full=True)
    return array, pc.sum(pc.binary_length(array.dictionary).take(array.indices)).as_py() or 0


def _decoded(array: "pa.Array") -> "pa.Array":
    import pyarrow as pa

    return array.dictionary_decode().cast(pa.string()) if pa.types.is_dictionary(array.type) else array


def map_table(
    path: Path, *, columns: Mapping[str, "pa.DataType"], rows: int, largest: int, sha256: str | None = None
) -> "pa.Table":
    """An Arrow IPC file of exactly these columns and so many rows, as views of a private map of it."""
    import pyarrow as pa

    schema = pa.schema(dict(columns))
    with mapped_file(path, sha256, largest) as content:
        try:
            if content[:8] != b"ARROW1\0\0":
                raise ValueError("not an Arrow file")
            messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(content).slice(8))
            if not pa.ipc.read_schema(messages.read_next_message()).equals(schema):
                raise ValueError(_other_columns(schema))
            batches: list[pa.RecordBatch] = []
            count = 0
            for message in messages:
                if message.type != "record batch" or _is_compressed(message.metadata.to_pybytes()):
                    raise ValueError("it holds other than plain rows")
                batch = pa.ipc.read_record_batch(message, schema)
                batch.validate(full=True)
                count += batch.num_rows
                if count > rows or len(batches) > rows:
                    break
                batches.append(batch)
            if count != rows:
                raise ValueError(f"{count:,} rows or more, expected {rows:,}")
            return pa.Table.from_batches(batches, schema)
        except (pa.ArrowException, OSError, ValueError, TypeError, EOFError, StopIteration, struct.error) as error:
            raise ArtifactError(f"{path}: not a readable table ({printable(str(error))[:100]})") from None


def _is_compressed(message: bytes) -> bool:
    """Whether the header of a record batch names a compression, by which little data could become much.

    Arrow offers no question for it. The header is a flatbuffer: a table `Message` whose field 2 is a table
    `RecordBatch`, whose field 3 is the compression. Arrow has verified it before.
    """

    def field(table: int, number: int) -> int:
        places = table - struct.unpack_from("<i", message, table)[0]
        (size,) = struct.unpack_from("<H", message, places)
        at = 4 + 2 * number
        offset = struct.unpack_from("<H", message, places + at)[0] if at < size else 0
        return table + offset if offset else 0

    def target(place: int) -> int:
        return int(place + struct.unpack_from("<I", message, place)[0])

    batch = field(target(0), 2)
    return not batch or bool(field(target(batch), 3))
