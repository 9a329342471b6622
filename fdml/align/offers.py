"""Public keys that parties offer each other over a server they do not trust with it: signed, and checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fdml.errors import AlignmentError, SettingsError
from fdml.protocol.alignment_identity import alignment_hash
from fdml.protocol.alignment_messages import KeyOffer
from fdml.protocol.alignment_wire import encode_alignment
from fdml.protocol.certificates import identities, utc_now, why_refused
from fdml.protocol.identity import Credentials, Identity
from fdml.settings import RunSettings

_PURPOSE = b"fdml key offer 1"
_BYTES = 32


def make_offer(private: bytes, run: RunSettings, party: str, credentials: Credentials | None) -> KeyOffer:
    """The public half of a key, signed for this alignment and party; unsigned on plain lines.

    Every call signs anew and gives other bytes, so it has to be stored to be posted again.
    """
    public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    if credentials is None:
        return KeyOffer(public)
    key = serialization.load_pem_private_key(credentials.key, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SettingsError(f"the key of party {party!r} is no EC key; `fdml keys request` makes one")
    signature = key.sign(_signed(run, party, public), ec.ECDSA(hashes.SHA256()))
    return KeyOffer(public, credentials.certificate, signature)


def check_offer(
    offer: KeyOffer, run: RunSettings, party: str, authority: bytes, revoked: frozenset[int] = frozenset()
) -> None:
    """Raise unless the offer comes from the party of this run that it is said to come from.

    The key that has signed it must be the one in federation.toml: the authority cannot make an offer for a party.
    """
    try:
        certificate = x509.load_pem_x509_certificate(offer.certificate)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        raise _refused(party, "shows no certificate of the federation's authority") from None
    why = why_refused(certificate, party, members=run.members, revoked=revoked, now=utc_now())
    if why is not None:
        raise _refused(party, f"shows a certificate that {why}")
    if identities(certificate) != [Identity(run.federation, "party", party)]:
        raise _refused(party, f"shows a certificate that does not name party {party!r} of {run.federation!r}")
    key = certificate.public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InvalidSignature
        key.verify(offer.signature, _signed(run, party, offer.public), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise _refused(party, "offers a key with a wrong signature, or has another run.toml") from None


def transcript(offers: Iterable[KeyOffer]) -> bytes:
    """A hash of each offer, one after the other."""
    return b"".join(hashlib.sha256(encode_alignment(offer)).digest() for offer in offers)


def pair_secret(private: bytes, theirs: tuple[str, bytes], *, salt: bytes, use: bytes, more: bytes = b"") -> bytes:
    """What this party and another, of this name and public key, alone can compute.

    It depends on all arguments; `more` is a further secret that both have.
    """
    name, public = theirs
    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise AlignmentError(f"party {name!r} offers a public key that is none; ask that party") from None
    return HKDF(hashes.SHA256(), _BYTES, salt, use).derive(shared + more)


def _signed(run: RunSettings, party: str, public: bytes) -> bytes:
    """What a signature stands for; the parts before the name have fixed lengths, so it can be read in one way only."""
    return _PURPOSE + alignment_hash(run) + public + party.encode()


def _refused(party: str, why: str) -> AlignmentError:
    return AlignmentError(
        f"whoever posts as party {party!r} {why}; someone may be in between: ask that party and the server's operator"
    )
