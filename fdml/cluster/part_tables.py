"""Parquet files for workers: where they are and what their columns are read as, and each of their pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fdml.cluster.frames import Frame
from fdml.cluster.workers import NotHere
from fdml.data.locations import FilePart, filesystem_of
from fdml.data.origins import FilesOrigin, Origin
from fdml.data.parquet_files import ParquetFiles, ParquetPiece
from fdml.data.table_source import TableSource


@dataclass(frozen=True)
class PieceTable:
    """A table whose pieces other processes can read."""

    location: str
    """Of all files."""
    types: Mapping[str, Any]
    given: Mapping[str, Any]

    @classmethod
    def of(cls, place: Origin, table: TableSource) -> tuple[PieceTable, list[ParquetPiece]] | None:
        """A table with its pieces; None where nobody else can read it, or where it is one piece."""
        if not isinstance(place, FilesOrigin) or not isinstance(table, ParquetFiles):
            return None
        pieces = table.pieces()
        if len(pieces) < 2:
            return None
        where = place.location.absolute() if isinstance(place.location, Path) else place.location
        return cls(str(where), pieces[0].types, pieces[0].given), pieces

    def arrays(self) -> dict[str, NDArray[np.uint8]]:
        """The types, for a frame."""
        return {"types": _schema_bytes(self.types), "given": _schema_bytes(self.given)}

    @classmethod
    def of_frame(cls, setup: Frame) -> PieceTable:
        """The table that a worker is set up for."""
        return cls(setup.facts["location"], _types(setup.arrays["types"]), _types(setup.arrays["given"]))

    def piece(self, facts: Mapping[str, Any]) -> ParquetPiece:
        """The piece that `piece_facts` has described; raises where its file cannot be read from here."""
        where = self.location if "://" in self.location else Path(self.location)
        part = FilePart(filesystem_of(where), facts["path"], facts["name"], facts["values"])
        _check_seen(part)
        groups = None if facts["groups"] is None else (facts["groups"][0], facts["groups"][1])
        return ParquetPiece(part, facts["first"], facts["count"], self.types, self.given, groups)


def piece_facts(piece: ParquetPiece) -> dict[str, Any]:
    """A piece as JSON has it, with the size and time that its file has now."""
    part = piece.part
    return {
        "path": part.path,
        "name": part.name,
        "values": dict(part.values),
        "first": piece.first,
        "count": piece.count,
        "groups": None if piece.groups is None else list(piece.groups),
        "size and time": list(part.size_and_time()),
    }


def _check_seen(part: FilePart) -> None:
    try:
        part.open().close()
    except (pa.ArrowException, OSError) as error:
        what = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
        raise NotHere(f"{part.path!r} {what}; every worker must see the party's files under the same paths") from None


def check_unchanged(piece: ParquetPiece, facts: Mapping[str, Any]) -> None:
    """Raise where a file is no longer what its pieces were cut from."""
    if list(piece.part.size_and_time()) != facts["size and time"]:
        raise NotHere(f"{piece.part.name} was changed while it was read; run the same command again")


def bytes_array(content: bytes) -> NDArray[np.uint8]:
    """Bytes as an array, for a frame."""
    return np.frombuffer(content, np.uint8)


def _schema_bytes(types: Mapping[str, Any]) -> NDArray[np.uint8]:
    return bytes_array(pa.schema(list(types.items())).serialize().to_pybytes())


def _types(content: NDArray[np.uint8]) -> dict[str, Any]:
    schema = pa.ipc.read_schema(pa.py_buffer(content.tobytes()))
    return dict(zip(schema.names, schema.types, strict=True))
