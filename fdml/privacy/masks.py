"""Masks against the server: what one party puts on, any party can take off, and nobody else.

A mask is a stream of AES-CTR under a key of the group, the party, its start
(the stamp) and the purpose, with the step as the nonce. It is added in the ring
of the values' type, so masks of several parties add up as the values do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from fdml.errors import MessageRefused, Refusal
from fdml.exchange.fixed_point import Codes

Purpose = Literal["push", "trial", "gradient"]
_NONCE_HALF = 8
_STAMP_BYTES = 8


class Masks:
    """The masks of a run; `stamp` is this party's start, under which it puts on its own."""

    def __init__(self, secret: bytes, parties: Sequence[str], party: str, stamp: int) -> None:
        self._secret = secret
        self._parties = tuple(parties)
        self._party = party
        self.stamp = stamp
        self._stream = lru_cache(maxsize=4 * len(parties))(self._new_stream)

    def put_on(self, purpose: Purpose, number: int, codes: Codes) -> Codes:
        """Codes under this party's mask of a step or epoch; each number takes one value only in a start."""
        return codes + self._mask(purpose, self._party, self.stamp, number, codes)

    def take_off(self, purpose: Purpose, numbers: Sequence[int], stamps: Sequence[int], codes: Codes) -> Codes:
        """A sum without the masks of its parts, which were made at these numbers; one below 0 never came."""
        if len(stamps) != len(self._parties) or len(numbers) != len(self._parties):
            raise MessageRefused(
                f"a sum under {len(stamps)} masks of {len(self._parties)} parties; all sides need the same run.toml",
                Refusal.INVALID,
            )
        plain = codes.copy()
        for party, number, stamp in zip(self._parties, numbers, stamps, strict=True):
            if number >= 0:
                plain -= self._mask(purpose, party, stamp, number, codes)
        return plain

    def take_off_one(self, purpose: Purpose, party: str, number: int, stamp: int, codes: Codes) -> Codes:
        """One party's values without its mask."""
        return codes - self._mask(purpose, party, stamp, number, codes)

    def take_off_own(self, purpose: Purpose, number: int, stamp: int, codes: Codes) -> Codes:
        """What this party put on in the start of that stamp."""
        return self.take_off_one(purpose, self._party, number, stamp, codes)

    def _mask(self, purpose: Purpose, party: str, stamp: int, number: int, like: Codes) -> Codes:
        """A mask of the same shape and type, so that adding it wraps around as the type does."""
        stream = self._stream(purpose, party, stamp)
        stream.reset_nonce(number.to_bytes(_NONCE_HALF, "big") + bytes(_NONCE_HALF))
        mask = np.frombuffer(stream.update(bytes(like.nbytes)), like.dtype.newbyteorder("<"))
        return mask.astype(like.dtype, copy=False).reshape(like.shape)

    def _new_stream(self, purpose: Purpose, party: str, stamp: int) -> CipherContext:
        told = f"{purpose} {party}".encode() + stamp.to_bytes(_STAMP_BYTES, "big")
        key = hashlib.blake2b(told, key=self._secret, digest_size=32, person=b"fdml mask").digest()
        return Cipher(algorithms.AES(key), modes.CTR(bytes(2 * _NONCE_HALF))).encryptor()
