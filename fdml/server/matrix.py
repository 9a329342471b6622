"""The prediction matrix."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fdml.data.schedule import Visit
from fdml.exchange.fixed_point import Codes


class PredictionMatrix:
    """The latest local predictions of every party for every block.

    A cell is zero until its party first writes it, so a party that has not
    spoken yet adds nothing to the total.
    """

    def __init__(self, parties: int, blocks: int, rows: int, outputs: int) -> None:
        self._values = np.zeros((parties, rows, outputs), np.int64)
        self._made_at = np.full((parties, blocks), -1, np.int64)

    def write(self, column: int, visit: Visit, step: int, values: Codes) -> None:
        """Set one party's block to what it pushed for a step."""
        self._values[column, visit.start : visit.stop] = values
        self._made_at[column, visit.block] = step

    def read(self, column: int, visit: Visit) -> tuple[int, Codes]:
        """The step for which a party's block was pushed, and its values."""
        return int(self._made_at[column, visit.block]), self._values[column, visit.start : visit.stop]

    def state(self) -> dict[str, NDArray[np.int64]]:
        """As arrays."""
        return {"matrix": self._values, "matrix_made_at": self._made_at}

    def restore(self, arrays: Mapping[str, NDArray[np.int64]]) -> None:
        """Become the matrix that gave these arrays."""
        self._values = arrays["matrix"].copy()
        self._made_at = arrays["matrix_made_at"].copy()

    def column(self, column: int) -> NDArray[np.int64]:
        """All predictions of one party, `(rows, outputs)`; not to be written to."""
        view: NDArray[np.int64] = self._values[column]
        view.flags.writeable = False
        return view
