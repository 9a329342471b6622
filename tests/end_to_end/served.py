"""A server on a real socket in a thread of the test process, and streams that may send anything to it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
from cryptography import x509

from fdml.federation.certificates import Authority
from fdml.monitor.listeners import ignore_events
from fdml.protocol.alignment_messages import Consent, RowCounts, RowsOffer, Tokens
from fdml.protocol.alignment_wire import encode_alignment
from fdml.protocol.certificates import fingerprint
from fdml.protocol.fixed_point import encode
from fdml.protocol.identity import Credentials, host_name
from fdml.protocol.key_sets import position_digest
from fdml.protocol.messages import FromParty, FromServer, Hello, Labels, Push, Release, Total, Welcome
from fdml.protocol.wire import decode_from_server, encode_from_party
from fdml.server.alignment import AlignmentPhase
from fdml.server.generations import Generations
from fdml.server.run_alignment import RunAlignment
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import ServerSession
from fdml.settings import RunSettings, TrainingSettings, run_hash
from fdml.settings.evaluation import EvaluationSettings
from fdml.storage.disk import FolderDisk
from fdml.transport.grpc_endpoint import JOIN, PARTY_HEADER, Endpoint
from fdml.transport.grpc_status import ask_status
from tests.transport.served import server_of

ROWS, HELD_OUT, BLOCK = 60, 10, 20
ALL_ROWS = RowCounts(ROWS + HELD_OUT)
ALIGNMENT = position_digest(ALL_ROWS)
SECONDS = 10.0


@dataclass
class ServedRun:
    """A run of ann (who has the labels) and bob, its authority, and where its server listens."""

    settings: RunSettings
    state: RunState
    authority: Authority
    port: int = 0
    plain: bool = False
    known: dict[str, Credentials] = field(default_factory=dict)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def credentials(self, name: str) -> Credentials:
        return self.known[name]

    def address(self, party: str) -> Endpoint:
        credentials = None if self.plain else self.credentials(party)
        return Endpoint(self.target, self.settings.federation, party, credentials, self.settings.members["server"])

    def refused(self) -> dict[str, int]:
        """How many messages the server says it has refused, by reason."""
        return dict(ask_status(self.address("ann")).refused)

    def hello(self, incarnation: int = 1, **changed: object) -> Hello:
        fields = {"run_hash": run_hash(self.settings), "alignment_hash": ALIGNMENT, "rows": ROWS, "held_out": HELD_OUT}
        return Hello(**{**fields, "incarnation": incarnation, **changed})


@contextlib.contextmanager
def served(folder: Path, *, plain: bool = False, rows: RowCounts = ALL_ROWS, **training: object) -> Iterator[ServedRun]:
    """A server that runs until the block ends."""
    chosen = TrainingSettings(epochs=50, batch_size=BLOCK, batches_per_block=1, **training)
    authority = Authority("e2e")
    known = {party: authority.issue("party", party) for party in ("ann", "bob")}
    known["server"] = authority.issue("server", "server")
    members = {name: fingerprint(x509.load_pem_x509_certificate(each.certificate)) for name, each in known.items()}
    settings = RunSettings(
        name="e2e",
        federation="e2e",
        parties=("ann", "bob"),
        label_party="ann",
        training=chosen,
        evaluation=EvaluationSettings(holdout=HELD_OUT / rows.train),
        members=members,
    )
    state = RunState.open(RunDefinition(settings, run_hash(settings)), FolderDisk(folder / "state"))
    found = ServedRun(settings, state, authority, plain=plain, known=known)
    keys = None if plain else known["server"]
    ready, ended = threading.Event(), threading.Event()

    def listening(port: int) -> None:
        found.port = port
        ready.set()

    async def live() -> None:
        try:
            disk = FolderDisk(folder / "state")
            bulletin = RunAlignment(settings, disk, Generations.of(settings, disk))
            for party in settings.parties:
                bulletin.post(party, "", "", encode_alignment(RowsOffer(b"t" * 16)))
            for party in settings.parties:
                bulletin.post(party, "", "", encode_alignment(Tokens(by_position=rows)))
            for party in settings.parties:
                bulletin.post(party, "", "", encode_alignment(Consent(True)))
            alignment = AlignmentPhase(bulletin, settings.parties, run_hash(settings), time.monotonic)
            session = ServerSession(state, alignment, settings, time.monotonic)
            server = server_of(session, settings, plain=plain, on_event=ignore_events)
            await server.run("127.0.0.1:0", keys, listening)
        finally:
            ended.set()

    serving = asyncio.run_coroutine_threadsafe(live(), _loop())
    try:
        assert ready.wait(SECONDS)
        yield found
    finally:
        serving.cancel()
        assert ended.wait(SECONDS)


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """One loop for all servers of this process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="served", daemon=True).start()
    return loop


