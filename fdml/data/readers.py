"""A party's files to tables in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fdml.data.error_context import errors_about
from fdml.data.rows import vstack
from fdml.data.sources import Source, open_sources
from fdml.data.table import PartyData, Table
from fdml.errors import DataError
from fdml.settings_data import DataSettings


def load(settings: DataSettings) -> PartyData:
    """Read a party's training file, and its test file if it has one.

    Rows that `data.ids` drops are in none of the tables.
    """
    paths = [settings.path] if settings.test_path is None else [settings.path, settings.test_path]
    sources = open_sources(settings)
    return PartyData(*(_gathered(path, source) for path, source in zip(paths, sources, strict=True)))


def _gathered(path: Path, source: Source) -> Table:
    rows = vstack(list(source.chunks()))
    table = Table(rows, source.names, labels=source.labels(), weights=source.weights())
    ids = source.ids()
    if ids is None:
        return table
    with errors_about(path):
        if not len(ids.rows):
            raise DataError("no row is left that has an id of its own; check data.id and data.ids")
    kept = table if len(ids.rows) == len(table) else table.take(ids.rows)
    return replace(kept, ids=ids.as_objects())
