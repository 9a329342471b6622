"""The group key: all parties have it, and the server, over which they agree on it, never does."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fdml.align.conversation import Conversation, fetch, post
from fdml.align.offers import check_offer
from fdml.align.party_secrets import Secrets
from fdml.errors import AlignmentError, SettingsError
from fdml.protocol.alignment_messages import KeyCheck, KeyGrant, KeyOffer
from fdml.protocol.alignment_wire import encode_alignment
from fdml.protocol.identity import Credentials
from fdml.settings import RunSettings, run_hash

_BYTES = 32
_NONCE_BYTES = 12
_ONCE = bytes(_NONCE_BYTES)
"""The nonce of grants: each is sealed under a key that seals this one secret only."""


@dataclass(frozen=True)
class GroupKey:
    """What the parties of a run share and the server does not know; every use has a purpose and so a key of its own."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != _BYTES:
            raise AlignmentError(f"a group key of {len(self.secret)} bytes; it has {_BYTES}")

    def bound_to(self, run: bytes, rows: bytes) -> GroupKey:
        """The key of one run over one alignment, by their hashes: nothing sealed or masked under it fits another."""
        return GroupKey(_keyed(self.secret, b"bound to" + run + rows))

    def derive(self, purpose: str) -> bytes:
        """32 bytes for one purpose, from which neither the key nor those of another purpose follow."""
        return _keyed(self.secret, f"derive {purpose}".encode())

    def seal(self, purpose: str, plaintext: bytes) -> bytes:
        """Encrypt for whoever has the key. Equal plaintexts give equal bytes, so that they may be sent again."""
        nonce = _keyed(self.derive(f"nonce {purpose}"), plaintext)[:_NONCE_BYTES]
        return nonce + ChaCha20Poly1305(self.derive(f"seal {purpose}")).encrypt(nonce, plaintext, purpose.encode())

    def open(self, purpose: str, sealed: bytes) -> bytes:
        """Decrypt what was sealed with this key for this purpose, or raise `AlignmentError`."""
        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return ChaCha20Poly1305(self.derive(f"seal {purpose}")).decrypt(nonce, rest, purpose.encode())
        except (InvalidTag, ValueError):
            raise AlignmentError(
                f"the sealed {purpose} of {len(sealed)} bytes cannot be opened with this party's group key; run "
                f"`fdml align --fresh` at every party"
            ) from None


def read_key_file(path: Path) -> GroupKey:
    """A group key that the parties gave each other by another way: 64 hexadecimal digits, for its owner only."""
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise SettingsError(f"there is no group_key file {str(path)!r}; write 64 hexadecimal digits into it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the group_key file {str(path)!r} cannot be read: {error}") from None
    if mode & 0o077:
        raise SettingsError(f"the group_key file {str(path)!r} can be read by others; run `chmod 600 {path}`")
    digits = set("0123456789abcdefABCDEF")
    if len(text) != 2 * _BYTES or not digits.issuperset(text):
        raise SettingsError(
            f"the group_key file {str(path)!r} holds {len(text)} characters that are no key; it needs "
            f"{2 * _BYTES} hexadecimal digits, the same at every party (`openssl rand -hex {_BYTES}` draws some)"
        )
    return GroupKey(bytes.fromhex(text))


def agree(
    run: RunSettings,
    party: str,
    secrets: Secrets,
    credentials: Credentials | None,
    key_file: Path | None = None,
) -> Conversation[GroupKey]:
    """Agree with all parties on the group key, or take it from a file; then see that all have the same."""
    if key_file is not None:
        key = read_key_file(key_file)
    elif party == run.parties[0]:
        key = yield from _grant(run, party, secrets, credentials)
    else:
        key = yield from _receive(run, party, secrets, credentials)
    yield from _compare(run, party, key)
    return key


def _grant(run: RunSettings, party: str, secrets: Secrets, credentials: Credentials | None) -> Conversation[GroupKey]:
    yield from post(secrets.offer)
    for other in run.parties[1:]:
        theirs = yield from _offer_of(run, other, credentials)
        sealing = _pair_key(run, secrets.private, theirs.public, other, (secrets.offer, theirs))
        yield from post(KeyGrant(ChaCha20Poly1305(sealing).encrypt(_ONCE, secrets.group_key, party.encode())), to=other)
    return GroupKey(secrets.group_key)


def _receive(run: RunSettings, party: str, secrets: Secrets, credentials: Credentials | None) -> Conversation[GroupKey]:
    yield from post(secrets.offer)
    giver = run.parties[0]
    theirs = yield from _offer_of(run, giver, credentials)
    sealing = _pair_key(run, secrets.private, theirs.public, giver, (theirs, secrets.offer))
    grant = yield from fetch(KeyGrant, giver)
    try:
        return GroupKey(ChaCha20Poly1305(sealing).decrypt(_ONCE, grant.sealed, giver.encode()))
    except (InvalidTag, ValueError):
        raise AlignmentError(
            f"the group key that party {giver!r} sealed for {party!r} cannot be opened: it was made for another start "
            f"of it; start over with `fdml align --fresh` at every party and a server started with --fresh"
        ) from None


def _offer_of(run: RunSettings, party: str, credentials: Credentials | None) -> Conversation[KeyOffer]:
    offer = yield from fetch(KeyOffer, party)
    if credentials is not None:
        check_offer(offer, run, party, credentials.authority)
    return offer


def _pair_key(run: RunSettings, private: bytes, public: bytes, other: str, offers: tuple[KeyOffer, KeyOffer]) -> bytes:
    """What two parties share; it depends on both offers, the giver's first, so that neither can be swapped."""
    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise AlignmentError(f"party {other!r} offers a public key that is none; ask that party") from None
    transcript = b"".join(hashlib.sha256(encode_alignment(offer)).digest() for offer in offers)
    return HKDF(hashes.SHA256(), _BYTES, run_hash(run), b"fdml key grant 1" + transcript).derive(shared)


def _compare(run: RunSettings, party: str, key: GroupKey) -> Conversation[None]:
    yield from post(KeyCheck(_check_of(key, run, party)))
    for other in run.parties:
        if other == party:
            continue
        check = yield from fetch(KeyCheck, other)
        if not hmac.compare_digest(check.digest, _check_of(key, run, other)):
            raise AlignmentError(
                f"party {other!r} has another group key than {party!r}, or another run.toml; give both the same "
                f"group_key file or none, then start over with --fresh at every side"
            )


def _check_of(key: GroupKey, run: RunSettings, party: str) -> bytes:
    return _keyed(key.derive("check"), run_hash(run) + party.encode())


def _keyed(key: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_BYTES, key=key).digest()
