"""The ids that a party aligns by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from fdml.data.ids import Ids
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import RowCounts


@dataclass(frozen=True, eq=False)
class LeadingKeys:
    """For each row of a label party the key of the row of another party that it points to; null where it has none."""

    train: pa.LargeStringArray
    test: pa.LargeStringArray | None = None
    """None without a test file."""
    coarse: bool = False
    """Whether they are keys of another grain: many rows may have the same, and one table of the other party serves
    training and test rows."""


@dataclass(frozen=True, eq=False)
class PartyIds:
    """A party's normalised ids, one for each row, or how many rows it has if it has no ids."""

    train: pa.LargeStringArray | None = None
    test: pa.LargeStringArray | None = None
    """None without a test file."""
    by_position: RowCounts | None = None
    leads: Mapping[str, LeadingKeys] = field(default_factory=dict)
    """At a label party whose rows point to those of the others: by other party, the keys that lead to it."""

    @classmethod
    def of(cls, files: Sequence[Ids | None], counts: Sequence[int]) -> Self:
        """Of the training file and, where there is one, the test file; without ids the `counts` of rows are used."""
        given = [each for each in files if each is not None]
        if not given:
            return cls(by_position=RowCounts(*counts))
        if len(given) < len(files):
            raise AlignmentError("only one of training file and test file has ids; data.id must name columns of both")
        return cls(*(each.texts for each in given))

    @property
    def counts(self) -> RowCounts:
        """How many rows there are."""
        if self.train is None:
            return self.by_position or RowCounts(0)
        return RowCounts(len(self.train), None if self.test is None else len(self.test))

    def __post_init__(self) -> None:
        if (self.train is None) == (self.by_position is None):
            raise AlignmentError("a party has ids, or else numbers of rows to be matched by position; give one of them")
