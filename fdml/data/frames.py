"""Frames of Python as tables: pandas, polars, Arrow, and whatever hands its columns over as Arrow's C stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from fdml.data.column_types import repeated
from fdml.data.table_source import rows_per_batch
from fdml.errors import DataError

Frame = Any
"""A pandas or polars frame, a pyarrow table or record batch, or any object with `__arrow_c_stream__`."""


class FrameTable:
    """A frame in memory as a table source. An index of pandas is left out; make it a column if it is the id."""

    def __init__(self, frame: Frame) -> None:
        self._table = arrow_table(frame)
        self.names: list[str] = list(self._table.column_names)
        self.text_columns: list[str] = []

    def settle(self, _columns: Sequence[str], /) -> int:
        """The number of rows; a frame has its types."""
        return int(self._table.num_rows)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns in record batches."""
        yield from self._table.select(list(columns)).to_batches(max_chunksize=rows_per_batch(len(columns)))


def arrow_table(frame: Frame) -> Any:
    """A frame as an Arrow table; numbers are not copied where the frame holds them as Arrow does."""
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if not _is_frame(frame):
        raise DataError(
            f"data is a {type(frame).__name__}; give a pandas or polars frame, a pyarrow table, or another object "
            "that has __arrow_c_stream__"
        )
    _refuse_twins(getattr(frame, "columns", ()) if _is_pandas(frame) else ())
    try:
        table = _converted(frame)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(
            f"the frame cannot be read as columns of one type each ({type(error).__name__}); convert columns of mixed "
            "values, text for one"
        ) from None
    _refuse_twins(table.column_names)
    return table


def _is_pandas(frame: Frame) -> bool:
    return type(frame).__module__.partition(".")[0] == "pandas"


def _is_frame(frame: Frame) -> bool:
    return isinstance(frame, pa.Table) or hasattr(frame, "__arrow_c_stream__") or _is_pandas(frame)


def _converted(frame: Frame) -> Any:
    if isinstance(frame, pa.Table):
        return frame
    if _is_pandas(frame):
        named = frame.rename(columns=str)
        return pa.Table.from_pandas(named, preserve_index=False).replace_schema_metadata()
    return pa.table(frame)


def _refuse_twins(names: Iterable[Any]) -> None:
    twice = repeated([str(name) for name in names])
    if twice is not None:
        raise DataError(f"two columns are named {twice!r}; rename one")
