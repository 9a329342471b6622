"""Random numbers for starting parameters."""

from __future__ import annotations

import numpy as np

from fdml.protocol.shuffle import stream


def generator(*key: int | str) -> np.random.Generator:
    """A generator whose stream depends on the key alone."""
    return np.random.Generator(np.random.Philox(stream(*key)))
