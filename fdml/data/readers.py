"""A party's rows to tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fdml.data.encoders import native_of
from fdml.data.error_context import errors_about
from fdml.data.origins import Origin, origins_of
from fdml.data.rows import RowEncoding, vstack
from fdml.data.sources import Source, open_sources, remarks_of
from fdml.data.table import PartyData, Table
from fdml.errors import DataError
from fdml.settings.data import DataSettings


def load(
    settings: DataSettings,
    counts: NDArray[np.int64] | None = None,
    *,
    remark: Callable[[str], None] = lambda _: None,
    origins: Sequence[Origin] | None = None,
    encoding: RowEncoding = "numeric",
) -> PartyData:
    """Read a party's training rows, and its test rows if it has some.

    Rows that `data.ids` drops are in none of the tables. The encoder is fitted to each row as often as `counts` says.
    `remark` hears what a person should know of the columns. `origins` are where the rows are, if not where the
    settings say. `encoding` is what the party's model wants of columns.
    """
    origins = origins_of(settings) if origins is None else origins
    sources = open_sources(settings, counts, origins, encoding)
    for text in remarks_of(sources):
        remark(text)
    return PartyData(*(_gathered(origin.name, source) for origin, source in zip(origins, sources, strict=True)))


def _gathered(place: str, source: Source) -> Table:
    rows = vstack(list(source.chunks()))
    table = Table(
        rows, source.names, labels=source.labels(), weights=source.weights(), native=native_of(source.encoder)
    )
    ids = source.ids()
    if ids is None:
        return table
    with errors_about(place):
        if not len(ids.rows):
            raise DataError("no row is left that has an id of its own; check data.id and data.ids")
    kept = table if len(ids.rows) == len(table) else table.take(ids.rows)
    return replace(kept, ids=ids.as_objects())
