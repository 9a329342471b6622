"""What can be told of a key without its private half: from a request, a certificate, a keys folder or an authority."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from fdml.errors import SettingsError
from fdml.federation.authority_folder import AuthorityFolder
from fdml.federation.key_files import AUTHORITY, CERTIFICATE, REVOKED, read_certificate
from fdml.federation.key_requests import member_keys, read_request
from fdml.federation.revocations import revocation_dates
from fdml.protocol.certificates import fingerprint, fingerprint_of, identities, utc_now
from fdml.protocol.identity import Identity

_REQUEST = b"BEGIN CERTIFICATE REQUEST"


@dataclass(frozen=True)
class KeyFacts:
    """One certificate, or a request for one."""

    path: Path
    identity: Identity | None
    fingerprint: str
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None
    """None of a request."""
    revoked: bool = False

    @property
    def name(self) -> str:
        """Whom it names."""
        return "nobody" if self.identity is None else self.identity.name

    @property
    def state(self) -> str:
        """Whether it is good now."""
        if self.since is None or self.until is None:
            return "request, not signed yet"
        if self.revoked:
            return "revoked"
        return "good" if self.since <= utc_now() <= self.until else "has run out"


def key_facts(path: Path) -> list[KeyFacts]:
    """All that a path holds: a .pem file, a folder of keys or of an authority, or the keys of a settings file."""
    if path.suffix == ".toml":
        return _of_folder(member_keys(path).folder)
    if path.is_dir() and AuthorityFolder.is_one(path):
        authority = AuthorityFolder(path)
        revoked = authority.revoked()
        return [_of_certificate(path, each, revoked) for each in (authority.certificate, *authority.issued())]
    if path.is_dir():
        return _of_folder(path if (path / CERTIFICATE).exists() else path / "keys")
    try:
        is_request = _REQUEST in path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{str(path)!r} cannot be read ({error.strerror})") from None
    if is_request:
        identity, key = read_request(path)
        return [KeyFacts(path, identity, fingerprint_of(key))]
    return [_of_certificate(path, read_certificate(path), ())]


def members_of(facts: list[KeyFacts]) -> dict[str, str]:
    """The members' table: for every name the newest key that is not revoked."""
    members = [each for each in facts if each.identity is not None and each.identity.role != "authority"]
    return {each.name: each.fingerprint for each in members if not each.revoked}


def _of_folder(folder: Path) -> list[KeyFacts]:
    certificate, list_path = read_certificate(folder / CERTIFICATE), folder / REVOKED
    revoked: Collection[int] = ()
    if list_path.exists():
        revoked = revocation_dates(list_path.read_bytes(), read_certificate(folder / AUTHORITY), list_path)
    return [_of_certificate(folder, certificate, revoked)]


def _of_certificate(path: Path, certificate: x509.Certificate, revoked: Collection[int]) -> KeyFacts:
    named = identities(certificate)
    return KeyFacts(
        path,
        named[0] if len(named) == 1 else None,
        fingerprint(certificate),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        certificate.serial_number in revoked,
    )
