"""The keys of prediction: tokens of ids, seals of questions and answers, masks of pairs of parties.

They follow from the keys of the run and its version, and nothing of the alignment or of training follows from them: an
id's token is another one here.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fdml.align.group_key import GroupKey
from fdml.data.id_hashes import HashIds, hash_ids
from fdml.errors import MessageRefused, Refusal
from fdml.privacy.masks import Keystream
from fdml.protocol.alignment_messages import TOKEN_BYTES, Keys
from fdml.protocol.fixed_point import Codes
from fdml.protocol.prediction_messages import DIGEST_BYTES
from fdml.serving.reasons import SEALED_OTHERWISE

_NONCE_BYTES = 12


@dataclass(frozen=True)
class ServingKeys:
    """One party's keys for one version."""

    party: str
    tokens: bytes = field(repr=False)
    """All parties have it; the server never does."""
    pairs: Mapping[str, bytes] = field(repr=False)
    """By other party: what only it and this party have."""

    @classmethod
    def of(cls, party: str, version: str, group: GroupKey, pairs: Mapping[str, bytes]) -> ServingKeys:
        """From the keys of a run's alignment."""
        content = version.encode()
        derived = {
            other: hashlib.blake2b(content, key=key, digest_size=32, person=b"fdml serve pair").digest()
            for other, key in pairs.items()
        }
        return cls(party, group.derive(f"serving of {version}"), derived)

    def tokens_of(self, texts: Any, hashed: HashIds = hash_ids) -> Keys:
        """The token of each id, a pyarrow large_string array; a missing id has one that no row has."""
        return hashed(pc.fill_null(texts, ""), self.tokens, TOKEN_BYTES)

    def seal(self, other: str, what: str, number: bytes, plain: bytes) -> bytes:
        """Encrypt for one other party; `what` and the question's number are part of it."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher(other).encrypt(nonce, plain, _context(what, number, self.party, other))

    def open(self, other: str, what: str, number: bytes, sealed: bytes) -> bytes:
        """What another party has sealed for this one, or `MessageRefused`."""
        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher(other).decrypt(nonce, rest, _context(what, number, other, self.party))
        except (InvalidTag, ValueError):
            raise MessageRefused(
                f"a sealed {what} of {other} cannot be opened by {self.party}: it is {SEALED_OTHERWISE}, or was "
                f"changed on its way",
                Refusal.INVALID,
            ) from None

    def digest(self, other: str, number: bytes, tokens: Keys) -> bytes:
        """Of the rows that the other of this pair is asked for, or was asked for by it; nobody else can try out rows.

        All parties that are asked see it, and keys of another grain, as an hour, are few.
        """
        digest = hashlib.blake2b(number, key=self._pair(other), digest_size=DIGEST_BYTES, person=b"fdml serve rows")
        digest.update(np.ascontiguousarray(tokens).tobytes())
        return digest.digest()

    def mask(
        self, parties: Sequence[str], question: bytes, codes: Codes, *, alike: Sequence[str] = (), rows: bytes = b""
    ) -> Codes:
        """This party's codes under its masks with all other `parties` that answer this question.

        In the sum of all of them the masks cancel. A question's hash covers all that is asked, so two that differ in
        anything have unrelated masks. With those that are `alike`, and must be asked for the same `rows` as this party,
        masks follow from these, too: so parts of different rows do not add up.
        """
        masked, before = codes.copy(), True
        for other in parties:
            if other == self.party:
                before = False
                continue
            content = question + rows if other in alike else question
            key = hashlib.blake2b(content, key=self._pair(other), digest_size=32, person=b"fdml serve mask").digest()
            values = Keystream(key).values(0, codes)
            masked = masked - values if before else masked + values
        return masked

    def _cipher(self, other: str) -> ChaCha20Poly1305:
        key = hashlib.blake2b(key=self._pair(other), digest_size=32, person=b"fdml serve seal").digest()
        return ChaCha20Poly1305(key)

    def _pair(self, other: str) -> bytes:
        pair = self.pairs.get(other)
        if pair is None:
            raise MessageRefused(f"party {self.party!r} has no key with {other!r}", Refusal.NOT_PERMITTED)
        return pair


def tokens_digest(tokens: Keys) -> bytes:
    """Of the rows that a party is asked for, in their order. It stays at the party: whoever has the key can try out
    ids."""
    return hashlib.blake2b(np.ascontiguousarray(tokens).tobytes(), digest_size=DIGEST_BYTES).digest()


def question_digest(asker: str, number: bytes, parties: Sequence[str], digests: Sequence[bytes]) -> bytes:
    """Of all that is asked, which every party that is asked can compute."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES, person=b"fdml question")
    for part in (asker.encode(), number, *(name.encode() for name in parties), *digests):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _context(what: str, number: bytes, sender: str, receiver: str) -> bytes:
    return b"\0".join([what.encode(), sender.encode(), receiver.encode(), number])
