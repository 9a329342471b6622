"""What a party says while it waits, over real sockets: no server, another program, other keys, parties that are late."""

import http.server
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from fdml.errors import PeerTimeout, ServerUnreachable
from fdml.events import Waiting
from fdml.federation.certificates import Authority
from fdml.protocol.alignment_messages import Fetch, KeyOffer, Post
from fdml.protocol.messages import Labels, Welcome
from fdml.protocol.waited_for import NEVER_SEEN, WaitedFor
from fdml.transport import bulletin_calls, run_lines
from fdml.transport.grpc_channel import GrpcChannel
from fdml.transport.grpc_endpoint import Endpoint, Trouble
from fdml.transport.line_trouble import in_plain_words
from fdml.transport.wait_report import WaitReport
from tests.server.sessions import DIGEST, hello, labels, push, settings_of
from tests.transport.served import SECONDS, ServedSession, free_port, new_session

AUTHORITY, OTHER = Authority("shop"), Authority("shop")
OFFER = KeyOffer(b"p" * 32)


class Heard:
    """Events of a party; `enough` once a reason with these words was given so often."""

    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(event)

    def reasons(self, words=""):
        return [each.why for each in self.events if isinstance(each, Waiting) and each.why and words in each.why]


@contextmanager
def channel_to(target, heard, *, party="bob", credentials=None, peer_timeout=30.0, longest=SECONDS, every=0.05):
    endpoint = Endpoint(target, "shop", party, credentials)
    waits = WaitReport(endpoint, heard, longest=longest, every=every)
    channel = GrpcChannel(endpoint, settings_of(), peer_timeout, heard, waits)
    try:
        yield channel
    finally:
        channel.close()


def served(port=0, credentials=None, digest=None):
    return ServedSession(new_session(settings_of(), digest=digest), settings_of(), port=port, credentials=credentials)


def said(target, words, first=None, **options):
    """What a party says that waits for an answer at this address, once it has said these words three times."""
    heard = Heard()
    with channel_to(target, heard, **options) as channel:
        channel.send(first or Post(OFFER))
        channel.wait(lambda: len(heard.reasons(words)) >= 3, "for {}")
    return heard.reasons(words)[-1]


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(bulletin_calls, "_LONGEST_FETCH", 0.05)
    monkeypatch.setattr(run_lines, "_TICK_SECONDS", 0.05)


@pytest.mark.parametrize("first", [Post(OFFER), hello()], ids=["alignment", "training"])
def test_no_server_is_said_again_and_again_with_the_reason(first):
    target = f"127.0.0.1:{free_port()}"
    assert said(target, "refused", first) == f"no server at {target} yet: connection refused"


@pytest.mark.parametrize("first", [Post(OFFER), hello()], ids=["alignment", "training"])
def test_a_host_that_does_not_resolve_is_named(first):
    text = said("no-such-host.invalid:7443", "resolve", first)
    assert text == (
        "no server at no-such-host.invalid:7443 yet: the name 'no-such-host.invalid' is not known (it does not "
        "resolve); check the host"
    )


def test_a_plain_line_to_a_server_with_tls_says_so():
    with served(credentials=AUTHORITY.issue("server", "server")) as server:
        text = said(f"127.0.0.1:{server.port}", "TLS")
    assert "it uses TLS and this side was started with --plain" in text


def test_a_server_that_does_not_know_our_authority_says_so():
    """The party trusts the server, but shows a certificate of another authority."""
    ours = replace(OTHER.issue("party", "bob"), authority=AUTHORITY.issue("party", "bob").authority)
    with served(credentials=AUTHORITY.issue("server", "server")) as server:
        text = said(f"127.0.0.1:{server.port}", "authority", credentials=ours)
    assert "it does not know this party's certificate (keys of another authority?)" in text


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        (OTHER, AUTHORITY, "its certificate is of another authority than this party's keys"),
        (AUTHORITY, None, "what listens there uses no TLS: a server started with --plain"),
    ],
    ids=["another authority", "a plain server"],
)
def test_keys_that_can_never_fit_end_the_wait_at_once(ours, theirs, text):
    with served(credentials=None if theirs is None else theirs.issue("server", "server")) as server:
        target = f"127.0.0.1:{server.port}"
        with channel_to(target, Heard(), credentials=ours.issue("party", "bob")) as channel:
            channel.send(Post(OFFER))
            with pytest.raises(ServerUnreachable, match=f"{text}.*; check the address and the keys"):
                channel.wait(lambda: channel.all_stored, "for {}")


def test_another_program_at_the_port_is_told_from_a_server():
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

    other = http.server.HTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        text = said(f"127.0.0.1:{other.server_port}", "program")
        assert text.endswith(
            f"another program listens there, or a proxy stands between; check port {other.server_port}"
        )
    finally:
        other.shutdown()
        other.server_close()


