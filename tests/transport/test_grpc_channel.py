"""What the gRPC channel does beyond the contract of all channels: it connects again, and knows what is for good."""

import threading
from contextlib import contextmanager

import pytest

from fdml.errors import ExchangeError, MessageRefused, PeerTimeout, Refusal, ServerUnreachable
from fdml.events import Waiting
from fdml.federation.certificates import Authority
from fdml.protocol.alignment_messages import Fetch, KeyOffer, Post
from fdml.protocol.messages import Finished, Labels, Total, Welcome
from fdml.protocol.wire import encode_from_server
from fdml.storage.disk import FolderDisk
from fdml.transport import grpc_channel
from fdml.transport.grpc_channel import GrpcChannel
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.wait_report import WaitReport
from tests.server.sessions import DIGEST, STEPS, hello, labels, push, settings_of
from tests.transport.raw_stream import scripted_server
from tests.transport.served import ServedSession, free_port, new_session, until

AUTHORITY = Authority("shop")


@contextmanager
def channel_to(
    port,
    party="bob",
    *,
    settings=None,
    credentials=None,
    run="shop",
    peer_timeout=10.0,
    events=None,
    wait=None,
    every=10.0,
):
    """A channel, closed in the end."""
    endpoint = Endpoint(f"127.0.0.1:{port}", run, party, credentials)
    listener = [].append if events is None else events.append
    waits = WaitReport(endpoint, listener, longest=peer_timeout if wait is None else wait, every=every)
    channel = GrpcChannel(endpoint, settings or settings_of(), peer_timeout, listener, waits)
    try:
        yield channel
    finally:
        channel.close()


def served(disk=None, port=0, credentials=None):
    session = new_session(settings_of(), digest=DIGEST, disk=disk)
    return ServedSession(session, settings_of(), port=port, credentials=credentials)


def receive(channel, kind):
    """The next message of a kind, within the peer timeout."""
    while True:
        channel.wait(lambda: channel.has_message, "for {}")
        message = channel.poll()
        if isinstance(message, kind):
            return message


# The beginning.


@pytest.mark.parametrize("message", [push(0), Finished(b"m" * 32)])
def test_hello_comes_first(message):
    with channel_to(1) as channel, pytest.raises(ExchangeError, match="before hello; send hello first"):
        channel.send(message)


def test_a_new_channel_has_nothing():
    with channel_to(1) as channel:
        assert channel.all_stored
        assert not channel.has_message
        assert channel.poll() is None
        assert channel.unacknowledged() == []
        assert channel.traffic == (0, 0)


def test_no_server_is_an_error_with_the_address_once_it_was_missing_too_long():
    port = free_port()
    with channel_to(port, wait=0.3) as channel:
        channel.send(hello())
        text = rf"no server at 127.0.0.1:{port} for 0.3 s \(connection refused\); start `fdml serve`"
        with pytest.raises(ServerUnreachable, match=text):
            receive(channel, Welcome)


def test_a_server_that_comes_later_is_found():
    port = free_port()
    with channel_to(port) as channel:
        channel.send(hello())
        with served(port=port):
            assert receive(channel, Welcome) == Welcome(-1)
            channel.wait(lambda: channel.all_stored, "for {}")


def test_a_server_that_never_answers_is_given_up_and_said_so(monkeypatch):
    monkeypatch.setattr(grpc_channel, "_HELLO_SECONDS", 0.1)
    ended = threading.Event()

    def silent(requests, context):
        ended.wait(5.0)
        return iter(())

    with scripted_server(silent) as port:
        with channel_to(port, peer_timeout=0.8) as channel:
            channel.send(hello())
            with pytest.raises(ServerUnreachable, match=r"it took the call but did not answer within 0\.\d+ s"):
                receive(channel, Welcome)
        ended.set()


# What is for good.


def test_a_refusal_is_raised_at_every_later_use():
    with served() as server, channel_to(server.port, "zed") as channel:
        channel.send(hello())
        with pytest.raises(MessageRefused, match="'zed' is not a party of this federation") as refused:
            receive(channel, Welcome)
        assert refused.value.refusal is Refusal.NOT_PERMITTED
        with pytest.raises(MessageRefused, match="'zed' is not a party"):
            channel.send(push(0))


def test_a_newer_start_of_the_party_ends_the_older_one():
    with served() as server, channel_to(server.port) as older:
        older.send(hello())
        receive(older, Welcome)
        with channel_to(server.port) as newer:
            newer.send(hello(incarnation=2))
            receive(newer, Welcome)
            with pytest.raises(MessageRefused, match="started again since") as refused:
                older.wait(lambda: False, "for {}")
            assert refused.value.refusal is Refusal.FENCED


def test_a_server_that_sends_nonsense_is_not_one_of_ours():
    with scripted_server(lambda requests, context: iter([b"\xff\xff"])) as port, channel_to(port) as channel:
        channel.send(hello())
        with pytest.raises(ExchangeError, match=rf"the server at 127.0.0.1:{port} is not one of ours"):
            receive(channel, Welcome)


@pytest.mark.parametrize(
    ("party", "run"),
    [
        (Authority("shop").issue("party", "bob"), "shop"),
        (AUTHORITY.issue("party", "bob", federation="other"), "other"),
    ],
    ids=["keys of another authority", "keys of another run"],
)
def test_a_party_does_not_talk_to_a_server_it_cannot_trust(party, run):
    with served(credentials=AUTHORITY.issue("server", "server")) as server:
        with channel_to(server.port, credentials=party, run=run) as channel:
            channel.send(hello())
            with pytest.raises(ServerUnreachable, match="check the address and the keys"):
                receive(channel, Welcome)
        assert server.session.joined == frozenset()


