"""A certificate authority of a federation's own, and what it signs: one certificate per member, and what is revoked.

Who someone is stands in the certificate as `fdml://<federation>/<role>/<name>`.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fdml.protocol.certificates import utc_now
from fdml.protocol.identity import Credentials, Identity, Role, host_name

DAYS = 90
"""How long a member's certificate is good, unless whoever signs it says otherwise."""
_AUTHORITY_DAYS = 1825
_CLOCK_SKEW = datetime.timedelta(minutes=5)
"""How far the clock of another member may be behind."""


class Authority:
    """Signs the certificates of a federation; a new authority, unless key and certificate of an older one are given."""

    def __init__(
        self,
        federation: str,
        key: ec.EllipticCurvePrivateKey | None = None,
        certificate: x509.Certificate | None = None,
    ) -> None:
        self.federation = federation
        self._key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
        self._certificate = _self_signed(federation, self._key) if certificate is None else certificate

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key(self) -> bytes:
        """The authority's key, PEM: whoever has it can name new parties."""
        return key_pem(self._key)

    def sign(
        self, identity: Identity, key: ec.EllipticCurvePublicKey, lifetime: datetime.timedelta
    ) -> x509.Certificate:
        """A certificate for a member's public key, from now on, and never beyond the authority's own."""
        now = utc_now()
        until = min(now + lifetime, self._certificate.not_valid_after_utc)
        since = max(now - _CLOCK_SKEW, self._certificate.not_valid_before_utc)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return (
            x509.CertificateBuilder()
            .subject_name(subject_of(identity.name))
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(since, until - _CLOCK_SKEW))
            .not_valid_after(until)
            .add_extension(_names(identity), critical=False)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def issue(
        self,
        role: Role,
        name: str,
        days: float = DAYS,
        federation: str | None = None,
        key: bytes | None = None,
    ) -> Credentials:
        """A certificate with its key, a new one unless given: the quick way, where all keys are made in one place.

        `days` below 0 make a certificate that has expired.
        """
        identity = Identity(self.federation if federation is None else federation, role, name)
        private = ec.generate_private_key(ec.SECP256R1()) if key is None else _ec_key(key)
        certificate = self.sign(identity, private.public_key(), datetime.timedelta(days=days))
        return Credentials(key_pem(private), certificate.public_bytes(serialization.Encoding.PEM), self.certificate)

    def revocation_list(self, revoked: Mapping[int, datetime.datetime]) -> bytes:
        """A signed list of serial numbers that are no longer good and since when, PEM; it ends with the authority."""
        now = utc_now()
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(max(now - _CLOCK_SKEW, self._certificate.not_valid_before_utc))
            .next_update(self._certificate.not_valid_after_utc)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
        )
        for serial, date in sorted(revoked.items()):
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(date)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def subject_of(name: str) -> x509.Name:
    """For people to read; a common name has at most 64 bytes."""
    common_name = name.encode()[:64].decode(errors="ignore")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as its file has it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _ec_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"a key of a member is an EC key, not {type(key).__name__}")
    return key


def _self_signed(federation: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    now, name = utc_now(), subject_of(f"fdml {federation}")
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=_AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(_names(Identity(federation, "authority", "authority")), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _names(identity: Identity) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri)]
    if identity.role in ("server", "party"):  # a party listens under a name of its own, where there is no server
        party = identity.name if identity.role == "party" else ""
        names.append(x509.DNSName(host_name(identity.federation, party)))
    return x509.SubjectAlternativeName(names)


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )
