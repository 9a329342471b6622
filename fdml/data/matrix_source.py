"""A LIBSVM or numpy file as a source of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.data.error_context import errors_about
from fdml.data.ids import Ids, unique_ids
from fdml.data.matrices import Matrix
from fdml.data.matrix_encoding import MatrixEncoder
from fdml.data.rows import CHUNK_BYTES, Rows
from fdml.errors import DataError
from fdml.settings.data import IdSettings
from fdml.storage.disk import Disk


class MatrixSource:
    """A file of numbered features, encoded as those of training."""

    def __init__(self, path: Path, matrix: Matrix, encoder: MatrixEncoder, id_settings: IdSettings) -> None:
        self.count = matrix.count
        self.names = encoder.names
        self.encoder = encoder
        self._path = path
        self._matrix = matrix
        self._id_settings = id_settings

    def ids(self, disk: Disk | None = None) -> Ids | None:  # noqa: ARG002 (they are in memory already)
        """The ids, if the file has them."""
        with errors_about(self._path):
            columns = self._matrix.id_columns
            return None if columns is None else unique_ids(columns, self._id_settings)

    def keys(self, columns: tuple[str, ...]) -> Any:
        """None: there are no named columns to make keys of."""
        raise DataError(f"{self._path}: it has no columns {', '.join(columns)} to lead to another party's rows")

    def labels(self) -> NDArray[np.generic] | None:
        """The labels, if the file has them."""
        return self._matrix.labels

    def weights(self) -> NDArray[np.float64] | None:
        """The weights, if the file has them."""
        return self._matrix.weights

    def groups(self) -> NDArray[np.int64] | None:
        """None: there is no named column to make groups of."""
        return None

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[Rows]:
        """The features, about `size` bytes at a time."""
        first = 0
        with errors_about(self._path):
            for piece in self._matrix.pieces(size):
                yield self.encoder.encode(piece, first)
                first += piece.shape[0]
