"""A party's files, opened but not read: each part is read when it is asked for, in bounded memory.

The format is `data.format`, or goes by the ending (`ENDINGS`); training and test
file have the same. CSV, and LIBSVM, may be compressed (.gz, .bz2). Labels of a
LIBSVM file are always the file's, those of a .npz archive its `y`; their
features are named "1", "2", ... by their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fdml.data import column_roles as frames
from fdml.data import libsvm
from fdml.data.encoding import fit
from fdml.data.error_context import errors_about
from fdml.data.files import CsvFile, open_frame
from fdml.data.frame_source import FrameSource
from fdml.data.ids import Ids
from fdml.data.imputation import fit_imputation
from fdml.data.matrices import Matrix, open_numpy
from fdml.data.matrix_source import MatrixSource
from fdml.data.rows import CHUNK_BYTES, Rows
from fdml.errors import DataError
from fdml.settings import DataSettings, Format

ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "numpy",
    ".npz": "numpy",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
    ".svm": "libsvm",
    ".t": "libsvm",
    "": "libsvm",
}
"""The format of each ending, after .gz or .bz2 is taken off; LIBSVM's own files have none, or .t."""

COLUMN_SETTINGS = ("id", "label", "weight", "columns", "ignore", "categorical", "hashed")
"""The settings that name columns."""


class Source(Protocol):
    """One file of a party. All it gives is in the order of the file, and of all its rows but for the ids."""

    @property
    def count(self) -> int:
        """How many rows the file has."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        ...

    def ids(self) -> Ids | None:
        """The ids and the rows they keep; None where rows are matched by position."""
        ...

    def labels(self) -> NDArray[np.generic] | None:
        """The labels, if this file has them."""
        ...

    def weights(self) -> NDArray[np.float64] | None:
        """The rows' weights, if this file has them."""
        ...

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[Rows]:
        """The features, about `size` bytes at a time; all chunks are sparse, or all dense."""
        ...


def open_sources(settings: DataSettings) -> list[Source]:
    """Open a party's training file, and its test file if it has one.

    The training file is read through once, to learn how its features are encoded.
    """
    paths = [settings.path] if settings.test_path is None else [settings.path, settings.test_path]
    kinds = [_format(path, settings) for path in paths]
    if kinds[0] != kinds[-1]:
        raise DataError(f"{paths[0]} is {kinds[0]} but {paths[-1]} is {kinds[-1]}; give both in the same format")
    if kinds[0] in ("csv", "parquet"):
        return _open_frames(paths, kinds[0], settings)
    return _open_matrices(paths, kinds[0], settings)


def _format(path: Path, settings: DataSettings) -> Format:
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}; correct data.path or data.test_path")
    if settings.format is not None:
        return settings.format
    ending = path.with_suffix("").suffix if path.suffix in (".gz", ".bz2") else path.suffix
    if ending not in ENDINGS:
        raise DataError(f"{path}: unknown ending {ending!r}; set data.format = csv, parquet, libsvm or numpy")
    return ENDINGS[ending]


def _open_frames(paths: list[Path], kind: Format, settings: DataSettings) -> list[Source]:
    text = [*settings.id, *settings.categorical, *settings.hashed]
    with errors_about(paths[0]):
        file = open_frame(paths[0], kind, text)
        roles = frames.roles_of(file.names, settings)
        _refuse_nothing(bool(roles.features), roles.label is not None)
        count = _some(file.settle(roles.named))
        encoder = fit(file.batches(roles.features), roles.features, settings)
    sources: list[Source] = [FrameSource(paths[0], file, count, roles, encoder, settings.ids)]
    if isinstance(file, CsvFile):
        text += file.text_columns
    for path in paths[1:]:
        with errors_about(path):
            file = open_frame(path, kind, text)
            frames.check_columns(file.names, roles)
            count = _some(file.settle(roles.named))
        sources.append(FrameSource(path, file, count, roles, encoder, settings.ids))
    return sources


def _open_matrices(paths: list[Path], kind: Format, settings: DataSettings) -> list[Source]:
    _refuse_column_settings(kind, settings)
    found = _scanned(paths) if kind == "libsvm" else []
    for path in paths if kind == "numpy" else ():
        with errors_about(path):
            found.append(open_numpy(path))
    with errors_about(paths[0]):
        fills = fit_imputation(found[0].pieces(CHUNK_BYTES), found[0].width, settings.missing)
    sources: list[Source] = []
    for path, matrix in zip(paths, found, strict=True):
        with errors_about(path):
            _same_width(matrix.width, found[0].width)
            _some(matrix.count)
            _refuse_nothing(matrix.width > 0, matrix.labels is not None)
        sources.append(MatrixSource(path, matrix, fills, settings.ids))
    return sources


def _scanned(paths: list[Path]) -> list[Matrix]:
    scans = []
    for path in paths:
        with errors_about(path):
            scans.append(libsvm.scan(path, CHUNK_BYTES // 2))
    return libsvm.matrices_of(scans)


def _same_width(width: int, train: int) -> None:
    if width != train:
        raise DataError(f"{width} features, but training has {train}; give both the same features")


def _refuse_column_settings(kind: Format, settings: DataSettings) -> None:
    for name in COLUMN_SETTINGS:
        if getattr(settings, name):
            raise DataError(
                f"data.{name} names a column, but a {kind} file has no named columns; "
                f"leave it out, or give the data as CSV or Parquet"
            )


def _some(count: int) -> int:
    if not count:
        raise DataError("it has no rows; give a file with at least one")
    return count


def _refuse_nothing(features: bool, labels: bool) -> None:
    if not features and not labels:
        raise DataError("it has neither features nor labels; name some in data.columns, or the label in data.label")
