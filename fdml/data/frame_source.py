"""A table of named columns as a source of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fdml.data.column_roles import ColumnRoles
from fdml.data.column_types import groups_of, labels_of, weights_of
from fdml.data.encoding import Encoder
from fdml.data.error_context import errors_about
from fdml.data.ids import Ids, key_texts, unique_texts
from fdml.data.many_texts import MANY
from fdml.data.rows import CHUNK_BYTES, DenseRows, Rows
from fdml.data.table_source import TableSource
from fdml.settings.data import IdSettings
from fdml.storage.disk import Disk


class FrameSource:
    """A table source, its features encoded as those of training; `place` names it in errors.

    `first` is the number of its first row in that place, where the table is a piece of a larger one.
    """

    def __init__(
        self,
        place: str,
        table: TableSource,
        count: int,
        *,
        roles: ColumnRoles,
        encoder: Encoder,
        id_settings: IdSettings,
        first: int = 0,
    ) -> None:
        self.count = count
        self.encoder = encoder
        self.names = encoder.names
        self.place = place
        self._table = table
        self.roles = roles
        self.id_settings = id_settings
        self._first = first

    def ids(self, disk: Disk | None = None) -> Ids | None:
        """The ids, from a pass over their columns alone; those of many rows are kept on the disk, if there is one."""
        if not self.roles.ids:
            return None
        with errors_about(self.place):
            return unique_texts(self.id_texts(), self.id_settings, disk if self.count > MANY else None)

    def id_texts(self) -> Iterator[Any]:
        """The ids as they are spelled for all parties, batch by batch; null where there is none."""
        first = self._first
        for batch in self._table.batches(self.roles.ids):
            yield key_texts({name: batch.column(name) for name in self.roles.ids}, self.id_settings, first)
            first += len(batch)

    def keys(self, columns: tuple[str, ...]) -> Any:
        """The keys that these columns make, from a pass over them alone."""
        with errors_about(self.place):
            return key_texts(self._columns(columns), self.id_settings)

    def labels(self) -> NDArray[np.generic] | None:
        """The labels, from a pass over their column alone."""
        name = self.roles.label
        with errors_about(self.place):
            return None if name is None else labels_of(name, self._columns((name,))[name])

    def weights(self) -> NDArray[np.float64] | None:
        """The weights, from a pass over their column alone."""
        name = self.roles.weight
        with errors_about(self.place):
            return None if name is None else weights_of(name, self._columns((name,))[name])

    def groups(self) -> NDArray[np.int64] | None:
        """The number of each row's group, from a pass over their column alone."""
        name = self.roles.group
        with errors_about(self.place):
            return None if name is None else groups_of(name, self._columns((name,))[name])

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[Rows]:
        """The features, about `size` bytes at a time."""
        if not self.roles.features:
            yield DenseRows(np.zeros((self.count, 0), np.float32))
            return
        step = max(size // self.encoder.row_bytes, 1)
        first = self._first
        with errors_about(self.place):
            for batch in self._table.batches(self.roles.features):
                for start in range(0, len(batch), step):
                    yield self.encoder.encode(batch.slice(start, step), first + start)
                first += len(batch)

    def _columns(self, names: tuple[str, ...]) -> dict[str, Any]:
        whole = pa.Table.from_batches(list(self._table.batches(names)))
        return {name: whole.column(name) for name in names}
