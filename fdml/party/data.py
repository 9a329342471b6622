"""The seam between a party's session and the rows it owns, wherever they are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fdml.align.sealed_labels import LabelSet
from fdml.data.label_encoding import LabelEncoding
from fdml.data.rows import NO_NATIVE, NativeFeatures, Rows
from fdml.party.alignment import RowIds, SharedRows


@dataclass(frozen=True)
class PartyRows:
    """A party's features in the run's order."""

    train: Rows
    held_out: Rows | None
    """None where there is nothing to evaluate on."""
    native: NativeFeatures = NO_NATIVE
    """Which features are as trees want them."""


class PartyData(Protocol):
    """One party's rows: files, a frame, or arrays in memory."""

    def row_ids(self) -> RowIds:
        """The ids to align by."""
        ...

    def rows(self, shared: SharedRows) -> PartyRows:
        """The features of the shared rows."""
        ...

    def labels(self, shared: SharedRows) -> tuple[LabelSet, LabelEncoding | None]:
        """The labels and weights of the shared rows as training uses them, and how they were encoded.

        Only the label party is asked. The encoding is None where the labels came encoded.
        """
        ...

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights of their own."""
        ...
