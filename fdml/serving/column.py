"""A party's column: its local predictions of all its rows as they may leave, found by the tokens of the rows' ids.

It is a folder of mapped arrays: 8 bytes a row and output, and 16 of the token. A column is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fdml.errors import StateCorrupt
from fdml.protocol.alignment_messages import Keys
from fdml.protocol.fixed_point import Codes
from fdml.protocol.key_sets import ascending, words
from fdml.storage.atomic import new_file

_ARRAYS = ("high", "low", "codes", "exact")


class Difference(NamedTuple):
    """What is other in a column than in the one before."""

    changed: bool
    """Whether a row of both has another value."""
    came: bool
    """Whether it has rows that were not there."""
    left: bool
    """Whether it lacks rows that were."""


@dataclass(frozen=True, eq=False)
class Column:
    """Rows in the order of their tokens."""

    high: NDArray[np.uint64]
    """The first half of each token, ascending."""
    low: NDArray[np.uint64]
    codes: Codes
    """What may leave, int64 `(rows, width)`."""
    exact: Codes
    """The same without noise: whether a row has changed is seen here."""

    @classmethod
    def of(cls, tokens: Keys, codes: Codes, exact: Codes) -> Column:
        """From rows in any order; of two rows with the same token the first counts."""
        order = ascending(tokens)
        columns = words(tokens)[order]
        first = np.ones(len(order), bool)
        first[1:] = (columns[1:] != columns[:-1]).any(axis=1)
        order, columns = order[first], columns[first]
        return cls(np.ascontiguousarray(columns[:, 0]), np.ascontiguousarray(columns[:, 1]), codes[order], exact[order])

    @property
    def width(self) -> int:
        """Outputs of a row."""
        return int(self.codes.shape[1])

    def __len__(self) -> int:
        return len(self.high)

    def find(self, tokens: Keys) -> NDArray[np.int64]:
        """The row of each token; -1 where there is none."""
        wanted = words(tokens)
        return self._find(wanted[:, 0], wanted[:, 1])

    def _find(self, high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.int64]:
        places = np.searchsorted(self.high, high).astype(np.int64)
        while True:
            inside = np.minimum(places, len(self) - 1)
            alike = (places < len(self)) & (self.high[inside] == high) if len(self) else np.zeros(len(high), bool)
            wrong = alike & (self.low[inside] != low)
            if not wrong.any():
                return np.where(alike, places, -1)
            places[wrong] += 1  # tokens are hashes, so two that begin alike never come; but it must not rely on that

    def after(self, before: Column) -> tuple[Column, Difference]:
        """This column with the codes of an earlier one where a row has not changed, and what is other than there.

        So a value that leaves again is the same, noise included. A row that has gone has other noise when it is back.
        """
        places = before._find(self.high, self.low)
        known = places >= 0
        same = known.copy()
        same[known] = (before.exact[places[known]] == self.exact[known]).all(axis=1)
        codes = self.codes.copy()
        codes[same] = before.codes[places[same]]
        kept = int(known.sum())
        difference = Difference(bool((known & ~same).any()), kept < len(self), kept < len(before))
        return Column(self.high, self.low, codes, self.exact), difference

    def save(self, folder: Path) -> None:
        """Write the arrays into a folder that is being made."""
        for name in _ARRAYS:
            with new_file(folder / f"{name}.npy") as file:
                npy.write_array(file, np.ascontiguousarray(getattr(self, name)), allow_pickle=False)

    @classmethod
    def load(cls, folder: Path) -> Column:
        """Map the arrays of a folder."""
        try:
            arrays: Mapping[str, Any] = {
                name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in _ARRAYS
            }
        except (OSError, ValueError) as error:
            raise StateCorrupt(
                f"the column of predictions in {str(folder)!r} is damaged ({error}); remove the folder, then `fdml up` "
                f"makes it again"
            ) from None
        if len({len(array) for array in arrays.values()}) != 1 or arrays["codes"].shape != arrays["exact"].shape:
            raise StateCorrupt(f"the arrays in {str(folder)!r} do not fit together; remove the folder")
        return cls(**arrays)
