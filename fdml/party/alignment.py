"""A party's alignment: which of its rows the run uses, and what was found on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fdml.align.group_key import GroupKey
from fdml.align.party_ids import PartyIds
from fdml.data.ids import IdCounts


@dataclass(frozen=True, eq=False)
class RowIds:
    """The ids of a party's files, and the file rows that they name."""

    ids: PartyIds
    train_rows: NDArray[np.int64]
    test_rows: NDArray[np.int64]
    """Rows of the test file; of the training file where there is none."""
    counts: tuple[IdCounts, ...] = ()


@dataclass(frozen=True)
class AlignmentReport:
    """What the alignment found, for people and for `--json`."""

    mode: str
    rows: Mapping[str, int]
    """Rows of every party's training file."""
    shared: int
    """Rows that all parties hold."""
    train: int
    held_out: int
    seconds: float
    bytes_sent: int = 0
    bytes_received: int = 0
    ids: tuple[IdCounts, ...] = ()
    """Missing and duplicate ids of this party's files, one entry per file."""
    warning: str = ""
    absent: int = 0
    """Rows of the run that this party does not hold."""
    largest_group: int = 1
    """How many rows of the run point to the same row of this party, at most."""

    generation: int = 1
    """Counts the generations of the alignment."""
    since: str = ""
    """The day on which these rows were aligned; empty if that was now."""
    new: int = 0
    """How many rows have come to those that were aligned before."""
    left: int = 0
    """How many rows that were aligned before are no longer shared."""
    adds: bool = False
    """Whether the generation adds to another."""

    def lost(self, party: str) -> dict[str, int]:
        """By reason, how many rows of this party's training file the run does not use; reasons without any left out."""
        found = dict[str, int]()
        if self.ids and self.ids[0].dropped:
            found = {"have no id": self.ids[0].missing, "have a duplicate id": self.ids[0].repeated}
        if not self.absent and self.largest_group == 1:  # else rows of the run point to this party's
            found["are not held by all others"] = self.rows.get(party, 0) - self.shared
        return {reason: count for reason, count in found.items() if count > 0}

    def remarks(self) -> list[str]:
        """Rows that were left out, and warnings; no row is left out in silence."""
        lines = [f"rows aligned before on {self.since} are used again"] if self.since else []
        if self.adds and not self.since:
            lines.append(f"{self.new:,} new rows, {self.left:,} gone; the others keep their order and split")
        for file, ids in zip(("data.path", "data.test_path"), self.ids, strict=False):
            lines += _rows_named(file, ids.missing, "without an id", ids.missing_at)
            lines += _rows_named(file, ids.repeated, "with a duplicate id", ids.repeated_at)
            if ids.dropped:
                lines.append(f"{file}: {ids.dropped:,} rows were left out for that")
        if self.absent:
            lines.append(f"{self.absent:,} rows of the run have no row of this party, whose part of them is zero")
        if self.largest_group > 1:
            lines.append(f"up to {self.largest_group:,} rows of the run point to the same row of this party")
        return [*lines, f"warning: {self.warning}"] if self.warning else lines


def _rows_named(file: str, count: int, what: str, examples: Sequence[int]) -> list[str]:
    if not count:
        return []
    more = ", ..." if count > len(examples) else ""
    return [f"{file}: {count:,} rows {what} (data rows {', '.join(map(str, examples))}{more})"]


@dataclass(frozen=True, eq=False)
class SharedRows:
    """Which rows of this party's files the run uses, in the run's order.

    Where rows of the label party point to this party's, one may be there several times, and -1 stands for none.
    """

    train: NDArray[np.int64]
    """Row numbers in the training file."""
    held_out: NDArray[np.int64]
    """Row numbers in the test file, or in the training file where there is none."""
    digest: bytes
    """The same at all parties."""
    key: GroupKey
    """Bound to this run and these rows."""
    report: AlignmentReport
    pair_keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """By other party: what only it and this party know, for the rows of this alignment."""
    has_test_files: bool = False
    """Whether the held-out rows are of test files; told where rows of the label party point to this party's."""
    line: int = 0
    """The class of the slowest line of all parties."""
    begun: bytes = b""
    """Of the run as it was begun: its keys are bound to it."""


def file_rows(rows: NDArray[np.int64], found: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of a file that those found are; -1 stays."""
    return np.where(found < 0, -1, rows[found])


def largest_group(rows: NDArray[np.int64]) -> int:
    """How often the same row of a file is among these, at most."""
    return int(np.bincount(rows[rows >= 0]).max(initial=1))
