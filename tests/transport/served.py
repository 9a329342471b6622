"""A server's session on a real socket of this machine, in a thread of the test process."""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
import time

from fdml.protocol.alignment_messages import RowsOffer
from fdml.protocol.alignment_wire import encode_alignment
from fdml.server.alignment import AlignmentPhase
from fdml.server.generations import Generations
from fdml.server.host import NO_RUNS, RunHost
from fdml.server.run_alignment import RunAlignment
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import ServerSession
from fdml.settings import run_hash
from fdml.settings.federation import FederationSettings
from fdml.storage.memory import MemoryDisk
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.grpc_server import GrpcServer

SECONDS = 20.0
"""After this time a test has failed."""

OFFER = RowsOffer(b"t" * 16)
"""What every party has offered to the run; nothing is kept."""


def new_session(settings, *, disk=None, digest=None, offered=True):
    """A session with a real clock; without a disk nothing lasts. The parties have `offered` their rows, or not yet."""
    own = run_hash(settings)
    definition = RunDefinition(settings, own)
    state = RunState(definition) if disk is None else RunState.open(definition, disk)
    home = MemoryDisk() if disk is None else disk
    rows = RunAlignment(settings, home, Generations.of(settings, home))
    for party in settings.parties if offered else ():
        rows.post(party, "", "", encode_alignment(OFFER))
    alignment = AlignmentPhase(rows, settings.parties, own, time.monotonic, digest=digest)
    return ServerSession(state, alignment, settings, time.monotonic)


class Opened:
    """An open session whose files, if it has any, are closed by `close`."""

    def __init__(self, session, close=lambda: None):
        self.session = session
        self.close = close


def server_of(session, settings, *, plain, on_event, tunnels=None):
    """The server of this one session."""
    federation = FederationSettings.of_run(settings)
    host = RunHost(federation, NO_RUNS, time.time, only=settings)
    return GrpcServer(
        host,
        lambda _: Opened(session),
        federation,
        plain=plain,
        on_event=on_event,
        only=settings.name,
        tunnels=tunnels,
    )


class ServedSession:
    """Serves until it is stopped or the run is over. Use it as a context."""

    def __init__(self, session, settings, *, credentials=None, port=0, tunnels=None):
        self.session = session
        self.tunnels = tunnels
        self.settings = settings
        self.port = 0
        self.events = []
        self.ended = threading.Event()
        self._credentials = credentials
        self._ready = threading.Event()
        self._future = asyncio.run_coroutine_threadsafe(self._run(port), server_loop())

    def __enter__(self):
        assert self._ready.wait(SECONDS)
        return self

    def __exit__(self, *_):
        self.stop()

    def endpoint(self, party, *, port=None, credentials=None):
        return Endpoint(f"127.0.0.1:{port or self.port}", self.settings.federation, party, credentials)

    def stop(self):
        """End as a server does that is interrupted."""
        self._future.cancel()
        assert self.ended.wait(SECONDS)

    def result(self):
        """Wait for the end of the run; raises what has ended the server."""
        return self._future.result(SECONDS)

    async def _run(self, port):
        plain = self._credentials is None
        heard, tunnels = self.events.append, self.tunnels
        self.server = server = server_of(self.session, self.settings, plain=plain, on_event=heard, tunnels=tunnels)
        try:
            await server.run(f"127.0.0.1:{port}", self._credentials, self._listening)
        finally:
            self.ended.set()

    def _listening(self, port):
        self.port = port
        self._ready.set()


@functools.cache
def server_loop():
    """One loop for all servers of this process, as gRPC wants it."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="served", daemon=True).start()
    return loop


def free_port():
    """A port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(condition, what="it"):
    """Wait for a condition that another thread brings about."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} has not come about within {SECONDS:g} s"
        time.sleep(0.005)
