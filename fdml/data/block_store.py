"""The block store: a party's features on disk, once, in the order that all parties share.

A folder of plain arrays beside `facts.json`, which is written last and says what
must be there. Memory is mapped, not read, so a store may be larger than memory.
Opening looks at sizes and at where rows begin; it does not read the entries.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fdml.data.external_sort import ExternalSort
from fdml.data.rows import DenseRows, Rows, SparseRows
from fdml.errors import StateCorrupt

_FACTS = "facts.json"
_LAYOUT = "fdml blocks 1"


def write_blocks(folder: Path, chunks: Iterable[Rows], places: NDArray[np.int64], rows: int, width: int) -> None:
    """Write features once, in shared order, whole or not at all.

    `places[i]` is where the file's row i goes (0 to `rows` - 1), or -1 if it is
    not shared. An older store in the same folder is replaced.
    """
    beside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    spooled = beside / "spool"
    spooled.mkdir(parents=True, mode=0o700)
    try:
        spool = ExternalSort(spooled, places, rows, width)
        spool.fill(chunks)
        _write_store(beside, spool, rows, width)
        shutil.rmtree(spooled)
        _sync_folder(beside)
        _put_in_place(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)  # is no longer there if all went well


def open_blocks(folder: Path) -> Rows:
    """The rows as memory-mapped arrays; a span of them costs no copy.

    The arrays may be written to, as compiled code may ask for it; the files never change.
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
            f"the block store {str(folder)!r} is damaged or missing ({error}); run `fdml align --fresh`"
        ) from None


def fingerprint(paths: Sequence[Path], settings_text: str) -> bytes:
    """A hash over the content of files and the settings they are read with: equal if both are."""
    digest = hashlib.blake2b(digest_size=32)
    for part in (settings_text.encode(), *map(_file_digest, paths)):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _write_store(folder: Path, spool: ExternalSort, rows: int, width: int) -> None:
    facts: dict[str, Any] = {"layout": _LAYOUT, "rows": rows, "width": width, "sparse": spool.sparse}
    entries = 0
    with _created(folder / "values") as values, _created(folder / "indices") as indices:
        for span in spool.spans():
            entries += span.values.size
            span.values.tofile(values)
            if isinstance(span, SparseRows):
                span.indices.tofile(indices)
        _sync(values)
        _sync(indices)
    facts["entries"] = entries
    if spool.sparse:
        indptr = spool.indptr()
        facts["indptr"] = _digest(indptr)
        with _created(folder / "indptr") as file:
            indptr.tofile(file)
            _sync(file)
    with _created(folder / _FACTS) as file:
        file.write(json.dumps(facts).encode())
        _sync(file)


def _put_in_place(beside: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    beside.rename(folder)
    _sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _mapped(path: Path, kind: type[Any], count: int) -> NDArray[Any]:
    """Copied on write: no change reaches the file."""
    size = count * np.dtype(kind).itemsize
    if path.stat().st_size != size:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes instead of {size}")
    return np.asarray(np.memmap(path, kind, "c")) if count else np.zeros(0, kind)


def _created(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _digest(indptr: NDArray[np.int64]) -> str:
    return hashlib.blake2b(np.ascontiguousarray(indptr).data, digest_size=16).hexdigest()


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
