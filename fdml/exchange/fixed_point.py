"""Predictions as whole numbers, so that sums are exact and independent of their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Bits = Literal[64, 32, 16]
Codes = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class Grid:
    """The numbers that predictions are rounded to: steps of 2**-fraction_bits, stored in so many bits."""

    bits: Bits
    fraction_bits: int
    saturates: bool = False
    """Whether larger predictions are cut to the largest that fits; else they are an error."""

    @property
    def dtype(self) -> np.dtype[np.signedinteger[Any]]:
        """The type of its codes."""
        return np.dtype(f"int{self.bits}")

    def largest_code(self, parties: int) -> int:
        """Of one of so many parties, so that their sum still fits. In 64 bits there is room for 2**11 of them."""
        return 2**52 if self.bits == 64 else (2 ** (self.bits - 1) - 1) // parties

    def largest(self, parties: int) -> float:
        """The largest prediction that may travel."""
        return self.largest_code(parties) * 2.0**-self.fraction_bits


WIDE = Grid(64, 32)
GRIDS: dict[Bits, Grid] = {64: WIDE, 32: Grid(32, 20), 16: Grid(16, 9, saturates=True)}
_STEP = {grid.dtype: 2.0**-grid.fraction_bits for grid in GRIDS.values()}
LARGEST = WIDE.largest(1)
LARGEST_CODE = WIDE.largest_code(1)


def encode(values: NDArray[np.floating[Any]], grid: Grid = WIDE) -> Codes:
    """Round to the grid. The caller has checked that all are numbers within the largest."""
    scaled = np.multiply(values, 2.0**grid.fraction_bits, dtype=np.float64 if grid.bits > 16 else np.float32)
    codes: Codes = np.rint(scaled, out=scaled).astype(grid.dtype)
    return codes


def decode(codes: Codes) -> NDArray[np.float64]:
    """Back to floats; exact for codes of up to 53 bits. The grid is known from the type of the codes."""
    return np.multiply(codes, _STEP[codes.dtype], dtype=np.float64)
