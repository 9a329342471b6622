"""A plain join by the keys of run.toml, for data that is all in one process anyway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fdml.align.party_ids import PartyIds
from fdml.data.readers import load
from fdml.data.rows import PointedRows, RowEncoding, vstack, with_zero_row
from fdml.data.sources import Source, open_sources
from fdml.data.table import PartyData, Table
from fdml.errors import DataError
from fdml.federation.leading_keys import data_settings, leading_keys
from fdml.models.registry import encoding_of
from fdml.party.settings import PartySettings
from fdml.settings import RunSettings
from fdml.settings.data import DataSettings

Pointers = NDArray[np.int64]


def load_parties(run: RunSettings, parties: Mapping[str, PartySettings]) -> dict[str, PartyData]:
    """All parties' tables; where rows of the label party point to others', the run's rows of each, in one order."""
    settings = {name: data_settings(party, run) for name, party in parties.items()}
    encodings = {name: encoding_of(party.model) for name, party in parties.items()}
    if run.pointing_party is None:
        return {name: load(data, encoding=encodings[name]) for name, data in settings.items()}
    label = settings[run.label_party]
    leads = _leads(run, label)
    found = {name: _pointers(settings[name], keys) for name, keys in leads.items()}
    kept = [_kept(list(of_file), keeps=run.unmatched == "keep") for of_file in zip(*found.values(), strict=True)]
    if not all(map(len, kept)):
        raise DataError(f"no row of {run.label_party!r} leads to a row of every other party; check data.id and [keys]")
    own = _chosen(load(label, encoding=encodings[run.label_party]), kept)
    return {
        name: own
        if name == run.label_party
        else _pointed(
            run,
            name,
            data,
            [each[rows] for each, rows in zip(found[name], kept, strict=True)],
            own,
            encoding=encodings[name],
        )
        for name, data in settings.items()
    }


def _leads(run: RunSettings, label: DataSettings) -> dict[str, list[pa.LargeStringArray]]:
    """By other party, the keys that lead to it from the rows of the label party's files."""
    sources: Sequence[Source] = open_sources(label)
    ids = [source.ids() for source in sources]
    rows = [np.arange(each.count) if own is None else own.rows for each, own in zip(sources, ids, strict=True)]
    known = PartyIds.of(ids, [source.count for source in sources])
    leads = leading_keys(run, label, sources, known, rows)
    return {name: [keys.train] if keys.test is None else [keys.train, keys.test] for name, keys in leads.items()}


def _pointers(data: DataSettings, keys: Sequence[pa.LargeStringArray]) -> list[Pointers]:
    """By file and row of the label party, which of the rows with an id it points to; -1 for none."""
    sources, found = open_sources(data), []
    for number, texts in enumerate(keys):
        ids = sources[min(number, len(sources) - 1)].ids()
        if ids is None:
            raise DataError(f"{data.path}: it has no ids to be pointed to; set data.id to its key")
        places = pc.fill_null(pc.index_in(texts, value_set=ids.texts), -1)
        found.append(places.to_numpy(zero_copy_only=False).astype(np.int64))
    return found


def _kept(pointers: Sequence[Pointers], *, keeps: bool) -> NDArray[np.int64]:
    """The rows of a file of the label party that the run has."""
    if keeps:
        return np.arange(len(pointers[0]))
    return np.flatnonzero(np.all([each >= 0 for each in pointers], axis=0))


def _chosen(data: PartyData, rows: Sequence[NDArray[np.int64]]) -> PartyData:
    tables = [data.train] if data.test is None else [data.train, data.test]
    return PartyData(*(table.take(chosen) for table, chosen in zip(tables, rows, strict=True)))


def _pointed(
    run: RunSettings,
    name: str,
    data: DataSettings,
    pointers: Sequence[Pointers],
    own: PartyData,
    *,
    encoding: RowEncoding,
) -> PartyData:
    """A party's rows as the label party's point to them, under its ids.

    The columns of a coarser table are fitted to the training file's rows as they occur, as `fdml join` does.
    """
    counts = None
    if name in run.keys:
        source = open_sources(data)[0]
        ids, used = source.ids(), pointers[0][pointers[0] >= 0]
        counts = np.bincount(used if ids is None else ids.rows[used], minlength=source.count)
    loaded = load(data, counts, encoding=encoding)
    theirs = [loaded.train, loaded.train if loaded.test is None else loaded.test]
    mine: list[Table] = [own.train] if own.test is None else [own.train, own.test]
    tables = []
    for at, (table, like) in enumerate(zip(theirs[: len(mine)], mine, strict=True)):
        rows = PointedRows(vstack(list(with_zero_row([table.rows]))), pointers[at])
        tables.append(Table(rows, table.names, ids=like.ids, native=table.native))
    return PartyData(*tables)
