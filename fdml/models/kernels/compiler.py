"""Compiling kernels, and where the compiled code is kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock

from fdml.models.kernels.turns import Turns

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
    before, folder = numba.config.CACHE_DIR, _cache_folder()
    numba.config.CACHE_DIR = str(folder)
    try:
        compiled: Any = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=fastmath)(function)
        _share(compiled, _turns(folder / "lock"))
    finally:
        numba.config.CACHE_DIR = before
    return cast(F, compiled)


@cache
def _turns(path: Path) -> Turns:
    return Turns(path)


def _share(compiled: Any, turns: Turns) -> None:
    """Let processes that start together compile each form of a kernel once: the others wait for it.

    Two of them that write to numba's cache at once lose a form, or one is kept under the name of the other.
    """
    name, compile_form = f"{compiled.py_func.__module__}.{compiled.py_func.__qualname__}", compiled.compile

    def compile_in_turn(form: Any) -> Any:
        with global_compiler_lock, turns.of(f"{name}{form}"):
            return compile_form(form)

    class SharedCache(FunctionCache):  # type: ignore[misc]
        def save_overload(self, form: Any, code: Any) -> None:
            with turns.of(name):
                super().save_overload(form, code)  # type: ignore[no-untyped-call]

    compiled.compile = compile_in_turn
    compiled._cache = SharedCache(compiled.py_func)  # type: ignore[no-untyped-call]
