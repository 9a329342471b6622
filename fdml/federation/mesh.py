"""A party of a federation without a server: where all others are, and its lines to them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from fdml.errors import ServerUnreachable, SettingsError
from fdml.events import Listener
from fdml.federation.addresses import checked_address
from fdml.protocol.certificates import SERVER
from fdml.protocol.identity import Credentials
from fdml.settings import RunSettings
from fdml.settings.federation import FederationSettings
from fdml.storage.atomic import write_file
from fdml.transport.grpc_channel import GrpcChannel, Wakeup
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.mesh_channel import MeshChannel
from fdml.transport.tunnels import Tunnels, WayBack
from fdml.transport.wait_report import WaitReport

WAYS = "ways.json"
"""Beside the files of a party's own session: ports that lead to parties that accept no connections."""


class Mesh:
    """Whom a party calls directly, and to whom it has a way only through calls that the other one makes."""

    def __init__(
        self,
        federation: FederationSettings,
        party: str,
        folder: Path,
        credentials: Credentials | None,
        tunnels: Tunnels | None = None,
    ) -> None:
        """`folder` is the party's own; `tunnels` are those of the session that it has already, if it has one."""
        _check_may_listen(folder, credentials)
        for address in federation.addresses.values():
            checked_address(address)
        self._federation = federation
        self.party = party
        self._folder = folder
        self._credentials = credentials
        hidden = [name for name in federation.parties if name != party and name not in federation.addresses]
        self.tunnels = Tunnels(hidden) if tunnels is None else tunnels

    @property
    def others(self) -> tuple[str, ...]:
        """All parties but this one."""
        return tuple(name for name in self._federation.parties if name != self.party)

    def endpoint(self, answers: str, own: str = "") -> Endpoint:
        """Where another party is reached, or the own session, which listens at `own`."""
        who = self._federation
        target = own if answers == self.party else who.addresses.get(answers) or self._way_to(answers)
        key = who.members.get(answers, "")
        return Endpoint(target, who.name, self.party, self._credentials, key, answers_as=answers)

    def _way_to(self, party: str) -> str:
        """By the tunnels of this process, or of the one that stands by for this party."""
        ports = self.tunnels.ports or _ports_in(self._folder)
        if party not in ports:
            raise ServerUnreachable(f"no way to party {party!r}, which accepts no connections; start `fdml up` here")
        return f"127.0.0.1:{ports[party]}"

    def store_ports(self) -> None:
        """Let other processes of this party know by which ways parties are reached that accept no connections."""
        write_file(self._folder / SERVER / WAYS, json.dumps(self.tunnels.ports).encode())

    def way_back(self, own: str) -> AbstractContextManager[object]:
        """What lets others reach this party's session at `own`, where no address does."""
        if self.party in self._federation.addresses:
            return nullcontext()
        return WayBack([self.endpoint(name) for name in self.others], own)

    @contextmanager
    def channel(self, run: RunSettings, own: str, on_event: Listener, wait: float | None) -> Iterator[MeshChannel]:
        """The party's lines to all in a run; its own session listens at `own`."""
        wakeup, lines = Wakeup(), {}
        for name in run.parties:
            endpoint = replace(self.endpoint(name, own), run=run.name)
            tells = on_event if name in (self.party, run.comparer) else _nobody
            waits = WaitReport(endpoint, tells, longest=math.inf if wait is None else wait)
            lines[name] = GrpcChannel(endpoint, run, run.training.peer_timeout_seconds, tells, waits, wakeup)
        channel = MeshChannel(run, self.party, lines)
        try:
            yield channel
        finally:
            channel.close()


def _ports_in(folder: Path) -> dict[str, int]:
    """By party: the port that leads to it, as the process that stands by has written it down."""
    try:
        found: dict[str, int] = json.loads((folder / SERVER / WAYS).read_text())
    except (OSError, ValueError):
        return {}
    return found


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
