"""The ids of a scenario's parties."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


def draw_ids(random: Random, parties: Sequence[str], shared: int, *, extra: int) -> dict[str, tuple[str, ...]]:
    """The shared rows of all parties, with up to `extra` more at each, which are then in an order of their own."""
    drawn = {}
    for party in parties:
        ids = [f"row {number}" for number in range(shared)]
        if extra:
            ids += [f"row {number} of {party}" for number in range(random.randint(0, extra))]
            random.shuffle(ids)
        drawn[party] = tuple(ids)
    return drawn