class RawStream:
    """One stream to the server that sends what a test asks for and nothing else."""

    def __init__(self, target: str, credentials: Credentials | None, party: str = "", seconds: float = SECONDS) -> None:
        self._outgoing: list[bytes | None] = []
        self._more = threading.Condition()
        self._channel = raw_channel(target, credentials)
        header = ((PARTY_HEADER, party.encode().hex()),) if party else ()
        self._call = self._channel.stream_stream(JOIN)(self._requests(), metadata=header, timeout=seconds)

    def __enter__(self) -> RawStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._put(None)
        self._call.cancel()
        self._channel.close()

    def _put(self, raw: bytes | None) -> None:
        with self._more:
            self._outgoing.append(raw)
            self._more.notify()

    def _requests(self) -> Iterator[bytes]:
        while True:
            with self._more:
                self._more.wait_for(lambda: self._outgoing)
                raw = self._outgoing.pop(0)
            if raw is None:
                return
            yield raw

    def send(self, *messages: FromParty | bytes) -> RawStream:
        for message in messages:
            self._put(message if isinstance(message, bytes) else encode_from_party(message))
        return self

    def receive(self, kind: type[FromServer]) -> FromServer:
        """The next message of a kind."""
        for raw in self._call:
            received = decode_from_server(raw)
            if isinstance(received, kind):
                return received
        raise AssertionError(f"the server ended the stream before it sent {kind.__name__}")

    def end(self) -> tuple[grpc.StatusCode, str]:
        """The status with which the server ends this stream."""
        try:
            for _ in self._call:
                pass
        except grpc.RpcError as error:
            return error.code(), error.details()
        return grpc.StatusCode.OK, ""


def raw_channel(target: str, credentials: Credentials | None) -> grpc.Channel:
    if credentials is None:
        return grpc.insecure_channel(target)
    keys = (credentials.key or None, credentials.certificate or None)
    options = [("grpc.ssl_target_name_override", host_name("e2e")), ("grpc.max_send_message_length", -1)]
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(credentials.authority, *keys), options)


def labels(rows: int = ROWS + HELD_OUT) -> Labels:
    return Labels(2, bytes(Labels.sealed_size("binary", 2, rows)))


def push(step: int, rows: int = BLOCK, value: float = 0.25) -> Push:
    return Push(step, Release(encode(np.full(rows, value * step))))


class Honest:
    """Two parties that keep to the protocol, step by step, to see that they are not disturbed."""

    def __init__(self, run: ServedRun) -> None:
        self._run = run
        self._incarnations = dict.fromkeys(run.settings.parties, 1)
        self.streams = {party: self._stream(party) for party in run.settings.parties}
        self.streams["ann"].send(run.hello(), labels()).receive(Welcome)
        self.streams["bob"].send(run.hello())
        self.streams["bob"].receive(Labels)
        self.step = 0

    def _stream(self, party: str) -> RawStream:
        return RawStream(self._run.target, self._run.credentials(party), seconds=60.0)

    def advance(self) -> None:
        """One more step; both must be served."""
        for stream in self.streams.values():
            stream.send(push(self.step))
        for stream in self.streams.values():
            total = stream.receive(Total)
            assert total.step == self.step
            assert np.array_equal(total.values, 2 * push(self.step).release.values)
        self.step += 1

    def misbehave(self, party: str, *messages: FromParty | bytes) -> tuple[grpc.StatusCode, str]:
        """Send something on a party's own stream that ends it."""
        return self.streams[party].send(*messages).end()

    def come_back(self, party: str, incarnation: int | None = None) -> None:
        """Make a new stream in place of the broken one."""
        self._incarnations[party] = incarnation or self._incarnations[party]
        self.streams[party].__exit__()
        self.streams[party] = self._stream(party)
        self.streams[party].send(self._run.hello(self._incarnations[party], done=self.step - 1)).receive(Welcome)

    def close(self) -> None:
        for stream in self.streams.values():
            stream.__exit__()
