"""The seam between where a party's rows are and what becomes of them: named columns in record batches.

Files, folders of files, queries and frames are table sources. `tests/contracts/test_table_sources.py` holds what each
must pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

BATCH_ROWS = 2**15
"""Rows per batch of a table that is not too wide."""
BATCH_CELLS = 2**25
"""The most cells of a batch, so that wide tables fit into memory too."""


class TableSource(Protocol):
    """A table of named columns that is read as often as needed, each time the same rows in the same order."""

    @property
    def names(self) -> list[str]:
        """All its columns."""
        ...

    @property
    def text_columns(self) -> list[str]:
        """The settled columns that hold text though their place names no types; another file's are read alike."""
        ...

    def settle(self, columns: Sequence[str], /) -> int:
        """Settle the types of these columns before they are read; returns the number of rows."""
        ...

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns in pyarrow record batches, in the table's order."""
        ...


def rows_per_batch(columns: int) -> int:
    """The rows of a batch of so many columns: a power of two."""
    rows = BATCH_ROWS
    while rows > 1 and rows * columns > BATCH_CELLS:
        rows //= 2
    return rows


def even_batches(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """The same rows in batches of `rows` each, the last one shorter, however they were cut before."""
    waiting: list[Any] = []
    have = 0
    for batch in batches:
        start = 0
        while have + len(batch) - start >= rows:
            part = batch.slice(start, rows - have)
            start += len(part)
            yield _joined([*waiting, part])
            waiting, have = [], 0
        if start < len(batch):
            waiting.append(batch.slice(start))
            have += len(batch) - start
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    tables = [part if isinstance(part, pa.Table) else pa.Table.from_batches([part]) for part in parts]
    return pa.concat_tables(tables, promote_options="default").combine_chunks()
