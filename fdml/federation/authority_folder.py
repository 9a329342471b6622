"""The folder of whoever keeps a federation's authority: its key, what it has signed, and what it has revoked."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fdml.errors import SettingsError
from fdml.federation.certificates import DAYS, Authority
from fdml.federation.key_files import CERTIFICATE, KEY, REVOKED, read_certificate, read_key
from fdml.federation.revocations import revocation_dates
from fdml.protocol.certificates import fingerprint, fingerprint_of, identities, utc_now
from fdml.protocol.identity import Identity
from fdml.storage.atomic import PUBLIC, write_file

ISSUED = "issued"


class AuthorityFolder:
    """An authority that lasts. Whoever can read its key can name new members; those in federation.toml stay."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.certificate = read_certificate(path / CERTIFICATE)
        named = identities(self.certificate)
        if len(named) != 1 or named[0] is None or named[0].role != "authority":
            raise SettingsError(f"{str(path / CERTIFICATE)!r} is not the certificate of a federation's authority")
        self.authority = Authority(named[0].federation, read_key(path / KEY), self.certificate)

    @staticmethod
    def make(path: Path, federation: str, authority: Authority | None = None) -> AuthorityFolder:
        """Make the authority of a federation, in a folder that is not there yet."""
        if path.exists():
            raise SettingsError(f"{str(path)!r} is there, but is no authority; name another folder with --authority")
        made = authority or Authority(federation)
        path.mkdir(mode=0o700, parents=True)
        write_file(path / KEY, made.key)
        write_file(path / CERTIFICATE, made.certificate, mode=PUBLIC)
        return AuthorityFolder(path)

    @staticmethod
    def is_one(path: Path) -> bool:
        """Whether a folder holds an authority."""
        return (path / KEY).exists() and (path / CERTIFICATE).exists() and not (path / "authority.pem").exists()

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the authority's key."""
        return fingerprint(self.certificate)

    def issued(self) -> list[x509.Certificate]:
        """All certificates that were signed, the oldest first."""
        return [read_certificate(path) for path in sorted((self.path / ISSUED).glob("*.pem"))]

    def members(self) -> Mapping[str, str]:
        """For every member the fingerprint of its newest certificate that is not revoked."""
        revoked = self.revoked()
        good = [each for each in self.issued() if each.serial_number not in revoked]
        return {name_of(each): fingerprint(each) for each in good}

    def key_before(self, identity: Identity) -> str | None:
        """The fingerprint of the key that a member had last, whether revoked or not."""
        known = [fingerprint(each) for each in self.issued() if identities(each) == [identity]]
        return known[-1] if known else None

    def check(self, identity: Identity, key: ec.EllipticCurvePublicKey) -> None:
        """Raise unless the request may be signed."""
        if identity.federation != self.authority.federation:
            raise SettingsError(
                f"the request names federation {identity.federation!r}, and this authority is that of "
                f"{self.authority.federation!r}; name another folder with --authority"
            )
        revoked, found = self.revoked(), fingerprint_of(key)
        if any(each.serial_number in revoked and fingerprint(each) == found for each in self.issued()):
            raise SettingsError(
                f"a certificate for the key {found} of {identity.name!r} was revoked; ask for a new key: "
                f"`fdml keys renew --new-key`"
            )

    def sign(self, identity: Identity, key: ec.EllipticCurvePublicKey, days: float = DAYS) -> bytes:
        """A certificate for a member's key, followed by the authority's own, PEM."""
        self.check(identity, key)
        return self.keep(self.authority.sign(identity, key, datetime.timedelta(days=days)))

    def keep(self, certificate: x509.Certificate) -> bytes:
        """Remember what was signed, so that it can be revoked; gives it with the authority's own, PEM."""
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        (self.path / ISSUED).mkdir(exist_ok=True)
        number = sum(1 for _ in (self.path / ISSUED).glob("*.pem"))
        write_file(self.path / ISSUED / f"{number:06d}.pem", pem, mode=PUBLIC)
        return pem + self.authority.certificate

    def revoked(self) -> Mapping[int, datetime.datetime]:
        """The serial numbers of all that is revoked, and since when."""
        path = self.path / REVOKED
        return revocation_dates(path.read_bytes(), self.certificate, path) if path.exists() else {}

    def revoke(self, name: str) -> list[x509.Certificate]:
        """Revoke every certificate that a member has; gives those that were good until now."""
        mine = [each for each in self.issued() if name_of(each) == name]
        if not mine:
            known = ", ".join(sorted({name_of(each) for each in self.issued()})) or "nobody"
            raise SettingsError(f"this authority has signed nothing for {name!r}, only for {known}")
        before, now = self.revoked(), utc_now()
        new = {each.serial_number: now for each in mine if each.serial_number not in before}
        write_file(self.path / REVOKED, self.authority.revocation_list({**before, **new}), mode=PUBLIC)
        return [each for each in mine if each.serial_number in new]


def name_of(certificate: x509.Certificate) -> str:
    """The member that a certificate names; empty if it names none."""
    return next((each.name for each in identities(certificate) if each is not None), "")
