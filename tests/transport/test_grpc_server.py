"""The server on a real socket: who gets in, what ends a stream, and when the server itself ends."""

import asyncio
import contextlib

import grpc
import pytest

from fdml import events
from fdml.errors import PeerTimeout, Refusal
from fdml.federation.certificates import Authority
from fdml.protocol.identity import Credentials
from fdml.protocol.limits import PIECE
from fdml.protocol.messages import Ack, Finished, Labels, Total, Waiting, Welcome
from fdml.protocol.waited_for import NEVER_SEEN, WaitedFor
from fdml.storage.memory import MemoryDisk
from fdml.transport import grpc_server, run_lines
from fdml.transport.grpc_endpoint import ALIVE, FETCH, PARTY_HEADER, POST, STATUS_OF
from tests.server.sessions import DIGEST, STEPS, hello, labels, push, settings_of
from tests.transport.raw_stream import RawStream, raw_channel
from tests.transport.served import SECONDS, ServedSession, new_session, server_loop, server_of, until

AUTHORITY, STRANGER = Authority("shop"), Authority("shop")
BOB = AUTHORITY.issue("party", "bob")


def serve(*, credentials=None, settings=None, disk=None):
    settings = settings or settings_of()
    return ServedSession(new_session(settings, digest=DIGEST, disk=disk), settings, credentials=credentials)


@pytest.fixture
def plain():
    with serve() as server:
        yield server


@pytest.fixture(scope="module")
def secure():
    with serve(credentials=AUTHORITY.issue("server", "server")) as server:
        yield server


def train(ann, bob, steps=STEPS):
    """Two raw streams through a whole run."""
    ann.send(hello(), labels())
    bob.send(hello()).receive(Labels)
    for step in range(steps):
        ann.send(push(step))
        bob.send(push(step))
    for stream in (ann, bob):
        for step in range(steps):
            assert stream.receive(Total).step == step


# Who gets in.

NOBODY = {
    "no certificate": Credentials(b"", b"", AUTHORITY.certificate),
    "another authority": Credentials(
        STRANGER.issue("party", "bob").key, STRANGER.issue("party", "bob").certificate, AUTHORITY.certificate
    ),
    "expired": AUTHORITY.issue("party", "bob", days=-1),
    "plain text": None,
}


@pytest.mark.parametrize("who", NOBODY)
def test_whoever_fails_the_handshake_never_reaches_the_session(secure, who):
    before = dict(secure.server.refused)
    with RawStream(secure.port, "bob", credentials=NOBODY[who]) as stream:
        status, _ = stream.send(hello()).end()
    assert status is grpc.StatusCode.UNAVAILABLE
    assert secure.server.refused == before


SOMEBODY = {
    "of another run": (
        AUTHORITY.issue("party", "bob", federation="other"),
        Refusal.UNAUTHENTICATED,
        "fdml://other/party/bob",
    ),
    "with the server's role": (AUTHORITY.issue("server", "bob"), Refusal.UNAUTHENTICATED, "shop/server/bob"),
    "no party of the run": (AUTHORITY.issue("party", "zed"), Refusal.NOT_PERMITTED, "'zed' is not a party"),
}


@pytest.mark.parametrize("who", SOMEBODY)
def test_whoever_may_not_join_is_refused_with_the_reason(secure, who):
    credentials, refusal, text = SOMEBODY[who]
    with RawStream(secure.port, "bob", credentials=credentials) as stream:
        status, details = stream.send(hello()).end()
    assert status is STATUS_OF[refusal]
    assert text in details


def test_the_header_of_a_secure_line_names_nobody(secure):
    with RawStream(secure.port, "ann", credentials=BOB) as stream:
        stream.send(hello()).receive(Welcome)
        assert secure.session.joined == {"bob"}


@pytest.mark.parametrize("header", ["no hex", "ff", "", b"zed".hex()])
def test_a_plain_line_without_a_party_s_name_is_refused(plain, header):
    with RawStream(plain.port, header=header) as stream:
        status, _ = stream.send(hello()).end()
    assert status is grpc.StatusCode.PERMISSION_DENIED
    assert plain.server.refused == {"not_permitted": 1}


@pytest.mark.parametrize("method", [POST, FETCH, ALIVE])
def test_short_calls_of_strangers_are_refused_too(plain, method):
    with raw_channel(plain.port) as channel, pytest.raises(grpc.RpcError) as failed:
        channel.unary_unary(method)(b"", timeout=SECONDS, metadata=((PARTY_HEADER, b"zed".hex()),))
    assert failed.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("method", [POST, FETCH])
def test_a_call_of_nonsense_is_refused(plain, method):
    with raw_channel(plain.port) as channel, pytest.raises(grpc.RpcError) as failed:
        channel.unary_unary(method)(b"\xff\xff", timeout=SECONDS, metadata=((PARTY_HEADER, b"bob".hex()),))
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert plain.events == [events.Refused("bob", "invalid", failed.value.details())]


# Streams.


def test_a_run_over_two_streams(plain):
    with RawStream(plain.port, "ann") as ann, RawStream(plain.port, "bob") as bob:
        train(ann, bob)
        assert plain.session.joined == {"ann", "bob"}
    until(lambda: not plain.session.joined, "the end of both streams")


