"""Block store: a party's features on disk, written once in the order that all parties share.

Plain arrays in a folder, and `facts.json` with their sizes. Arrays are mapped into memory, not read, so a store may
be larger than memory. Opening checks sizes and where rows begin; it does not read the entries.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.data.external_sort import ExternalSort
from fdml.data.rows import DenseRows, PlainRows, Rows, SparseRows
from fdml.errors import StateCorrupt
from fdml.storage.atomic import new_file, new_folder

_FACTS = "facts.json"
_LAYOUT = "fdml blocks 1"


def write_blocks(folder: Path, chunks: Iterable[Rows], places: NDArray[np.int64], rows: int, width: int) -> None:
    """Write features in shared order, whole or not at all; an older store in the same folder is replaced.

    `places[i]` is the shared position of the file's row i (0 to `rows` - 1), or -1 if it is not shared.
    """
    with new_folder(folder) as store:
        unsorted = store / "unsorted"
        unsorted.mkdir(mode=0o700)
        sorter = ExternalSort(unsorted, places, rows, width)
        sorter.fill(chunks)
        _write_store(store, sorter, rows, width)
        shutil.rmtree(unsorted)


def open_blocks(folder: Path) -> PlainRows:
    """The rows as memory-mapped arrays; a span of them needs no copy.

    The arrays are writable, which compiled code may require; the files never change.
    """
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        if facts["layout"] != _LAYOUT:
            raise ValueError(f"its layout is {facts['layout']!r}")
        rows, width, entries = int(facts["rows"]), int(facts["width"]), int(facts["entries"])
        values = _mapped(folder / "values", np.float32, entries)
        if not facts["sparse"]:
            return DenseRows(values.reshape(rows, width))
        indptr = _mapped(folder / "indptr", np.int64, rows + 1)
        if _digest(indptr) != facts["indptr"]:
            raise ValueError("its rows do not begin where they did")
        return SparseRows(indptr, _mapped(folder / "indices", np.int32, entries), values, width)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateCorrupt(
            f"the block store {str(folder)!r} is damaged or missing ({error}); remove it, then run the same command "
            f"again"
        ) from None


def fingerprint(contents: Sequence[bytes], settings_text: str) -> bytes:
    """A hash of the rows' origins, by the hash of each one's content, and of the settings they are read with."""
    digest = hashlib.blake2b(digest_size=32)
    for part in (settings_text.encode(), *contents):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _write_store(folder: Path, sorter: ExternalSort, rows: int, width: int) -> None:
    facts: dict[str, Any] = {"layout": _LAYOUT, "rows": rows, "width": width, "sparse": sorter.sparse}
    entries = 0
    with new_file(folder / "values") as values, new_file(folder / "indices") as indices:
        for span in sorter.spans():
            entries += span.values.size
            span.values.tofile(values)
            if isinstance(span, SparseRows):
                span.indices.tofile(indices)
    facts["entries"] = entries
    if sorter.sparse:
        indptr = sorter.indptr()
        facts["indptr"] = _digest(indptr)
        with new_file(folder / "indptr") as file:
            indptr.tofile(file)
    with new_file(folder / _FACTS) as file:
        file.write(json.dumps(facts).encode())


def _mapped(path: Path, kind: type[Any], count: int) -> NDArray[Any]:
    """A file as an array; copied on write, so that no change reaches the file."""
    size = count * np.dtype(kind).itemsize
    if path.stat().st_size != size:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes instead of {size}")
    return np.asarray(np.memmap(path, kind, "c")) if count else np.zeros(0, kind)


def _digest(indptr: NDArray[np.int64]) -> str:
    return hashlib.blake2b(np.ascontiguousarray(indptr).data, digest_size=16).hexdigest()
