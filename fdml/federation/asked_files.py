"""Files of ids that predictions are asked for, and the asker's own files as such: ids, keys that lead on, labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fdml.data.column_types import groups_of, labels_of, weights_of
from fdml.data.error_context import errors_about
from fdml.data.ids import key_texts
from fdml.data.origins import FilesOrigin, Origin, origins_of
from fdml.data.table_source import TableSource, even_batches
from fdml.errors import DataError, SettingsError
from fdml.federation.leading_keys import data_settings
from fdml.party.settings import PartySettings
from fdml.serving.asking import AskedRows
from fdml.serving.batch import AskedTable
from fdml.settings import RunSettings
from fdml.settings.data import DataSettings


@dataclass(frozen=True, eq=False)
class WholeFile:
    """All rows of a file: what is asked for, and labels, weights and groups where it has them."""

    rows: AskedRows
    labels: NDArray[Any] | None
    weights: NDArray[np.float64] | None
    groups: NDArray[np.int64] | None = None


class AskedFile:
    """A table with the ids of rows; `own` are the asker's files, where keys that it lacks are looked up."""

    def __init__(self, origin: Origin, party: PartySettings, run: RunSettings, own: OwnKeys | None = None) -> None:
        if not party.data.id:
            raise SettingsError(
                f"party {party.party!r} has no data.id, and rows without ids cannot be asked for; set it, then train "
                f"again under a new name of the run"
            )
        self._origin = origin
        self._party = party
        self._data = data_settings(party, run)
        self._others = [name for name in run.parties if name in self._data.keys]
        if run.keys and party.party != run.label_party:
            raise SettingsError(
                f"[keys] of run.toml lead from rows of {run.label_party!r}, so only that party can ask for predictions"
            )
        self._own = own

    @property
    def table(self) -> AskedTable:
        """For a batch."""
        digest = self._origin.digest()
        return AskedTable(digest, self._count, self._blocks, lambda: self._origin.digest() != digest)

    def whole(self) -> WholeFile:
        """All rows at once, with labels, weights and groups where the file has them."""
        wanted = (self._data.label, self._data.weight, self._data.group)
        extra = [name for name in wanted if name in self._table.names and name]
        columns = list(dict.fromkeys([*self._columns, *extra]))
        with errors_about(self._origin.name):
            self._table.settle(columns)
            found = pa.Table.from_batches(list(self._table.batches(columns)))
            label, weight, group = wanted
            return WholeFile(
                self._asked(found),
                labels_of(label, found.column(label)) if label in extra and label else None,
                weights_of(weight, found.column(weight)) if weight in extra and weight else None,
                groups_of(group, found.column(group)) if group in extra and group else None,
            )

    @cached_property
    def _table(self) -> TableSource:
        text = [*self._data.id, *(name for columns in self._data.keys.values() for name in columns)]
        with errors_about(self._origin.name):
            return self._origin.table(text)

    @cached_property
    def _ids(self) -> tuple[str, ...]:
        """The columns of the ids: those of data.id, or a file's only column."""
        names, wanted = self._table.names, self._data.id
        if len(wanted) == 1 and len(names) == 1:
            return (names[0],)
        lacking = [name for name in wanted if name not in names]
        if lacking:
            raise DataError(
                f"{self._origin.name}: it has no column {lacking[0]!r}, which data.id names; its columns are "
                f"{', '.join(names)}"
            )
        return tuple(wanted)

    @cached_property
    def _leads(self) -> dict[str, tuple[str, ...]]:
        """By coarser party, the columns that lead to it, where the file has them."""
        names = self._table.names
        found = {other: self._data.keys[other] for other in self._others}
        here = {other: columns for other, columns in found.items() if set(columns) <= set(names)}
        for other, columns in found.items():
            if other not in here and self._own is None:
                raise DataError(f"{self._origin.name}: it has no columns {', '.join(columns)} that lead to {other!r}")
        return here

    @property
    def _columns(self) -> list[str]:
        return list(dict.fromkeys([*self._ids, *(name for columns in self._leads.values() for name in columns)]))

    @cached_property
    def _count(self) -> int:
        with errors_about(self._origin.name):
            return self._table.settle(self._columns)

    def _blocks(self, size: int) -> Iterator[tuple[Any, AskedRows]]:
        if not self._count:
            raise DataError(f"{self._origin.name}: it has no rows; give a file with at least one id")
        with errors_about(self._origin.name):
            for batch in even_batches(self._table.batches(self._columns), size):
                table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
                yield table, self._asked(table)

    def _asked(self, table: Any) -> AskedRows:
        def texts(columns: Sequence[str]) -> Any:
            return key_texts({name: table.column(name) for name in columns}, self._data.ids)

        ids = texts(self._ids)
        leads = {other: texts(columns) for other, columns in self._leads.items()}
        if self._own is not None:
            leads |= {other: self._own.leading_to(other, ids) for other in self._others if other not in leads}
        return AskedRows(ids, leads)


class OwnKeys:
    """Keys that lead to other parties' rows, looked up by id in the label party's own files."""

    def __init__(self, party: PartySettings, run: RunSettings) -> None:
        self._party = party
        self._run = run

    @cached_property
    def _rows(self) -> AskedRows:
        return own_rows(self._party, self._run).rows

    def leading_to(self, other: str, ids: Any) -> Any:
        """The key of each id; null where the files do not have it."""
        places = pc.index_in(ids, value_set=self._rows.ids)
        return self._rows.leads[other].take(places)


def asked_file(path: Path, party: PartySettings, run: RunSettings) -> AskedFile:
    """A file of ids that somebody wants predictions of."""
    return AskedFile(FilesOrigin(path, DataSettings(path=path)), party, run, OwnKeys(party, run))


def own_rows(party: PartySettings, run: RunSettings) -> WholeFile:
    """All rows of a party's own files, the training file's first."""
    found = [AskedFile(origin, party, run).whole() for origin in origins_of(party.data)]
    if len(found) == 1:
        return found[0]
    leads: Mapping[str, Any] = {
        other: pa.concat_arrays([each.rows.leads[other] for each in found]) for other in found[0].rows.leads
    }
    rows = AskedRows(pa.concat_arrays([each.rows.ids for each in found]), leads)
    groups = _joined([each.groups for each in found])
    if groups is not None:  # groups of different files are different ones
        groups = groups + (int(groups.max(initial=0)) + 1) * np.repeat(
            np.arange(len(found)), [len(each.rows.ids) for each in found]
        )
    labels, weights = _joined([each.labels for each in found]), _joined([each.weights for each in found])
    return WholeFile(rows, labels, weights, groups)


def _joined(parts: list[NDArray[Any] | None]) -> NDArray[Any] | None:
    given = [part for part in parts if part is not None]
    return np.concatenate(given) if len(given) == len(parts) else None
