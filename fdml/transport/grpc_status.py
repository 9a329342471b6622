"""The status call of a run's server."""

from __future__ import annotations

import grpc

from fdml.errors import MessageRefused, ServerUnreachable
from fdml.monitor.status import RunStatus
from fdml.transport.grpc_endpoint import REFUSAL_OF, STATUS, Endpoint, call_metadata
from fdml.transport.grpc_known_server import KnownServer
from fdml.transport.status_wire import decode_status


def ask_status(address: Endpoint, seconds: float = 5.0) -> RunStatus:
    """The status of a run, from its server."""
    try:
        with KnownServer(address, seconds).open() as channel:
            ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(STATUS)
            raw = ask(b"", timeout=seconds, metadata=call_metadata(address))
    except grpc.RpcError as error:
        refusal = REFUSAL_OF.get(error.code())
        if refusal is not None:
            raise MessageRefused(f"the server at {address.target} refuses: {error.details()}", refusal) from None
        raise ServerUnreachable(
            f"no server of federation {address.federation!r} answers at {address.target} ({error.details()}); "
            f"is `fdml serve` running?"
        ) from None
    return decode_status(raw)
