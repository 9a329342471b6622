"""A party's random choices for one alignment, stored before anything is posted: the same is posted ever after."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509

from fdml.align.offers import make_offer
from fdml.protocol.alignment_identity import alignment_hash
from fdml.protocol.alignment_messages import KeyOffer
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment
from fdml.protocol.certificates import fingerprint
from fdml.protocol.identity import Credentials
from fdml.settings import RunSettings
from fdml.storage.disk import Disk
from fdml.storage.two_slots import TwoSlots

_NAME = "align-secrets"
_BYTES = 32


@dataclass(frozen=True)
class Secrets:
    """What only this party knows."""

    private: bytes = field(repr=False)
    """Of the X25519 key by which the group key is agreed on."""
    offer: KeyOffer
    """Stored as it was signed, as signing again would give other bytes."""
    group_key: bytes = field(repr=False)
    """The group key, if this is the party that draws it."""
    scalar: bytes = field(repr=False)
    """Blinds the points of `ecdh`."""

    def tag_key(self, more: bytes = b"") -> bytes:
        """The key under which this party's ids are known again; it depends on `more`, a further secret."""
        return hashlib.blake2b(more, key=self.private, digest_size=_BYTES, person=b"fdml rows key").digest()

    @property
    def order_key(self) -> bytes:
        """The key of the hashes by whose order points are posted."""
        return hashlib.blake2b(key=self.scalar, digest_size=_BYTES, person=b"fdml point order").digest()

    @staticmethod
    def load_or_make(disk: Disk, run: RunSettings, party: str, credentials: Credentials | None) -> Secrets:
        """The choices of an earlier start, or new ones that are durable on return.

        Of another key of the party, as where it was tried out on plain lines, they are made anew.
        """
        slots = TwoSlots(disk, _NAME)
        facts = _facts(run, party, credentials)
        stored = slots.load()
        known: dict[str, Any] | None = None if stored is None else json.loads(stored)
        if known is None or known["facts"] != facts:
            drawn = _draw(run, party, credentials)
            slots.save(_written(facts, drawn))
            return drawn
        return _read(known)


def _facts(run: RunSettings, party: str, credentials: Credentials | None) -> dict[str, str]:
    """What the choices belong to. A renewed certificate of the same key is the same party."""
    key = "" if credentials is None else fingerprint(x509.load_pem_x509_certificate(credentials.certificate))
    return {"alignment": alignment_hash(run).hex(), "name": party, "key": key}


def _draw(run: RunSettings, party: str, credentials: Credentials | None) -> Secrets:
    private, group_key, scalar = (secrets.token_bytes(_BYTES) for _ in range(3))
    return Secrets(private, make_offer(private, run, party, credentials), group_key, scalar)


def _written(facts: dict[str, str], drawn: Secrets) -> bytes:
    values = {
        "private": drawn.private.hex(),
        "offer": encode_alignment(drawn.offer).hex(),
        "group_key": drawn.group_key.hex(),
        "scalar": drawn.scalar.hex(),
    }
    return json.dumps({"facts": facts, "values": values}).encode()


def _read(known: dict[str, Any]) -> Secrets:
    values = {name: bytes.fromhex(text) for name, text in known["values"].items()}
    offer = decode_alignment(values["offer"])
    if not isinstance(offer, KeyOffer):
        raise TypeError(f"a stored offer is a KeyOffer, not {type(offer).__name__}")
    return Secrets(values["private"], offer, values["group_key"], values["scalar"])
