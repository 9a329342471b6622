"""Context for errors: the nearest known name for an unknown one, and the file for an error in its content."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fdml.errors import DataError

LISTED = 10
"""How many known names an error lists at most."""


def no_such(what: str, name: str, known: Sequence[str], more_known: Sequence[str] = ()) -> DataError:
    """The error for a name that is not among the known ones; `more_known` may be meant too, but are not listed."""
    near = difflib.get_close_matches(name, [*known, *more_known], n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    return DataError(f"there is no {what} {name!r}; {hint}there are: {', '.join(known[:LISTED])}{more}")


@contextmanager
def errors_about(place: Path | str) -> Iterator[None]:
    """Put the file's name, or what else names the rows, before any error about their content."""
    try:
        yield
    except DataError as error:
        raise type(error)(f"{place}: {error}") from None
