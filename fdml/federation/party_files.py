"""A party's rows in files: their ids, and their features in the run's order, written once and then mapped."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.align.matching import PartyIds
from fdml.align.sealed_labels import LabelSet
from fdml.data.block_store import fingerprint, open_blocks, write_blocks
from fdml.data.encoders import AnyEncoder, encoder_from_json
from fdml.data.label_encoding import LabelEncoding, fit_labels
from fdml.data.row_set import mean_one
from fdml.data.rows import Rows, span
from fdml.data.sources import Source, open_sources
from fdml.errors import DataError, LabelError
from fdml.party.alignment import RowIds, SharedRows
from fdml.party.data import PartyRows
from fdml.party.record_level import check_encoder
from fdml.party.settings import PartySettings
from fdml.settings import RunSettings
from fdml.storage.atomic import write_file
from fdml.storage.facts import damaged


class PartyFiles:
    """The files that party.toml names. They are opened only when needed, as that may mean to read them once."""

    def __init__(self, party: PartySettings, run: RunSettings, state: Path) -> None:
        self._party = party
        self._run = run
        self._store = state / "blocks"
        self._encoder = state / "encoder.json"
        self._paths = [path for path in (party.data.path, party.data.test_path) if path is not None]
        for path in self._paths:
            if not path.is_file():
                raise DataError(f"there is no file {str(path)!r}; correct data.path or data.test_path")

    @cached_property
    def sources(self) -> list[Source]:
        """Of the training file, and of the test file if there is one."""
        sources = open_sources(self._party.data)
        name = self._party.party
        check_encoder(self._party.guard, self._party.data, sources[0].encoder)
        if name != self._run.label_party and not sources[0].names:
            raise DataError(f"party {name!r} has no features; only the label party may have none")
        if name == self._run.label_party and any(source.labels() is None for source in sources):
            raise LabelError(f"label party {name!r} has no labels; set data.label to its label column")
        return sources

    @cached_property
    def fingerprint(self) -> str:
        """Equal if the files are, and the settings by which they are read."""
        settings = self._party.data.model_copy(update={"path": Path(), "test_path": None}).model_dump_json()
        return fingerprint(self._paths, settings).hex()

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights of their own."""
        return self.sources[0].weights() is not None

    def row_ids(self) -> RowIds:
        """The ids to align by; without ids, how many rows there are."""
        ids = [source.ids() for source in self.sources]
        rows = [
            np.arange(source.count) if each is None else each.rows
            for source, each in zip(self.sources, ids, strict=True)
        ]
        return RowIds(
            PartyIds.of(ids, [source.count for source in self.sources]),
            train_rows=rows[0],
            test_rows=rows[-1],
            counts=tuple(each.counts for each in ids if each is not None),
        )

    def rows(self, shared: SharedRows) -> PartyRows:
        """The features of the shared rows, mapped from disk."""
        rows, held_out = len(shared.train), len(shared.held_out)
        together = len(self._paths) == 1
        orders = [np.concatenate([shared.train, shared.held_out])] if together else [shared.train, shared.held_out]
        stored = self._blocks(orders)
        check_encoder(self._party.guard, self._party.data, self.encoder)  # they may be of an earlier start
        if together:
            return PartyRows(span(stored[0], 0, rows), span(stored[0], rows, rows + held_out))
        return PartyRows(*stored)

    def labels(self, shared: SharedRows) -> tuple[LabelSet, LabelEncoding]:
        """The labels of the shared rows, encoded by those of the training rows."""
        train, held_out = self.raw_labels(shared)
        train_weights, weights = self.weights(shared)
        encoding = fit_labels(self._run.task, train, train_weights)
        labels = LabelSet(
            encoding.class_count,
            encoding.transform(train),
            encoding.transform(held_out),
            mean_one(train_weights, len(train)),
            mean_one(weights, len(held_out)),
        )
        return labels, encoding

    @property
    def encoder(self) -> AnyEncoder:
        """The encoder that made the features; stored with them, so that it is theirs even if the file changes."""
        if not self._encoder.is_file():  # no features were stored yet
            return self.sources[0].encoder
        try:
            return encoder_from_json(self._encoder.read_bytes())
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(self._encoder.name, error) from None

    def raw_labels(self, shared: SharedRows) -> tuple[NDArray[Any], NDArray[Any]]:
        """The labels of training and held-out rows as the files have them."""
        train, test = self.sources[0].labels(), self.sources[-1].labels()
        if train is None or test is None:
            raise LabelError("the label party has no labels; set data.label to its label column")
        return train[shared.train], test[shared.held_out]

    def weights(self, shared: SharedRows) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
        """The weights of training and held-out rows; None where the file has none."""
        train, test = self.sources[0].weights(), self.sources[-1].weights()
        return None if train is None else train[shared.train], None if test is None else test[shared.held_out]

    def _blocks(self, orders: Sequence[NDArray[np.int64]]) -> list[Rows]:
        """The features of these rows of each file in this order, from the store; others in the store are removed."""
        self._store.mkdir(mode=0o700, parents=True, exist_ok=True)
        folders = []
        for number, order in enumerate(orders):
            name = hashlib.blake2b(self.fingerprint.encode() + order.tobytes(), digest_size=8)
            folders.append(self._store / f"{number}-{name.hexdigest()}")
            if not folders[-1].exists():
                source = self.sources[number]
                positions = np.full(source.count, -1, np.int64)
                positions[order] = np.arange(len(order))
                write_file(self._encoder, self.sources[0].encoder.to_json().encode())
                write_blocks(folders[-1], source.chunks(), positions, len(order), len(source.names))
        for other in set(self._store.iterdir()) - set(folders):
            shutil.rmtree(other)
        return [open_blocks(folder) for folder in folders]
