"""The server as a party knows it: by the key that federation.toml has, whatever the authority has signed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from fdml.errors import ExchangeError, ServerUnreachable
from fdml.events import Listener, Remark
from fdml.protocol.certificates import SERVER
from fdml.transport.certificate_watch import CertificateWatch
from fdml.transport.grpc_endpoint import CERTIFICATE, Endpoint, call_metadata, open_channel

_ASK_SECONDS = 20.0
_LOOK_SECONDS = 1.0
"""How often the certificate of an open line is looked at."""


class KnownServer:
    """Opens channels to the server, and to nobody else.

    The server is asked for its certificate first, on a channel that trusts the federation's authority. If its key is
    that of federation.toml, the channel for the run trusts this one certificate and no authority: TLS itself makes
    sure that whoever answers there has that key.
    """

    def __init__(self, endpoint: Endpoint, peer_timeout: float, on_event: Listener = lambda _: None) -> None:
        self._endpoint = endpoint
        self._peer_timeout = peer_timeout
        self._certificate: x509.Certificate | None = None
        self._proven = False
        """Whether the server has answered on a channel that trusts this certificate alone."""
        self._looked_at = time.monotonic()
        self._watch: CertificateWatch | None = None
        if endpoint.credentials is not None and endpoint.server_key:
            members = {endpoint.answers_as or SERVER: endpoint.server_key}
            self._watch = CertificateWatch(
                endpoint.credentials, members, lambda text: on_event(Remark(endpoint.party, text))
            )

    def open(self) -> grpc.Channel:
        """A channel to the server; raises gRPC's errors, and `ExchangeError` if a certificate will not do."""
        ours = self._endpoint.credentials
        if self._watch is None or ours is None:
            return open_channel(self._endpoint, self._peer_timeout)
        self._check_own(self._watch)
        certificate = self._certificate or self._ask()
        self._check(certificate, self._watch)
        self._certificate = certificate
        pem = certificate.public_bytes(Encoding.PEM)
        return open_channel(replace(self._endpoint, credentials=replace(ours, authority=pem)), self._peer_timeout)

    def look(self) -> None:
        """Raise if a certificate of the open channel has run out or was revoked meanwhile."""
        if self._watch is None or self._certificate is None or time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        self._check_own(self._watch)
        self._check(self._certificate, self._watch)

    def prove(self) -> None:
        """The server has answered, so it has the key of its certificate."""
        self._proven = True

    def forget(self) -> bool:
        """Ask for the certificate again at the next opening. Gives whether that can help: the old one was the server's.

        A server that was started again may have a renewed certificate.
        """
        proven, self._proven, self._certificate = self._proven, False, None
        return proven

    def _ask(self) -> x509.Certificate:
        with open_channel(self._endpoint, self._peer_timeout) as channel:
            call: Any = channel.unary_unary(CERTIFICATE)
            raw: bytes = call(b"", timeout=_ASK_SECONDS, metadata=call_metadata(self._endpoint))
        try:
            return x509.load_pem_x509_certificate(raw)
        except ValueError:
            raise ServerUnreachable(
                f"what answers at {self._endpoint.target} shows no certificate; check the address, and that all sides "
                f"have the same fdml"
            ) from None

    def _check_own(self, watch: CertificateWatch) -> None:
        """A server that cannot be reached would never say that this side's own certificate is the reason."""
        why = watch.why_own_refused()
        if why is not None:
            raise ExchangeError(
                f"the certificate of {self._endpoint.party!r} {why}; ask whoever keeps the federation's authority for "
                f"a new "
                f"one with `fdml keys renew`, then run the same command again"
            )

    def _check(self, certificate: x509.Certificate, watch: CertificateWatch) -> None:
        why = watch.why_refused(self._endpoint.answers_as or SERVER, certificate)
        if why is not None:
            raise ServerUnreachable(
                f"the certificate of {self._endpoint.place} {why}; nothing more is sent to it: ask its "
                f"operator, and whoever keeps the federation's authority"
            )
