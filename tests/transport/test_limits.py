"""Findings 9, 10, 11, 16, 29 on real sockets: what anyone can make either side hold, wait for or believe."""

import errno
import itertools
import re
import socket
import ssl
import time

import grpc
import numpy as np
import pytest

from benchmarks.proxy import Proxy
from fdml.errors import ExchangeError, MessageRefused, Refusal
from fdml.events import Refused
from fdml.federation.certificates import Authority
from fdml.protocol.alignment_calls import FetchCall, PostCall, encode_fetch, encode_post
from fdml.protocol.alignment_messages import Consent, Post, RowCounts, Tokens
from fdml.protocol.alignment_wire import encode_alignment
from fdml.protocol.identity import host_name
from fdml.protocol.limits import CALL, PIECE
from fdml.protocol.messages import Labels, Push, Release, Total, Waiting, Welcome
from fdml.protocol.waited_for import WaitedFor
from fdml.protocol.wire import encode_from_server
from fdml.settings import run_hash
from fdml.storage.memory import MemoryDisk
from fdml.transport import run_lines
from fdml.transport.grpc_endpoint import ALIVE, FETCH, JOIN, PARTY_HEADER, POST, STATUS
from fdml.transport.pieces import pieces
from tests.server.sessions import DIGEST, hello, labels, push, settings_of
from tests.transport.raw_stream import RawStream, raw_channel, scripted_server
from tests.transport.served import OFFER, SECONDS, ServedSession, new_session, until
from tests.transport.test_grpc_channel import channel_to, receive

AUTHORITY = Authority("shop")
BOB = ((PARTY_HEADER, b"bob".hex()),)


def serve(*, settings=None, disk=None, credentials=None, digest=DIGEST, offered=True):
    settings = settings or settings_of()
    session = new_session(settings, digest=digest, disk=disk, offered=offered)
    return ServedSession(session, settings, credentials=credentials)


@pytest.fixture
def plain():
    with serve() as server:
        yield server


def failure(call, *args, **options):
    with pytest.raises(grpc.RpcError) as failed:
        list(call(*args, timeout=SECONDS, metadata=BOB, **options))
    return failed.value.code(), failed.value.details()


# What the server takes from a party.


@pytest.mark.parametrize("method", [ALIVE, STATUS])
def test_a_call_that_needs_no_bytes_takes_none(plain, method):
    """Finding 11: Alive took 512 MiB."""
    with raw_channel(plain.port) as channel:
        code, details = failure(channel.unary_unary(method), b"x")
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1 bytes with a call that has none" in details
        code, details = failure(channel.unary_unary(method), bytes(20 * 2**20))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in details, "gRPC itself does not take it in"


@pytest.mark.parametrize("method", [ALIVE, STATUS, POST, FETCH, JOIN])
def test_nothing_compressed_is_unpacked(plain, method):
    """Finding 11: 3 MiB of compressed calls took 1.4 GiB."""
    with raw_channel(plain.port) as channel:
        code, details = failure(channel.stream_stream(method), iter([bytes(2**20)]), compression=grpc.Compression.Gzip)
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert "gzip" in details


@pytest.mark.parametrize("kind", ["x" * (20 * 2**20), "x" * 2000, "x" * 100, "[/x]", "[bold red]all have finished[/]"])
def test_no_kind_of_message_is_quoted_at_length_or_as_markup(plain, kind):
    """Finding 9: one fetch with a kind of 20 MiB froze the server for two minutes."""
    call = encode_fetch(FetchCall(kind, "ann", "", run_hash(settings_of())))
    with raw_channel(plain.port) as channel:
        code, details = failure(channel.unary_stream(FETCH), call)
    assert code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)
    assert len(details) < 250
    assert all(len(event.reason) < 250 for event in plain.events if isinstance(event, Refused))
    assert all(len(str(event)) < 1000 for event in plain.events), "nor does another event quote it"


def test_a_fetch_has_a_size_of_its_own(plain):
    with raw_channel(plain.port) as channel:
        code, details = failure(channel.unary_stream(FETCH), bytes(CALL + 1))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert f"'bob' sent a message of {CALL + 1} bytes or more" in details


