"""Random bits from a cryptographic generator.

A party draws one secret per run. Every draw is named by its purpose and number
and follows from the secret, so a step that is computed again after a crash
meets the same noise: nothing new is disclosed by a restart.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

_WORD = 8


class RandomBits:
    """One draw's bits, handed out piece by piece: AES-CTR under a key of its own."""

    def __init__(self, key: bytes, number: int) -> None:
        nonce = number.to_bytes(_WORD, "big") + bytes(_WORD)
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor()

    def take(self, count: int) -> bytes:
        """The next bytes."""
        return self._encryptor.update(bytes(count))

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next words of 64 bits."""
        return np.frombuffer(self.take(_WORD * count), "<u8")


@dataclass(frozen=True)
class NoiseKey:
    """The secret that a party's noise follows from."""

    secret: bytes = field(repr=False)

    def bound(self, *facts: bytes) -> NoiseKey:
        """The key for one purpose or context; keys of other facts are unrelated to it, and none tells this one."""
        framed = b"".join(len(fact).to_bytes(8, "big") + fact for fact in facts)
        return NoiseKey(hashlib.blake2b(framed, key=self.secret, digest_size=32, person=b"fdml bound key").digest())

    @property
    def fingerprint(self) -> str:
        """Tells one key from another; the key does not follow from it."""
        return hashlib.blake2b(key=self.secret, digest_size=8, person=b"fdml key name").hexdigest()

    def bits(self, purpose: str, number: int) -> RandomBits:
        """Bits that are the same for the same purpose and number, else unrelated."""
        return RandomBits(hashlib.blake2b(purpose.encode(), key=self.secret, digest_size=32).digest(), number)

    def stream(self, purpose: str, number: int, count: int) -> bytes:
        """The first bytes of `bits`."""
        return self.bits(purpose, number).take(count)
