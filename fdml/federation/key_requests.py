"""A member's own key, made where it is used, and its requests for certificates. No private key leaves its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fdml.errors import SettingsError
from fdml.federation.certificates import key_pem, subject_of
from fdml.federation.key_files import AUTHORITY, CERTIFICATE, KEY, is_signed_by, read_certificate, read_key
from fdml.party.settings import read_party
from fdml.protocol.certificates import SERVER, fingerprint_of, identities
from fdml.protocol.identity import Identity
from fdml.settings.federation import read_federation
from fdml.settings.file import read_table
from fdml.storage.atomic import PUBLIC, write_file

NEXT_KEY = "next-key.pem"
"""A key that takes the place of the old one once its certificate has come."""


@dataclass(frozen=True)
class MemberKeys:
    """Who a member is, and where its keys are."""

    identity: Identity
    folder: Path

    @property
    def request_path(self) -> Path:
        """What is sent to whoever keeps the authority."""
        return self.folder / f"{quote(self.identity.name, safe='')}.request.pem"


def member_keys(path: Path) -> MemberKeys:
    """The party whose party.toml this is, or the server of a federation.toml."""
    if "party" in read_table(path):
        party = read_party(path)
        federation = read_federation(party.federation)
        if party.party not in federation.parties:
            raise SettingsError(
                f"{path}: party {party.party!r} is not among the federation's parties {', '.join(federation.parties)}"
            )
        return MemberKeys(Identity(federation.name, "party", party.party), path.parent / "keys")
    return MemberKeys(Identity(read_federation(path).name, "server", SERVER), path.parent / "server" / "keys")


def request(member: MemberKeys) -> str:
    """Make a key and a request for its certificate; gives the key's fingerprint."""
    path = member.folder / KEY
    if path.exists():
        raise SettingsError(
            f"there is a key {str(path)!r} already; `fdml keys renew` asks for a new certificate for it, and with "
            f"--new-key for a new key"
        )
    return _request_with(member, _new_key(path))


def renew(member: MemberKeys, *, new_key: bool = False) -> str:
    """Ask for a new certificate, for the same key or for a new one; gives the key's fingerprint.

    Until the certificate is installed, the old key and certificate go on.
    """
    key = read_key(member.folder / KEY)
    return _request_with(member, _new_key(member.folder / NEXT_KEY) if new_key else key)


def install(member: MemberKeys, path: Path) -> x509.Certificate:
    """Put a certificate, and the authority's beside it, in place; checks that it is for this member and its key."""
    certificate, authority = read_signed(path)
    if identities(certificate) != [member.identity]:
        names = ", ".join(each.uri for each in identities(certificate) if each is not None) or "nobody"
        raise SettingsError(
            f"the certificate {str(path)!r} names {names}, not {member.identity.uri}; get the right one"
        )
    key, following = member.folder / KEY, member.folder / NEXT_KEY
    if following.exists() and read_key(following).public_key() == certificate.public_key():
        write_file(key, following.read_bytes())
        following.unlink()
    elif read_key(key).public_key() != certificate.public_key():
        raise SettingsError(
            f"the certificate {str(path)!r} was made for another key than {str(key)!r}; send the newest "
            f"{member.request_path.name} to whoever keeps the authority"
        )
    for name, content in ((CERTIFICATE, certificate), (AUTHORITY, authority)):
        write_file(member.folder / name, content.public_bytes(serialization.Encoding.PEM), mode=PUBLIC)
    return certificate


def read_signed(path: Path) -> tuple[x509.Certificate, x509.Certificate]:
    """A certificate and the authority's, as `fdml keys sign` writes both into one file."""
    first = read_certificate(path)
    try:
        both = x509.load_pem_x509_certificates(path.read_bytes())
    except ValueError:
        both = [first]
    if len(both) != 2 or not is_signed_by(first, both[1]):
        raise SettingsError(
            f"{str(path)!r} does not hold a certificate and the authority that signed it; take the file that "
            f"`fdml keys sign` wrote, as it is"
        )
    return first, both[1]


def read_request(path: Path) -> tuple[Identity, ec.EllipticCurvePublicKey]:
    """Whom a request names and for which key; its sender has that key."""
    try:
        found = x509.load_pem_x509_csr(path.read_bytes())
    except FileNotFoundError:
        raise SettingsError(f"there is no file {str(path)!r}") from None
    except (OSError, ValueError):
        raise SettingsError(
            f"{str(path)!r} is empty or no certificate request; ask for it again, `fdml keys request` writes it"
        ) from None
    key, named = found.public_key(), identities(found)
    if not found.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
        raise SettingsError(f"the request {str(path)!r} is not signed with its own EC key; ask for it again")
    if len(named) != 1 or named[0] is None or named[0].role not in ("party", "server"):
        raise SettingsError(f"the request {str(path)!r} does not name one member of a federation; ask for it again")
    return named[0], key


def _new_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(path, key_pem(key))
    return key


def _request_with(member: MemberKeys, key: ec.EllipticCurvePrivateKey) -> str:
    made = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject_of(member.identity.name))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(member.identity.uri)]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    write_file(member.request_path, made.public_bytes(serialization.Encoding.PEM), mode=PUBLIC)
    return fingerprint_of(key.public_key())
