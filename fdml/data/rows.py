"""Feature rows as the kernels read them: sparse (CSR) or dense, always float32."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fdml.errors import DataError


class SparseRows(NamedTuple):
    """Rows in CSR form. `indptr` is int64, `indices` int32, `values` float32."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    width: int


class DenseRows(NamedTuple):
    """Rows as one C-contiguous float32 matrix, `(rows, features)`."""

    values: NDArray[np.float32]


PlainRows = SparseRows | DenseRows


class PointedRows(NamedTuple):
    """Rows that point to stored ones, of which many may point to the same.

    The last stored row has no features other than zero, and a row that the party does not hold points to it by -1.
    """

    stored: PlainRows
    pointers: NDArray[np.int64]


Rows = PlainRows | PointedRows
RowEncoding = Literal["numeric", "native", "both"]
"""What a kind of model may want of a party's encoder: numbers alone, with categories as features of their own; or one
feature for each column, categories by their numbers, and nothing (NaN) where a value is missing; or the first, and
then the second beside it in the same rows."""


class NativeFeatures(NamedTuple):
    """What a model may know of the features of a table: which are as trees want them, and of which column they are."""

    first: int = 0
    """The number of the first of them; those before it are the numeric ones of "both"."""
    categories: tuple[int, ...] = ()
    """The numbers of those that are numbers of categories, counted from the row's first feature."""
    columns: tuple[tuple[str, int], ...] = ()
    """The columns in the order of their features, and how many features in a row each has; none of a matrix."""


NO_NATIVE = NativeFeatures()
"""Nothing is known of them: of rows for networks, and of a matrix."""
_PIECE = 2**16
"""Rows, or values, per piece where rows on disk are read piece by piece."""
CHUNK_BYTES = 64 * 2**20
"""The size of a chunk of rows, roughly, where rows are read or written in chunks."""


def as_rows(features: object) -> PlainRows:
    """Rows of a numpy array or any scipy sparse matrix; copied only where the type differs."""
    if sp.issparse(features):
        return _from_scipy(features)
    values = np.ascontiguousarray(features, dtype=np.float32)
    if values.ndim != 2:
        raise DataError(f"features have {values.ndim} dimensions; give a matrix of rows x features")
    return DenseRows(values)


def _from_scipy(matrix: Any) -> SparseRows:
    csr: sp.csr_array = sp.csr_array(matrix)
    if not csr.has_canonical_format:
        csr = csr.copy()  # the caller's matrix stays as it is
        csr.sum_duplicates()
    if csr.shape[1] >= 2**31:
        raise DataError(f"{csr.shape[1]} features; at most {2**31 - 1} fit, hash them to fewer")
    return SparseRows(
        np.ascontiguousarray(csr.indptr, dtype=np.int64),
        np.ascontiguousarray(csr.indices, dtype=np.int32),
        np.ascontiguousarray(csr.data, dtype=np.float32),
        int(csr.shape[1]),
    )


def drop_unit_values(rows: Rows) -> Rows:
    """The same rows; if they are sparse and all values are 1, memory holds a single 1 for all of them.

    The values then have a stride of 0 bytes. The kernels know that and do not read them.
    """
    if isinstance(rows, PointedRows):
        used = take(rows.stored, np.unique(rows.pointers))
        return rows._replace(stored=_without_values(rows.stored)) if has_unit_values(drop_unit_values(used)) else rows
    if isinstance(rows, DenseRows) or not len(rows.values):
        return rows
    if not _are_ones(rows.values[rows.indptr[0] : rows.indptr[-1]]):
        return rows
    return _without_values(rows)


def has_unit_values(rows: Rows) -> bool:
    """Whether memory holds a single 1 for all values, as `drop_unit_values` leaves it."""
    stored = rows.stored if isinstance(rows, PointedRows) else rows
    return isinstance(stored, SparseRows) and stored.values.strides == (0,)


def _without_values(rows: PlainRows) -> PlainRows:
    if isinstance(rows, DenseRows):
        return rows
    return rows._replace(values=np.broadcast_to(np.float32(1.0), rows.values.shape))


def _are_ones(values: NDArray[np.float32]) -> bool:
    """Whether all values are 1. Read piece by piece: they may be on disk, and mostly the first piece decides."""
    return all(np.all(values[at : at + _PIECE] == 1.0) for at in range(0, len(values), _PIECE))


def row_count(rows: Rows) -> int:
    """The number of rows."""
    if isinstance(rows, PointedRows):
        return len(rows.pointers)
    return len(rows.values) if isinstance(rows, DenseRows) else len(rows.indptr) - 1


def width(rows: Rows) -> int:
    """The number of features."""
    if isinstance(rows, DenseRows):
        features: int = rows.values.shape[1]
        return features
    return width(rows.stored) if isinstance(rows, PointedRows) else rows.width


def check_width(rows: Rows, inputs: int) -> None:
    """Raise unless the rows have as many features as a model was made for."""
    if width(rows) != inputs:
        raise DataError(f"rows have {width(rows)} features, the model was made for {inputs}")


def to_scipy(rows: SparseRows) -> sp.csr_array:
    """The same rows as a scipy matrix that shares the memory of their entries."""
    first, last = rows.indptr[0], rows.indptr[-1]
    entries = rows.values[first:last], rows.indices[first:last], rows.indptr - first
    return sp.csr_array(entries, shape=(row_count(rows), rows.width))


def to_dense(rows: Rows) -> NDArray[np.float32]:
    """The same rows as a dense matrix."""
    rows = plain_rows(rows)
    if isinstance(rows, DenseRows):
        return rows.values
    dense: NDArray[np.float32] = to_scipy(rows).toarray()
    return dense


