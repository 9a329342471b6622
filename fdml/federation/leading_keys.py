"""Keys in the label party's files that lead to rows of other parties, and the columns that both sides make them of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fdml.align.party_ids import LeadingKeys, PartyIds
from fdml.data.sources import Source
from fdml.errors import SettingsError
from fdml.party.settings import PartySettings
from fdml.settings import RunSettings
from fdml.settings.data import DataSettings


def data_settings(party: PartySettings, run: RunSettings) -> DataSettings:
    """A party's [data], at the label party with the columns that lead to the others; raises if [keys] do not fit."""
    own = party.data.keys
    if party.party != run.label_party:
        if own:
            raise SettingsError("data.keys are the label party's; leave them out, and name this party's key in data.id")
        _check_id(party, run)
        return party.data
    for other, columns in own.items():
        if other not in run.keys:
            raise SettingsError(f"data.keys names {other!r}, which is not in [keys] of run.toml; add it there first")
        if len(columns) != len(run.keys[other]):
            raise SettingsError(
                f"data.keys of {other!r} names {len(columns)} columns, [keys] of run.toml {len(run.keys[other])}; "
                f"name one for each, in the same order"
            )
    if run.pointing_party is not None and not party.data.id and len(run.keys) < len(run.parties) - 1:
        other = next(name for name in run.parties if name not in (*run.keys, run.label_party))
        raise SettingsError(
            f"rows of {party.party!r} are to point to those of {other!r} by their ids; set data.id, or add {other!r} "
            f"to [keys] of run.toml"
        )
    return party.data.model_copy(update={"keys": {**run.keys, **own}})


def _check_id(party: PartySettings, run: RunSettings) -> None:
    """Raise unless a party in [keys] names as many columns of its own."""
    columns = run.keys.get(party.party, ())
    if columns and party.data.id and len(party.data.id) != len(columns):
        raise SettingsError(
            f"data.id names {len(party.data.id)} columns, and [keys] of run.toml leads to party {party.party!r} by "
            f"{len(columns)} ({', '.join(columns)}); name the same in data.id, in the same order"
        )


def leading_keys(
    run: RunSettings,
    data: DataSettings,
    sources: Sequence[Source],
    ids: PartyIds,
    rows: Sequence[NDArray[np.int64]],
) -> dict[str, LeadingKeys]:
    """By other party, the keys of the label party's rows that lead to it; `rows` are those of each file with an id."""
    leads = {}
    for other in run.parties:
        if other in data.keys:
            columns = data.keys[other]
            texts = [source.keys(columns).take(pa.array(kept)) for source, kept in zip(sources, rows, strict=True)]
            leads[other] = LeadingKeys(texts[0], texts[1] if len(texts) > 1 else None, coarse=True)
        elif other != run.label_party and ids.train is not None:
            leads[other] = LeadingKeys(ids.train, ids.test)
    return leads


def first_seen(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The different rows among these, in the order in which they first occur, without -1."""
    found, first = np.unique(rows, return_index=True)
    order = found[np.argsort(first)]
    return order[order >= 0]
