"""A party's rows: their ids, and their features in the run's order, written to disk once and then mapped."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.align.party_ids import PartyIds
from fdml.align.sealed_labels import LabelSet
from fdml.cluster.reading import PartReader
from fdml.data.block_store import fingerprint, open_blocks, write_blocks
from fdml.data.encoders import AnyEncoder, encoder_from_json, native_of
from fdml.data.label_encoding import LabelEncoding, fit_labels
from fdml.data.many_texts import MANY
from fdml.data.origins import Origin, origins_of
from fdml.data.row_set import mean_one
from fdml.data.rows import PointedRows, RowEncoding, Rows, span, with_zero_row
from fdml.data.sources import Source, open_encoded, open_sources, remarks_of
from fdml.errors import DataError, LabelError
from fdml.federation.leading_keys import data_settings, first_seen, leading_keys
from fdml.models.losses import loss_named
from fdml.models.registry import encoding_of
from fdml.party.alignment import RowIds, SharedRows
from fdml.party.data import PartyRows
from fdml.party.record_level import check_encoder
from fdml.party.settings import PartySettings, check_label_owner
from fdml.settings import RunSettings
from fdml.settings.data import PLACES, DataSettings
from fdml.storage.atomic import write_file
from fdml.storage.disk import FolderDisk
from fdml.storage.facts import damaged

_LATER = ("group", "ranges", "categories", "keys", "delimiter", "decimal", "encoding", "max_categories")
"""Settings that were not there from the beginning."""


PARTS = "parts"
"""In the state of a run: its rows as workers have encoded them, until they are stored as blocks."""


class PartyFiles:
    """The rows that party.toml names, or those of `origins`. They are opened only when needed, as that may mean to
    read them once; `remark` then hears what a person should know of their columns."""

    def __init__(
        self,
        party: PartySettings,
        run: RunSettings,
        state: Path,
        *,
        origins: Sequence[Origin] | None = None,
        encoder: AnyEncoder | None = None,
        labels: LabelEncoding | None = None,
    ) -> None:
        """`encoder` and `labels` are those of an earlier run, to be kept; None learns them from the training rows."""
        check_label_owner(party, run)
        self._party = party
        self._run = run
        self._data = data_settings(party, run)
        self._store = state / "blocks"
        self._encoder = state / "encoder.json"
        self._encoding = encoding_of(party.model)
        self._reader = PartReader(
            party.workers, parts_folder(party, state / PARTS), remark=lambda text: self.remark(text)
        )
        self._origins = origins_of(self._data) if origins is None else origins
        self._kept_encoder = encoder
        self._kept_labels = labels
        self.remark: Callable[[str], None] = lambda _: None

    @cached_property
    def sources(self) -> list[Source]:
        """Of the training rows, and of the test rows if there are any."""
        kept = self._kept_encoder
        if kept is None:
            sources = open_sources(self._data, origins=self._origins, encoding=self._encoding, reader=self._reader)
        else:
            sources = [open_encoded(self._data, kept, origin, self._reader) for origin in self._origins]
        for text in remarks_of(sources):
            self.remark(text)
        name = self._party.party
        check_encoder(self._party.guard, self._party.data, sources[0].encoder)
        if name != self._run.label_party and not sources[0].names:
            raise DataError(f"party {name!r} has no features; only the label party may have none")
        if name == self._run.label_party and any(source.labels() is None for source in sources):
            raise LabelError(f"label party {name!r} has no labels; set data.label to its label column")
        return sources

    @property
    def name(self) -> str:
        """Of the training rows, for people: the file's or folder's name, or what else they are."""
        name = self._origins[0].name
        return name.rstrip("/").rpartition("/")[2] or name

    @cached_property
    def fingerprint(self) -> str:
        """Equal if the rows are, and the settings by which they are read."""
        return data_fingerprint(self._origins, self._data, self._encoding)

    @property
    def origins(self) -> Sequence[Origin]:
        """Where the training rows are, and the test rows if there are any."""
        return self._origins

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights of their own."""
        return self.sources[0].weights() is not None

    def row_ids(self) -> RowIds:
        """The ids to align by; without ids, how many rows there are."""
        many = any(source.count > MANY for source in self.sources)
        disk = FolderDisk(self._store.parent) if many else None
        ids = [source.ids(disk) for source in self.sources]
        rows = [
            np.arange(source.count) if each is None else each.rows
            for source, each in zip(self.sources, ids, strict=True)
        ]
        found = PartyIds.of(ids, [source.count for source in self.sources])
        if self._run.pointing_party == self._party.party:
            found = replace(found, leads=leading_keys(self._run, self._data, self.sources, found, rows))
        return RowIds(
            found,
            train_rows=rows[0],
            test_rows=rows[-1],
            counts=tuple(each.counts for each in ids if each is not None),
        )

    def rows(self, shared: SharedRows) -> PartyRows:
        """The features of the shared rows, mapped from disk."""
        if self._run.pointing_party not in (None, self._party.party):
            return self._pointed(shared)
        rows, held_out = len(shared.train), len(shared.held_out)
        together = len(self._origins) == 1
        orders = [np.concatenate([shared.train, shared.held_out])] if together else [shared.train, shared.held_out]
        stored = self._blocks(orders)
        check_encoder(self._party.guard, self._party.data, self.encoder)  # they may be of an earlier start
        if together:
            stored = [span(stored[0], 0, rows), span(stored[0], rows, rows + held_out)]
        return PartyRows(stored[0], stored[1], native_of(self.encoder))

    def held_out(self, shared: SharedRows) -> Rows:
        """The features of the held-out rows alone."""
        found = self.rows(replace(shared, train=shared.train[:0])).held_out
        if found is None:
            raise DataError("there are no held-out rows; raise evaluation.holdout, or bring a test file")
        return found

    def labels(self, shared: SharedRows) -> tuple[LabelSet, LabelEncoding]:
        """The labels of the shared rows, encoded by those of the training rows."""
        train, held_out = self.raw_labels(shared)
        train_weights, weights = self.weights(shared)
        link = loss_named(self._run.chosen_loss).link
        encoding = self._kept_labels or fit_labels(self._run.task, train, train_weights, link, shared.train)
        labels = LabelSet(
            encoding.class_count,
            encoding.transform(train, shared.train),
            encoding.transform(held_out, shared.held_out),
            mean_one(train_weights, len(train)),
            mean_one(weights, len(held_out)),
            *self.groups(shared),
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

    def groups(self, shared: SharedRows) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
        """The groups of training and held-out rows; None where the file has none."""
        train, test = self.sources[0].groups(), self.sources[-1].groups()
        return None if train is None else train[shared.train], None if test is None else test[shared.held_out]

    def _pointed(self, shared: SharedRows) -> PartyRows:
        """The features that the run's rows point to, each stored once, and the pointers."""
        files = [[shared.train, shared.held_out]] if len(self._origins) == 1 else [[shared.train], [shared.held_out]]
        stored, found = [first_seen(np.concatenate(rows)) for rows in files], []
        folders = [self._folder(number, order, "pointed") for number, order in enumerate(stored)]
        if not all(folder.exists() for folder in folders):
            self._write_pointed(folders, stored, shared)
        self._keep_only(folders)
        check_encoder(self._party.guard, self._data, self.encoder)
        for folder, order, rows in zip(folders, stored, files, strict=True):
            places = np.full(int(order.max(initial=0)) + 2, -1, np.int64)  # the last one is for row -1
            places[order] = np.arange(len(order))
            blocks = open_blocks(folder)
            found += [PointedRows(blocks, places[each]) for each in rows]
        return PartyRows(found[0], found[1], native_of(self.encoder))

    def _write_pointed(self, folders: Sequence[Path], stored: Sequence[NDArray[np.int64]], shared: SharedRows) -> None:
        """Write each row once and a row without features; the encoder is fitted to the run's rows as they occur."""
        sources = self.sources
        if self._party.party in self._run.keys and self._kept_encoder is None:
            used = shared.train if shared.has_test_files else np.concatenate([shared.train, shared.held_out])
            counts = np.bincount(used[used >= 0], minlength=sources[0].count)
            sources = open_sources(self._data, counts, self._origins, self._encoding, self._reader)
        write_file(self._encoder, sources[0].encoder.to_json().encode())
        for folder, order, source in zip(folders, stored, sources, strict=True):
            places = np.full(source.count + 1, -1, np.int64)
            places[order] = np.arange(len(order))
            places[-1] = len(order)
            write_blocks(folder, with_zero_row(source.chunks()), places, len(order) + 1, len(source.names))
        self._reader.clear()

    def _blocks(self, orders: Sequence[NDArray[np.int64]]) -> list[Rows]:
        """The features of these rows of each file in this order, from the store; others in the store are removed."""
        folders = [self._folder(number, order) for number, order in enumerate(orders)]
        for number, (folder, order) in enumerate(zip(folders, orders, strict=True)):
            if not folder.exists():
                source = self.sources[number]
                positions = np.full(source.count, -1, np.int64)
                positions[order] = np.arange(len(order))
                write_file(self._encoder, self.sources[0].encoder.to_json().encode())
                write_blocks(folder, source.chunks(), positions, len(order), len(source.names))
        self._reader.clear()
        self._keep_only(folders)
        return [open_blocks(folder) for folder in folders]

    def _folder(self, number: int, order: NDArray[np.int64], how: str = "") -> Path:
        """Where the features of a file are stored in this order."""
        self._store.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = hashlib.blake2b(self.fingerprint.encode() + how.encode() + order.tobytes(), digest_size=8)
        return self._store / f"{number}-{name.hexdigest()}"

    def _keep_only(self, folders: Sequence[Path]) -> None:
        for other in set(self._store.iterdir()) - set(folders):
            shutil.rmtree(other)


def parts_folder(party: PartySettings, usual: Path) -> Path:
    """Where workers write parts of rows: the usual folder, or one of its own where `workers.folder` says."""
    if party.workers.folder is None:
        return usual
    place = hashlib.blake2b(str(usual.absolute()).encode(), digest_size=8).hexdigest()
    return party.workers.folder / f"{party.party}-{place}"


def data_fingerprint(origins: Sequence[Origin], data: DataSettings, encoding: RowEncoding) -> str:
    """Equal if the rows are, the settings by which they are read, and what the model wants of them."""
    known = fingerprint([origin.digest() for origin in origins], _reading(data)).hex()
    return known if encoding == "numeric" else f"{known} {encoding}"


def _reading(data: DataSettings) -> str:
    """The settings by which rows are read, not where they are, as a text.

    Settings that came later count only where they are set, so that rows of before are still known. An indicator gives
    the features of "error" wherever that gives any, and is written as that.
    """
    unset = {name for name in _LATER if getattr(data, name) == getattr(DataSettings(), name)}
    known = {"path": Path(), "test_path": None, "missing": "error" if data.missing == "indicator" else data.missing}
    return data.model_copy(update=known).model_dump_json(exclude={*PLACES, *unset} - {"path", "test_path"})
