"""Asking a running server how things stand."""

from __future__ import annotations

from pathlib import Path

from fdml.errors import SettingsError
from fdml.exchange.certificates import read_credentials
from fdml.exchange.grpc_line import Address, ask_status
from fdml.exchange.wire_pb2 import RunStatus
from fdml.run.join import check_loopback
from fdml.settings import read_run


def status(path: Path, *, plain: bool) -> RunStatus:
    """The state of a run, asked for with the certificate of any party whose folder stands beside run.toml."""
    settings = read_run(path)
    if plain:
        check_loopback(settings.server)
        return ask_status(Address(settings.server, settings.name, settings.parties[0], None))
    for party in settings.parties:
        if (path.parent / party / "keys").is_dir():
            credentials = read_credentials(path.parent / party / "keys")
            return ask_status(Address(settings.server, settings.name, party, credentials))
    raise SettingsError(f"no party's folder with keys stands beside {path}; ask from a machine of one of the parties")
