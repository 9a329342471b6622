"""Asking a running server how things stand."""

from __future__ import annotations

from pathlib import Path

from fdml.errors import SettingsError
from fdml.federation.certificates import read_credentials
from fdml.party.settings import read_party
from fdml.protocol.wire_pb2 import RunStatus
from fdml.settings import RunSettings, read_run
from fdml.transport.grpc_channel import Endpoint, ask_status, check_loopback


def status(path: Path, *, plain: bool) -> RunStatus:
    """The state of a run, asked for with the keys of the server or of any party whose folder stands beside run.toml."""
    settings = read_run(path)
    if plain:
        check_loopback(settings.server)
        return ask_status(Endpoint(settings.server, settings.name, settings.parties[0], None))
    for name in ("server", *settings.parties):
        if (path.parent / name / "keys").is_dir():
            credentials = read_credentials(path.parent / name / "keys")
            return ask_status(Endpoint(_target(path.parent / name, settings), settings.name, name, credentials))
    raise SettingsError(
        f"neither the server's folder nor a party's stands beside {path}; ask from a machine of one of them"
    )


def _target(folder: Path, settings: RunSettings) -> str:
    """Where the server is, seen from here."""
    own = folder / "party.toml"
    return (read_party(own).server if own.is_file() else None) or settings.server
