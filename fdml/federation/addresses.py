"""Addresses of a federation's server, written host:port."""

from __future__ import annotations

import re

from fdml.errors import SettingsError
from fdml.settings.federation import FederationSettings
from fdml.settings.topology import NO_SERVER

LARGEST_PORT = 65535
_PORT = re.compile(r"[0-9]{1,5}")


def server_address(federation_server: str, party_server: str | None = None, chosen: str | None = None) -> str:
    """Where the server is reached: as chosen by option, else as party.toml says, else as federation.toml does."""
    if chosen is None and party_server is None and federation_server == NO_SERVER:
        raise SettingsError(
            'the federation has server = "none", and this needs one; have a party host the server (host = its name in '
            "federation.toml)"
        )
    address = checked_address(chosen or party_server or federation_server)
    if takes_any_port(address):
        raise SettingsError(
            f"the server's address {address!r} leaves the port open; "
            f"give the one that `fdml serve` prints with --server HOST:PORT"
        )
    return address


def check_no_server(chosen: str | None) -> None:
    """Raise where an address of a server was given, and there is none."""
    if chosen is not None:
        raise SettingsError(
            f'federation.toml has server = "none", and the server is said to be at {chosen!r}; leave it out'
        )


def own_address(federation: FederationSettings, party: str, listen: str | None = None) -> str:
    """Where a party of a federation without a server listens: as its party.toml says, else as all others reach it."""
    address = listen or federation.addresses.get(party)
    if address is None:
        raise SettingsError(
            f"party {party!r} has no address in [addresses], so its own session needs one that only this machine "
            f'reaches; set listen = "127.0.0.1:7443" in its party.toml'
        )
    return address


def checked_address(address: str) -> str:
    """The address, or an error if it is not host:port with a port that there is."""
    host, _, port = address.rpartition(":")
    if not host or not _PORT.fullmatch(port) or int(port) > LARGEST_PORT:
        raise SettingsError(
            f"the server's address is {address!r}; write it as host:port, like 127.0.0.1:7443, with a port up to "
            f"{LARGEST_PORT}"
        )
    return address


def takes_any_port(address: str) -> bool:
    """Whether the server may choose its port: port 0."""
    return address.rpartition(":")[2] == "0"


def with_port(address: str, port: int) -> str:
    """The same host with another port."""
    return f"{address.rpartition(':')[0]}:{port}"
