"""How a party's ids look after normalisation, to compare over the phone: lengths, patterns, counts; never an id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fdml.data.column_types import is_text, plain
from fdml.data.ids import IdCounts, check_counts, key_texts, unique_ids
from fdml.errors import DataError
from fdml.settings.data import IdSettings

_MOST_PATTERNS = 1_000
"""Different patterns that are counted."""
SHOWN_PATTERNS = 5
_RUNS = {"9": ("digit", "digits"), "a": ("letter", "letters"), "_": ("space", "spaces"), "#": ("sign", "signs")}


@dataclass(frozen=True)
class IdPattern:
    """A shape that ids have."""

    text: str
    """Like "10 digits" or "4 letters, 1 sign, 5 digits"."""
    rows: int


@dataclass(frozen=True)
class IdProfile:
    """All that may be said of a file's ids."""

    columns: tuple[str, ...]
    stored_as: str
    """The types of the columns in the file."""
    counts: IdCounts
    shortest: int
    longest: int
    leading_zeros: int
    """Ids of digits alone that begin with a zero."""
    trimmed: int
    """Ids that had white space around them, which normalisation takes off."""
    patterns: tuple[IdPattern, ...]
    """The most frequent first."""
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass
class IdLook:
    """The id columns while their batches pass by; ids are kept, as duplicates can be found in no other way."""

    columns: tuple[str, ...]
    settings: IdSettings
    _batches: list[Any] = field(default_factory=list)
    _patterns: Counter[str] = field(default_factory=Counter)
    _shortest: int = 2**31
    _longest: int = 0
    _zeros: int = 0
    _trimmed: int = 0

    def add(self, batch: Any) -> None:
        """Look at a batch; raises `DataError` where a column cannot be an id."""
        self._batches.append(batch.select(list(self.columns)))
        columns = {name: batch.column(name) for name in self.columns}
        texts = key_texts(columns, self.settings).drop_null()
        self._trimmed += sum(_with_space(each) for each in columns.values())
        if not len(texts):
            return
        lengths = pc.utf8_length(texts)
        self._shortest = min(self._shortest, pc.min(lengths).as_py())
        self._longest = max(self._longest, pc.max(lengths).as_py())
        self._zeros += pc.sum(pc.match_substring_regex(texts, r"^0[0-9]+$")).as_py() or 0
        for each in pc.value_counts(_shapes(texts)).to_pylist():
            if each["values"] in self._patterns or len(self._patterns) < _MOST_PATTERNS:
                self._patterns[each["values"]] += each["counts"]

    @property
    def is_empty(self) -> bool:
        """Whether no batch was seen, so that there is nothing to tell."""
        return not self._batches

    def profile(self) -> IdProfile:
        """What was seen of all batches, at least one."""
        table = pa.Table.from_batches(self._batches)
        columns = {name: table.column(name) for name in self.columns}
        lenient = self.settings.model_copy(update={"duplicates": "first", "missing": "drop"})
        counts = unique_ids(columns, lenient).counts
        return IdProfile(
            self.columns,
            ", ".join(dict.fromkeys(_kind(column.type) for column in columns.values())),
            counts,
            min(self._shortest, self._longest),
            self._longest,
            self._zeros,
            self._trimmed,
            tuple(IdPattern(_in_words(shape), rows) for shape, rows in self._patterns.most_common()),
            faults=_faults(counts, self.settings),
            warnings=tuple(self._warnings(columns)),
        )

    def _warnings(self, columns: Mapping[str, Any]) -> list[str]:
        found = []
        if self._zeros:
            found.append(
                f"{self._zeros:,} ids begin with a zero: a party that stores the same ids as numbers has none of them; "
                'compare, and if so set [data.ids] numbers = "all" at every party'
            )
        elif self.settings.numbers == "typed" and not any(is_text(plain(each).type) for each in columns.values()):
            found.append(
                "the ids are stored as numbers, so have no leading zeros: if another party's have, set [data.ids] "
                'numbers = "all" at every party'
            )
        if self._trimmed and not self.settings.trim:
            found.append(f"{self._trimmed:,} ids have white space around them: set [data.ids] trim = true")
        elif self._trimmed:
            found.append(f"{self._trimmed:,} ids have white space around them, which is taken off")
        if len(self._patterns) > 1:
            found.append(f"the ids have {len(self._patterns):,} patterns; see that all parties have the same")
        return found


def _faults(counts: IdCounts, settings: IdSettings) -> tuple[str, ...]:
    """Missing and duplicate ids that the settings refuse, both at once."""
    found = []
    for tolerated in ({"duplicates": "first"}, {"missing": "drop"}):
        try:
            check_counts(counts, settings.model_copy(update=tolerated))
        except DataError as error:
            found.append(str(error))
    return tuple(found)


def _shapes(texts: Any) -> Any:
    """Every letter as a, digit as 9, white space as _ and all else as #."""
    for pattern, mark in ((r"[^\pL\pN\s]", "#"), (r"\s", "_"), (r"\pL", "a"), (r"\pN", "9")):
        texts = pc.replace_substring_regex(texts, pattern, mark)
    return texts


def _in_words(shape: str) -> str:
    runs = [(mark, len(list(run))) for mark, run in groupby(shape)]
    if len(runs) > 2 * SHOWN_PATTERNS:
        return f"{len(shape)} characters in {len(runs)} runs"
    return ", ".join(f"{length} {_RUNS.get(mark, _RUNS['#'])[length > 1]}" for mark, length in runs)


def _with_space(column: Any) -> int:
    values = plain(column)
    if not is_text(values.type):
        return 0
    texts = values.cast(pa.large_string())
    return pc.sum(pc.not_equal(texts, pc.utf8_trim_whitespace(texts))).as_py() or 0


def _kind(kind: Any) -> str:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if is_text(value):
        return "text"
    return "whole numbers" if pa.types.is_integer(value) else str(value)


def phone_lines(ids: IdProfile) -> Sequence[str]:
    """What to read out to the other parties."""
    shown = "; ".join(f"{each.text} ({each.rows:,} rows)" for each in ids.patterns[:SHOWN_PATTERNS])
    more = len(ids.patterns) - SHOWN_PATTERNS
    length = f"{ids.shortest}" if ids.shortest == ids.longest else f"{ids.shortest} to {ids.longest}"
    counts = ids.counts
    return (
        f"columns {', '.join(ids.columns)}, stored as {ids.stored_as}; {length} characters after normalisation",
        f"patterns: {shown or 'none'}{f'; and {more:,} more' if more > 0 else ''}",
        f"{counts.rows:,} rows, {counts.missing:,} without an id, {counts.repeated:,} with a duplicate id, "
        f"{ids.leading_zeros:,} begin with a zero",
    )
