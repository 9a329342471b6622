"""A server's session on a real socket of this machine, in a thread of the test process."""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
import time

from fdml.server.alignment import AlignmentPhase
from fdml.server.bulletin import BulletinStore
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import ServerSession
from fdml.settings import run_hash
from fdml.storage.memory import MemoryDisk
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.grpc_server import GrpcServer

SECONDS = 20.0
"""After this time a test has failed."""


def new_session(settings, *, disk=None, digest=None):
    """A session with a real clock; without a disk nothing lasts."""
    own = run_hash(settings)
    definition = RunDefinition(settings, own)
    state = RunState(definition) if disk is None else RunState.open(definition, disk)
    bulletin = BulletinStore.open(
        settings.parties, settings.align, MemoryDisk() if disk is None else disk, pointing=settings.pointing_party
    )
    alignment = AlignmentPhase(bulletin, settings.parties, own, time.monotonic, digest=digest)
    return ServerSession(state, alignment, settings, time.monotonic)


class ServedSession:
    """Serves until it is stopped or the run is over. Use it as a context."""

    def __init__(self, session, settings, *, credentials=None, port=0):
        self.session = session
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
        return Endpoint(f"127.0.0.1:{port or self.port}", self.settings.name, party, credentials)

    def stop(self):
        """End as a server does that is interrupted."""
        self._future.cancel()
        assert self.ended.wait(SECONDS)

    def result(self):
        """Wait for the end of the run; raises what has ended the server."""
        return self._future.result(SECONDS)

    async def _run(self, port):
        plain = self._credentials is None
        server = GrpcServer(self.session, self.settings, plain=plain, on_event=self.events.append)
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
