"""The HTTP endpoint of a party that may ask, as a process: it holds a line to the server and answers callers."""

from __future__ import annotations

import socket
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fdml.errors import SettingsError
from fdml.events import Listener
from fdml.federation.endpoint_counts import kept_counts
from fdml.federation.endpoint_models import EndpointModels
from fdml.federation.party_home import PartyHome
from fdml.monitor.listeners import remarks_of
from fdml.serving.online.access import Access
from fdml.serving.online.app import Endpoint
from fdml.serving.online.connections import http_server
from fdml.serving.online.request_counts import RequestCounts
from fdml.serving.online.spans import Spans, no_spans
from fdml.storage.failures import explained_failures
from fdml.transport.grpc_relay import GrpcQuestions

_THREADS = 8
"""That ask questions, probe parties and look at files."""
_WAITING = 512
"""Callers that the system lets wait for a connection."""


@explained_failures()
def serve_endpoint(
    path: Path,
    access: Access,
    *,
    port: int = 8080,
    plain: bool = False,
    server: str | None = None,
    seconds: float | None = None,
    spans: Spans = no_spans,
    on_event: Listener = lambda _: None,
    on_start: Callable[[int, Callable[[], None]], None] = lambda *_: None,
) -> None:
    """Serve the published models of this party.toml's party until it is interrupted.

    How it is used is counted for /metrics and, for the live page, in `endpoint.json` of the party's folder. `on_start`
    gets the port and a function that ends it.
    """
    token, tls = access.token(), access.tls()
    home = PartyHome.read(path, plain=plain, server=server, on_event=on_event)
    reports, counts = _Reports(remarks_of(home.name, on_event)), RequestCounts()
    with (
        _listening(access.host, port) as listening,
        GrpcQuestions(home.endpoint, on_event) as line,
        ThreadPoolExecutor(_THREADS, "endpoint") as threads,
        kept_counts(home.folder, counts),
    ):
        models = EndpointModels(
            home, line, threads, seconds=seconds, report=reports.report, unforeseen=reports.unforeseen
        )
        models.look()
        endpoint = Endpoint(models, token, reports.unforeseen, access.names_host, counts=counts, spans=spans)
        http = http_server(endpoint.app(), tls)
        scheme, found = "http" if tls is None else "https", listening.getsockname()[1]
        reports.report("address", f"party {home.name!r} answers callers at {scheme}://{access.host}:{found}")
        on_start(found, lambda: setattr(http, "should_exit", True))
        http.run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    listening: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        family, kind, protocol, _, address = found
        listening = socket.socket(family, kind, protocol)  # named, or asyncio lets answers wait 40 ms for more
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_WAITING)
    except OSError as error:
        if listening is not None:
            listening.close()
        raise SettingsError(
            f"the endpoint cannot listen at {host!r}, port {port} ({error.strerror}); name another"
        ) from None
    return listening


class _Reports:
    """What the endpoint says: each thing once until it changes, and never a caller's words."""

    def __init__(self, remark: Callable[[str], None]) -> None:
        self._remark = remark
        self._last: dict[str, str] = {}
        self._lock = threading.Lock()

    def report(self, about: str, text: str) -> None:
        """Say something of a subject; an empty text says nothing, and lets the next be said again."""
        with self._lock:
            is_new = self._last.get(about, "") != text
            self._last[about] = text
        if is_new and text:
            self._remark(text)

    def unforeseen(self, error: BaseException) -> None:
        """Where an error came from; its own words may hold ids, and stay away."""
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        places = ", ".join(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in frames)
        self._remark(f"an error in the endpoint at {time.strftime('%H:%M:%S')}: {type(error).__name__} in {places}")
