"""Rows as files that other processes map: those of a block store as they are, those in memory written to a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import DenseRows, PlainRows, PointedRows, Rows, SparseRows, has_unit_values

_UNIT, _SENT = "unit values", "sent"
NOTHING: Mapping[str, NDArray[Any]] = {}


def describe_rows(rows: Rows, folder: Path) -> dict[str, Any]:
    """Where the arrays of the rows are, as JSON; arrays that are in no file yet are written to `folder`."""
    if isinstance(rows, PointedRows):
        stored = describe_rows(rows.stored, folder)
        return {**stored, "pointers": _placed("pointers", rows.pointers, folder)}
    if isinstance(rows, DenseRows):
        return {"values": _placed("values", rows.values, folder)}
    values = {_UNIT: len(rows.values)} if has_unit_values(rows) else _placed("values", rows.values, folder)
    return {
        "width": rows.width,
        "indptr": _placed("indptr", rows.indptr, folder),
        "indices": _placed("indices", rows.indices, folder),
        "values": values,
    }


def open_rows(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] = NOTHING) -> Rows:
    """The rows that `describe_rows` has described: mapped, or of `arrays` where they were sent along."""
    plain: PlainRows

    def opened(name: str) -> NDArray[Any]:
        return _opened(facts[name], arrays)

    if "indptr" in facts:
        plain = SparseRows(opened("indptr"), opened("indices"), opened("values"), int(facts["width"]))
    else:
        plain = DenseRows(opened("values"))
    return PointedRows(plain, opened("pointers")) if "pointers" in facts else plain


def file_places(facts: Any) -> Iterator[dict[str, Any]]:
    """All descriptions of an array in a file, in facts of any shape."""
    if isinstance(facts, Mapping):
        if {"file", "offset", "type", "shape"} <= facts.keys():
            yield dict(facts)
        for value in facts.values():
            yield from file_places(value)
    elif isinstance(facts, list):
        for value in facts:
            yield from file_places(value)


def with_sent(facts: Any, sent: Mapping[str, str]) -> Any:
    """The same facts where arrays of these files and offsets (`place_key`) are sent along, each under a name."""
    if isinstance(facts, list):
        return [with_sent(value, sent) for value in facts]
    if not isinstance(facts, Mapping):
        return facts
    name = sent.get(place_key(facts)) if "file" in facts else None
    if name is not None:
        return {"type": facts["type"], "shape": facts["shape"], _SENT: name}
    return {key: with_sent(value, sent) for key, value in facts.items()}


def place_key(place: Mapping[str, Any]) -> str:
    """What tells an array's place from others."""
    return f"{place['file']}:{place.get('offset')}"


def size_of(place: Mapping[str, Any]) -> int:
    """How many bytes an array has."""
    return int(np.prod(place["shape"], dtype=np.int64) * np.dtype(place["type"]).itemsize)


def _placed(name: str, array: NDArray[Any], folder: Path) -> dict[str, Any]:
    """An array's file, and where in it the array begins."""
    place = {"type": array.dtype.str, "shape": list(array.shape)}
    mapped = _map_of(array)
    if mapped is not None and array.flags.c_contiguous:
        skipped = int(array.ctypes.data) - int(mapped.ctypes.data)
        return {**place, "file": str(mapped.filename), "offset": mapped.offset + skipped}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    np.ascontiguousarray(array).tofile(path)
    return {**place, "file": str(path), "offset": 0}


def _map_of(array: NDArray[Any]) -> np.memmap[Any, Any] | None:
    """The file map that an array is a part of."""
    found: Any = array
    while found is not None and not (isinstance(found, np.memmap) and not isinstance(found.base, np.memmap)):
        found = getattr(found, "base", None)
    return found if isinstance(found, np.memmap) and found.filename is not None else None


def _opened(place: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """An array of a file; copied on write, as compiled code is made for arrays that can be written.

    For one that was sent, and that machines keep once for all workers, it is made a second time.
    """
    if _SENT in place:
        content = arrays[place[_SENT]]
        return np.frombuffer(content, place["type"]).reshape(tuple(place["shape"]))
    if _UNIT in place:
        return np.broadcast_to(np.float32(1.0), (int(place[_UNIT]),))
    shape = tuple(place["shape"])
    if 0 in shape:
        return np.zeros(shape, place["type"])
    return np.asarray(np.memmap(place["file"], place["type"], "c", int(place["offset"]), shape))
