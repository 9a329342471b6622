"""Which column of a table is what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fdml.data.column_types import repeated
from fdml.data.error_context import no_such
from fdml.data.first_line import may_be_row, row_error
from fdml.errors import DataError
from fdml.settings.data import DataSettings

PANDAS_INDEX = "__index_level_"
"""How pandas names an index it stores; such a column is a feature only where it is named."""


@dataclass(frozen=True)
class ColumnRoles:
    """The names of a table's columns by what they are for."""

    ids: tuple[str, ...]
    label: str | None
    weight: str | None
    features: tuple[str, ...]
    keys: tuple[str, ...] = ()
    """Those that lead to rows of other parties; they may be ids or features as well."""
    group: str | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """All of them, each once."""
        known = (*self.others, *self.features)
        return (*known, *(name for name in self.keys if name not in known))

    @property
    def others(self) -> tuple[str, ...]:
        """Those that are not features."""
        return (*self.ids, *(name for name in (self.label, self.weight, self.group) if name is not None))


def roles_of(names: Sequence[str], settings: DataSettings) -> ColumnRoles:
    """Which column is what, or an error that names the column that cannot be it."""
    if may_be_row(names, settings):
        raise row_error(settings)
    twice = repeated(names)
    if twice is not None:
        raise DataError(f"two columns are named {twice!r}; rename one")
    keys = settings.key_columns
    roles = ColumnRoles(settings.id, settings.label, settings.weight, settings.columns or (), keys, settings.group)
    for name in settings.ignore:
        if name not in names:
            raise no_such("column", name, names)
    if settings.columns is None:
        used = {*roles.others, *settings.ignore, *keys}
        rest = (name for name in names if name not in used and not name.startswith(PANDAS_INDEX))
        roles = replace(roles, features=tuple(rest))
    check_columns(names, roles)
    if roles.label in keys:
        raise DataError(f"column {roles.label!r} is the label and a key to another party, which would learn it; choose")
    twice = repeated((*roles.others, *roles.features))
    if twice is not None:
        raise DataError(
            f"column {twice!r} is named twice among data.id, data.label, data.weight, data.group and data.columns"
        )
    for setting in ("categorical", "hashed", "ranges", "categories"):
        for name in getattr(settings, setting):
            if name not in names:
                raise no_such("column", name, names)
            if name not in roles.features:
                raise DataError(f"column {name!r} is in data.{setting} but is no feature; leave it out")
    return roles


def check_columns(names: Sequence[str], roles: ColumnRoles) -> None:
    """Raise unless the table has every column that has a role."""
    for what, named in (
        ("id column", roles.ids),
        ("label column", (roles.label,)),
        ("weight column", (roles.weight,)),
        ("group column", (roles.group,)),
        ("column", roles.features),
        ("key column", roles.keys),
    ):
        for name in named:
            if name is not None and name not in names:
                raise no_such(what, name, names)
