"""A LIBSVM or numpy file as a source of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fdml.data.error_context import errors_about
from fdml.data.ids import Ids, normalised
from fdml.data.imputation import impute
from fdml.data.matrices import Matrix
from fdml.data.rows import CHUNK_BYTES, Rows, as_rows
from fdml.settings import IdSettings


class MatrixSource:
    """A file whose missing numbers are filled with `fills`; None refuses them."""

    def __init__(self, path: Path, matrix: Matrix, fills: NDArray[np.float32] | None, spelling: IdSettings) -> None:
        self.count = matrix.count
        self.names = tuple(str(number) for number in range(1, matrix.width + 1))
        self._path = path
        self._matrix = matrix
        self._fills = fills
        self._spelling = spelling

    def ids(self) -> Ids | None:
        """The ids, if the file has them."""
        with errors_about(self._path):
            columns = self._matrix.id_columns
            return None if columns is None else normalised(columns, self._spelling)

    def labels(self) -> NDArray[np.generic] | None:
        """The labels, if the file has them."""
        return self._matrix.labels

    def weights(self) -> NDArray[np.float64] | None:
        """The weights, if the file has them."""
        return self._matrix.weights

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[Rows]:
        """The features, about `size` bytes at a time."""
        first = 0
        with errors_about(self._path):
            for piece in self._matrix.pieces(size):
                yield as_rows(impute(piece, self._fills, first))
                first += piece.shape[0]
