"""Parts: what a worker has made of one piece of a table, as a folder of plain arrays.

    manifest.json   for every array its type, its shape and its SHA-256
    NAME            one array, its bytes alone

A part is complete or not there. Nothing of it is synced: a part that a power cut has torn is found by its hashes, and
made again.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fdml.data.many_texts import text_bytes
from fdml.data.rows import DenseRows, PlainRows, Rows, SparseRows, plain_rows
from fdml.errors import StateCorrupt
from fdml.storage.atomic import name_folder, new_file

MANIFEST = "manifest.json"
_LAYOUT = "fdml part 1"

Part = Mapping[str, NDArray[Any]]
"""The arrays of a part by name, mapped."""


class PartArrays:
    """The arrays of a part while it is written, each from its first row to its last."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self._folder = folder
        self._opened = opened
        self._files: dict[str, Any] = {}
        self._hashes: dict[str, Any] = {}
        self._shapes: dict[str, list[int]] = {}
        self._types: dict[str, str] = {}

    def append(self, name: str, array: NDArray[Any]) -> None:
        """Write at an array's end; all pieces of it are of one type, and alike but for their length."""
        if name not in self._files:
            self._files[name] = self._opened.enter_context(new_file(self._folder / name))
            self._hashes[name] = hashlib.sha256()
            self._shapes[name] = [0, *array.shape[1:]]
            self._types[name] = array.dtype.str
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""
        self._files[name].write(content)
        self._hashes[name].update(content)
        self._shapes[name][0] += len(array)

    def manifest(self) -> bytes:
        """What was written."""
        arrays = {
            name: {"type": self._types[name], "shape": shape, "sha256": self._hashes[name].hexdigest()}
            for name, shape in self._shapes.items()
        }
        return json.dumps({"layout": _LAYOUT, "arrays": arrays}, indent=1).encode()


def write_part(folder: Path, fill: Callable[[PartArrays], None]) -> None:
    """Write a part, unless it is there.

    It is written under a name that nobody else has, as a worker that was taken for lost may be at it still. The first
    one stays; the others have made the same.
    """
    if (folder / MANIFEST).is_file():
        return
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}")
    beside.mkdir(mode=0o700)
    try:
        with ExitStack() as opened:
            arrays = PartArrays(beside, opened)
            fill(arrays)
        with new_file(beside / MANIFEST) as file:
            file.write(arrays.manifest())
        name_folder(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)  # is no longer there if all went well


def is_written(folder: Path) -> bool:
    """Whether a part is there; nothing is said of its content."""
    return (folder / MANIFEST).is_file()


def open_part(folder: Path) -> Part:
    """The arrays of a part, each as it was written, or `StateCorrupt`."""
    try:
        known = json.loads((folder / MANIFEST).read_bytes())
        if known["layout"] != _LAYOUT:
            raise ValueError(f"its layout is {known['layout']!r}")
        return {name: _checked(folder / name, about) for name, about in known["arrays"].items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateCorrupt(f"part {folder.name!r} of {str(folder.parent)!r} is damaged ({error})") from None


def _checked(path: Path, about: Mapping[str, Any]) -> NDArray[Any]:
    shape = tuple(about["shape"])
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != about["sha256"]:
        raise ValueError(f"{path.name!r} has another SHA-256 than when it was written")
    if 0 in shape:
        return np.zeros(shape, about["type"])
    return np.asarray(np.memmap(path, about["type"], "c", shape=shape))  # compiled code may want it writable


def append_rows(arrays: PartArrays, given: Rows, end: int) -> int:
    """Write features after `end` entries of a part; gives how many there are then.

    Where rows, or ids, begin is written without the first number, which is 0.
    """
    rows = plain_rows(given)
    if isinstance(rows, DenseRows):
        arrays.append("values", rows.values)
        return end + rows.values.size
    first, last = int(rows.indptr[0]), int(rows.indptr[-1])
    arrays.append("indptr", rows.indptr[1:] - first + end)
    arrays.append("indices", rows.indices[first:last])
    arrays.append("values", rows.values[first:last])
    return end + last - first


def rows_of(part: Part, width: int) -> PlainRows:
    """The features of a part."""
    if "indptr" in part:
        return SparseRows(_from_zero(part["indptr"]), part["indices"], part["values"], width)
    return DenseRows(part["values"])


def append_ids(arrays: PartArrays, texts: Any, end: int) -> int:
    """Write ids, a large_string array with null where there is none, after `end` bytes; gives how many there are."""
    bounds, content = text_bytes(pc.fill_null(texts, ""))  # a normalised id is never empty
    arrays.append("id bounds", bounds[1:] + end)
    arrays.append("id bytes", np.frombuffer(content, np.uint8))
    return end + len(content)


def ids_of(part: Part) -> Any:
    """The ids of a part as they were written."""
    bounds, content = _from_zero(part["id bounds"]), part["id bytes"]
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(content))]
    texts = pa.Array.from_buffers(pa.large_string(), len(bounds) - 1, buffers)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.large_string()), texts)


def _from_zero(ends: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), ends])
