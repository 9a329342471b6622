"""Named arrays as the bytes of a .npz file, and their hash. The same arrays give the same bytes; none is ever run."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fdml.errors import DataError


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a .npz file that `numpy.load` reads too; arrays of Python objects are refused."""
    buffer = io.BytesIO()
    write_arrays(buffer, arrays)
    return buffer.getvalue()


def write_arrays(file: BinaryIO, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the same to a file, a part at a time."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise DataError(f"array {name!r} is of type {array.dtype}; only numbers and text can be stored")
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def unpack_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays by their names; whatever is no such file raises a DataError."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            arrays = {}
            for name in archive.namelist():
                with archive.open(name) as member:
                    arrays[name.removesuffix(".npy")] = np.asarray(npy.read_array(member, allow_pickle=False))
            return arrays
    except (ValueError, OSError, EOFError, KeyError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"no file of numpy arrays: {error}") from None


def hash_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """32 bytes that are equal only if all names, types, shapes and bits are."""
    digest = hashlib.blake2b(digest_size=32)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()
