"""Noise from a cryptographic generator.

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
_HALF_STEP = 2.0**-53
"""Keeps uniform numbers off 0, where the logarithm ends."""


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

    def stream(self, purpose: str, number: int, count: int) -> bytes:
        """So many bytes; the same for the same purpose and number, else unrelated."""
        key = hashlib.blake2b(purpose.encode(), key=self.secret, digest_size=32).digest()
        nonce = number.to_bytes(_WORD, "big") + bytes(_WORD)
        encryptor = Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor()
        return encryptor.update(bytes(count))

    def uniforms(self, purpose: str, number: int, count: int) -> NDArray[np.float64]:
        """Numbers strictly between 0 and 1, with 52 random bits each."""
        words = np.frombuffer(self.stream(purpose, number, _WORD * count), "<u8")
        numbers: NDArray[np.float64] = (words >> np.uint64(12)).astype(np.float64)
        return numbers * 2.0**-52 + _HALF_STEP

    def normals(self, purpose: str, number: int, count: int) -> NDArray[np.float64]:
        """Standard normal numbers (Box and Muller): two uniforms shape each, so none is coarse in the tails."""
        pairs = -(-count // 2)
        both = self.uniforms(purpose, number, 2 * pairs)
        radius, angle = np.sqrt(-2.0 * np.log(both[:pairs])), 2.0 * np.pi * both[pairs:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