def test_a_message_is_refused_before_all_of_it_has_come(plain):
    """Chaos 3: limits hold before a message is assembled; this one never ends."""
    sent = []

    def endless():
        while True:
            sent.append(1)
            yield bytes(PIECE)

    with raw_channel(plain.port) as channel:
        code, details = failure(channel.stream_stream(JOIN), endless())
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "here the largest has 1024" in details
    assert len(sent) < 64, "what is on its way, and no more"


def test_once_the_rows_are_found_no_post_may_be_longer_than_those_it_has_made():
    """Chaos 3: 512 MiB were taken at any time."""
    with serve(digest=None) as server, raw_channel(server.port) as channel:
        for message, party in itertools.product((Tokens(by_position=RowCounts(20)), Consent(True)), ("ann", "bob")):
            call = PostCall("", "", encode_alignment(message), run_hash(settings_of()))
            named = ((PARTY_HEADER, party.encode().hex()),)
            channel.stream_unary(POST)(pieces(encode_post(call)), timeout=SECONDS, metadata=named)
        junk = PostCall("", "", bytes(3 * PIECE), run_hash(settings_of()))
        code, details = failure(channel.stream_unary(POST), pieces(encode_post(junk)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "party 'bob' sent a message of 1048576 bytes or more" in details


def test_a_post_that_ends_before_its_last_piece_is_refused(plain):
    with raw_channel(plain.port) as channel:
        code, details = failure(channel.stream_unary(POST), iter([bytes(PIECE)]))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "ended before its last piece" in details


def test_labels_and_blocks_longer_than_a_piece_travel_whole():
    settings = settings_of(batch_size=200_000, batches_per_block=1, epochs=1, value_bits=64)
    rows = 200_000
    with serve(settings=settings) as server:
        many = {"settings": settings, "rows": rows}
        with RawStream(server.port, "ann") as ann, RawStream(server.port, "bob") as bob:
            sealed = Labels(2, (bytes(range(251)) * 9000)[: Labels.sealed_size("binary", 2, rows + 2, weighted=True)])
            ann.send(hello(**many)).send_in_pieces(sealed)
            assert bob.send(hello(**many)).receive(Labels) == sealed
            values = np.arange(rows, dtype=np.int64) * 2**30
            for stream in (ann, bob):
                stream.send_in_pieces(Push(0, Release(values)))
            total = bob.receive(Total)
            np.testing.assert_array_equal(total.values.ravel(), 2 * values)


def test_a_party_s_older_lines_end_when_it_has_too_many(plain, monkeypatch):
    monkeypatch.setattr(run_lines, "_MOST_LINES", 3)
    streams = [RawStream(plain.port, "bob") for _ in range(6)]
    try:
        until(lambda: sum(stream.is_open for stream in streams) == 3, "the end of three lines")
        ended = [stream for stream in streams if not stream.is_open]
        assert {stream.end()[0] for stream in ended} == {grpc.StatusCode.OK}, "an honest party makes a new line"
    finally:
        for stream in streams:
            stream.__exit__()


# TLS.


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_server_takes_tls_1_2_with_forward_secrecy_and_tls_1_3(version, tmp_path):
    """Finding 16: the docs said that everything is TLS 1.3."""
    spoken, cipher = handshake(version, tmp_path)
    assert spoken == ("TLSv1.2" if version is ssl.TLSVersion.TLSv1_2 else "TLSv1.3")
    assert cipher.startswith("TLS_") or ((cipher.startswith("ECDHE-") and "GCM" in cipher) or "CHACHA20" in cipher)


@pytest.mark.parametrize("suites", ["AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384"])
def test_without_forward_secrecy_or_authenticated_encryption_there_is_no_handshake(suites, tmp_path):
    with pytest.raises((ssl.SSLError, OSError)):
        handshake(ssl.TLSVersion.TLSv1_2, tmp_path, suites)


def handshake(version, folder, suites=None):
    bob = AUTHORITY.issue("party", "bob")
    for name, content in (("key", bob.key), ("certificate", bob.certificate), ("authority", bob.authority)):
        (folder / name).write_bytes(content)
    context = ssl.create_default_context(cafile=str(folder / "authority"))
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    context.load_cert_chain(str(folder / "certificate"), str(folder / "key"))
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    if suites is not None:
        context.set_ciphers(suites)
    with (
        serve(credentials=AUTHORITY.issue("server", "server")) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as line,
        context.wrap_socket(line, server_hostname=host_name("shop")) as tls,
    ):
        return tls.version(), tls.cipher()[0]


# What a party takes from a server.

LIES = {
    "a total of a step never pushed": [Welcome(-1), Total(5, push(0).release.values, (5, 5))],
    "more steps than the run has": [Welcome(10**9)],
    "a message longer than any of the run": [Welcome(-1), bytes(PIECE), bytes(PIECE)],
    "a piece longer than a piece": [bytes(PIECE + 1)],
    "a name that no party can have": [Waiting((WaitedFor("[/x]"),))],
}


@pytest.mark.parametrize("lie", LIES)
def test_a_party_does_not_believe_or_hold_whatever_a_server_sends(lie):
    """Finding 29: messages of any size and totals of any step were taken."""
    raws = [each if isinstance(each, bytes) else encode_from_server(each) for each in LIES[lie]]
    with scripted_server(lambda requests, context: iter(raws)) as port, channel_to(port) as channel:
        channel.send(hello())
        with pytest.raises(ExchangeError) as refused:
            channel.wait(lambda: False, "for {} to send something else")
    assert re.search("is not one of ours|larger than max", str(refused.value))
    assert len(str(refused.value)) < 400


@pytest.mark.slow
def test_a_server_that_sends_faster_than_the_party_learns_has_to_wait():
    """Finding 29: totals of all future steps were held at once."""
    sent = []

    def flood(requests, context):
        for number in range(100_000):
            sent.append(number)
            yield encode_from_server(Welcome(-1, tuple(range(1, 4)) * 300))

    with scripted_server(flood) as port, channel_to(port) as channel:
        channel.send(hello())
        receive(channel, Welcome)
        before = 0
        while len(sent) > before:
            before = len(sent)
            time.sleep(1.0)
    assert before < 100_000, "the rest waits at the server"


# Faults.


@pytest.mark.slow
def test_wrong_bytes_on_a_line_that_had_worked_are_tried_again():
    """Chaos 4: the party gave up for good on the first bad TLS record."""
    with serve(credentials=AUTHORITY.issue("server", "server")) as server:
        proxy = Proxy(server.port)
        try:
            bob = AUTHORITY.issue("party", "bob")
            with channel_to(proxy.port, credentials=bob) as channel:
                channel.send(hello())
                receive(channel, Welcome)
                for _ in range(3):
                    made = proxy.accepted
                    proxy.corrupt(5)  # of the line, and of attempts at a new one
                    until(lambda made=made: proxy.accepted > made, "a new line")
                    assert receive(channel, Welcome) == Welcome(-1)
                assert channel.all_stored
        finally:
            proxy.close()


class FullAtFirst(MemoryDisk):
    """A disk that is full for the first few writes."""

    def __init__(self, failures):
        super().__init__()
        self.failures = failures

    def replace(self, name, content):
        if self.failures:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        super().replace(name, content)


def test_an_alignment_message_that_the_disk_does_not_take_is_sent_again():
    """Chaos 7: the party was told that there was no server."""
    full = serve(disk=FullAtFirst(2), digest=None, offered=False)
    with full as server, channel_to(server.port, "ann") as ann:
        ann.send(Post(OFFER))
        ann.wait(lambda: ann.all_stored, "for {}")
        assert server.session.status.refused == {"not_stored": 2}


def test_a_disk_that_stays_full_is_told_to_the_party_as_it_is():
    """Chaos 7."""
    full = serve(disk=FullAtFirst(10**9), digest=None, offered=False)
    with full as server, channel_to(server.port, "ann", peer_timeout=0.5) as ann:
        ann.send(Post(OFFER))
        with pytest.raises(MessageRefused, match=r"cannot use its disk \(No space left on device\); make") as refused:
            ann.wait(lambda: ann.all_stored, "for {}")
        assert refused.value.refusal is Refusal.NOT_STORED


def test_labels_are_still_labels(plain):
    """The honest case beside all these."""
    with RawStream(plain.port, "ann") as ann, RawStream(plain.port, "bob") as bob:
        ann.send(hello(), labels())
        assert bob.send(hello()).receive(Labels) == labels()
