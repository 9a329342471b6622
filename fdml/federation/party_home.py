"""A party at home: what belongs to no run. Its settings, its federation, its line to the server, its decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fdml.errors import SettingsError
from fdml.events import Listener
from fdml.federation.addresses import check_no_server, own_address, server_address
from fdml.federation.decision_log import FOLDER, DecisionLog
from fdml.federation.key_files import own_credentials
from fdml.federation.mesh import Mesh
from fdml.federation.page_process import reached_here
from fdml.party.settings import PartySettings, read_party
from fdml.privacy.accounts import AccountFile, LedgerAccounts
from fdml.protocol.certificates import SERVER
from fdml.protocol.identity import Credentials, Identity
from fdml.settings.federation import FederationSettings, read_federation
from fdml.settings.topology import NO_SERVER
from fdml.storage.disk import FolderDisk
from fdml.transport.grpc_endpoint import Endpoint, check_loopback
from fdml.transport.grpc_runs import RunsClient
from fdml.transport.tunnels import Tunnels


@dataclass(frozen=True)
class PartyHome:
    """One party and its federation."""

    file: Path
    """Its party.toml."""
    settings: PartySettings
    federation: FederationSettings
    endpoint: Endpoint
    """The server's; where there is none, that of the party's own session."""
    mesh: Mesh | None = None
    """Where all others are, if there is no server."""

    @classmethod
    def read(
        cls,
        path: Path,
        *,
        plain: bool = False,
        server: str | None = None,
        on_event: Listener = lambda _: None,
        tunnels: Tunnels | None = None,
    ) -> PartyHome:
        """From a party.toml; `server` is where the server is, if not where that or federation.toml says.

        `tunnels` are those of this process, where there is no server, and it is the one that stands by.
        """
        settings = read_party(path)
        federation, name = read_federation(settings.federation), settings.party
        if name not in federation.parties:
            raise SettingsError(
                f"{path}: party {name!r} is not among the federation's parties {', '.join(federation.parties)}"
            )
        is_mesh = federation.server == NO_SERVER
        if is_mesh:
            check_no_server(server or settings.server)
            target = reached_here(own_address(federation, name, settings.listen))
        else:
            target = server_address(federation.server, settings.server, server)
        if plain:
            check_loopback(target)
        identity = Identity(federation.name, "party", name)
        keys = None if plain else own_credentials(path.parent / "keys", identity, federation, on_event)
        if is_mesh:
            mesh = Mesh(federation, name, path.parent, keys, tunnels)
            return cls(path, settings, federation, mesh.endpoint(name, target), mesh)
        return cls(
            path,
            settings,
            federation,
            Endpoint(target, federation.name, name, keys, federation.members.get(SERVER, "")),
        )

    @property
    def name(self) -> str:
        """The party's."""
        return self.settings.party

    @property
    def folder(self) -> Path:
        """Where all its files are."""
        return self.file.parent

    @property
    def log(self) -> DecisionLog:
        """What it has decided on runs."""
        return decision_log(self.folder, self.endpoint.credentials)

    @property
    def relays(self) -> Mapping[str, Endpoint]:
        """Over whom questions come: the server, or where there is none, every party that may ask."""
        if self.mesh is None:
            return {SERVER: self.endpoint}
        return {name: self.mesh.endpoint(name) for name in self.mesh.others}

    def client(self, seconds: float = 5.0, on_event: Listener = lambda _: None) -> RunsClient:
        """A line for calls about runs; one that fails is tried again for so many seconds."""
        return RunsClient(self.endpoint, seconds, on_event)

    def accounts(self) -> LedgerAccounts:
        """What all runs have released by now."""
        return AccountFile(FolderDisk(self.settings.ledger)).read()


def decision_log(folder: Path, credentials: Credentials | None) -> DecisionLog:
    """The log of decisions of the party in this folder."""
    if credentials is None:
        return DecisionLog(folder / FOLDER, None)
    key = load_pem_private_key(credentials.key, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SettingsError(f"the key of the party in {str(folder)!r} is no EC key; `fdml keys request` makes one")
    return DecisionLog(folder / FOLDER, key)
