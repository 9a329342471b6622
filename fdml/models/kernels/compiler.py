"""Compiling kernels, and where the compiled code is kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def _cache_folder() -> Path:
    """A folder named after the kernels' sources: compiled code never outlives what it was made from."""
    models = Path(__file__).parent.parent
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted([*models.glob("kernels/*.py"), *models.glob("*/kernel.py")]):
        digest.update(source.read_bytes())
    beside = models / "__pycache__"
    writable = os.access(beside if beside.exists() else models, os.W_OK)
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fdml"
    chosen = Path(numba.config.CACHE_DIR) if numba.config.CACHE_DIR else beside if writable else home
    return chosen / f"kernels-{digest.hexdigest()}"


def kernel(function: F) -> F:
    """Compile a function: the GIL released, the result cached on disk.

    numba's own cache looks only at the file a kernel is in, and would keep
    code made from an older version of this file.
    """
    return _compiled(function, {"reassoc", "contract", "nsz"})


def exact_kernel(function: F) -> F:
    """The same with every rounding as it is written: no sum in another order, no two roundings made one."""
    return _compiled(function, False)


def _compiled(function: F, fastmath: set[str] | bool) -> F:
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_cache_folder())
    try:
        compiled: Any = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=fastmath)(function)
    finally:
        numba.config.CACHE_DIR = before
    return cast(F, compiled)
