"""A hash of a table's content: equal for equal rows in equal order, however they are cut or stored."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from fdml.data.column_types import is_text, plain
from fdml.data.table_source import TableSource, even_batches, rows_per_batch


def table_digest(table: TableSource) -> bytes:
    """The hash of all columns: names, types, values, and which are missing."""
    names = table.names
    digest = hashlib.blake2b(str(table.settle(names)).encode())
    for batch in even_batches(table.batches(names), rows_per_batch(len(names))):
        for name in names:
            column = plain(batch.column(name))
            whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            digest.update(f"{name}\0{_stored_type(whole.type)}\0".encode())
            for part in _content(whole):
                digest.update(len(part).to_bytes(8, "little"))
                digest.update(part)
    return digest.digest()


def _stored_type(kind: Any) -> str:
    return "text" if is_text(kind) else str(kind)


def _content(column: Any) -> list[bytes]:
    """Which values are missing, and the others; what is stored in the place of a missing one does not count."""
    absent = np.packbits(pc.is_null(column).to_numpy(zero_copy_only=False)).tobytes()
    present = column.drop_null()
    if is_text(column.type) or pat.is_binary(column.type) or pat.is_large_binary(column.type):
        lengths = pc.binary_length(present).cast(pa.int64()).to_numpy(zero_copy_only=False)
        joined = present.cast(pa.large_binary())
        return [absent, lengths.tobytes(), b"".join(each.as_buffer() for each in joined if each.is_valid)]
    if pat.is_integer(column.type) or pat.is_floating(column.type):
        return [absent, present.to_numpy(zero_copy_only=False).tobytes()]
    return [absent, "\0".join(map(str, present.to_pylist())).encode()]