def test_a_party_s_certificate_does_not_make_a_server():
    welcome = encode_from_server(Welcome(-1))
    ann, bob = AUTHORITY.issue("party", "ann"), AUTHORITY.issue("party", "bob")
    with (
        scripted_server(lambda requests, context: iter([welcome]), bob) as port,
        channel_to(port, "ann", credentials=ann) as channel,
    ):
        channel.send(hello())
        with pytest.raises(ServerUnreachable, match="check the address and the keys"):
            receive(channel, Welcome)


def test_with_the_right_keys_both_sides_talk():
    with (
        served(credentials=AUTHORITY.issue("server", "server")) as server,
        channel_to(server.port, credentials=AUTHORITY.issue("party", "bob")) as channel,
    ):
        channel.send(hello())
        assert receive(channel, Welcome) == Welcome(-1)
        assert server.session.joined == {"bob"}


# Lines that end and begin again.


def test_a_stream_that_the_server_ends_is_made_again():
    with served() as server, channel_to(server.port) as channel:
        channel.send(hello())
        receive(channel, Welcome)
        with channel_to(server.port) as other:
            other.send(hello())
            receive(other, Welcome)
        until(lambda: channel.has_message, "a second welcome")
        assert channel.poll() == Welcome(-1)


def test_a_restarted_server_is_sent_what_it_has_not_stored(tmp_path):
    port = free_port()
    with channel_to(port, "ann") as ann, channel_to(port) as bob:
        with served(FolderDisk(tmp_path), port):
            ann.send(hello())
            bob.send(hello())
            ann.send(labels())
            receive(bob, Labels)
            for channel in (ann, bob):
                channel.send(push(0))
            assert receive(ann, Total).step == receive(bob, Total).step == 0
        for channel in (ann, bob):
            channel.send(push(1))
        with served(FolderDisk(tmp_path), port) as again:
            assert receive(ann, Total).step == receive(bob, Total).step == 1
            bob.wait(lambda: bob.all_stored, "for {}")
            assert again.session.state.coordinator.pushed("bob") == 1


def test_the_wait_for_a_server_that_is_gone_ends_with_an_error():
    port = free_port()
    with channel_to(port, peer_timeout=0.5) as channel:
        with served(port=port):
            channel.send(hello())
            receive(channel, Welcome)
        channel.send(push(0))
        with pytest.raises(ServerUnreachable, match=r"no server at .* for 0.5 s"):
            channel.wait(lambda: channel.all_stored, "for {} to store the last messages")


# WaitReport.


@pytest.mark.slow
def test_whom_a_party_waits_for_is_an_event_once_and_in_the_error():
    events = []
    with served() as server, channel_to(server.port, peer_timeout=2.5, events=events) as bob:
        bob.send(hello())
        receive(bob, Welcome)
        text = r"'bob' waited 2.5 s for 'ann' to give the labels \(ann has not joined\); .* goes on where it"
        with pytest.raises(PeerTimeout, match=text):
            bob.wait(lambda: bob.has_message, "for {} to give the labels")
        assert events == [Waiting("bob", ("ann",))]


def test_a_closed_channel_ends_its_stream_at_the_server_in_order():
    with served() as server:
        with channel_to(server.port, "ann") as ann, channel_to(server.port) as bob:
            ann.send(hello())
            bob.send(hello())
            ann.send(labels())
            receive(bob, Labels)
            for step in range(STEPS):
                ann.send(push(step))
                bob.send(push(step))
            for channel in (ann, bob):
                while receive(channel, Total).step < STEPS - 1:
                    pass
                channel.send(Finished(b"m" * 32))
                channel.wait(lambda channel=channel: channel.all_stored, "for {} to store the last messages")
        server.result()
        assert server.session.all_departed


def test_closing_twice_or_before_anything_was_sent_is_no_error():
    with channel_to(1) as channel:
        channel.close()


# Alignment.


def test_alignment_messages_are_counted_in_bytes():
    with served() as server, channel_to(server.port, "ann") as ann:
        ann.send(Post(KeyOffer(b"p" * 32)))
        ann.send(Fetch(KeyOffer, "ann"))
        assert receive(ann, KeyOffer) == KeyOffer(b"p" * 32)
        sent, received = ann.traffic
        assert sent > 2 * 32
        assert received > 32
        ann.send(hello())
        receive(ann, Welcome)
        assert ann.traffic == (sent, received), "messages of the training are not among them"


def test_a_refusal_in_the_alignment_ends_the_channel():
    other = settings_of(epochs=2)
    with served() as server, channel_to(server.port, "ann", settings=other) as ann:
        ann.send(Post(KeyOffer(b"p" * 32)))
        with pytest.raises(MessageRefused, match=r"run.toml with hash"):
            ann.wait(lambda: ann.all_stored, "for {}")
        with pytest.raises(MessageRefused, match=r"run.toml with hash"):
            ann.send(Fetch(KeyOffer, "bob"))


def test_the_stream_s_bytes_and_waits_are_counted():
    with served() as server, channel_to(server.port) as channel:
        assert (channel.bytes_sent, channel.bytes_received, channel.waited_seconds) == (0, 0, 0.0)
        channel.send(hello())
        receive(channel, Welcome)
        assert channel.bytes_sent > 32, "the hash of the run is in it"
        assert channel.bytes_received > 0
        assert channel.waited_seconds >= 0.0