def plain_rows(rows: Rows) -> PlainRows:
    """The same rows; those that point to stored ones are copied to memory, each of them."""
    return take(rows.stored, rows.pointers) if isinstance(rows, PointedRows) else rows


def take(rows: Rows, index: NDArray[np.int64]) -> PlainRows:
    """The rows with these numbers, in this order, copied."""
    if isinstance(rows, PointedRows):
        return take(rows.stored, rows.pointers[index])
    if isinstance(rows, DenseRows):
        return DenseRows(np.ascontiguousarray(rows.values[index]))
    starts = rows.indptr[:-1][index]
    lengths = rows.indptr[1:][index] - starts
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    places = np.repeat(starts - indptr[:-1], lengths) + np.arange(indptr[-1])
    return SparseRows(indptr, rows.indices[places], rows.values[places], rows.width)


def choose(rows: Rows, index: NDArray[np.int64]) -> Rows:
    """The rows with these numbers, in this order; those that point to stored ones still do, the others are copied."""
    if isinstance(rows, PointedRows):
        return rows._replace(pointers=rows.pointers[index])
    return take(rows, index)


def span(rows: Rows, start: int, stop: int) -> Rows:
    """Consecutive rows, without a copy of their entries."""
    if isinstance(rows, PointedRows):
        return rows._replace(pointers=rows.pointers[start:stop])
    if isinstance(rows, DenseRows):
        return DenseRows(rows.values[start:stop])
    return SparseRows(rows.indptr[start : stop + 1], rows.indices, rows.values, rows.width)


def vstack(given: Sequence[Rows]) -> PlainRows:
    """The rows of all parts, which are of one kind and width, one part after the other."""
    parts = [plain_rows(part) for part in given]
    if len(parts) == 1:
        return parts[0]
    sparse = [part for part in parts if isinstance(part, SparseRows)]
    if not sparse:
        return DenseRows(np.concatenate([part.values for part in parts]))
    lengths = np.concatenate([np.diff(part.indptr) for part in sparse])
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    spans = [slice(part.indptr[0], part.indptr[-1]) for part in sparse]
    indices = np.concatenate([part.indices[kept] for part, kept in zip(sparse, spans, strict=True)])
    values = np.concatenate([part.values[kept] for part, kept in zip(sparse, spans, strict=True)])
    return SparseRows(indptr, indices, values, sparse[0].width)


def with_zero_row(chunks: Iterable[Rows]) -> Iterator[Rows]:
    """The chunks, and after the last one a row like theirs without a feature other than zero."""
    last: Rows | None = None
    for last in chunks:
        yield last
    last = None if last is None else plain_rows(last)
    if isinstance(last, DenseRows):
        yield DenseRows(np.zeros((1, last.values.shape[1]), np.float32))
    elif last is not None:
        yield SparseRows(np.zeros(2, np.int64), last.indices[:0], last.values[:0], last.width)


def columns(rows: Rows, index: NDArray[np.int64]) -> PlainRows:
    """The features with these numbers, in this order, copied."""
    rows = plain_rows(rows)
    if isinstance(rows, DenseRows):
        return DenseRows(np.ascontiguousarray(rows.values[:, index]))
    return _from_scipy(to_scipy(rows)[:, index])


def split_features(rows: Rows, first: int) -> tuple[Rows, Rows]:
    """The features before number `first`, and dense those from it on; both are all of them where `first` is 0."""
    if not first:
        return rows, rows
    if isinstance(rows, PointedRows):
        before, behind = split_features(rows.stored, first)
        return rows._replace(stored=plain_rows(before)), rows._replace(stored=plain_rows(behind))
    before, behind = columns(rows, np.arange(first)), columns(rows, np.arange(first, width(rows)))
    return before, DenseRows(to_dense(behind))


def hstack(parts: Sequence[Rows]) -> PlainRows:
    """The features of all parts beside each other; sparse where any part is sparse."""
    plain = [plain_rows(part) for part in parts]
    if all(isinstance(part, DenseRows) for part in plain):
        return DenseRows(np.ascontiguousarray(np.hstack([part.values for part in plain])))
    return _from_scipy(sp.hstack([_scipy_of(part) for part in plain], format="csr"))


def _scipy_of(rows: PlainRows) -> sp.csr_array:
    return sp.csr_array(rows.values) if isinstance(rows, DenseRows) else to_scipy(rows)


def mean_square_norm(rows: Rows, weights: NDArray[np.float64]) -> float:
    """The mean of the rows' squared lengths, each row counted with its weight (mean weight 1)."""
    total = 0.0
    for start in range(0, row_count(rows), _PIECE):  # so that rows on disk need not fit into memory
        part = span(rows, start, min(start + _PIECE, row_count(rows)))
        total += float(_square_norms(part) @ weights[start : start + _PIECE])
    return total / float(weights.sum())


def mean_entries(rows: Rows) -> float:
    """How many features other than zero a row has, on average; the same whether rows are stored dense or sparse."""
    total, count = 0, row_count(rows)
    for start in range(0, count, _PIECE):
        part = plain_rows(span(rows, start, min(start + _PIECE, count)))
        values = part.values if isinstance(part, DenseRows) else part.values[part.indptr[0] : part.indptr[-1]]
        total += int(np.count_nonzero(values))
    return total / max(count, 1)


def _square_norms(given: Rows) -> NDArray[np.float64]:
    rows = plain_rows(given)
    if isinstance(rows, DenseRows):
        dense: NDArray[np.float64] = np.square(rows.values, dtype=np.float64).sum(axis=1)
        return dense
    squares = np.square(rows.values[rows.indptr[0] : rows.indptr[-1]], dtype=np.float64)
    owners = np.repeat(np.arange(row_count(rows)), np.diff(rows.indptr))
    return np.bincount(owners, squares, row_count(rows)).astype(np.float64, copy=False)
