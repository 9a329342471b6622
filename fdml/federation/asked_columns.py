"""Ids that come as columns of a request: normalised as in training, with the keys that lead on to other parties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from fdml.data.ids import key_texts
from fdml.errors import DataError, SettingsError
from fdml.federation.asked_files import OwnKeys
from fdml.federation.leading_keys import data_settings
from fdml.party.settings import PartySettings
from fdml.serving.asking import AskedRows
from fdml.settings import RunSettings


class AskedColumns:
    """The columns of the asker's ids."""

    def __init__(self, party: PartySettings, run: RunSettings) -> None:
        if not party.data.id:
            raise SettingsError(f"party {party.party!r} has no data.id, and rows without ids cannot be asked for")
        if run.keys and party.party != run.label_party:
            raise SettingsError(f"[keys] of run.toml lead from rows of {run.label_party!r}, so only that party can ask")
        self._data = data_settings(party, run)
        self._leads = {name: tuple(self._data.keys[name]) for name in run.parties if name in self._data.keys}
        self._own = OwnKeys(party, run)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that every request has."""
        return tuple(self._data.id)

    @property
    def optional(self) -> tuple[str, ...]:
        """Columns that lead to coarser rows of other parties; those that are not given are looked up."""
        return tuple(dict.fromkeys(name for columns in self._leads.values() for name in columns))

    def rows(self, columns: Mapping[str, Any]) -> AskedRows:
        """The rows of these columns; raises `DataError` where a row has no id."""

        def texts(names: Sequence[str]) -> Any:
            return key_texts({name: columns[name] for name in names}, self._data.ids)

        ids = texts(self.needed)
        if ids.null_count:
            first = int(np.argmax(pc.is_null(ids).to_numpy(zero_copy_only=False)))
            raise DataError(f"row {first + 1} has no id in {', '.join(self.needed)}")
        leads = {}
        for other, names in self._leads.items():
            given = set(names) <= set(columns)
            leads[other] = texts(names) if given else self._own.leading_to(other, ids)
        return AskedRows(ids, leads)
