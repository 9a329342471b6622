"""A member's keys folder: its key, its certificate, the authority's, and what the authority has revoked.

Everything is read with the cryptography library before gRPC sees it: an empty or damaged file is named here, where
gRPC would end the process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fdml.errors import SettingsError
from fdml.events import Listener
from fdml.federation.revocations import RevocationFile
from fdml.protocol.certificates import identities, utc_now, why_refused
from fdml.protocol.identity import Credentials, Identity
from fdml.settings import RunSettings
from fdml.settings.federation import FederationSettings
from fdml.storage.atomic import PUBLIC, write_file

KEY = "key.pem"
CERTIFICATE = "certificate.pem"
AUTHORITY = "authority.pem"
REVOKED = "revoked.pem"
_HOW = "`fdml keys request` makes a key and asks for a certificate (docs/two-companies.md)"


def write_credentials(folder: Path, credentials: Credentials) -> None:
    """Put key, certificate and the authority's certificate into a folder; the key for its owner only."""
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / KEY, credentials.key)
    write_file(folder / CERTIFICATE, credentials.certificate, mode=PUBLIC)
    write_file(folder / AUTHORITY, credentials.authority, mode=PUBLIC)


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a private key that only its owner can read."""
    content = _content(path)
    if path.stat().st_mode & 0o077:
        raise SettingsError(f"the key {str(path)!r} can be read by others; run `chmod 600 {path}`")
    try:
        key = serialization.load_pem_private_key(content, None)
    except TypeError:
        raise SettingsError(
            f"the key {str(path)!r} is under a passphrase, which a run cannot ask for; store it without one"
        ) from None
    except ValueError:
        raise SettingsError(
            f"{str(path)!r} is empty or no private key; put it back from your own backup, or make a new one: {_HOW}"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SettingsError(f"the key {str(path)!r} is no EC key; {_HOW}")
    return key


def read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate."""
    try:
        return x509.load_pem_x509_certificate(_content(path))
    except ValueError:
        raise SettingsError(
            f"{str(path)!r} is empty or no certificate; ask whoever keeps the federation's authority to send it again"
        ) from None


def read_credentials(folder: Path, on_event: Listener = lambda _: None, name: str = "server") -> Credentials:
    """Read all of a keys folder; the key must belong to the certificate, and the certificate be the authority's.

    Troubles with the list of revoked certificates in the middle of a run become remarks of `name`.
    """
    for each in (KEY, CERTIFICATE, AUTHORITY):
        if not (folder / each).is_file():
            raise SettingsError(f"there is no {str(folder / each)!r}; {_HOW}, `fdml new` makes all keys on one machine")
    key, certificate = read_key(folder / KEY), read_certificate(folder / CERTIFICATE)
    authority = read_certificate(folder / AUTHORITY)
    if key.public_key() != certificate.public_key():
        raise SettingsError(
            f"the certificate {str(folder / CERTIFICATE)!r} was made for another key than {str(folder / KEY)!r}; put "
            f"back the one that belongs to it, or ask for a new one with `fdml keys renew`"
        )
    if not is_signed_by(certificate, authority):
        raise SettingsError(
            f"the certificate {str(folder / CERTIFICATE)!r} is not signed by {str(folder / AUTHORITY)!r}; ask whoever "
            f"keeps the federation's authority for both, and put them in place with `fdml keys install`"
        )
    return Credentials(
        (folder / KEY).read_bytes(),
        certificate.public_bytes(serialization.Encoding.PEM),
        authority.public_bytes(serialization.Encoding.PEM),
        RevocationFile(folder / REVOKED, authority, on_event, name),
    )


def own_credentials(
    folder: Path, identity: Identity, run: RunSettings | FederationSettings, on_event: Listener = lambda _: None
) -> Credentials:
    """Read the credentials of one side, or say why the other side would not take them.

    `run` is the federation, or any run of it: either says which keys the members have.
    """
    found = read_credentials(folder, on_event, identity.name)
    path, certificate = folder / CERTIFICATE, x509.load_pem_x509_certificate(found.certificate)
    named = identities(certificate)
    if identity not in named:
        names = ", ".join(each.uri for each in named if each is not None) or "nobody"
        raise SettingsError(
            f"the certificate {str(path)!r} names {names}, not {identity.uri}; put back the "
            f"name of the federation or party in the settings, or the certificate that was made for it"
        )
    check_has_members(identity.federation, run.members)
    why = why_refused(certificate, identity.name, members=run.members, revoked=found.revoked(), now=utc_now())
    if why is not None:
        raise SettingsError(
            f"the certificate {str(path)!r} {why}; ask whoever keeps the federation's authority for a new one with "
            f"`fdml keys renew`"
        )
    return found


def check_has_members(federation: str, members: Mapping[str, str]) -> None:
    """Raise unless federation.toml says whose keys its members have."""
    if not members:
        raise SettingsError(
            f"federation {federation!r} does not say which key each member has, and TLS needs that: `fdml keys "
            f"members` with "
            f"the certificates or keys folders of the server and all parties prints the [members] table; put it at "
            f"the end of federation.toml, the same at every side"
        )


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether an authority has signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def members_table(members: Mapping[str, str]) -> str:
    """The members as federation.toml has them."""
    return "[members]\n" + "".join(f'{_toml_key(name)} = "{members[name]}"\n' for name in sorted(members))


def _toml_key(name: str) -> str:
    bare = name.isascii() and all(letter.isalnum() or letter in "-_" for letter in name)
    return name if bare and name else json.dumps(name, ensure_ascii=False)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{str(path)!r} cannot be read ({error.strerror}); {_HOW}") from None
