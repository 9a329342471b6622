"""Sources: a party's files, opened but not read. Each part is read when it is asked for, in bounded memory.

The format is `data.format`, or that of the file's ending (`ENDINGS`); training and test file have the same format. CSV
and LIBSVM may be compressed (.gz, .bz2). A LIBSVM file always has labels; those of a .npz archive are its `y`. Features
of both are named "1", "2", ... by position.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fdml.data import libsvm
from fdml.data.column_roles import ColumnRoles, check_columns, roles_of
from fdml.data.encoders import AnyEncoder
from fdml.data.encoding import Encoder, fit
from fdml.data.error_context import errors_about
from fdml.data.files import CsvFile, open_frame
from fdml.data.frame_source import FrameSource
from fdml.data.ids import Ids
from fdml.data.imputation import fit_imputation
from fdml.data.matrices import Matrix, open_numpy
from fdml.data.matrix_encoding import MatrixEncoder
from fdml.data.matrix_source import MatrixSource
from fdml.data.rows import CHUNK_BYTES, Rows
from fdml.errors import DataError
from fdml.settings_data import DataSettings, Format

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
"""The format of each ending, without .gz or .bz2. LIBSVM's own files end in .t or have no ending."""

TABLES: tuple[Format, ...] = ("csv", "parquet")
"""The formats with named columns."""
COLUMN_SETTINGS = ("id", "label", "weight", "columns", "ignore", "categorical", "hashed", "ranges", "categories")
"""The settings that name columns."""


class Source(Protocol):
    """One file of a party. Everything is in file order and of all rows; only ids may leave rows out."""

    @property
    def count(self) -> int:
        """The number of rows in the file."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        ...

    @property
    def encoder(self) -> AnyEncoder:
        """The encoder that makes the features."""
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

    The training file is read once, to fit the encoder.
    """
    paths = [settings.path] if settings.test_path is None else [settings.path, settings.test_path]
    kinds = [_format(path, settings) for path in paths]
    if kinds[0] != kinds[-1]:
        raise DataError(f"{paths[0]} is {kinds[0]} but {paths[-1]} is {kinds[-1]}; give both in the same format")
    if kinds[0] in TABLES:
        return _open_tables(paths, kinds[0], settings)
    return _open_matrices(paths, kinds[0], settings)


def open_encoded(settings: DataSettings, encoder: AnyEncoder) -> Source:
    """Open new rows, `settings.path`, for an encoder that was fitted before; nothing is learned from them.

    The features are the encoder's. Label and weight are read where the file has them.
    """
    path = settings.path
    kind = _format(path, settings)
    with errors_about(path):
        if isinstance(encoder, Encoder) and kind in TABLES:
            return _encoded_table(kind, settings, encoder)
        if isinstance(encoder, MatrixEncoder) and kind not in TABLES:
            return _encoded_matrix(kind, settings, encoder)
        trained = "named columns (CSV, Parquet)" if isinstance(encoder, Encoder) else "a matrix (LIBSVM, numpy)"
        raise DataError(f"is {kind}, but the model was trained on {trained}; give the new rows in that form")


def _encoded_table(kind: Format, settings: DataSettings, encoder: Encoder) -> Source:
    file = open_frame(settings.path, kind, [*settings.id, *encoder.text_columns])
    label, weight = (name if name in file.names else None for name in (settings.label, settings.weight))
    roles = ColumnRoles(settings.id, label, weight, encoder.columns)
    check_columns(file.names, roles)
    count = _some(file.settle(roles.named))
    return FrameSource(settings.path, file, count, roles=roles, encoder=encoder, id_settings=settings.ids)


def _encoded_matrix(kind: Format, settings: DataSettings, encoder: MatrixEncoder) -> Source:
    _refuse_column_settings(kind, settings)
    if kind == "libsvm":
        scan = libsvm.scan(settings.path, CHUNK_BYTES // 2)
        matrix = libsvm.matrix_of(scan, encoder.first_number, encoder.width)
    else:
        matrix = open_numpy(settings.path)
    _same_width(matrix.width, encoder.width)
    _some(matrix.count)
    return MatrixSource(settings.path, matrix, encoder, settings.ids)


def format_of(settings: DataSettings) -> Format:
    """The format of a party's files: as set, or by the training file's ending."""
    return _format(settings.path, settings)


def _format(path: Path, settings: DataSettings) -> Format:
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}; correct data.path or data.test_path")
    if settings.format is not None:
        return settings.format
    ending = path.with_suffix("").suffix if path.suffix in (".gz", ".bz2") else path.suffix
    if ending not in ENDINGS:
        raise DataError(f"{path}: unknown ending {ending!r}; set data.format = csv, parquet, libsvm or numpy")
    return ENDINGS[ending]


def _open_tables(paths: list[Path], kind: Format, settings: DataSettings) -> list[Source]:
    text = [*settings.id, *settings.categorical, *settings.hashed, *settings.categories]
    with errors_about(paths[0]):
        file = open_frame(paths[0], kind, text)
        roles = roles_of(file.names, settings)
        _refuse_nothing(bool(roles.features), roles.label is not None)
        count = _some(file.settle(roles.named))
        encoder = fit(file.batches(roles.features), roles.features, settings)
    shared: dict[str, Any] = {"roles": roles, "encoder": encoder, "id_settings": settings.ids}
    sources: list[Source] = [FrameSource(paths[0], file, count, **shared)]
    if isinstance(file, CsvFile):
        text += file.text_columns
    for path in paths[1:]:
        with errors_about(path):
            file = open_frame(path, kind, text)
            check_columns(file.names, roles)
            count = _some(file.settle(roles.named))
        sources.append(FrameSource(path, file, count, **shared))
    return sources


def _open_matrices(paths: list[Path], kind: Format, settings: DataSettings) -> list[Source]:
    _refuse_column_settings(kind, settings)
    first_number, matrices = _libsvm_matrices(paths) if kind == "libsvm" else (1, _numpy_matrices(paths))
    width = matrices[0].width
    with errors_about(paths[0]):
        fills = fit_imputation(matrices[0].pieces(CHUNK_BYTES), width, settings.missing)
    encoder = MatrixEncoder(width, fills, first_number)
    sources: list[Source] = []
    for path, matrix in zip(paths, matrices, strict=True):
        with errors_about(path):
            _same_width(matrix.width, width)
            _some(matrix.count)
            _refuse_nothing(matrix.width > 0, matrix.labels is not None)
        sources.append(MatrixSource(path, matrix, encoder, settings.ids))
    return sources


def _libsvm_matrices(paths: list[Path]) -> tuple[int, list[Matrix]]:
    """The number of the first feature, and the files as matrices of one numbering and width."""
    scans = []
    for path in paths:
        with errors_about(path):
            scans.append(libsvm.scan(path, CHUNK_BYTES // 2))
    first, width = libsvm.numbering(scans)
    return first, [libsvm.matrix_of(scan, first, width) for scan in scans]


def _numpy_matrices(paths: list[Path]) -> list[Matrix]:
    matrices = []
    for path in paths:
        with errors_about(path):
            matrices.append(open_numpy(path))
    return matrices


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
