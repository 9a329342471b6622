"""LIBSVM files, plain, .gz or .bz2, read in pieces of whole lines."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from fdml.data.column_types import labels_of
from fdml.data.imputation import Features
from fdml.data.matrices import Matrix
from fdml.errors import DataError
from fdml.extras import need

OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
_WIDEST = 2**31 - 1


@dataclass(frozen=True)
class Scan:
    """A file's labels and the range of its feature numbers."""

    path: Path
    labels: NDArray[np.generic]
    lowest: int
    """At most 1, as LIBSVM counts from 1."""
    highest: int
    """0 where the file has no features."""


def scan(path: Path, size: int) -> Scan:
    """Read a file once, about `size` bytes of text at a time."""
    labels: list[NDArray[np.float64]] = [np.zeros(0)]
    lowest, highest = 1, 0
    for features, part in _pieces(path, size):
        labels.append(part)
        if features.nnz:
            lowest = min(lowest, int(features.indices.min()))
            highest = max(highest, int(features.indices.max()))
    return Scan(path, labels_of("y", pa.array(np.concatenate(labels))), lowest, highest)


def numbering(scans: Sequence[Scan]) -> tuple[int, int]:
    """The number of the first feature of all files of one party, and how many features the widest has.

    Feature numbers start at 1, as LIBSVM's do; a feature 0 in any of the files makes them start at 0 in all.
    """
    first = min(each.lowest for each in scans)
    return first, max(each.highest for each in scans) + 1 - first


def matrix_of(scan: Scan, first: int, width: int) -> Matrix:
    """The file as a matrix of features `first` to `first + width - 1`; a file with any other is refused."""
    for number in (scan.lowest, scan.highest):
        if not first <= number < first + width and scan.highest >= scan.lowest:
            raise DataError(
                f"it has a feature {number}, but training had features {first} to {first + width - 1}; leave it out"
            )
    return Matrix(len(scan.labels), width, partial(_numbered, scan.path, first, width), labels=scan.labels)


def _numbered(path: Path, first: int, width: int, size: int) -> Iterator[Features]:
    """Pieces of about `size` bytes: an entry takes eight bytes of memory and at least four of text."""
    for features, _ in _pieces(path, max(size // 2, 1)):
        csr = sp.csr_array(features)
        yield sp.csr_array((csr.data, csr.indices - first, csr.indptr), shape=(csr.shape[0], width))


def _pieces(path: Path, size: int) -> Iterator[tuple[Any, NDArray[np.float64]]]:
    need("sklearn", "a LIBSVM file")
    from sklearn.datasets import load_svmlight_file  # noqa: PLC0415 (an extra)

    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            while text := file.read(size):
                whole = io.BytesIO(text + file.readline())
                yield load_svmlight_file(whole, n_features=_WIDEST, dtype=np.float32, zero_based=True)
    except ValueError:  # its text may quote the line
        raise DataError(
            "cannot be read as LIBSVM: a line is no label and then numbers as number:value in ascending order; if it "
            "is something else, set data.format"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read as LIBSVM: {error}; if it is something else, set data.format") from None
