"""LIBSVM and numpy files: features without names, ids, labels and weights beside them."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.datasets import load_svmlight_file

from fdml.data.fields import Column, ids_of, labels_of, weights_of
from fdml.data.filling import Features
from fdml.data.naming import no_such
from fdml.errors import DataError

ARRAYS = ("X", "y", "ids", "weights")
"""What a .npz archive may hold; only X must be there, or a sparse matrix in its place."""
SPARSE_ARRAYS = {"format", "shape", "data", "indices", "indptr", "row", "col", "offsets", "coords", "_is_array"}
"""What scipy.sparse.save_npz writes."""


@dataclass(frozen=True)
class Matrix:
    """A file as it was read; `features` may still hold NaN."""

    features: Features
    ids: NDArray[np.object_] | None = None
    labels: NDArray[np.generic] | None = None
    weights: NDArray[np.float64] | None = None


def read_libsvm(path: Path) -> Matrix:
    """Read a LIBSVM file, plain, .gz or .bz2; column `k` is the feature numbered `k` in the file."""
    try:
        features, labels = load_svmlight_file(str(path), dtype=np.float32, zero_based=True)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read as LIBSVM: {error}; if it is something else, set data.format") from None
    return Matrix(sp.csr_array(features), labels=labels_of("y", pa.array(labels)))


def number_from_one(matrices: Sequence[Matrix]) -> list[Matrix]:
    """Bring the LIBSVM files of one party to one numbering and to the width of the widest.

    Feature numbers start at 1, as LIBSVM's do; a feature 0 in any of the files
    makes them start at 0 in all.
    """
    first = 1 if all((matrix.features.indices > 0).all() for matrix in matrices) else 0
    width = max(matrix.features.shape[1] for matrix in matrices) - first
    return [replace(matrix, features=_shifted(matrix.features, first, width)) for matrix in matrices]


def _shifted(csr: sp.csr_array, first: int, width: int) -> sp.csr_array:
    return sp.csr_array((csr.data, csr.indices - first, csr.indptr), shape=(csr.shape[0], width))


def read_numpy(path: Path) -> Matrix:
    """Read a .npy matrix, or a .npz archive of X, dense or as scipy.sparse.save_npz writes it, and y, ids, weights."""
    arrays = _arrays(path)
    if "X" not in arrays and {"format", "shape", "data"} <= set(arrays):
        features: Any = sp.csr_array(_as_float32(_sparse(path)))
        arrays = {name: array for name, array in arrays.items() if name not in SPARSE_ARRAYS}
    else:
        if "X" not in arrays:
            raise no_such("array", "X", list(arrays))
        features = _as_float32(arrays["X"])
    for name in arrays:
        if name not in ARRAYS:
            raise no_such("use for the array", name, ARRAYS)
    return Matrix(
        features,
        None if "ids" not in arrays else ids_of(_id_columns(arrays["ids"])),
        None if "y" not in arrays else labels_of("y", _as_column("y", arrays["y"])),
        None if "weights" not in arrays else weights_of("weights", _as_column("weights", arrays["weights"])),
    )


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"X": loaded}
            return {name: np.asarray(loaded[name]) for name in loaded.files}
    except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(
            f"cannot be read as a numpy file: {error}; save arrays of numbers or text with numpy.save, "
            f"numpy.savez or scipy.sparse.save_npz"
        ) from None


def _sparse(path: Path) -> Any:
    try:
        matrix: Any = sp.load_npz(path)
        if matrix.format in ("csr", "csc", "bsr"):
            matrix.check_format(full_check=True)  # an index out of range would crash what comes next
    except (ValueError, KeyError, NotImplementedError) as error:
        raise DataError(
            f"cannot be read as a sparse matrix: {error}; save it again with scipy.sparse.save_npz"
        ) from None
    return matrix


def _as_float32(features: Any) -> Any:
    if features.ndim != 2:
        raise DataError(f"the features have shape {features.shape}; give a matrix of rows x features")
    if features.dtype.kind not in "biuf":
        raise DataError(f"the features are of type {features.dtype}; convert them to float32")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as that later
        return features.astype(np.float32)


def _as_column(name: str, values: NDArray[Any]) -> Column:
    if values.ndim != 1:
        raise DataError(f"array {name!r} has shape {values.shape}; give one value per row")
    if values.dtype.kind not in "biufU":
        raise DataError(f"array {name!r} is of type {values.dtype}; give numbers or text")
    return pa.array(values)


def _id_columns(ids: NDArray[Any]) -> dict[str, Column]:
    if ids.ndim != 2:
        return {"ids": _as_column("ids", ids)}
    return {f"ids[:, {number}]": _as_column("ids", column) for number, column in enumerate(ids.T)}