@pytest.mark.parametrize(
    ("details", "plain", "words"),
    [
        ("Failed to connect to remote host: No route to host", False, "there is no way to 'x'"),
        ("Deadline Exceeded", True, "it takes the line and says nothing"),
        ("ipv4:1.2.3.4:7443: Socket closed", False, "keys of another authority"),
        ("ipv4:1.2.3.4:7443: recvmsg: Connection reset by peer", True, "--plain"),
        ("Custom verification check failed", False, "another federation's server"),
        ("something new", False, "something new"),
    ],
)
def test_what_grpc_says_in_plain_words(details, plain, words):
    assert words in in_plain_words(details, "x:7443", plain=plain)


def test_a_party_that_is_late_is_named_and_its_coming_ends_the_wait(quick):
    heard = Heard()
    with served() as server, channel_to(f"127.0.0.1:{server.port}", heard) as bob:
        bob.send(Fetch(KeyOffer, "ann"))
        bob.wait(lambda: heard.reasons("ann has not joined"), "for {}")
        with channel_to(f"127.0.0.1:{server.port}", Heard(), party="ann") as ann:
            ann.send(Post(OFFER))
            bob.wait(lambda: bob.has_message, "for {}")
    assert bob.poll() == OFFER
    assert all(each.waits_for for each in heard.events)


def test_before_the_labels_the_peer_timeout_does_not_count(quick):
    """bob waits ten times the peer timeout for ann, who brings the labels; then the time-out counts."""
    heard = Heard()
    with (
        served(digest=DIGEST) as server,
        channel_to(f"127.0.0.1:{server.port}", heard, peer_timeout=0.1, every=0.1) as bob,
    ):
        bob.send(hello())
        bob.wait(lambda: bob.has_message, "for {}")
        assert bob.poll() == Welcome(-1)
        bob.wait(lambda: len(heard.reasons("ann has not joined")) >= 10, "for {} to give the labels")
        with channel_to(f"127.0.0.1:{server.port}", Heard(), party="ann") as ann:
            ann.send(hello())
            ann.send(labels())
            bob.wait(lambda: bob.has_message, "for {} to give the labels")
            assert isinstance(bob.poll(), Labels)
            bob.send(push(0))
            with pytest.raises(PeerTimeout, match=r"waited 0.1 s at step 0 for"):
                bob.wait(lambda: bob.has_message, "at step 0 for {}")


def test_a_bounded_wait_ends_with_who_is_missing(quick):
    with served() as server, channel_to(f"127.0.0.1:{server.port}", Heard(), longest=0.5) as bob:
        bob.send(Fetch(KeyOffer, "ann"))
        with pytest.raises(PeerTimeout, match=r"waited 0.5 s to align with 'ann' \(ann has not joined\)"):
            bob.wait(lambda: bob.has_message, "to align with {}")


def test_a_line_that_says_nothing_is_no_server():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with channel_to(target, Heard(), longest=0.5) as channel:
            channel.send(Post(OFFER))
            with pytest.raises(ServerUnreachable, match=f"no server at {target} for 0.5 s"):
                channel.wait(lambda: channel.all_stored, "for {}")


class TestWaitReport:
    """Without a network."""

    ENDPOINT = Endpoint("x:7443", "shop", "bob", None)

    def waits(self, **options):
        self.heard = Heard()
        return WaitReport(self.ENDPOINT, self.heard, **options)

    def test_all_who_are_waited_for_are_named_with_what_is_known_of_each(self):
        waits = self.waits()
        waits.waits_for((WaitedFor("telco", NEVER_SEEN), WaitedFor("shop", 62.0), WaitedFor("bank")))
        waits.tell(20.0)
        expected = "telco has not joined, shop has been gone for 62 s, bank is at work"
        assert self.heard.events[-1] == Waiting("bob", ("telco", "shop", "bank"), expected, 20.0)

    def test_only_time_in_which_someone_is_missing_counts(self):
        waits = self.waits(longest=10.0)
        waits.waits_for((WaitedFor("bank"),))
        waits.passed(100.0)
        assert not waits.is_over
        waits.waits_for((WaitedFor("bank"), WaitedFor("shop", 1.0)))
        waits.passed(6.0)
        assert not waits.is_over
        waits.trouble(Trouble("x:7443", "connection refused"))
        waits.passed(6.0)
        assert waits.is_over

    def test_an_answer_ends_the_trouble(self):
        waits = self.waits()
        waits.trouble(Trouble("x:7443", "connection refused"))
        waits.answered()
        waits.tell(1.0)
        assert self.heard.events == [Waiting("bob", ("server",), "the server at x:7443 is at work", 1.0)]

    def test_new_names_are_an_event_at_once_and_the_same_ones_are_not(self):
        waits = self.waits()
        for names in (("ann",), ("ann",), ("ann", "cyd"), ()):
            waits.waits_for(WaitedFor(name) for name in names)
        assert self.heard.events == [Waiting("bob", ("ann",)), Waiting("bob", ("ann", "cyd"))]

    def test_a_second_wait_for_the_same_party_is_an_event_of_its_own(self):
        waits = self.waits()
        for names in (("ann",), (), ("ann",)):
            waits.waits_for(WaitedFor(name) for name in names)
        assert self.heard.events == 2 * [Waiting("bob", ("ann",))]
