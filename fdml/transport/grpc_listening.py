"""Where the gRPC server listens, and what it takes from connections before it knows whose they are."""

from __future__ import annotations

from typing import Any

import grpc

from fdml.protocol.identity import Credentials
from fdml.transport.grpc_endpoint import flow_options, keepalive_options, size_options

_MOST_CALLS = 16
"""Streams and calls on one connection."""
_HANDSHAKE_MS = 5000
"""How long a connection may take to show a certificate from its first byte on."""
SILENT_SECONDS = 3600
"""How long the kernel keeps a connection that says nothing. After that it is taken in, and the handshake's time begins:
many that came at once would be there at once."""
_MOST_CONNECTIONS = 4096
"""More are refused: each takes about 60 kB of memory."""
_PING_SECONDS = 60.0
"""How long a ping may take behind all that was sent before it."""


def server_options() -> list[tuple[str, int | str]]:
    """Of the server: how much one caller may have open, and for how long."""
    return [
        *keepalive_options(_PING_SECONDS),
        *flow_options(),
        *size_options(),
        ("grpc.so_reuseport", 0),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", _MOST_CALLS),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        ("grpc.max_allowed_incoming_connections", _MOST_CONNECTIONS),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def listen(server: Any, address: str, credentials: Credentials | None) -> int:
    """Have a server listen on an address, with TLS where there are credentials; gives the port."""
    if credentials is None:
        return int(server.add_insecure_port(address))
    ours = grpc.ssl_server_credentials(
        [(credentials.key, credentials.certificate)], credentials.authority, require_client_auth=True
    )
    return int(server.add_secure_port(address, ours))
