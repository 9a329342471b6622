"""The HTTP server under the endpoint: its limits, and connections that no caller can hold for ever.

uvicorn waits without end for a request's first lines, and for a caller to take its answer. A thousand connections that
do nothing would keep all others out.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_HEAD_SECONDS = 10.0
"""In which a request must have begun, after the connection or the answer before, with all of its headers."""
_TAKING_SECONDS = 30.0
"""In which a caller must take some of its answer."""
_LOOK_SECONDS = 2.0
_MOST_CONNECTIONS = 1000
"""Open ones; further callers are told to come back later."""
_MOST_HEAD = 16 * 1024
"""Bytes of a request before its body."""
_GOODBYE_SECONDS = 5


class Connection(H11Protocol):
    """One caller's connection: it is ended where the caller neither asks nor takes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look at it now and then."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._left, self._left_since = 0, self._idle_since
        self._timer = self.loop.call_later(_LOOK_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """The time of the next request begins."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def _look(self) -> None:
        now, left = self.loop.time(), self.transport.get_write_buffer_size()
        if not left or left < self._left:
            self._left_since = now
        self._left = left
        is_asking = self.cycle is not None and not self.cycle.response_complete
        is_stuck = left and now - self._left_since > _TAKING_SECONDS
        if is_stuck or not (is_asking or left or now - self._idle_since <= _HEAD_SECONDS):
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(_LOOK_SECONDS, self._look)


def http_server(app: Any, tls: ssl.SSLContext | None) -> uvicorn.Server:
    """A server for this application; it logs nothing, as a log would have words of callers."""
    config = uvicorn.Config(
        app,
        http=Connection,
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=_MOST_CONNECTIONS,
        h11_max_incomplete_event_size=_MOST_HEAD,
        timeout_graceful_shutdown=_GOODBYE_SECONDS,
    )
    config.load()
    config.ssl = tls  # its own options cannot say which TLS is the oldest
    return uvicorn.Server(config)
