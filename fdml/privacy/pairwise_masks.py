"""Masks of pairs of parties: they cancel in the sum, so that no party can take off another one's mask.

Party j adds the pair's values for every party after it in the run's order and
takes them off for every party before it. In the sum of all parties each pair's
values are there once with either sign. So who has the keys of a party's pairs
with some others, but not with all, learns of what it pushed nothing but sums.

The server would learn the sum itself: so the first party adds a mask of the
total, under the group key, which every party takes off.

A pair's values of a purpose and number must hide one value only. They depend on
no start of a party, so what left under them has to be stored before it leaves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

from fdml.errors import AlignmentError, MessageRefused, Refusal
from fdml.privacy.masks import Keystream, Purpose
from fdml.protocol.fixed_point import Codes

PAIRWISE_ID = 2**64 - 1
"""The mask id of a release under pairwise masks; no start of a party draws it for masks of its own."""


class PairwiseMasks:
    """One party's masks with every other party of the run. They only cancel where all parts are of one number."""

    mask_id = PAIRWISE_ID

    def __init__(self, parties: Sequence[str], party: str, *, pair_keys: Mapping[str, bytes], total_key: bytes) -> None:
        """`pair_keys` are this party's with each other party, `total_key` is that of the mask of the total."""
        missing = [other for other in parties if other != party and other not in pair_keys]
        if missing:
            raise AlignmentError(
                f"party {party!r} has no key that it shares with {missing[0]!r} alone: its rows were aligned by an "
                f"older fdml; give the run a new name at every side"
            )
        self._parties = tuple(parties)
        self._place = self._parties.index(party)
        self._secrets = dict(pair_keys)
        self._total_key = total_key
        self._stream = lru_cache(maxsize=4 * len(parties))(self._new_stream)

    def add(self, purpose: Purpose, number: int, codes: Codes) -> Codes:
        """Codes under this party's masks of a step or epoch; each number may take one value only, ever."""
        return codes + self._mask(purpose, number, codes)

    def remove(self, purpose: Purpose, numbers: Sequence[int], mask_ids: Sequence[int], codes: Codes) -> Codes:
        """A sum of all parties' parts of one number, without the mask of the total; the others have cancelled."""
        count = len(self._parties)
        if tuple(mask_ids) != (PAIRWISE_ID,) * count or len(numbers) != count or len(set(numbers)) != 1:
            raise MessageRefused(
                f"a sum of {len(numbers)} parts of {len(set(numbers))} steps, under {len(mask_ids)} masks: masks of "
                f"pairs cancel only in a sum of all {count} parties' parts of one step; all sides need the same "
                f"run.toml",
                Refusal.INVALID,
            )
        return codes - self._stream(purpose, "").values(numbers[0], codes)

    def remove_own(self, purpose: Purpose, number: int, mask_id: int, codes: Codes) -> Codes:
        """What this party masked, without its masks."""
        if mask_id != PAIRWISE_ID:
            raise MessageRefused(
                "a stored release is under another kind of mask; give the run a new name at every side", Refusal.INVALID
            )
        return codes - self._mask(purpose, number, codes)

    def _mask(self, purpose: Purpose, number: int, like: Codes) -> Codes:
        """The sum of all masks that this party puts on."""
        mask = self._stream(purpose, "").values(number, like).copy() if self._place == 0 else like * 0
        for place, other in enumerate(self._parties):
            if place > self._place:
                mask += self._stream(purpose, other).values(number, like)
            elif place < self._place:
                mask -= self._stream(purpose, other).values(number, like)
        return mask

    def _new_stream(self, purpose: Purpose, other: str) -> Keystream:
        """Of the pair with another party; of the total where none is named."""
        secret = self._secrets[other] if other else self._total_key
        return Keystream(
            hashlib.blake2b(purpose.encode(), key=secret, digest_size=32, person=b"fdml pair mask").digest()
        )
