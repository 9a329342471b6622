"""The status of a run, asked of its server."""

from __future__ import annotations

from pathlib import Path

from fdml.errors import SettingsError
from fdml.federation.addresses import server_address
from fdml.federation.key_files import check_has_members, read_credentials
from fdml.monitor.status import RunStatus
from fdml.party.settings import read_party
from fdml.protocol.certificates import SERVER
from fdml.settings import read_run
from fdml.transport.grpc_endpoint import Endpoint, check_loopback
from fdml.transport.grpc_status import ask_status


def status(path: Path, *, plain: bool, server: str | None = None) -> RunStatus:
    """Ask with the keys of the server, or of any party, whose folder is beside run.toml.

    `server` is where the server is, if not where party.toml or run.toml says.
    """
    settings = read_run(path)
    if plain:
        target = server_address(settings, None, server)
        check_loopback(target)
        return ask_status(Endpoint(target, settings.name, settings.parties[0], None))
    for name in ("server", *settings.parties):
        folder = path.parent / name
        if (folder / "keys").is_dir():
            target = server_address(settings, _party_server(folder), server)
            check_has_members(settings)
            credentials = read_credentials(folder / "keys")
            return ask_status(Endpoint(target, settings.name, name, credentials, settings.members[SERVER]))
    raise SettingsError(
        f"there is neither the server's folder nor a party's beside {str(path)!r}; ask on a machine of one of them"
    )


def _party_server(folder: Path) -> str | None:
    own = folder / "party.toml"
    return read_party(own).server if own.is_file() else None
