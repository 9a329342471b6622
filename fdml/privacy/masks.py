"""Masks under the group key: what one party puts on, any party can take off, and nobody else.

A mask is a stream of AES-CTR under a key of the group, the party, its start
(the mask_id) and the purpose, with the step as the nonce. It is added in the ring
of the values' type, so masks of several parties add up as the values do.
Predictions at staleness 0 are under `fdml.privacy.pairwise_masks` instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.fixed_point import Codes

Purpose = Literal["push", "held-out", "gradient"]
_NONCE_HALF = 8
_MASK_ID_BYTES = 8


class Keystream:
    """Pseudo-random values of AES-CTR under one key: a run of them for every number."""

    def __init__(self, key: bytes) -> None:
        self._context = Cipher(algorithms.AES(key), modes.CTR(bytes(2 * _NONCE_HALF))).encryptor()
        self._zeros = b""

    def values(self, number: int, like: Codes) -> Codes:
        """Of the same shape and type, so that adding them wraps around as the type does."""
        self._context.reset_nonce(number.to_bytes(_NONCE_HALF, "big") + bytes(_NONCE_HALF))
        if len(self._zeros) != like.nbytes:
            self._zeros = bytes(like.nbytes)
        stream = np.frombuffer(self._context.update(self._zeros), like.dtype.newbyteorder("<"))
        return stream.astype(like.dtype, copy=False).reshape(like.shape)


class PredictionMasks(Protocol):
    """What hides a party's predictions from a blind server."""

    mask_id: int
    """What a release says of its mask; never 0."""

    def add(self, purpose: Purpose, number: int, codes: Codes) -> Codes:
        """Codes under this party's mask of a step or epoch."""
        ...

    def remove(self, purpose: Purpose, numbers: Sequence[int], mask_ids: Sequence[int], codes: Codes) -> Codes:
        """A sum of all parties' codes without masks."""
        ...

    def remove_own(self, purpose: Purpose, number: int, mask_id: int, codes: Codes) -> Codes:
        """What this party masked, without its mask."""
        ...


class Masks:
    """The masks of a run; `mask_id` names this party's start, under which it adds its own."""

    def __init__(self, secret: bytes, parties: Sequence[str], party: str, mask_id: int) -> None:
        self._secret = secret
        self._parties = tuple(parties)
        self._party = party
        self.mask_id = mask_id
        self._stream = lru_cache(maxsize=4 * len(parties))(self._new_stream)

    def add(self, purpose: Purpose, number: int, codes: Codes) -> Codes:
        """Codes under this party's mask of a step or epoch; each number takes one value only in a start."""
        return codes + self._mask(purpose, self._party, self.mask_id, number, codes)

    def remove(self, purpose: Purpose, numbers: Sequence[int], mask_ids: Sequence[int], codes: Codes) -> Codes:
        """A sum without the masks of its parts, which were made at these numbers; one below 0 never came."""
        if len(mask_ids) != len(self._parties) or len(numbers) != len(self._parties):
            raise MessageRefused(
                f"a sum under {len(mask_ids)} masks of {len(self._parties)} parties; all sides need the same run.toml",
                Refusal.INVALID,
            )
        plain = codes.copy()
        for party, number, mask_id in zip(self._parties, numbers, mask_ids, strict=True):
            if number >= 0:
                plain -= self._mask(purpose, party, mask_id, number, codes)
        return plain

    def remove_one(self, purpose: Purpose, party: str, number: int, mask_id: int, codes: Codes) -> Codes:
        """One party's values without its mask."""
        return codes - self._mask(purpose, party, mask_id, number, codes)

    def remove_own(self, purpose: Purpose, number: int, mask_id: int, codes: Codes) -> Codes:
        """What this party masked in the start of this id, without its mask."""
        return self.remove_one(purpose, self._party, number, mask_id, codes)

    def _mask(self, purpose: Purpose, party: str, mask_id: int, number: int, like: Codes) -> Codes:
        """The mask that a party put on in one of its starts."""
        return self._stream(purpose, party, mask_id).values(number, like)

    def _new_stream(self, purpose: Purpose, party: str, mask_id: int) -> Keystream:
        message = f"{purpose} {party}".encode() + mask_id.to_bytes(_MASK_ID_BYTES, "big")
        key = hashlib.blake2b(message, key=self._secret, digest_size=32, person=b"fdml mask").digest()
        return Keystream(key)
