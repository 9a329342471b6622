"""Partition of one table into parties by feature columns.

A name is that of a feature; if there is none, that of a column, for all features made of it ("city" for "city=Paris",
"city#17" or "city<=3"; "joined" for "joined days").
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

import numpy as np

from fdml.data.error_context import no_such
from fdml.data.rows import columns
from fdml.data.table import Table
from fdml.errors import DataError

_MADE = re.compile(r"[=#<>]| (?:days|hours|is missing)$| (?:month|weekday|hour)=")
"""What follows the column's name in a feature's name."""


def partition(table: Table, groups: Sequence[Sequence[int] | range | Sequence[str]]) -> list[Table]:
    """Cut a table into one per group of features, given by number (from 0) or by name.

    All parts keep the ids; labels and weights go to the first, the label party.
    Groups may overlap, and together need not cover all features.
    """
    chosen = number_groups(groups, table.names)
    return [
        Table(
            columns(table.rows, np.array(group, dtype=np.int64)),
            tuple(table.names[column] for column in group),
            table.ids,
            table.labels if first else None,
            table.weights if first else None,
        )
        for first, group in zip([True, *[False] * (len(chosen) - 1)], chosen, strict=True)
    ]


def number_groups(groups: Iterable[object], names: Sequence[str]) -> list[list[int]]:
    """Groups given by feature numbers or names, as feature numbers from 0."""
    chosen = [_resolve(number, group, names) for number, group in enumerate(groups, start=1)]
    if not chosen:
        raise DataError("there are no groups; give at least one group of features")
    return chosen


def halves(width: int) -> list[range]:
    """Cut features in two groups, the first the larger; a single feature is one group."""
    if width < 1:
        raise DataError(f"{width} features cannot be cut into groups; give at least one")
    middle = (width + 1) // 2
    return [range(middle), range(middle, width)][: min(width, 2)]


def column_halves(names: Sequence[str]) -> list[list[int]]:
    """Cut columns in two groups, the first the larger; all features that are made of a column stay together."""
    made_of = [column_of(name) for name in names]
    known = list(dict.fromkeys(made_of))
    groups = [set(known[half.start : half.stop]) for half in halves(len(known))]
    return [[at for at, column in enumerate(made_of) if column in group] for group in groups]


def parse_groups(text: str, names: Sequence[str]) -> list[list[int]]:
    """Read groups like "1-67; 68-123" or "age,sex; city" and give feature numbers from 0.

    In the text, features are numbered from 1, as in LIBSVM. A name goes before
    a number: "5" is the feature named "5" if there is one.
    """
    groups = []
    for number, part in enumerate(text.split(";"), start=1):
        items = [item.strip() for item in part.split(",")]
        found = [column for item in items if item for column in _parse_item(number, item, names)]
        groups.append(_checked(number, found, names))
    return groups


def _resolve(number: int, group: object, names: Sequence[str]) -> list[int]:
    if isinstance(group, str) or not isinstance(group, Iterable):
        raise DataError(f"group {number} is {group!r}; write a list of features, [{group!r}]")
    found: list[int] = []
    for item in group:
        if isinstance(item, str):
            found += _named(item, names)
        elif isinstance(item, SupportsIndex):
            found.append(operator.index(item))
        else:
            raise DataError(f"group {number}: {item!r} is neither the number nor the name of a feature")
    return _checked(number, found, names)


def _parse_item(number: int, item: str, names: Sequence[str]) -> list[int]:
    bounds = re.fullmatch(r"(\d+)(?:\s*-\s*(\d+))?", item)
    if bounds is None or item in names:
        return _named(item, names)
    first, last = int(bounds[1]), int(bounds[2] or bounds[1])
    if not 1 <= first <= last <= len(names):
        raise DataError(f"group {number}: {item!r} is not within the features 1-{len(names)}")
    return list(range(first - 1, last))


def _named(name: str, names: Sequence[str]) -> list[int]:
    if name in names:
        return [names.index(name)]
    found = [at for at, known in enumerate(names) if known.startswith(name) and _MADE.match(known, len(name))]
    if not found:
        raise no_such("feature or column", name, list(dict.fromkeys(map(column_of, names))), names)
    return found


def overlap(groups: Sequence[Sequence[int]], names: Sequence[str]) -> str:
    """A sentence on the first feature that is in two groups; empty where none is."""
    for number, group in enumerate(groups, start=1):
        for before, other in enumerate(groups[: number - 1], start=1):
            for at in sorted(set(group) & set(other)):
                return f"column {column_of(names[at])!r} is in group {before} and in group {number}; both have it"
    return ""


def column_of(feature: str) -> str:
    """The column that a feature with this name is made of; errors name it, as the rest may be someone's data."""
    return _MADE.split(feature, maxsplit=1)[0]


def _checked(number: int, group: list[int], names: Sequence[str]) -> list[int]:
    if not group:
        raise DataError(f"group {number} has no features; give it some, or leave it out")
    for column in group:
        if not 0 <= column < len(names):
            raise DataError(f"group {number}: there is no feature {column}; the numbers go from 0 to {len(names) - 1}")
    if len(set(group)) < len(group):
        twice = next(column for column in group if group.count(column) > 1)
        raise DataError(f"group {number} has feature {names[twice]!r} twice; name it once")
    return group