def test_what_the_session_refuses_ends_the_stream_with_its_status(plain):
    with RawStream(plain.port, "bob") as stream:
        status, details = stream.send(hello(), push(3)).end()
    assert status is STATUS_OF[Refusal.GAP]
    assert "the labels have not come yet" in details
    until(lambda: not plain.session.joined, "the end of the stream")


def test_the_other_parties_go_on_after_a_refusal(plain):
    with RawStream(plain.port, "ann") as ann, RawStream(plain.port, "bob") as bob:
        train(ann, bob, 2)
        with RawStream(plain.port, "bob") as wrong:
            assert wrong.send(b"\xff").end()[0] is grpc.StatusCode.INVALID_ARGUMENT
        ann.send(push(2))
        bob.send(push(2))
        assert ann.receive(Total).step == bob.receive(Total).step == 2


def test_more_messages_than_are_read_at_once_are_all_acted_on():
    long = settings_of(epochs=60)
    with serve(settings=long) as server, RawStream(server.port, "ann") as ann:
        steps = 180
        ann.send(hello(long), labels())
        ann.send(*(push(step) for step in range(steps)))
        while ann.receive(Ack).count < steps + 2:
            pass
        assert server.session.state.coordinator.pushed("ann") == steps - 1


def test_messages_without_an_answer_are_acknowledged_within_a_moment(plain):
    with RawStream(plain.port, "ann") as ann:
        ann.send(hello(), labels())
        ann.send(push(0), push(1))
        while ann.receive(Ack).count < 4:
            pass


def test_who_waits_is_sent_for_whom(plain):
    with RawStream(plain.port, "bob") as bob:
        assert bob.send(hello()).receive(Waiting) == Waiting((WaitedFor("ann", NEVER_SEEN),))


def test_bytes_in_both_directions_are_counted(plain):
    with RawStream(plain.port, "bob") as bob:
        bob.send(hello()).receive(Welcome)
        until(lambda: plain.session.status.traffic["bob"][1] > 0, "bytes to bob")
        assert plain.session.status.traffic["bob"][0] > 64
        assert plain.session.status.traffic["ann"] == (0, 0)


def test_what_is_longer_than_a_piece_is_not_even_read():
    with serve() as server, RawStream(server.port, "bob") as stream:
        status, details = stream.send(hello(), bytes(PIECE + 1)).end()
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in details
        assert server.session.status.refused == {}


def test_events_of_the_session_reach_the_listener(plain):
    with RawStream(plain.port, "bob") as bob:
        bob.send(hello()).receive(Welcome)
    assert plain.events == [events.Joined("bob", 0)]


# The end of the server.


def test_the_server_ends_when_all_have_finished_and_closed_their_streams(plain):
    with RawStream(plain.port, "ann") as ann, RawStream(plain.port, "bob") as bob:
        train(ann, bob)
        for stream in (ann, bob):
            stream.send(Finished(b"m" * 32))
            while stream.receive(Ack).count < STEPS + 2:
                pass
            stream.close_own_side()
        plain.result()
    assert plain.session.all_departed


def test_a_finished_run_does_not_wait_for_ever_for_a_party_that_may_not_know(monkeypatch):
    monkeypatch.setattr(run_lines, "_LINGER_SECONDS", 0.2)
    with serve() as server:
        with RawStream(server.port, "ann") as ann, RawStream(server.port, "bob") as bob:
            train(ann, bob)
            for stream in (ann, bob):
                stream.send(Finished(b"m" * 32))
            server.result()
        assert server.session.state.finished
        assert not server.session.all_departed


def test_a_run_of_which_nothing_is_heard_ends_with_an_error(monkeypatch):
    monkeypatch.setattr(run_lines, "_TICK_SECONDS", 0.02)
    text = r"no message from any party for .* ann, bob have not finished"
    with serve(settings=settings_of(peer_timeout_seconds=0.02)) as server, RawStream(server.port, "ann") as ann:
        ann.send(hello(settings_of(peer_timeout_seconds=0.02)), labels())
        with pytest.raises(PeerTimeout, match=text):
            server.result()


class FullDisk(MemoryDisk):
    """Takes nothing once it is full."""

    is_full = False

    def append(self, name, content, **options):
        if self.is_full:
            raise OSError("No space left on device")
        super().append(name, content, **options)


def test_a_server_that_cannot_store_what_it_should_acknowledge_ends():
    disk = FullDisk()
    with serve(disk=disk) as server, RawStream(server.port, "ann") as ann:
        ann.send(hello(), labels())
        while ann.receive(Ack).count < 2:
            pass
        disk.is_full = True
        ann.send(push(0))
        with pytest.raises(OSError, match="No space left on device"):
            server.result()


def test_a_server_that_ends_does_not_wait_for_who_waits_for_it(monkeypatch):
    """Else every run would end a second later, the task that runs the server being one of those it waits for."""
    monkeypatch.setattr(grpc_server, "_FLUSH_SECONDS", 10 * SECONDS)
    settings = settings_of()
    server = server_of(new_session(settings), settings, plain=True, on_event=lambda _: None)

    async def waiting():
        work = asyncio.ensure_future(server.run("127.0.0.1:0", None, lambda _: work.cancel()))
        with contextlib.suppress(asyncio.CancelledError):
            await work

    asyncio.run_coroutine_threadsafe(waiting(), server_loop()).result(SECONDS)
