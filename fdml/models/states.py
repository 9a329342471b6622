"""Saved states of models: whether one fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from fdml.errors import DataError


def check_shapes(
    state: Mapping[str, NDArray[Any]], needed: Mapping[str, tuple[int | None, ...]], under: str = ""
) -> None:
    """Raise unless a state has all these arrays in these shapes; None is any length.

    `under` stands before the names of arrays in the error.
    """
    for name, shape in needed.items():
        theirs = state[name].shape if name in state else None
        if (
            theirs is None
            or len(theirs) != len(shape)
            or any(want not in (None, has) for want, has in zip(shape, theirs, strict=True))
        ):
            raise DataError(
                f"saved {under + name!r} has shape {theirs}, this model needs {shape}; was it another model?"
            )
