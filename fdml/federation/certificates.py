"""A certificate authority of a run's own, and one certificate per role.

Who someone is stands in the certificate as `fdml://<run>/<role>/<name>`.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fdml.errors import SettingsError
from fdml.protocol.identity import Credentials, Identity, Role, host_name
from fdml.storage.atomic import PUBLIC, write_file

_DAYS = 825
_CLOCK_SLACK = datetime.timedelta(days=1)


class Authority:
    """Signs the certificates of one run."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(f"fdml {run}")
        now = datetime.datetime.now(datetime.UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SLACK)
            .not_valid_after(now + datetime.timedelta(days=_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key(self) -> bytes:
        """The authority's key, PEM: whoever has it can name new parties."""
        return _pem(self._key)

    def issue(self, role: Role, name: str, days: int = _DAYS, run: str | None = None) -> Credentials:
        """A new key and a certificate for one role; `days` below 0 make one that has expired."""
        identity = Identity(self._run if run is None else run, role, name)
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri)]
        if role == "server":
            names.append(x509.DNSName(host_name(identity.run)))
        usage = ExtendedKeyUsageOID.SERVER_AUTH if role == "server" else ExtendedKeyUsageOID.CLIENT_AUTH
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_subject(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SLACK - datetime.timedelta(days=_DAYS))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Credentials(_pem(key), certificate.public_bytes(serialization.Encoding.PEM), self.certificate)


def _subject(name: str) -> x509.Name:
    """For people to read; a common name has at most 64 bytes."""
    common_name = name.encode()[:64].decode(errors="ignore")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write_credentials(folder: Path, credentials: Credentials) -> None:
    """Put key, certificate and the authority's certificate into a folder; the key for its owner only."""
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "key.pem", credentials.key)
    write_file(folder / "certificate.pem", credentials.certificate, mode=PUBLIC)
    write_file(folder / "authority.pem", credentials.authority, mode=PUBLIC)


def own_credentials(folder: Path, identity: Identity) -> Credentials:
    """Read the credentials of one side, or say why the other side would not take them."""
    found = read_credentials(folder)
    path = folder / "certificate.pem"
    try:
        certificate = x509.load_pem_x509_certificate(found.certificate)
    except ValueError:
        raise SettingsError(f"{str(path)!r} is no certificate; `fdml new` makes keys and certificates") from None
    if certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
        raise SettingsError(
            f"the certificate {str(path)!r} ran out on {certificate.not_valid_after_utc:%Y-%m-%d}; "
            f"ask whoever keeps the run's authority for a new one"
        )
    named = _uris(certificate)
    if identity.uri not in named:
        raise SettingsError(
            f"the certificate {str(path)!r} names {', '.join(named) or 'nobody'}, not {identity.uri}; put back the "
            f"name of the run or party in the settings, or the certificate that was made for it"
        )
    return found


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def read_credentials(folder: Path) -> Credentials:
    """Read what `write_credentials` wrote; a key that others can read is refused."""
    for name in ("key.pem", "certificate.pem", "authority.pem"):
        if not (folder / name).is_file():
            raise SettingsError(f"there is no {str(folder / name)!r}; `fdml new` makes keys and certificates for a run")
    key = folder / "key.pem"
    if key.stat().st_mode & 0o077:
        raise SettingsError(f"the key {str(key)!r} can be read by others; run `chmod 600 {key}`")
    return Credentials(
        key.read_bytes(), (folder / "certificate.pem").read_bytes(), (folder / "authority.pem").read_bytes()
    )
