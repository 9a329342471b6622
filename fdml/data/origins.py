"""Where a party's rows come from: files, a query, or a frame that was handed over in Python. Nothing is read yet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

from fdml.data.csv_files import CsvFiles, CsvForm
from fdml.data.frames import Frame, FrameTable
from fdml.data.locations import TABLES, FilePart, find_parts
from fdml.data.parquet_files import ParquetFiles
from fdml.data.queries import run_query
from fdml.data.table_digest import table_digest
from fdml.data.table_source import TableSource
from fdml.errors import DataError, SettingsError
from fdml.settings.data import DataSettings, Format

_HASHED_AT_ONCE = 8
"""Files: to hash one waits for the disk, or for one core."""

OriginKind = Format | Literal["query", "frame"]


class Origin(Protocol):
    """The training rows of a party, or its test rows, before they are opened."""

    @property
    def name(self) -> str:
        """What an error about its content begins with."""
        ...

    @property
    def kind(self) -> OriginKind:
        """The format of files, or what else it is."""
        ...

    def table(self, text: Iterable[str]) -> TableSource:
        """Open it as named columns; those in `text` are read as text where the place names no types."""
        ...

    def digest(self) -> bytes:
        """A hash of its content."""
        ...


class FilesOrigin:
    """A file, or the files of a folder or pattern."""

    def __init__(self, location: Path | str, settings: DataSettings) -> None:
        self.location = location
        self.name = str(location)
        self._form = CsvForm(settings.delimiter, settings.decimal, settings.encoding)
        self.kind: Format
        self._parts: list[FilePart]
        self.kind, self._parts = find_parts(location, settings.format)

    @property
    def file(self) -> Path:
        """The one local file, for formats that are read no other way."""
        if not isinstance(self.location, Path):
            raise DataError(f"{self.name}: a {self.kind} file is read from this machine only; copy it here")
        return self.location

    def table(self, text: Iterable[str]) -> TableSource:
        """The files as one table."""
        if self.kind not in TABLES:
            raise DataError(f"a {self.kind} file has no named columns; give the data as CSV or Parquet")
        return ParquetFiles(self._parts, text) if self.kind == "parquet" else CsvFiles(self._parts, text, self._form)

    def digest(self) -> bytes:
        """The hash of a single file, or of all files with their names."""
        if len(self._parts) == 1 and not self._parts[0].values:
            return self._parts[0].digest()
        whole = hashlib.blake2b()
        with ThreadPoolExecutor(_HASHED_AT_ONCE, "digests") as threads:
            for part, digest in zip(self._parts, threads.map(FilePart.digest, self._parts), strict=True):
                whole.update(f"{part.name}\0".encode() + digest)
        return whole.digest()


class QueryOrigin:
    """The rows of a query, which runs once."""

    kind: Literal["query"] = "query"

    def __init__(self, setting: str, query: str, settings: DataSettings) -> None:
        self.name = f"data.{setting}"
        self._query = query
        self._settings = settings

    @cached_property
    def _rows(self) -> ParquetFiles:
        return run_query(self._query, self._settings)

    def table(self, _: Iterable[str]) -> TableSource:
        """The query's rows."""
        return self._rows

    def digest(self) -> bytes:
        """Of the rows that the query gave."""
        return table_digest(self._rows)


class FrameOrigin:
    """A frame in memory."""

    kind: Literal["frame"] = "frame"

    def __init__(self, frame: Frame, name: str = "the frame") -> None:
        self.name = name
        self._table = FrameTable(frame)

    def table(self, _: Iterable[str]) -> TableSource:
        """The frame's columns."""
        return self._table

    def digest(self) -> bytes:
        """Of the frame's rows."""
        return table_digest(self._table)


def origins_of(settings: DataSettings) -> list[Origin]:
    """Where the training rows are that settings name, and the test rows if there are any."""
    if settings.query is not None:
        queries = {"query": settings.query, "test_query": settings.test_query}
        return [QueryOrigin(name, query, settings) for name, query in queries.items() if query is not None]
    if settings.path is None:
        raise SettingsError("no rows are named; set data.path to a file or folder, or data.query to a select")
    locations = [settings.path] if settings.test_path is None else [settings.path, settings.test_path]
    return [FilesOrigin(location, settings) for location in locations]


def frame_origins(train: Frame, test: Frame | None = None) -> Sequence[Origin]:
    """The origins of a training frame, and of a test frame if there is one."""
    return [FrameOrigin(train)] if test is None else [FrameOrigin(train), FrameOrigin(test, "the test frame")]
