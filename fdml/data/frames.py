"""CSV and Parquet files, and which of their columns is what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fdml.data.encoding import Encoder
from fdml.data.fields import ids_of, is_text, labels_of, repeated, weights_of
from fdml.data.naming import no_such
from fdml.data.table import Table
from fdml.errors import DataError
from fdml.settings import DataSettings

PANDAS_INDEX = "__index_level_"
"""How pandas names an index it stores; such a column is a feature only where it is named."""


@dataclass(frozen=True)
class Roles:
    """The names of a table's columns by what they are for."""

    ids: tuple[str, ...]
    label: str | None
    weight: str | None
    features: tuple[str, ...]

    @property
    def named(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.others, *self.features)

    @property
    def others(self) -> tuple[str, ...]:
        """Those that are not features."""
        return (*self.ids, *(name for name in (self.label, self.weight) if name is not None))


def read_csv(path: Path, text: Iterable[str]) -> Any:
    """Read a CSV file; the columns in `text` are read as they are written, the others as what they look like."""
    options = pa.csv.ConvertOptions(column_types={name: pa.string() for name in text})
    try:
        return pa.csv.read_csv(path, convert_options=options)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as CSV in UTF-8 with commas: {error}") from None


def read_parquet(path: Path) -> Any:
    """Read a Parquet file."""
    try:
        with pa.parquet.ParquetFile(path) as file:
            return file.read()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as Parquet: {error}") from None


def text_columns(frame: Any) -> list[str]:
    """The columns that hold text; a test file's are read as text too, whatever they look like there."""
    return [field.name for field in frame.schema if is_text(field.type)]


def roles_of(frame: Any, settings: DataSettings) -> Roles:
    """Which column is what, or an error that names the column that cannot be it."""
    names = list(frame.column_names)
    twice = repeated(names)
    if twice is not None:
        raise DataError(f"two columns are named {twice!r}; rename one")
    roles = Roles(settings.id, settings.label, settings.weight, settings.columns or ())
    for name in settings.ignore:
        if name not in names:
            raise no_such("column", name, names)
    if settings.columns is None:
        used = {*roles.others, *settings.ignore}
        rest = (name for name in names if name not in used and not name.startswith(PANDAS_INDEX))
        roles = Roles(roles.ids, roles.label, roles.weight, tuple(rest))
    check_columns(frame, roles)
    twice = repeated(roles.named)
    if twice is not None:
        raise DataError(f"column {twice!r} is named twice among data.id, data.label, data.weight and data.columns")
    for name in (*settings.categorical, *settings.hashed):
        if name not in names:
            raise no_such("column", name, names)
        if name not in roles.features:
            raise DataError(f"column {name!r} is in data.categorical or data.hashed but is no feature; leave it out")
    return roles


def check_columns(frame: Any, roles: Roles) -> None:
    """Raise unless the table has every column that has a role."""
    for what, named in (
        ("id column", roles.ids),
        ("label column", (roles.label,)),
        ("weight column", (roles.weight,)),
        ("column", roles.features),
    ):
        for name in named:
            if name is not None and name not in frame.column_names:
                raise no_such(what, name, frame.column_names)


def to_table(frame: Any, roles: Roles, encoder: Encoder) -> Table:
    """Encode a table whose columns have been checked."""
    return Table(
        encoder.encode(frame),
        encoder.names,
        ids_of({name: frame.column(name) for name in roles.ids}) if roles.ids else None,
        None if roles.label is None else labels_of(roles.label, frame.column(roles.label)),
        None if roles.weight is None else weights_of(roles.weight, frame.column(roles.weight)),
    )
