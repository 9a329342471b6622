"""A plain join of ids, for data that is all in one process anyway."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fdml.data.table import Table
from fdml.errors import AlignmentError


def shared_rows(tables: Mapping[str, Table]) -> dict[str, NDArray[np.int64]]:
    """For every party the numbers of its rows that all parties hold, in one common order.

    The order follows from the ids alone, so every party can find it for itself.
    Parties without ids are matched by position, which only works if none has ids
    and all have equally many rows.
    """
    with_ids = [name for name, table in tables.items() if table.ids is not None]
    if not with_ids:
        return _by_position(tables)
    without = [name for name in tables if name not in with_ids]
    if without:
        raise AlignmentError(
            f"party {without[0]!r} has no ids but {with_ids[0]!r} has; set data.id at every party or at none"
        )
    return _by_id(tables)


def _by_position(tables: Mapping[str, Table]) -> dict[str, NDArray[np.int64]]:
    counts = {name: len(table) for name, table in tables.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise AlignmentError(f"without ids all parties need equally many rows ({listed}); set data.id at every party")
    return {name: np.arange(count) for name, count in counts.items()}


def _by_id(tables: Mapping[str, Table]) -> dict[str, NDArray[np.int64]]:
    places: dict[str, dict[str, int]] = {}
    for name, table in tables.items():
        ids: list[str] = [] if table.ids is None else table.ids.tolist()
        places[name] = {each: number for number, each in enumerate(ids)}
        if len(places[name]) < len(ids):
            raise AlignmentError(
                f"party {name!r} has {len(ids) - len(places[name])} rows with a duplicate id; "
                f"keep one row per id, or add a column to data.id"
            )
    first, *others = places.values()
    shared = sorted((each for each in first if all(each in other for other in others)), key=_id_digest)
    if not shared:
        raise AlignmentError(
            f"the parties {', '.join(tables)} share no id; check data.id, and how ids are written (data.ids)"
        )
    return {name: np.array([place[each] for each in shared], np.int64) for name, place in places.items()}


def _id_digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
