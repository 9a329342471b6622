"""Predictions as whole numbers, so that sums are exact and independent of their order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FRACTION_BITS = 32
LARGEST = 2.0**20
"""The largest prediction that may travel: 2**11 parties can be summed without overflow."""
LARGEST_CODE = int(LARGEST) << FRACTION_BITS

Codes = NDArray[np.int64]


def encode(values: NDArray[np.floating[Any]]) -> Codes:
    """Round to the grid of 2**-32. The caller has checked that all are numbers within `LARGEST`."""
    codes: Codes = np.rint(np.multiply(values, 2.0**FRACTION_BITS, dtype=np.float64)).astype(np.int64)
    return codes


def decode(codes: Codes) -> NDArray[np.float64]:
    """Back to floats; exact for codes of up to 53 bits."""
    return np.multiply(codes, 2.0**-FRACTION_BITS, dtype=np.float64)
