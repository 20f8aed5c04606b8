"""Tables of other libraries: pandas and polars frames and Arrow tables, as columns.

A frame is recognised by the interfaces it offers, so neither pandas nor polars is imported.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ecoc.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_INTERFACES = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")


def is_frame(value: object) -> bool:
    """Whether a value is a table in memory; a lazy query is refused."""
    if type(value).__name__ == "LazyFrame":
        raise InputError("source: a LazyFrame holds no rows yet; pass its collect()")
    return any(hasattr(value, name) for name in _INTERFACES)


class FrameColumns(Mapping[str, "pa.ChunkedArray"]):
    """The columns of a frame by name, as Arrow arrays. A column is converted when it is first read.

    The index of a pandas frame is ignored. Dictionaries (categories) and views of text become plain columns.
    """

    def __init__(self, frame: Any) -> None:
        import pyarrow as pa
        import pyarrow.interchange

        self.kind = f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}"
        self._is_pandas = hasattr(frame, "iloc") and hasattr(frame, "columns")
        if not self._is_pandas:
            try:
                frame = (
                    pa.interchange.from_dataframe(frame)
                    if not any(hasattr(frame, name) for name in _INTERFACES[:2])
                    else pa.table(frame)
                )
            except (pa.ArrowException, TypeError, ValueError, RuntimeError) as error:
                reason = " ".join(str(error).split())[:100]
                raise InputError(f"source: {self.kind} is not a table ({reason}); give a frame with columns") from None
        self._frame = frame
        self.names = [str(name) for name in (frame.columns if self._is_pandas else frame.column_names)]
        self.rows = len(frame) if self._is_pandas else int(frame.num_rows)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Any:
        return iter(self.names)

    def __getitem__(self, name: str) -> "pa.ChunkedArray":
        import pyarrow as pa

        place = self.names.index(name)
        if not self._is_pandas:
            return _plain(self._frame.column(place))
        try:
            column = pa.Array.from_pandas(self._frame.iloc[:, place])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            reason = " ".join(str(error).split())[:100]
            raise InputError(f"{self.kind}: column '{name}' mixes types ({reason}); convert it to text") from None
        return _plain(column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column]))

    @property
    def size(self) -> int:
        """Approximate bytes of all columns."""
        if self._is_pandas:
            return int(self._frame.memory_usage(index=False).sum())
        return int(self._frame.nbytes)


def _plain(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        values = pa.large_string() if pa.types.is_string_view(kind.value_type) else kind.value_type
        chunks = [
            pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(values)).cast(values)
            for chunk in column.chunks
        ]
        return pa.chunked_array(chunks, values)
    return column.cast(pa.large_string()) if pa.types.is_string_view(kind) else column
