"""The group key: all parties have it, and the server, over which they agree on it, never does."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fdml.align.conversation import Conversation, fetch, post
from fdml.align.offers import check_offer, pair_secret, transcript
from fdml.align.party_secrets import Secrets
from fdml.errors import AlignmentError, SettingsError
from fdml.protocol.alignment_identity import alignment_hash
from fdml.protocol.alignment_messages import KeyCheck, KeyGrant, KeyOffer
from fdml.protocol.identity import Credentials
from fdml.settings import RunSettings, run_hash

_BYTES = 32
_NONCE_BYTES = 12
_ONCE = bytes(_NONCE_BYTES)
"""The nonce of grants: each is sealed under a key that seals this one secret only."""


@dataclass(frozen=True)
class GroupKey:
    """What the parties share and the server does not know; every use has a purpose and so a key of its own."""

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
                f"the sealed {purpose} of {len(sealed)} bytes cannot be opened with this party's group key; give the "
                f"run a new name at every side"
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


@dataclass(frozen=True)
class Agreement:
    """What all parties have in common after agreeing: the group key, and each other's checked offers."""

    key: GroupKey
    offers: Mapping[str, KeyOffer]
    """Of all parties, in the run's order."""


def agree(
    run: RunSettings,
    party: str,
    secrets: Secrets,
    credentials: Credentials | None,
    key_file: Path | None = None,
    generation: bytes = b"",
) -> Conversation[Agreement]:
    """Exchange offers, agree on the group key or take it from a file, and see that all parties have the same.

    They also see that they mean the same generation of the alignment.
    """
    known = None if key_file is None else read_key_file(key_file)
    own = replace(secrets.offer, brings_key=known is not None)
    yield from post(own)
    offers = {}
    for other in run.parties:
        offers[other] = own if other == party else (yield from _offer_of(run, other, credentials))
    if known is not None:
        key = known
    elif party == run.parties[0]:
        key = yield from _grant(run, party, secrets, offers)
    else:
        key = yield from _receive(run, party, secrets, offers)
    agreement = Agreement(key, offers)
    yield from _compare(run, party, agreement, generation)
    return agreement


def pair_keys(
    run: RunSettings, party: str, secrets: Secrets, agreement: Agreement, alignment: bytes, salt: bytes | None = None
) -> dict[str, bytes]:
    """By other party, a key that the two alone have: for this run, these offers, this group key and this alignment.

    A `salt` takes the run's place where runs share what the keys are for.

    The group key takes part so that on unsigned lines, too, who only passes the offers on knows no pair's key.
    """
    keys = {}
    for other in run.parties:
        if other != party:
            both = transcript(agreement.offers[name] for name in run.parties if name in (party, other))
            keys[other] = pair_secret(
                secrets.private,
                (other, agreement.offers[other].public),
                salt=run_hash(run) if salt is None else salt,
                use=b"fdml pair key 1" + both + alignment,
                more=agreement.key.secret,
            )
    return keys


def _grant(run: RunSettings, party: str, secrets: Secrets, offers: Mapping[str, KeyOffer]) -> Conversation[GroupKey]:
    for other in run.parties[1:]:
        sealing = _sealing_key(run, secrets, offers, giver=party, taker=other, other=other)
        yield from post(KeyGrant(ChaCha20Poly1305(sealing).encrypt(_ONCE, secrets.group_key, party.encode())), to=other)
    return GroupKey(secrets.group_key)


def _receive(run: RunSettings, party: str, secrets: Secrets, offers: Mapping[str, KeyOffer]) -> Conversation[GroupKey]:
    giver = run.parties[0]
    sealing = _sealing_key(run, secrets, offers, giver=giver, taker=party, other=giver)
    grant = yield from fetch(KeyGrant, giver)
    try:
        return GroupKey(ChaCha20Poly1305(sealing).decrypt(_ONCE, grant.sealed, giver.encode()))
    except (InvalidTag, ValueError):
        raise AlignmentError(
            f"the group key that party {giver!r} sealed for {party!r} cannot be opened: it was made for another start "
            f"of it; give the run a new name at every side"
        ) from None


def _offer_of(run: RunSettings, party: str, credentials: Credentials | None) -> Conversation[KeyOffer]:
    offer = yield from fetch(KeyOffer, party)
    if credentials is not None:
        check_offer(offer, run, party, credentials.authority, credentials.revoked())
    return offer


def _sealing_key(
    run: RunSettings, secrets: Secrets, offers: Mapping[str, KeyOffer], *, giver: str, taker: str, other: str
) -> bytes:
    """What giver and taker share; it depends on both offers, so that neither can be swapped."""
    return pair_secret(
        secrets.private,
        (other, offers[other].public),
        salt=alignment_hash(run),
        use=b"fdml key grant 1" + transcript((offers[giver], offers[taker])),
    )


def _compare(run: RunSettings, party: str, agreement: Agreement, generation: bytes) -> Conversation[None]:
    yield from post(KeyCheck(_check_of(agreement, run, party, generation)))
    for other in run.parties:
        if other == party:
            continue
        check = yield from fetch(KeyCheck, other)
        if not hmac.compare_digest(check.digest, _check_of(agreement, run, other, generation)):
            raise AlignmentError(
                f"party {other!r} has another group key than {party!r}, another run.toml or other offers; give both "
                f"the same group_key file or none, then give the run a new name at every side"
            )


def _check_of(agreement: Agreement, run: RunSettings, party: str, generation: bytes) -> bytes:
    """Of the key and of all offers, so that no two parties can be shown different ones."""
    content = (
        alignment_hash(run) + generation + transcript(agreement.offers[name] for name in run.parties) + party.encode()
    )
    return _keyed(agreement.key.derive("check"), content)


def _keyed(key: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_BYTES, key=key).digest()
