"""A sample data set as its parties hold it: tables of named columns, and the settings by which they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from fdml.data.origins import frame_origins
from fdml.data.readers import load
from fdml.data.rows import RowEncoding
from fdml.data.table import PartyData
from fdml.errors import SettingsError
from fdml.protocol.shuffle import permutation
from fdml.settings.data import DataSettings


@dataclass(frozen=True)
class PartyTables:
    """What one party holds."""

    train: Any
    """A pyarrow table."""
    test: Any = None
    """Likewise; None where rows are held out of the others."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Its settings of `[data]`, but for where the rows are."""

    @cached_property
    def settings(self) -> DataSettings:
        """The same as settings."""
        return DataSettings(**self.data)

    def encoded(self, encoding: RowEncoding = "numeric") -> PartyData:
        """The rows as the files of a run would be encoded."""
        return load(self.settings, origins=frame_origins(self.train, self.test), encoding=encoding)


@dataclass(frozen=True)
class SampleDataset:
    """Tables of several parties that share ids."""

    name: str
    title: str
    """What it is and where it comes from, in one line."""
    parties: Mapping[str, PartyTables]
    """The first holds the labels. Every party has its rows in the same order, but for those in `keys`."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By party whose table is coarser: the columns of the label party's table that lead to its rows."""
    task: str = "binary"

    @property
    def label_party(self) -> str:
        """The party with the labels."""
        return next(iter(self.parties))

    @property
    def rows(self) -> int:
        """The rows to train on."""
        return len(self.parties[self.label_party].train)

    @property
    def has_test_rows(self) -> bool:
        """Whether it brings test rows of its own."""
        return self.parties[self.label_party].test is not None

    def encoded(self, encoding: RowEncoding = "numeric") -> dict[str, PartyData]:
        """Every party's rows, encoded as the files of a run would be; `experiments.dataset` joins them."""
        return {name: each.encoded(encoding) for name, each in self.joined().parties.items()}

    def joined(self) -> SampleDataset:
        """The same with a row for each of the label party's at every party; what a party does not know is missing."""
        own = self.parties[self.label_party]
        found = {name: self._looked_up(own, name) for name in self.keys}
        return replace(self, parties={**self.parties, **found}, keys={})

    def _looked_up(self, own: PartyTables, party: str) -> PartyTables:
        """A coarser table, row by row of the label party's."""
        theirs, ids, key = self.parties[party], own.settings.id, self.keys[party]
        test = None if own.test is None else _look_up(own.test, theirs, ids, key)
        return PartyTables(_look_up(own.train, theirs, ids, key), test, {**theirs.data, "id": list(ids)})

    def first(self, rows: int, seed: int) -> SampleDataset:
        """So many rows, drawn from the seed, and as large a share of the test rows."""
        if not 1 <= rows <= self.rows:
            raise SettingsError(f"{rows} rows were asked for; {self.name} has {self.rows:,}, give 1 to {self.rows}")
        train = permutation(self.rows, seed, self.name)[:rows]
        count = len(self.parties[self.label_party].test) if self.has_test_rows else 0
        test = permutation(count, seed, self.name, "test")[: max(count * rows // self.rows, 1)]
        parties = {
            name: each
            if name in self.keys
            else replace(each, train=each.train.take(train), test=each.test.take(test) if count else None)
            for name, each in self.parties.items()
        }
        return replace(self, parties=parties)


Load = Callable[[], SampleDataset]
"""Reads a sample data set, or raises where the package that carries it is not installed."""


def _look_up(rows: Any, theirs: PartyTables, ids: Sequence[str], key: Sequence[str]) -> Any:
    """The columns of a coarser table for every row, behind the rows' ids and in their order."""
    names = theirs.settings.id
    table = theirs.train.rename_columns(dict(zip(names, (f"key of {name}" for name in names), strict=True)))
    wanted = dict(zip(key, (f"key of {name}" for name in names), strict=True))
    asked = pa.table({name: rows.column(name) for name in ids})
    for column, name in wanted.items():
        asked = asked.append_column(name, rows.column(column))
    asked = asked.append_column("number of row", pa.array(range(len(rows)), pa.int64()))
    found = asked.join(table, list(wanted.values()), join_type="left outer").sort_by("number of row")
    return found.drop_columns(["number of row", *wanted.values()])
