"""Whether the names of a table's columns are a row: of a file without a line of names, they are a person's cells.

Then they are in no error and in no output.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence

from fdml.errors import DataError
from fdml.settings.data import DataSettings

_DATA_LIKE = re.compile(r"\s*|[+-]?\d[\d.,]*%?|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*|\S+@\S+\.\S+")
_MISSPELT = 0.8
"""How alike a name and a misspelt one are, at least."""
_MOST_LIKE = 1 / 3
"""Of all names, that look like cells."""


def row_by_its_names(names: Sequence[str]) -> str:
    """What there is to say if many names look like cells; empty if not."""
    like = list(filter(_looks_like_data, names))
    is_row = len(like) > _MOST_LIKE * len(names) and names != [str(number) for number in range(len(names))]
    return _fault(like, names) if is_row else ""


def row_by_what_is_below(names: Sequence[str], settings: DataSettings, repeated: Collection[str]) -> str:
    """The same by what the columns hold: `repeated` are names that are also values of their own column."""
    like = {*filter(_looks_like_data, names), *repeated}
    if repeated and len(like) > max(1, _MOST_LIKE * len(names)):
        return _fault(like, names)
    return str(row_error(settings)) if may_be_row(names, settings, more_like=bool(like)) else ""


def may_be_row(names: Sequence[str], settings: DataSettings, *, more_like: bool = False) -> bool:
    """Whether the names may be the cells of a row, which nobody may see: the settings name columns, and none is there.

    A misspelt name has another that is nearly the same. `more_like` is whether there are other signs of it.
    """
    named = _named(settings)
    if not named or any(name in names for name in named):
        return False
    words = [name for name in names if not re.search(r"\d", name)]
    if any(difflib.get_close_matches(name, words, n=1, cutoff=_MISSPELT) for name in named):
        return False
    return len(named) > 1 or more_like or any(map(_looks_like_data, names))


def row_error(settings: DataSettings) -> DataError:
    """What is said of such a table."""
    return DataError(
        f"none of the columns that [data] names is there ({', '.join(_named(settings))}), so its first line is "
        f"probably a row: give the file a first line with names of columns, or correct [data]"
    )


def _named(settings: DataSettings) -> list[str]:
    """All columns that the settings name, each once."""
    lists = (settings.id, settings.columns or (), settings.ignore, settings.categorical, settings.hashed)
    tables = (settings.ranges, settings.categories, settings.key_columns)
    single = [name for name in (settings.label, settings.weight, settings.group) if name is not None]
    return list(dict.fromkeys([*single, *(name for each in (*lists, *tables) for name in each)]))


def _looks_like_data(name: str) -> bool:
    return _DATA_LIKE.fullmatch(name) is not None


def _fault(like: Collection[str], names: Sequence[str]) -> str:
    return (
        f"the first line has {len(like)} of {len(names)} names that look like data, so it is probably a row: give the "
        f"file a first line with names of columns"
    )
