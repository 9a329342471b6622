"""What all sides read from a certificate alike: whom it names, its key's fingerprint, and whether it is good now.

A member is known by its public key: federation.toml has the SHA-256 of it. A renewed certificate for the same key is
the same member, and a certificate that the federation's authority signs for another key is nobody.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from fdml.protocol.identity import Identity, parse_identity

SERVER = "server"
"""The server's name among the members."""
WARNING_DAYS = 14
"""A certificate that ends within these days is warned of."""
_SHOWN = 19
"""Characters of a fingerprint that errors show."""


def fingerprint_of(key: CertificatePublicKeyTypes) -> str:
    """The SHA-256 of a public key (its SubjectPublicKeyInfo), as federation.toml has it."""
    info = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(info).hexdigest()}"


@lru_cache(maxsize=64)
def fingerprint(certificate: x509.Certificate) -> str:
    """The fingerprint of a certificate's key."""
    return fingerprint_of(certificate.public_key())


def identities(shown: x509.Certificate | x509.CertificateSigningRequest) -> list[Identity | None]:
    """Whom a certificate or a request names; None for a URI that is not one of ours."""
    try:
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return [parse_identity(uri) for uri in names.get_values_for_type(x509.UniformResourceIdentifier)]


def utc_now() -> datetime.datetime:
    """The time that certificates are compared with."""
    return datetime.datetime.now(datetime.UTC)


def why_refused(
    certificate: x509.Certificate,
    name: str,
    *,
    members: Mapping[str, str],
    revoked: frozenset[int],
    now: datetime.datetime,
) -> str | None:
    """What is wrong with the certificate of a member, to be read after "the certificate of ..."; None if it is good.

    `revoked` are serial numbers. Without any members the key is not looked at.
    """
    if now > certificate.not_valid_after_utc:
        return f"ran out on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    if now < certificate.not_valid_before_utc:
        return f"is valid only from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on"
    if certificate.serial_number in revoked:
        return "is revoked"
    shown = fingerprint(certificate)
    if members and members.get(name) != shown:
        known = members.get(name, "no such member")[:_SHOWN]
        return f"has another key ({shown[:_SHOWN]}...) than [members] in federation.toml says ({known}...)"
    return None


def end_warning(owner: str, certificate: x509.Certificate, now: datetime.datetime) -> str | None:
    """A sentence about a certificate that ends soon; None while there is time."""
    left = certificate.not_valid_after_utc - now
    if not datetime.timedelta() <= left <= datetime.timedelta(days=WARNING_DAYS):
        return None
    return (
        f"the certificate of {owner} ends on {certificate.not_valid_after_utc:%Y-%m-%d}, in {left.days} days; "
        f"`fdml keys renew` there asks for a new one, and the run goes on with it"
    )
