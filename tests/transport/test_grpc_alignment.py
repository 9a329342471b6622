"""Alignment calls over real sockets: one after the other, tried again, and given up only for a reason."""

import queue
from contextlib import contextmanager

import pytest

from fdml.errors import MessageRefused, PeerTimeout, Refusal, ServerUnreachable
from fdml.events import Waiting
from fdml.protocol.alignment_messages import (
    SERVER,
    Consent,
    Fetch,
    KeyCheck,
    KeyOffer,
    Post,
    RowCounts,
    RowSummary,
    SharedRowIndex,
    Tokens,
)
from fdml.settings import run_hash
from fdml.transport import bulletin_calls, grpc_alignment
from fdml.transport.grpc_alignment import GrpcAlignment
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.grpc_known_server import KnownServer
from fdml.transport.wait_report import WaitReport
from tests.server.sessions import settings_of
from tests.transport.served import SECONDS, ServedSession, free_port, new_session, until

OFFER, CHECK = KeyOffer(b"p" * 32), KeyCheck(b"c" * 32)


class Calls:
    """The alignment calls of one party, and what became of them."""

    def __init__(self, port, party, settings):
        self.answers, self.errors, self.heard = queue.SimpleQueue(), queue.SimpleQueue(), []
        endpoint = Endpoint(f"127.0.0.1:{port}", settings.federation, party, None)
        self.waits = WaitReport(endpoint, self.heard.append)
        self.alignment = GrpcAlignment(
            endpoint,
            run_hash(settings),
            answered=self.answers.put,
            failed=self.errors.put,
            waits=self.waits,
            server=KnownServer(endpoint, SECONDS),
        )

    def request(self, *requests):
        for request in requests:
            self.alignment.request(request)

    def answer(self):
        return self.answers.get(timeout=SECONDS)

    def error(self):
        return self.errors.get(timeout=SECONDS)

    def why(self):
        """For whom it waits, and why, as a person would hear now."""
        self.waits.tell(1.0)
        return self.heard.pop().why


@contextmanager
def calls_to(port, party, *, settings=None):
    made = Calls(port, party, settings or settings_of())
    try:
        yield made
    finally:
        made.alignment.close()


def served(port=0):
    return ServedSession(new_session(settings_of()), settings_of(), port=port)


