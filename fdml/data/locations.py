"""Where files are: one file, a folder or a pattern, on this machine or at an address that pyarrow knows.

The files of a folder or pattern come in the order of their paths, compared as text. Names that begin with "." or "_"
are left out, in folders too. A folder named like "year=2026" gives every file below it a column `year`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from fdml.errors import DataError
from fdml.settings.data import Format

ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "numpy",
    ".npz": "numpy",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
    ".svm": "libsvm",
    ".t": "libsvm",
    "": "libsvm",
}
"""The format of each ending, without .gz or .bz2. LIBSVM's own files end in .t or have no ending."""
TABLES: tuple[Format, ...] = ("csv", "parquet")
"""The formats with named columns; only these may be in folders."""
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""How Hive writes a missing value into the name of a folder."""

_INT64_DIGITS = 19
"""So many decimal digits may be too large for int64."""


@dataclass(frozen=True)
class FilePart:
    """One file of a table."""

    filesystem: Any
    path: str
    """As the file system knows it."""
    name: str
    """For errors, and for the fingerprint: below the folder where there is one."""
    values: Mapping[str, str | None] = field(default_factory=dict)
    """The columns that the names of its folders give it."""

    def open(self) -> Any:
        """The file for reading at any place."""
        return self.filesystem.open_input_file(self.path)

    def size_and_time(self) -> tuple[int, int]:
        """Its size, and when it was changed last in nanoseconds; another one once it has changed."""
        found = self.filesystem.get_file_info(self.path)
        return int(found.size or 0), int(found.mtime_ns or 0)

    def stream(self) -> Any:
        """The file from its beginning, unpacked."""
        return self.filesystem.open_input_stream(self.path, compression="detect")

    def digest(self) -> bytes:
        """A hash of a local file's content; of a remote one's size and time of change, as reading it may cost."""
        if isinstance(self.filesystem, pafs.LocalFileSystem):
            with Path(self.path).open("rb") as file:
                return hashlib.file_digest(file, "blake2b").digest()
        found = self.filesystem.get_file_info(self.path)
        return hashlib.blake2b(f"{found.size} {found.mtime_ns}".encode()).digest()


def filesystem_of(location: Path | str) -> Any:
    """Where the files of a location are."""
    return _place(location)[0]


def format_by_ending(name: str) -> Format | None:
    """The format of a file with this name; None where its ending says nothing."""
    path = Path(name)
    return ENDINGS.get(path.with_suffix("").suffix if path.suffix in (".gz", ".bz2") else path.suffix)


def find_parts(location: Path | str, given: Format | None) -> tuple[Format, list[FilePart]]:
    """The files of a location and their format; `given` is their format where endings do not count."""
    try:
        filesystem, base, pattern = _place(location)
        kind = filesystem.get_file_info(base).type
        if kind == pafs.FileType.File and not pattern:
            return _known(location, given or format_by_ending(base)), [FilePart(filesystem, base, Path(base).name)]
        if kind != pafs.FileType.Directory:
            raise DataError(f"there is no file {str(location)!r}; correct data.path or data.test_path")
        found = filesystem.get_file_info(pafs.FileSelector(base, recursive=True))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{location}: cannot be reached: {str(error).splitlines()[0]}") from None
    names = sorted(_relative(each.path, base) for each in found if each.type == pafs.FileType.File)
    names = [name for name in names if _seen(name) and (not pattern or _fits(name.split("/"), pattern))]
    kind, names = _of_one_format(location, names, given)
    parts = [FilePart(filesystem, f"{base.rstrip('/')}/{name}", name, _values(name)) for name in names]
    _check_same_folders(location, parts)
    return kind, parts


def _place(location: Path | str) -> tuple[Any, str, list[str]]:
    """The file system, the file or folder to look at, and the pattern below it."""
    if isinstance(location, Path):
        whole = location.absolute()
        at = next((at for at, name in enumerate(whole.parts) if any(sign in name for sign in "*?[")), None)
        if at is None or whole.exists():
            return pafs.LocalFileSystem(), str(whole), []
        return pafs.LocalFileSystem(), str(Path(*whole.parts[:at])), list(whole.parts[at:])
    address, mark, options = location.partition("?")
    plain, _, _ = address.partition("*")
    base = address if plain == address else plain[: plain.rindex("/")]
    filesystem, path = pafs.FileSystem.from_uri(base + mark + options)
    return filesystem, path, address[len(base) :].strip("/").split("/") if plain != address else []


def _known(location: Path | str, kind: Format | None) -> Format:
    if kind is None:
        ending = Path(str(location)).suffix
        raise DataError(f"{location}: unknown ending {ending!r}; set data.format = csv, parquet, libsvm or numpy")
    return kind


def _relative(path: str, base: str) -> str:
    return path[len(base.rstrip("/")) + 1 :]


def _seen(name: str) -> bool:
    return not any(part.startswith((".", "_")) for part in name.split("/"))


def _fits(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a file, or a folder that it is in, matches; "**" stands for any number of folders."""
    if not pattern:
        return True
    if pattern[0] == "**" and _fits(names, pattern[1:]):
        return True
    rest = pattern if pattern[0] == "**" else pattern[1:]
    return bool(names) and fnmatchcase(names[0], "*" if pattern[0] == "**" else pattern[0]) and _fits(names[1:], rest)


def _of_one_format(location: Path | str, names: list[str], given: Format | None) -> tuple[Format, list[str]]:
    """The format of a folder's files, and those that have it."""
    if given is not None and given not in TABLES:
        raise DataError(f"{location}: a folder or pattern holds CSV or Parquet files, not {given}; name one file")
    by_format = {kind: [name for name in names if format_by_ending(name) == kind] for kind in TABLES}
    if given is not None:
        by_format = {given: names}
    kinds = [kind for kind, some in by_format.items() if some]
    if not kinds:
        raise DataError(f"{location}: no CSV or Parquet file is there; correct data.path, or set data.format")
    if len(kinds) > 1:
        raise DataError(f"{location}: holds CSV and Parquet files; keep one format, or write a pattern like *.parquet")
    return kinds[0], by_format[kinds[0]]


def _values(name: str) -> dict[str, str | None]:
    """The columns that folders like "year=2026" give a file."""
    pairs = [folder.partition("=") for folder in name.split("/")[:-1] if "=" in folder]
    return {unquote(key): None if value == _NO_VALUE else unquote(value) for key, _, value in pairs}


def _check_same_folders(location: Path | str, parts: Sequence[FilePart]) -> None:
    for part in parts[1:]:
        if list(part.values) != list(parts[0].values):
            raise DataError(
                f"{location}: the folders of {part.name!r} name other columns than those of {parts[0].name!r}; "
                f"make all files lie alike"
            )


def folder_types(parts: Iterable[FilePart], text: Iterable[str]) -> dict[str, Any]:
    """The types of the columns that folders give: whole numbers where all are plainly written, else text."""
    fixed, values = set(text), [part.values for part in parts]
    return {
        name: pa.int64() if name not in fixed and all(_is_whole(each[name]) for each in values) else pa.string()
        for name in values[0]
    }


def _is_whole(value: str | None) -> bool:
    if value is None:
        return True
    digits = value.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < _INT64_DIGITS and str(int(value)) == value
