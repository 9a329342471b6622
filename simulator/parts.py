"""What a server should have of every party: its last push of a block, or all its differences added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fdml.protocol.fixed_point import Codes
from fdml.protocol.messages import Push, Release
from fdml.protocol.schedule import Visit
from simulator.party_invariants import require


class PushedParts:
    """The pushes of a run without their masks, `codes`, and how many steps of the grid each of their numbers is."""

    def __init__(self, visits: Sequence[Visit], codes: Mapping[tuple[str, int], Codes]) -> None:
        self._visits = visits
        self._codes = codes
        self._kinds: dict[tuple[str, int], tuple[int, int]] = {}
        """Bits and scale of each; bits are 0 where it is whole."""

    def add(self, party: str, push: Push) -> None:
        """A party pushes, for the first time or again."""
        kind = push.release.bits, push.release.scale
        before = self._kinds.setdefault((party, push.step), kind)
        require(before == kind, f"{party} let go of two different values: bits or scale of step {push.step}")

    def of(self, party: str, step: int) -> NDArray[np.int64]:
        """The party's part of a total that is whole."""
        if step < 0:
            return np.zeros(1, np.int64)
        codes, (bits, scale) = self._codes[party, step].astype(np.int64), self._kinds[party, step]
        if not bits:
            return codes
        block = self._visits[step].block
        before = next((at for at in range(step - 1, -1, -1) if self._visits[at].block == block), -1)
        return self.of(party, before) + (codes << scale)

    def with_bits(self, party: str, step: int, release: Release) -> Release:
        """A release of the matrix with the bits that it was pushed with."""
        return replace(release, bits=self._kinds[party, step][0])

    def in_matrix(self, party: str, step: int, release: Release) -> NDArray[np.int64]:
        """What the matrix should have of the party: under masks nothing can be added up."""
        return self._codes[party, step].astype(np.int64) if release.mask_id else self.of(party, step)
