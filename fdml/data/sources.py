"""Sources: a party's rows, opened but not read. Each part is read when it is asked for, in bounded memory.

Training and test rows come in the same form. CSV and LIBSVM may be compressed (.gz, .bz2). A LIBSVM file always has
labels; those of a .npz archive are its `y`. Features of both are named "1", "2", ... by position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fdml.data import libsvm
from fdml.data.column_roles import ColumnRoles, check_columns, roles_of
from fdml.data.encoders import AnyEncoder
from fdml.data.encoding import Encoder, fit, repeated_rows
from fdml.data.error_context import errors_about
from fdml.data.frame_source import FrameSource
from fdml.data.ids import Ids
from fdml.data.imputation import fit_imputation, fit_indicators
from fdml.data.locations import TABLES
from fdml.data.matrices import Matrix, open_numpy
from fdml.data.matrix_encoding import MatrixEncoder
from fdml.data.matrix_source import MatrixSource
from fdml.data.origins import FilesOrigin, Origin, OriginKind, origins_of
from fdml.data.rows import CHUNK_BYTES, RowEncoding, Rows
from fdml.data.table_source import TableSource
from fdml.errors import DataError
from fdml.settings.data import DataSettings
from fdml.storage.disk import Disk

COLUMN_SETTINGS = (
    "id",
    "keys",
    "label",
    "weight",
    "group",
    "columns",
    "ignore",
    "categorical",
    "hashed",
    "ranges",
    "categories",
)
"""The settings that name columns."""


class Source(Protocol):
    """One table of a party. Everything is in its order and of all rows; only ids may leave rows out."""

    @property
    def count(self) -> int:
        """The number of rows."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        ...

    @property
    def encoder(self) -> AnyEncoder:
        """The encoder that makes the features."""
        ...

    def ids(self, disk: Disk | None = None) -> Ids | None:
        """The ids and the rows they keep; None where rows are matched by position. Many are mapped from the disk."""
        ...

    def keys(self, columns: tuple[str, ...]) -> Any:
        """The keys that these columns make, a pyarrow large_string array of all rows; null where one has no value."""
        ...

    def labels(self) -> NDArray[np.generic] | None:
        """The labels, if there are any."""
        ...

    def weights(self) -> NDArray[np.float64] | None:
        """The rows' weights, if there are any."""
        ...

    def groups(self) -> NDArray[np.int64] | None:
        """The number of each row's group, if there are any."""
        ...

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[Rows]:
        """The features, about `size` bytes at a time; all chunks are sparse, or all dense."""
        ...


class TableReader(Protocol):
    """Who reads tables of named columns: this process, or the workers of a party."""

    def encoder(
        self,
        place: Origin,
        table: TableSource,
        features: tuple[str, ...],
        settings: DataSettings,
        *,
        counts: NDArray[np.int64] | None,
        encoding: RowEncoding,
    ) -> Encoder:
        """Learned from the feature columns; each row counts as often as `counts` says, None is once."""
        ...

    def source(self, place: Origin, table: TableSource, whole: FrameSource) -> Source:
        """The rows of a table; `whole` reads them in this process."""
        ...


class ThisProcess:
    """Reads tables in this process, and keeps nothing on disk."""

    def encoder(
        self,
        _place: Origin,
        table: TableSource,
        features: tuple[str, ...],
        settings: DataSettings,
        *,
        counts: NDArray[np.int64] | None,
        encoding: RowEncoding,
    ) -> Encoder:
        """Learned from one pass over the feature columns."""
        batches = table.batches(features)
        return fit(batches if counts is None else repeated_rows(batches, counts), features, settings, encoding)

    def source(self, _place: Origin, _table: TableSource, whole: FrameSource) -> Source:
        """The rows, encoded whenever they are asked for."""
        return whole


THIS_PROCESS = ThisProcess()


def open_sources(
    settings: DataSettings,
    counts: NDArray[np.int64] | None = None,
    origins: Sequence[Origin] | None = None,
    encoding: RowEncoding = "numeric",
    reader: TableReader = THIS_PROCESS,
) -> list[Source]:
    """Open a party's training rows, and its test rows if it has some.

    The training rows are read once, to fit the encoder: to each row as often as `counts` says; None is once.
    `origins` are where the rows are, if not where the settings say. `encoding` is what the model wants of columns.
    """
    places = origins_of(settings) if origins is None else origins
    first, last = places[0], places[-1]
    if first.kind != last.kind:
        raise DataError(f"{first.name} is {first.kind} but {last.name} is {last.kind}; give both in the same format")
    if _has_columns(first.kind):
        return _open_tables(places, settings, counts, encoding, reader)
    return _open_matrices([_file_of(place) for place in places], first.kind, settings)


