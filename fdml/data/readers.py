"""A party's files to tables of float32 rows.

The format is `data.format`, or goes by the ending (`ENDINGS`); training and test
file have the same. CSV, and LIBSVM, may be compressed (.gz, .bz2). Labels of a
LIBSVM file are always the file's, those of a .npz archive its `y`; their
features are named "1", "2", ... by their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fdml.data import frames, matrices
from fdml.data.encoding import fit
from fdml.data.filling import fill, fills_of
from fdml.data.rows import as_rows
from fdml.data.table import PartyData, Table
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


def load(settings: DataSettings) -> PartyData:
    """Read a party's training file, and its test file if it has one."""
    paths = [settings.path] if settings.test_path is None else [settings.path, settings.test_path]
    kinds = [_format(path, settings) for path in paths]
    if kinds[0] != kinds[-1]:
        raise DataError(f"{paths[0]} is {kinds[0]} but {paths[-1]} is {kinds[-1]}; give both in the same format")
    load_all = _load_frames if kinds[0] in ("csv", "parquet") else _load_matrices
    return PartyData(*load_all(paths, kinds[0], settings))


def _format(path: Path, settings: DataSettings) -> Format:
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}; correct data.path or data.test_path")
    if settings.format is not None:
        return settings.format
    ending = path.with_suffix("").suffix if path.suffix in (".gz", ".bz2") else path.suffix
    if ending not in ENDINGS:
        raise DataError(f"{path}: unknown ending {ending!r}; set data.format = csv, parquet, libsvm or numpy")
    return ENDINGS[ending]


def _load_frames(paths: list[Path], kind: Format, settings: DataSettings) -> list[Table]:
    text = [*settings.id, *settings.categorical, *settings.hashed]
    with _naming(paths[0]):
        frame = _read_frame(paths[0], kind, text)
        roles = frames.roles_of(frame, settings)
        encoder = fit(frame, roles.features, settings)
        tables = [_usable(frames.to_table(frame, roles, encoder))]
    for path in paths[1:]:
        with _naming(path):
            frame = _read_frame(path, kind, [*text, *frames.text_columns(frame)])
            frames.check_columns(frame, roles)
            tables.append(_usable(frames.to_table(frame, roles, encoder)))
    return tables


def _read_frame(path: Path, kind: Format, text: list[str]) -> Any:
    frame = frames.read_parquet(path) if kind == "parquet" else frames.read_csv(path, text)
    _refuse_no_rows(len(frame))
    return frame


def _load_matrices(paths: list[Path], kind: Format, settings: DataSettings) -> list[Table]:
    _refuse_column_settings(kind, settings)
    found = []
    for path in paths:
        with _naming(path):
            found.append(matrices.read_libsvm(path) if kind == "libsvm" else matrices.read_numpy(path))
    if kind == "libsvm":
        found = matrices.number_from_one(found)
    fills = fills_of(found[0].features, settings.missing)
    tables = []
    for path, matrix in zip(paths, found, strict=True):
        with _naming(path):
            _same_width(matrix.features, found[0].features)
            rows = as_rows(fill(matrix.features, fills))
            names = tuple(str(number) for number in range(1, matrix.features.shape[1] + 1))
            tables.append(_usable(Table(rows, names, matrix.ids, matrix.labels, matrix.weights)))
    return tables


def _same_width(features: Any, train: Any) -> None:
    if features.shape[1] != train.shape[1]:
        raise DataError(f"{features.shape[1]} features, but training has {train.shape[1]}; give both the same features")


def _refuse_column_settings(kind: Format, settings: DataSettings) -> None:
    for name in COLUMN_SETTINGS:
        if getattr(settings, name):
            raise DataError(
                f"data.{name} names a column, but a {kind} file has no named columns; "
                f"leave it out, or give the data as CSV or Parquet"
            )


def _refuse_no_rows(count: int) -> None:
    if not count:
        raise DataError("it has no rows; give a file with at least one")


def _usable(table: Table) -> Table:
    _refuse_no_rows(len(table))
    if not table.names and table.labels is None:
        raise DataError("it has neither features nor labels; name some in data.columns, or the label in data.label")
    return table


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the file's name before any error about its content."""
    try:
        yield
    except DataError as error:
        raise type(error)(f"{path}: {error}") from None