@pytest.fixture
def quick(monkeypatch):
    """Signs of life and answers to those who wait come twenty times as often."""
    monkeypatch.setattr(grpc_alignment, "_ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(bulletin_calls, "_LONGEST_FETCH", 0.05)


def test_requests_are_made_one_after_the_other():
    with served() as server, calls_to(server.port, "ann") as ann:
        ann.request(Post(OFFER), Fetch(KeyOffer, "ann"), Post(CHECK), Fetch(KeyCheck, "ann"))
        assert [ann.answer() for _ in range(4)] == [None, OFFER, None, CHECK]


def test_a_fetch_waits_until_the_message_is_posted(quick):
    with served() as server, calls_to(server.port, "ann") as ann, calls_to(server.port, "bob") as bob:
        bob.request(Fetch(KeyOffer, "ann"))
        until(lambda: Waiting("bob", ("ann",)) in bob.heard, "an answer that ann is waited for")
        ann.request(Post(OFFER))
        assert bob.answer() == OFFER


def test_large_sets_travel_whole():
    with served() as server, calls_to(server.port, "ann") as ann, calls_to(server.port, "bob") as bob:
        for calls in (ann, bob):
            calls.request(Post(Tokens(by_position=RowCounts(200_000))), Fetch(RowSummary, SERVER))
        for calls in (ann, bob):
            assert calls.answer() is None
            assert calls.answer() == RowSummary((200_000, 200_000), (), 200_000)
            calls.request(Post(Consent(True)), Fetch(SharedRowIndex, SERVER))
        for calls in (ann, bob):
            assert calls.answer() is None
            assert len(calls.answer().train) == 200_000
        assert ann.alignment.bytes_received > 8 * 200_000
        assert ann.alignment.bytes_sent < 1000


def test_a_server_that_comes_later_is_found():
    port = free_port()
    with calls_to(port, "ann") as ann:
        ann.request(Post(OFFER))
        with served(port):
            assert ann.answer() is None


def test_while_no_server_is_there_the_reason_is_known():
    port = free_port()
    with calls_to(port, "ann") as ann:
        ann.request(Post(OFFER))
        until(lambda: "connection refused" in ann.why(), "the reason")
        assert ann.why() == f"no server at 127.0.0.1:{port} yet: connection refused"
        assert ann.errors.empty()
        assert isinstance(ann.waits.gave_up(3.0, "for {}"), ServerUnreachable)


@pytest.mark.slow
def test_a_server_that_goes_away_and_comes_back_is_asked_again():
    port = free_port()
    with calls_to(port, "ann") as ann, calls_to(port, "bob") as bob:
        with served(port):
            ann.request(Post(OFFER))
            assert ann.answer() is None
            bob.request(Fetch(KeyCheck, "ann"))
            until(lambda: Waiting("bob", ("ann",)) in bob.heard, "an answer that ann is waited for")
        with served(port):
            ann.request(Post(OFFER), Post(CHECK))
            assert bob.answer() == CHECK


@pytest.mark.parametrize(
    ("request_made", "refusal", "text"),
    [
        (Post(Tokens(by_position=RowCounts(0))), Refusal.INVALID, "a file without rows"),
        (Post(OFFER, to="bob"), Refusal.INVALID, "whom it is not for"),
        (Fetch(Tokens, "bob"), Refusal.NOT_PERMITTED, "which is not for it"),
    ],
)
def test_what_the_server_refuses_is_not_tried_again(request_made, refusal, text):
    with served() as server, calls_to(server.port, "ann") as ann:
        ann.request(request_made, Post(OFFER))
        error = ann.error()
        assert isinstance(error, MessageRefused)
        assert error.refusal is refusal
        assert text in str(error)
        assert ann.answers.empty(), "what comes after a refusal is not sent"
        assert server.session.status.refused == {refusal.name.lower(): 1}


def test_a_party_that_has_not_joined_is_named(quick):
    with served() as server, calls_to(server.port, "bob") as bob:
        bob.request(Fetch(KeyOffer, "ann"))
        until(lambda: bob.why() == "ann has not joined", "ann is missed")
        error = bob.waits.gave_up(3.0, "to align its rows with {}")
    assert isinstance(error, PeerTimeout)
    assert str(error).startswith("party 'bob' waited 3 s to align its rows with 'ann' (ann has not joined); see what")


def test_why_the_silent_party_was_refused_is_passed_on(quick):
    other = settings_of(epochs=2)
    with served() as server, calls_to(server.port, "bob") as bob:
        with calls_to(server.port, "ann", settings=other) as ann:
            ann.request(Post(OFFER))
            assert isinstance(ann.error(), MessageRefused)
        bob.request(Fetch(KeyOffer, "ann"))
        until(lambda: bob.why().startswith("ann was refused: party 'ann' has a run.toml with "), "the refusal")


def test_a_party_that_computes_for_long_is_at_work_not_missing(quick):
    with served() as server, calls_to(server.port, "ann"), calls_to(server.port, "bob") as bob:
        bob.request(Fetch(KeyOffer, "ann"))
        until(lambda: bob.why() == "ann is at work", "ann's sign of life")
        bob.waits.longest = 0.1
        bob.waits.passed(1000.0)
        assert not bob.waits.is_over
        assert server.session.alignment.presence.is_here("ann")


def test_after_closing_nothing_is_called_back():
    with served() as server:
        with calls_to(server.port, "bob") as bob:
            bob.request(Fetch(KeyOffer, "ann"))
            until(lambda: server.session.alignment.presence.is_here("bob"), "bob's call")
        bob.request(Post(OFFER))
        assert bob.answers.empty()
        assert bob.errors.empty()