def remarks_of(sources: Sequence[Source]) -> tuple[str, ...]:
    """What a person should know of the columns that sources were fitted on."""
    encoder = sources[0].encoder
    return encoder.remarks if isinstance(encoder, Encoder) else ()


def open_encoded(
    settings: DataSettings, encoder: AnyEncoder, origin: Origin | None = None, reader: TableReader = THIS_PROCESS
) -> Source:
    """Open new rows for an encoder that was fitted before; nothing is learned from them.

    They are where the settings say, or in `origin`. The features are the encoder's. Label and weight are read where
    the rows have them.
    """
    place = origins_of(settings)[0] if origin is None else origin
    with errors_about(place.name):
        if isinstance(encoder, Encoder) and _has_columns(place.kind):
            return _encoded_table(place, settings, encoder, reader)
        if isinstance(encoder, MatrixEncoder) and not _has_columns(place.kind):
            return _encoded_matrix(_file_of(place), place.kind, settings, encoder)
        trained = "named columns (CSV, Parquet)" if isinstance(encoder, Encoder) else "a matrix (LIBSVM, numpy)"
        raise DataError(f"is {place.kind}, but the model was trained on {trained}; give the new rows in that form")


def format_of(settings: DataSettings) -> OriginKind:
    """The format of a party's files: as set, or by the training file's ending; "query" where there are none."""
    return origins_of(settings)[0].kind


def _has_columns(kind: OriginKind) -> bool:
    return kind in (*TABLES, "query", "frame")


def _file_of(origin: Origin) -> Path:
    if not isinstance(origin, FilesOrigin):
        raise DataError(f"{origin.name} is no file; give named columns")
    return origin.file


def _encoded_table(place: Origin, settings: DataSettings, encoder: Encoder, reader: TableReader) -> Source:
    keys = [name for name in settings.key_columns if name not in encoder.columns]
    table = place.table([*settings.id, *keys, *encoder.text_columns])
    wanted = (settings.label, settings.weight, settings.group)
    label, weight, group = (name if name in table.names else None for name in wanted)
    roles = ColumnRoles(settings.id, label, weight, encoder.columns, settings.key_columns, group)
    check_columns(table.names, roles)
    count = _some(table.settle(roles.named))
    whole = FrameSource(place.name, table, count, roles=roles, encoder=encoder, id_settings=settings.ids)
    return reader.source(place, table, whole)


def _encoded_matrix(path: Path, kind: OriginKind, settings: DataSettings, encoder: MatrixEncoder) -> Source:
    _refuse_column_settings(kind, settings)
    if kind == "libsvm":
        scan = libsvm.scan(path, CHUNK_BYTES // 2)
        matrix = libsvm.matrix_of(scan, encoder.first_number, encoder.width)
    else:
        matrix = open_numpy(path)
    _same_width(matrix.width, encoder.width)
    _some(matrix.count)
    return MatrixSource(path, matrix, encoder, settings.ids)


def _open_tables(
    places: Sequence[Origin],
    settings: DataSettings,
    counts: NDArray[np.int64] | None,
    encoding: RowEncoding,
    reader: TableReader,
) -> list[Source]:
    keys = [name for name in settings.key_columns if name not in (settings.columns or ())]
    text = [*settings.id, *keys, *settings.categorical, *settings.hashed, *settings.categories]
    with errors_about(places[0].name):
        table = places[0].table(text)
        roles = roles_of(table.names, settings)
        _refuse_nothing(bool(roles.features), roles.label is not None)
        count = _some(table.settle(roles.named))
        if counts is not None and not counts.any():
            raise DataError("the run uses none of its rows; check data.id and [keys] of run.toml")
        encoder = reader.encoder(places[0], table, roles.features, settings, counts=counts, encoding=encoding)
    shared: dict[str, Any] = {"roles": roles, "encoder": encoder, "id_settings": settings.ids}
    sources = [reader.source(places[0], table, FrameSource(places[0].name, table, count, **shared))]
    text += table.text_columns
    for place in places[1:]:
        with errors_about(place.name):
            table = place.table(text)
            check_columns(table.names, roles)
            count = _some(table.settle(roles.named))
        sources.append(reader.source(place, table, FrameSource(place.name, table, count, **shared)))
    return sources


def _open_matrices(paths: list[Path], kind: OriginKind, settings: DataSettings) -> list[Source]:
    _refuse_column_settings(kind, settings)
    first_number, matrices = _libsvm_matrices(paths) if kind == "libsvm" else (1, _numpy_matrices(paths))
    width = matrices[0].width
    with errors_about(paths[0]):
        fills = fit_imputation(matrices[0].pieces(CHUNK_BYTES), width, settings.missing)
        indicated = fit_indicators(matrices[0].pieces(CHUNK_BYTES), settings.missing)
    encoder = MatrixEncoder(width, fills, first_number, indicated)
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


def _refuse_column_settings(kind: OriginKind, settings: DataSettings) -> None:
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
