"""A table that workers encode: every piece of it becomes a part, a folder with manifest and hashes.

Rows are what one process makes of them, in the same order, and the process that asks for them holds one part at a time.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.cluster.frames import Frame, to_bytes
from fdml.cluster.part_files import Part, ids_of, is_written, open_part, rows_of
from fdml.cluster.part_tables import piece_facts
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.starting import Remark, working
from fdml.data.encoding import Encoder
from fdml.data.error_context import errors_about
from fdml.data.frame_source import FrameSource
from fdml.data.ids import Ids, unique_texts
from fdml.data.many_texts import MANY
from fdml.data.parquet_files import ParquetPiece
from fdml.data.rows import CHUNK_BYTES, Rows, row_count, span
from fdml.errors import StateCorrupt
from fdml.storage.atomic import make_private_folder
from fdml.storage.disk import Disk


class Parts:
    """The parts of one table in a folder of their own, made by workers when they are asked for.

    A part is named by a hash of what it is made of: the file as it is, the encoder, the settings. So parts of an
    earlier start are used again, and others in the folder are removed.
    """

    def __init__(
        self,
        setup: Frame,
        pieces: Sequence[ParquetPiece],
        folder: Path,
        settings: WorkersSettings,
        remark: Remark,
    ) -> None:
        self._setup = setup
        self._folder = folder.absolute()
        self._settings = settings
        self._remark = remark
        self._facts = [piece_facts(piece) for piece in pieces]
        made_of = hashlib.blake2b(to_bytes(setup), digest_size=8)
        self._paths = [self._path(number, made_of.copy(), facts) for number, facts in enumerate(self._facts)]

    def _path(self, number: int, made_of: hashlib.blake2b, facts: dict[str, Any]) -> Path:
        made_of.update(json.dumps(facts).encode())
        return self._folder / f"{number:06d}-{made_of.hexdigest()}"

    def __iter__(self) -> Iterator[Part]:
        """All parts, each compared with its hashes when its turn comes; one that is damaged is made again."""
        self.make()
        for number, path in enumerate(self._paths):
            try:
                part = open_part(path)
            except StateCorrupt as error:
                self._remark(f"{error}; it is made again")
                shutil.rmtree(path, ignore_errors=True)
                self._work([number])
                part = open_part(path)
            yield part

    def make(self) -> None:
        """Have all parts made that are not there."""
        self._work([number for number, path in enumerate(self._paths) if not is_written(path)])

    def _work(self, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        make_private_folder(self._folder)
        tasks = [Frame({"piece": self._facts[at], "folder": str(self._paths[at])}) for at in numbers]
        with working(self._settings, self._setup, len(tasks), self._remark) as workers:
            workers.map(tasks)
        for other in set(self._folder.iterdir()) - set(self._paths):
            shutil.rmtree(other, ignore_errors=True)


class PartedSource:
    """A table source in parts: ids and features come from them, single columns from the files themselves.

    Where it `has_predictions`, its parts hold those in place of features.
    """

    def __init__(self, whole: FrameSource, parts: Parts, *, has_predictions: bool = False) -> None:
        self.has_predictions = has_predictions
        self.count: int = whole.count
        self.encoder: Encoder = whole.encoder
        self.names = whole.names
        self._whole = whole
        self._parts = parts

    def make(self) -> None:
        """Have all parts made that are not there; else they are made when they are first asked for."""
        self._parts.make()

    def ids(self, disk: Disk | None = None) -> Ids | None:
        """The ids, which workers have read; those of many rows are kept on the disk, if there is one."""
        whole = self._whole
        if not whole.roles.ids:
            return None
        self._parts.make()
        with errors_about(whole.place):
            texts = (ids_of(part) for part in self._parts)
            return unique_texts(texts, whole.id_settings, disk if self.count > MANY else None)

    def keys(self, columns: tuple[str, ...]) -> Any:
        """The keys that these columns make, from a pass over them alone."""
        return self._whole.keys(columns)

    def labels(self) -> NDArray[np.generic] | None:
        """The labels, from a pass over their column alone."""
        return self._whole.labels()

    def weights(self) -> NDArray[np.float64] | None:
        """The weights, from a pass over their column alone."""
        return self._whole.weights()

    def groups(self) -> NDArray[np.int64] | None:
        """The number of each row's group, from a pass over their column alone."""
        return self._whole.groups()

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[Rows]:
        """The features, about `size` bytes at a time."""
        step = max(size // self.encoder.row_bytes, 1)
        for part in self._parts:
            rows = rows_of(part, len(self.names))
            for start in range(0, row_count(rows), step):
                yield span(rows, start, min(start + step, row_count(rows)))

    def predictions(self) -> NDArray[Any]:
        """The local predictions of all rows, `(rows, width)`."""
        return np.concatenate([part["predictions"] for part in self._parts])
