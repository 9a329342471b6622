"""Files without named columns: numbered features, and arrays of ids, labels and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from fdml.data.archives import drop_pages, read_arrays
from fdml.data.column_types import Column, labels_of, weights_of
from fdml.data.error_context import no_such
from fdml.data.imputation import Features
from fdml.data.rows import CHUNK_BYTES
from fdml.errors import DataError

ARRAYS = ("X", "y", "ids", "weights")
"""What a .npz archive may hold; only X must be there, or a sparse matrix in its place."""
SPARSE_ARRAYS = {"format", "shape", "data", "indices", "indptr", "row", "col", "offsets", "coords", "_is_array"}
"""What scipy.sparse.save_npz writes."""


@dataclass(frozen=True)
class Matrix:
    """A file whose features are not read yet."""

    count: int
    """Rows."""
    width: int
    """Features."""
    pieces: Callable[[int], Iterator[Features]]
    """`pieces(size)` reads the features about `size` bytes at a time: float32, NaN where one is missing."""
    id_columns: Mapping[str, Column] | None = None
    labels: NDArray[np.generic] | None = None
    weights: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        """Raise unless there is one label and one weight per row."""
        ids = None if self.id_columns is None else next(iter(self.id_columns.values()))
        for what, column in (("ids", ids), ("labels", self.labels), ("weights", self.weights)):
            if column is not None and len(column) != self.count:
                raise DataError(f"{len(column)} {what} for {self.count} rows")


def open_numpy(path: Path) -> Matrix:
    """Open a .npy matrix, or a .npz archive of X, dense or as scipy.sparse.save_npz writes it, and y, ids, weights.

    What is not compressed is mapped into memory, not read.
    """
    arrays = read_arrays(path)
    if "X" not in arrays and {"format", "shape", "data"} <= set(arrays):
        features: Any = _sparse(path, arrays)
        arrays = {name: array for name, array in arrays.items() if name not in SPARSE_ARRAYS}
    elif "X" not in arrays:
        raise no_such("array", "X", list(arrays))
    else:
        features = arrays["X"]
    _check_features(features)
    for name in arrays:
        if name not in ARRAYS:
            raise no_such("use for the array", name, ARRAYS)
    return Matrix(
        features.shape[0],
        features.shape[1],
        partial(_dense_pieces if isinstance(features, np.ndarray) else _sparse_pieces, features),
        None if "ids" not in arrays else _id_columns(arrays["ids"]),
        None if "y" not in arrays else labels_of("y", _as_column("y", arrays["y"])),
        None if "weights" not in arrays else weights_of("weights", _as_column("weights", arrays["weights"])),
    )


def _sparse(path: Path, arrays: dict[str, NDArray[Any]]) -> Any:
    try:
        if arrays["format"].item() in (b"csr", "csr"):
            rows, width = arrays["shape"].tolist()
            matrix: Any = _Csr(arrays["data"], arrays["indices"], arrays["indptr"], (rows, width))
            _check_places(matrix)
            return matrix
        matrix = sp.load_npz(path)
        if matrix.format in ("csc", "bsr"):
            matrix.check_format(full_check=True)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise DataError(
            f"cannot be read as a sparse matrix: {error}; save it again with scipy.sparse.save_npz"
        ) from None
    return sp.csr_array(matrix)


class _Csr(NamedTuple):
    """A CSR matrix without a copy: scipy's own copies indices whose type is not that of the pointers."""

    data: NDArray[Any]
    indices: NDArray[Any]
    indptr: NDArray[Any]
    shape: tuple[int, int]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)


def _check_places(csr: _Csr) -> None:
    """Raise unless all indices are in range: the kernels would read memory that is not theirs."""
    if csr.indptr.dtype.kind not in "iu" or csr.indices.dtype.kind not in "iu":
        raise ValueError("its indices are not whole numbers")
    if len(csr.indptr) != csr.shape[0] + 1 or csr.indptr[0] != 0 or (np.diff(csr.indptr) < 0).any():
        raise ValueError(f"its index pointers do not begin {csr.shape[0]} rows one after the other")
    if not csr.indptr[-1] == len(csr.indices) == len(csr.data):
        raise ValueError(f"it has {len(csr.data)} values, {len(csr.indices)} indices and pointers to {csr.indptr[-1]}")
    for start in range(0, len(csr.indices), CHUNK_BYTES // 4):
        part = csr.indices[start : start + CHUNK_BYTES // 4]
        if part.min() < 0 or part.max() >= csr.shape[1]:
            raise ValueError(f"column indices must be from 0 to {csr.shape[1] - 1}")
        drop_pages(part)


def _dense_pieces(features: NDArray[Any], size: int) -> Iterator[Features]:
    step = max(size // (4 * max(features.shape[1], 1)), 1)
    for start in range(0, len(features), step):
        yield _as_float32(features[start : start + step])
        drop_pages(features)


def _sparse_pieces(csr: _Csr | sp.csr_array, size: int) -> Iterator[Features]:
    entries = max(size // 8, 1)
    start = 0
    while start < csr.shape[0]:
        full = int(np.searchsorted(csr.indptr, int(csr.indptr[start]) + entries, side="right")) - 1
        stop = min(max(full, start + 1), start + entries, csr.shape[0])
        first, last = csr.indptr[start], csr.indptr[stop]
        values, indices = _as_float32(csr.data[first:last]), np.array(csr.indices[first:last])
        yield sp.csr_array((values, indices, csr.indptr[start : stop + 1] - first), shape=(stop - start, csr.shape[1]))
        drop_pages(csr.data, csr.indices, csr.indptr)
        start = stop


def _check_features(features: Any) -> None:
    if features.ndim != 2:
        raise DataError(f"the features have shape {features.shape}; give a matrix of rows x features")
    if features.dtype.kind not in "biuf":
        raise DataError(f"the features are of type {features.dtype}; convert them to float32")


def _as_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as that later
        return np.array(values, np.float32, order="C")


def _as_column(name: str, values: NDArray[Any]) -> Column:
    if values.ndim != 1:
        raise DataError(f"array {name!r} has shape {values.shape}; give one value per row")
    if values.dtype.kind not in "biufU":
        raise DataError(f"array {name!r} is of type {values.dtype}; give numbers or text")
    return pa.array(values)


def _id_columns(ids: NDArray[Any]) -> dict[str, Column]:
    if ids.ndim != 2 or not ids.shape[1]:
        return {"ids": _as_column("ids", ids)}
    return {f"ids[:, {number}]": _as_column("ids", column) for number, column in enumerate(ids.T)}
