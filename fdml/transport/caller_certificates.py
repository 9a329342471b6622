"""The certificates of those who call the server: every call and open stream is checked against federation.toml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cryptography import x509

from fdml.errors import MessageRefused, Refusal
from fdml.events import Listener
from fdml.monitor.listeners import remarks_of
from fdml.protocol.certificates import SERVER
from fdml.protocol.identity import Credentials
from fdml.transport.certificate_watch import CertificateWatch

_MOST_KEPT = 64
"""Certificates that are kept after they were read."""


class CallerCertificates:
    """Refuses a caller whose key is not the one in federation.toml, or whose certificate has run out or is revoked.

    Without credentials of the server lines are plain, and nobody shows any.
    """

    def __init__(self, credentials: Credentials | None, members: Mapping[str, str], on_event: Listener) -> None:
        self.own = b"" if credentials is None else credentials.certificate
        """The server's own certificate, PEM."""
        self._watch: CertificateWatch | None = None
        if credentials is not None:
            self._watch = CertificateWatch(credentials, members, remarks_of(SERVER, on_event))

    def check(self, name: str, certificate: x509.Certificate | None) -> None:
        """Raise unless the certificate is good now and has the key that federation.toml has."""
        if self._watch is None:
            return
        why = "is missing" if certificate is None else self._watch.why_refused(name, certificate)
        if why is not None:
            raise MessageRefused(
                f"the certificate of {name!r} {why}; ask whoever keeps the federation's authority for a new one with "
                f"`fdml keys renew`, then run the same command again",
                Refusal.UNAUTHENTICATED,
            )

    def look_at_own(self) -> None:
        """Warn if the server's own certificate ends soon; once it is no longer good, the parties leave."""
        if self._watch is not None:
            self._watch.why_own_refused()


def shown_certificate(context: Any) -> x509.Certificate | None:
    """The certificate of whoever makes a gRPC call; None on plain lines."""
    shown = context.auth_context().get("x509_pem_cert")
    return _parsed(shown[0]) if shown else None


@lru_cache(maxsize=_MOST_KEPT)
def _parsed(shown: bytes) -> x509.Certificate:
    """Once for all calls of a caller, as those that are refused may be many."""
    return x509.load_pem_x509_certificate(shown)
