"""A party of a run without a server: where all others are, and its lines to them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from fdml.errors import SettingsError
from fdml.events import Listener
from fdml.federation.addresses import checked_address
from fdml.protocol.identity import Credentials
from fdml.settings import RunSettings
from fdml.transport.grpc_channel import GrpcChannel, Wakeup
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.mesh_channel import MeshChannel
from fdml.transport.tunnels import Tunnels, WayBack
from fdml.transport.wait_report import WaitReport


class Mesh:
    """Whom a party calls directly, and to whom it has a way only through calls that the other one makes."""

    def __init__(self, run: RunSettings, party: str, folder: Path, credentials: Credentials | None) -> None:
        _check_may_listen(folder, credentials)
        for address in run.addresses.values():
            checked_address(address)
        self.run = run
        self.party = party
        self._credentials = credentials
        self.tunnels = Tunnels([name for name in run.parties if name != party and name not in run.addresses])

    def endpoint(self, answers: str, own: str = "") -> Endpoint:
        """Where another party is reached, or the own session, which listens at `own`."""
        run = self.run
        target = own if answers == self.party else run.addresses.get(answers) or self._way_to(answers)
        key = run.members.get(answers, "")
        return Endpoint(target, run.federation, self.party, self._credentials, key, run.name, answers)

    def _way_to(self, party: str) -> str:
        return f"127.0.0.1:{self.tunnels.ports[party]}"

    def way_back(self, own: str) -> AbstractContextManager[object]:
        """What lets others reach this party's session at `own`, where no address does."""
        if self.party in self.run.addresses:
            return nullcontext()
        others = [replace(self.endpoint(name), run="") for name in self.run.parties if name != self.party]
        return WayBack(others, own)

    @contextmanager
    def channel(self, own: str, on_event: Listener, wait: float | None) -> Iterator[MeshChannel]:
        """The party's lines to all; its own session listens at `own`."""
        run, wakeup, lines = self.run, Wakeup(), {}
        for name in run.parties:
            endpoint = self.endpoint(name, own)
            tells = on_event if name in (self.party, run.comparer) else _nobody
            waits = WaitReport(endpoint, tells, longest=math.inf if wait is None else wait)
            lines[name] = GrpcChannel(endpoint, run, run.training.peer_timeout_seconds, tells, waits, wakeup)
        channel = MeshChannel(run, self.party, lines)
        try:
            yield channel
        finally:
            channel.close()


def _check_may_listen(folder: Path, credentials: Credentials | None) -> None:
    """Raise if others could not take a party's certificate for that of whom they call: an older fdml made it."""
    if credentials is None:
        return
    certificate = x509.load_pem_x509_certificate(credentials.certificate)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if ExtendedKeyUsageOID.SERVER_AUTH not in usage:
        raise SettingsError(
            f"the certificate in {str(folder / 'keys')!r} was made by an older fdml, and others cannot call whoever "
            f"shows it; ask for a new one with `fdml keys renew`, as there is no server"
        )


def _nobody(_: object) -> None:
    """Lines to other parties say nothing: the own session says whom this party waits for."""
