"""Arrays of numpy files: mapped into memory where the file is not compressed, else read."""

from __future__ import annotations

import mmap
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fdml.errors import DataError

_LOCAL_HEADER = struct.Struct("<26x2H")
"""Part of a zip member's header: the lengths of its name and of its extra field. The content follows these."""


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz archive by name; a .npy file is one array, "X"."""
    try:
        with path.open("rb") as file:
            if file.read(2) == b"PK":
                return _members(path, file)
            file.seek(0)
            return {"X": _mapped(file, path.stat().st_size)}
    except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(
            f"cannot be read as a numpy file: {error}; save arrays of numbers or text with numpy.save, "
            f"numpy.savez or scipy.sparse.save_npz"
        ) from None


def drop_pages(*arrays: NDArray[Any]) -> None:
    """Free the memory pages of mapped arrays; reading them again maps them again."""
    for array in arrays:
        owner: Any = array
        while isinstance(owner, np.ndarray):
            owner = owner.base
        if isinstance(owner, mmap.mmap):
            owner.madvise(mmap.MADV_DONTNEED)


def _members(path: Path, file: BinaryIO) -> dict[str, NDArray[Any]]:
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if info.compress_type == zipfile.ZIP_STORED:
                file.seek(info.header_offset)
                file.seek(sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))), os.SEEK_CUR)
                arrays[name] = _mapped(file, info.file_size)
            else:
                arrays[name] = _loaded(archive, info)
    return arrays


def _loaded(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as member:
        return np.asarray(npy.read_array(member, allow_pickle=False))


def _mapped(file: BinaryIO, length: int) -> NDArray[Any]:
    """The array whose header and values are the next `length` bytes."""
    start = file.tell()
    shape, fortran, kind = _header(file)
    offset = file.tell()
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if offset - start + size > length:
        raise ValueError(f"an array of {size} bytes is cut short")
    if not size:
        return np.zeros(shape, kind)
    return np.asarray(np.memmap(file, kind, "r", offset, shape, order="F" if fortran else "C"))


def _header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
    shape, fortran, kind = read(file)
    if kind.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    return shape, fortran, kind
