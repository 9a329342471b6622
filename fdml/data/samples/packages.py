"""Files inside installed packages. The packages are not imported: old ones fail with the pandas of today."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fdml.errors import DataError
from fdml.extras import need


def packaged_file(module: str, path: str, what: str) -> Path:
    """A file of a package that an extra brings; `what` is what needs it."""
    need(module, what)
    found = find_file(module, path)
    if found is None:
        raise DataError(f"the installed package {module!r} has no file {path!r}, which {what} needs; install it anew")
    return found


def find_file(module: str, path: str) -> Path | None:
    """A file of a package, if both are there."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    candidates = (Path(folder, path) for folder in spec.submodule_search_locations)
    return next((each for each in candidates if each.is_file()), None)
