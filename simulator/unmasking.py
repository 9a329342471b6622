"""What is under the masks of a simulated run, for whoever has all keys; and whether any mask hid two values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from fdml.party.alignment import SharedRows
from fdml.party.member import pairwise_masks_of
from fdml.privacy.masks import Masks, Purpose
from fdml.privacy.pairwise_masks import PAIRWISE_ID, PairwiseMasks
from fdml.protocol.alignment_messages import Piece
from fdml.protocol.bit_packing import in_ring
from fdml.protocol.fixed_point import Codes
from fdml.protocol.messages import Release
from simulator.party_invariants import require
from simulator.reference import alignment_of
from simulator.scenarios import Scenario


class Unmasking:
    """Takes masks off, and remembers what each was put on."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._masked: dict[tuple[str, str, int, int, int], Codes] = {}
        """By purpose, party, number, mask_id and piece: what was put under a mask."""

    def bare(self, purpose: Purpose, party: str, number: int, release: Release, piece: Piece | None = None) -> Codes:
        """What is under the mask; no mask may ever hide two different values."""
        values, part = _spread(release.values.reshape(-1), piece)
        if not release.mask_id:
            require(self._scenario.settings.privacy.server == "plain", f"{party} let go of a {purpose} without a mask")
            return values[part]
        at = 0 if piece is None else piece.number
        before = self._masked.setdefault((purpose, party, number, release.mask_id, at), values)
        require(np.array_equal(before, values), f"{party} used the mask of {purpose} {number} for two values")
        if release.mask_id == PAIRWISE_ID:
            bare = self._pairwise[party].remove_own(purpose, number, release.mask_id, values)
        else:
            bare = self._masks.remove_one(purpose, party, number, release.mask_id, values)
        return in_ring(bare, release.bits) if release.bits else bare[part]

    def opened(
        self,
        purpose: Purpose,
        numbers: Sequence[int],
        mask_ids: Sequence[int],
        found: Codes,
        piece: Piece | None = None,
    ) -> Codes:
        """A sum without masks, as any party has it."""
        settings, (values, part) = self._scenario.settings, _spread(found, piece)
        if settings.has_pairwise_masks:
            return self._pairwise[settings.parties[-1]].remove(purpose, numbers, mask_ids, values)[part]
        return self._masks.remove(purpose, numbers, mask_ids, values)[part]

    @cached_property
    def _pairwise(self) -> dict[str, PairwiseMasks]:
        """Every party's masks that cancel."""
        settings = self._scenario.settings
        return {party: pairwise_masks_of(settings, party, shared) for party, shared in self._aligned.items()}

    @cached_property
    def _masks(self) -> Masks:
        """Those under the group key, of whatever party and start."""
        first = self._scenario.settings.parties[0]
        return self._scenario.masks(self._aligned[first].key, first, 0)

    @cached_property
    def _aligned(self) -> dict[str, SharedRows]:
        """With the keys that every party has."""
        return alignment_of(self._scenario)


def _spread(values: Codes, piece: Piece | None) -> tuple[Codes, slice]:
    """The values of a piece at their place among all, which are masked together, and that place."""
    if piece is None:
        return values, slice(None)
    rows = piece.test
    width = len(values) // (rows.stop - rows.start)
    part = slice(rows.start * width, rows.stop * width)
    spread = np.zeros((piece.rows.test or 0) * width, values.dtype)
    spread[part] = values
    return spread, part
