"""The authority's list of revoked certificates, in a file that may change while a run goes on."""

from __future__ import annotations

import datetime
import threading
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fdml.errors import SettingsError
from fdml.events import Listener, Remark

_FileState = tuple[int, int, int]


class RevocationFile:
    """Gives the serial numbers of all certificates that are revoked; the file is read again when it has changed.

    No file means that nothing is revoked. The list only grows: a certificate stays revoked when the file is gone,
    damaged or an older one. A list that cannot be trusted is an error at the start, and a remark in mid-run.
    """

    def __init__(self, path: Path, authority: x509.Certificate, on_event: Listener, name: str) -> None:
        self._path = path
        self._authority = authority
        self._on_event = on_event
        self._name = name
        self._lock = threading.Lock()
        self._state = self._now()
        self._serials = self._read()

    def __call__(self) -> frozenset[int]:
        """The serial numbers, as they are known now; any thread may ask."""
        with self._lock:
            state = self._now()
            if state != self._state:
                self._state = state
                try:
                    self._serials |= self._read()
                except SettingsError as error:
                    self._on_event(Remark(self._name, f"{error}; what was revoked before stays revoked"))
            return self._serials

    def _now(self) -> _FileState | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> frozenset[int]:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise SettingsError(f"{str(self._path)!r} cannot be read ({error.strerror}); make it readable") from None
        return frozenset(revocation_dates(content, self._authority, self._path))


def revocation_dates(content: bytes, authority: x509.Certificate, path: Path) -> dict[int, datetime.datetime]:
    """The serial numbers in a signed list of an authority, each with the time it was revoked."""
    key = authority.public_key()
    try:
        found = x509.load_pem_x509_crl(content)
    except ValueError:
        raise SettingsError(
            f"{str(path)!r} is empty or no list of revoked certificates; get it again from whoever keeps the authority"
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not found.is_signature_valid(key):
        raise SettingsError(
            f"the list of revoked certificates {str(path)!r} is not signed by the federation's authority; get it "
            f"again from "
            f"whoever keeps the authority"
        )
    return {each.serial_number: each.revocation_date_utc for each in found}
