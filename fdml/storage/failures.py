"""What a disk refuses, as one line: which file, why, and the way out."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from fdml.errors import StateCorrupt

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def explained_failures() -> Iterator[None]:
    """Turn an `OSError` of a file into an error that a person can act on; also a decorator."""
    try:
        yield
    except BrokenPipeError:  # of a pipe that nobody reads, not of a file
        raise
    except OSError as error:
        raise StateCorrupt(storage_failure(error)) from None


def storage_failure(error: OSError) -> str:
    """The sentence for a person."""
    file = "a file" if error.filename is None else repr(str(error.filename))
    why = error.strerror or str(error)
    if error.errno in _FORBIDDEN:
        way = "see that its folder is not read-only and belongs to this user"
    elif error.errno in _FULL:
        way = "make room on the disk"
    else:
        way = "see to the disk"
    return f"cannot use {file} ({why}); {way}, then run the same command again: it goes on where it stopped"
