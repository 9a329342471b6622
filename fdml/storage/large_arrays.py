"""Named arrays in one file of a disk, written and read without being in memory as a whole.

The file is that of `fdml.storage.arrays`. Large arrays are mapped from it, their checksums read before.
"""

from __future__ import annotations

import mmap
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fdml.errors import DataError
from fdml.storage.arrays import pack_arrays, unpack_arrays, write_arrays
from fdml.storage.disk import Disk
from fdml.storage.scratch_arrays import IN_MEMORY

_STEP = 2**20
_LOCAL_HEADER = 30
"""Bytes of a member's header before its name."""


def save_arrays(disk: Disk, name: str, arrays: Mapping[str, NDArray[Any]], most: int = IN_MEMORY) -> None:
    """Store arrays in a file; durable on return. More than `most` bytes go by way of a scratch file."""
    if sum(array.nbytes for array in arrays.values()) <= most:
        disk.replace(name, pack_arrays(arrays))
        return
    with disk.scratch() as scratch:
        write_arrays(scratch, arrays)
        scratch.flush()
        if not _is_file(scratch):
            scratch.seek(0)
            disk.replace(name, scratch.read())
            return
        with mmap.mmap(scratch.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            disk.replace(name, view)


def load_arrays(disk: Disk, name: str, most: int = IN_MEMORY) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file, those of more than `most` bytes mapped; None if there is none."""
    file = disk.reader(name)
    if file is None:
        return None
    with file:
        size = file.seek(0, 2)
        file.seek(0)
        if size <= most or not _is_file(file):
            return unpack_arrays(file.read())
        try:
            return _mapped(file, most)
        except (ValueError, OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
            raise DataError(f"no file of numpy arrays: {error}") from None


def _mapped(file: BinaryIO, most: int) -> dict[str, NDArray[Any]]:
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        small = {each.filename: archive.read(each) for each in members if each.file_size <= most}
    for member in members:
        name = member.filename.removesuffix(".npy")
        if member.filename in small:
            arrays[name] = npy.read_array(BytesIO(small[member.filename]), allow_pickle=False)
        else:
            arrays[name] = _map(file, member)
    return arrays


def _map(file: BinaryIO, member: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, once its checksum is right."""
    file.seek(member.header_offset)
    header = file.read(_LOCAL_HEADER)
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    begin, left, checksum = member.header_offset + _LOCAL_HEADER + lengths, member.file_size, 0
    file.seek(begin)
    while left and (part := file.read(min(_STEP, left))):
        checksum, left = zlib.crc32(part, checksum), left - len(part)
    if left or checksum != member.CRC or member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"array {member.filename} is damaged")
    file.seek(begin)
    version = npy.read_magic(file)
    shape, in_columns, kind = npy.read_array_header_1_0(file) if version == (1, 0) else npy.read_array_header_2_0(file)
    if kind.hasobject or in_columns:
        raise ValueError(f"array {member.filename} is of a kind that is not stored here")
    return np.memmap(file, kind, "r", file.tell(), shape)


def _is_file(file: BinaryIO) -> bool:
    try:
        file.fileno()
    except OSError:
        return False
    return True
