"""Parquet files read by the workers of a party: in two passes, to learn the encoder and to encode the rows."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fdml.cluster.frames import Frame
from fdml.cluster.part_tables import PieceTable, piece_facts
from fdml.cluster.parts import PartedSource, Parts
from fdml.cluster.reading_jobs import EncodingSetup, LearningSetup
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.starting import Remark, working
from fdml.data.encoding import Encoder, Statistics
from fdml.data.frame_source import FrameSource
from fdml.data.origins import Origin
from fdml.data.parquet_files import ParquetPiece
from fdml.data.rows import RowEncoding
from fdml.data.sources import THIS_PROCESS, Source
from fdml.data.table_source import TableSource
from fdml.models.bundle import Bundle
from fdml.settings.data import DataSettings

_AHEAD = 8
"""Tasks for each worker whose results are in memory together: categories of a piece may be many."""


class PartReader:
    """Has workers read the pieces of Parquet files; whatever else there is, this process reads.

    Parts are in `folder`, which belongs to this reader alone. With a `bundle` they hold its model's predictions in
    place of features.
    """

    def __init__(
        self,
        settings: WorkersSettings,
        folder: Path,
        *,
        remark: Remark = lambda _: None,
        bundle: Bundle | None = None,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._remark = remark
        self._bundle = bundle

    def encoder(
        self,
        place: Origin,
        table: TableSource,
        features: tuple[str, ...],
        settings: DataSettings,
        *,
        counts: NDArray[np.int64] | None,
        encoding: RowEncoding,
    ) -> Encoder:
        """Learned from all pieces, and merged in their order."""
        found = self._pieces(place, table)
        if found is None or not features:
            return THIS_PROCESS.encoder(place, table, features, settings, counts=counts, encoding=encoding)
        known, pieces = found
        tasks, statistics = _learning_tasks(pieces, counts), Statistics(features, settings)
        setup = LearningSetup(known, features, settings).frame()
        with working(self._settings, setup, len(tasks), self._remark) as workers:
            step = _AHEAD * self._settings.workers(len(tasks))
            for start in range(0, len(tasks), step):
                for result in workers.map(tasks[start : start + step]):
                    statistics.merge(result.facts["learned"], {**known.types, **known.given})
        return statistics.encoder(encoding)

    def source(self, place: Origin, table: TableSource, whole: FrameSource) -> Source:
        """The rows in parts, which are made when they are asked for."""
        found = self._pieces(place, table)
        if found is None:
            return whole
        known, pieces = found
        setup = EncodingSetup(known, place.name, whole.roles, whole.encoder, whole.id_settings, self._bundle)
        folder = self._folder / hashlib.blake2b(known.location.encode(), digest_size=8).hexdigest()
        parts = Parts(setup.frame(), pieces, folder, self._settings, self._remark)
        return PartedSource(whole, parts, has_predictions=self._bundle is not None)

    def clear(self) -> None:
        """Remove all parts; they are made again if somebody asks for them."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _pieces(self, place: Origin, table: TableSource) -> tuple[PieceTable, list[ParquetPiece]] | None:
        return PieceTable.of(place, table) if self._settings.reads else None


def _learning_tasks(pieces: Sequence[ParquetPiece], counts: NDArray[np.int64] | None) -> list[Frame]:
    """A task for each piece that has rows which count; repeated rows are numbered as they come."""
    if counts is None:
        return [Frame({"piece": piece_facts(piece), "first": piece.first}) for piece in pieces]
    tasks, first = [], 0
    for piece in pieces:
        own = counts[piece.first : piece.first + piece.count]
        if own.any():
            tasks.append(Frame({"piece": piece_facts(piece), "first": first}, {"counts": own}))
        first += int(own.sum())
    return tasks
