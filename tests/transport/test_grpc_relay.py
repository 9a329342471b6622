"""Questions over a real socket: answered, absent, too late, and again after the server or a party was away."""

import threading
import time

import pytest

from fdml.errors import ExchangeError, MessageRefused
from fdml.protocol.prediction_messages import MOST_SEALED, Question, Reply
from fdml.transport.grpc_relay import GrpcQuestions, answer_questions
from tests.federation.served_federation import ServedFederation
from tests.transport.served import SECONDS, until


@pytest.fixture
def served(tmp_path):
    with ServedFederation(tmp_path) as federation:
        yield federation


class StandingServer:
    """A party that answers until it is stopped; `answer` may be changed while it stands by."""

    def __init__(self, served, party, answer=None):
        self.answer = answer or (
            lambda question: Reply(question.number, question.run, question.party, b"of " + party.encode())
        )
        self.troubles, self.seen, self._over = [], [], threading.Event()
        self._thread = threading.Thread(
            target=answer_questions,
            args=(served.home(party).endpoint, self._reply, self._over.is_set),
            kwargs={"trouble": self.troubles.append},
            daemon=True,
        )
        self._thread.start()
        until(lambda: self.troubles[-1:] == [None], f"the line of {party}")

    def _reply(self, question):
        self.seen.append(question)
        return self.answer(question)

    def stop(self):
        self._over.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


def questions(*parties, number=b"1" * 16, sealed=b"which"):
    return [Question(number, "first", party, sealed) for party in parties]


def replied(line, party="bob", number=b"1" * 16, seconds=SECONDS):
    return line.exchange(questions(party, number=number), seconds).get(party)


def is_asked(line, party="bob"):
    """Whether a party answers by now; the server may not know its line yet."""
    found = replied(line, party, number=time.monotonic_ns().to_bytes(16, "big"))
    return found is not None and bool(found.sealed)


def reaches(line):
    try:
        return is_asked(line)
    except ExchangeError:
        return False


def test_questions_are_answered_each_by_its_party(served):
    bob, cid = StandingServer(served, "bob"), StandingServer(served, "cid")
    with GrpcQuestions(served.home("ann").endpoint) as line:
        until(lambda: is_asked(line, "bob") and is_asked(line, "cid"), "both parties")
        found = line.exchange(questions("bob", "cid"), SECONDS)
    assert {party: reply.sealed for party, reply in found.items()} == {"bob": b"of bob", "cid": b"of cid"}
    assert bob.seen[-1].party == "ann", "the asker's name is that of its line"
    for each in (bob, cid):
        each.stop()


def test_a_party_that_is_not_there_is_said_without_waiting(served):
    began = time.monotonic()
    with GrpcQuestions(served.home("ann").endpoint) as line:
        assert "not standing by" in replied(line).absent
    assert time.monotonic() - began < SECONDS


def test_a_party_that_is_slow_is_missing_at_the_deadline_and_used_again_after(served):
    late = threading.Event()

    def slow(question):
        late.wait(SECONDS)
        return Reply(question.number, question.run, question.party, b"late")

    bob = StandingServer(served, "bob", slow)
    with GrpcQuestions(served.home("ann").endpoint) as line:
        until(lambda: replied(line, number=time.monotonic_ns().to_bytes(16, "big"), seconds=0.2) is None, "bob")
        late.set()
        until(lambda: is_asked(line), "bob again")
    bob.stop()


def test_a_party_that_left_and_came_back_is_asked_again(served):
    bob = StandingServer(served, "bob")
    with GrpcQuestions(served.home("ann").endpoint) as line:
        until(lambda: is_asked(line), "bob")
        bob.stop()
        until(lambda: not is_asked(line), "bob to be missed")
        again = StandingServer(served, "bob")
        began = time.monotonic()
        until(lambda: is_asked(line), "bob again")
        assert time.monotonic() - began < SECONDS
    again.stop()


def test_both_sides_go_on_after_the_server_was_started_again(served):
    bob = StandingServer(served, "bob")
    with GrpcQuestions(served.home("ann").endpoint) as line:
        until(lambda: is_asked(line), "bob")
        served.stop()
        until(lambda: not reaches(line), "the line to break")
        served.start()
        until(lambda: reaches(line), "the line to be back")
    assert any(bob.troubles)
    bob.stop()


def test_long_answers_come_in_pieces(served):
    long = bytes(range(256)) * (5 * 2**12)
    bob = StandingServer(served, "bob", lambda each: Reply(each.number, each.run, each.party, long))
    with GrpcQuestions(served.home("ann").endpoint) as line:
        until(lambda: is_asked(line), "bob")
        assert replied(line, number=b"2" * 16).sealed == long
    bob.stop()


def test_a_message_over_the_limit_ends_the_line_with_a_reason(served):
    with GrpcQuestions(served.home("ann").endpoint) as line, pytest.raises(MessageRefused, match="bytes"):
        line.exchange(questions("bob", sealed=b"x" * (MOST_SEALED + 2**17)), SECONDS)


def test_threads_ask_at_once_and_each_gets_its_own(served):
    bob = StandingServer(served, "bob", lambda each: Reply(each.number, each.run, each.party, each.sealed * 2))
    with GrpcQuestions(served.home("ann").endpoint) as line:
        until(lambda: is_asked(line), "bob")
        found = {}

        def one(at):
            number = at.to_bytes(16, "little")
            found[at] = line.exchange(questions("bob", number=number, sealed=bytes([at])), SECONDS)["bob"].sealed

        threads = [threading.Thread(target=one, args=(at,)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
    assert found == {at: bytes([at, at]) for at in range(8)}
    bob.stop()
