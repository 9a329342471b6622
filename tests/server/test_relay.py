"""The relay: who is asked, whose reply goes where, and what is said when somebody is not there or leaves."""

import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.prediction_messages import Question, Reply
from fdml.server.relay import Delivery, Relay, RelayLine

PARTIES = ("ann", "bob", "cid")


def question(party="bob", number=b"1" * 16, sealed=b"which rows"):
    return Question(number, "first", party, sealed)


def reply(party="ann", number=b"1" * 16, run="first"):
    return Reply(number, run, party, b"these")


@pytest.fixture
def relay():
    return Relay(PARTIES)


@pytest.fixture
def ann(relay):
    line = RelayLine("ann", answers=False)
    relay.open(line)
    return line


def stands(relay, party):
    line = RelayLine(party, answers=True)
    relay.open(line)
    return line


def test_a_question_goes_to_the_party_and_names_its_asker(relay, ann):
    bob = stands(relay, "bob")
    assert relay.receive(ann, question()) == [Delivery(bob, question(party="ann"))]


def test_a_reply_goes_to_the_asker_and_names_who_replies(relay, ann):
    bob = stands(relay, "bob")
    relay.receive(ann, question())
    assert relay.receive(bob, reply()) == [Delivery(ann, reply(party="bob"))]


def test_replies_go_to_the_stream_that_asked(relay, ann):
    bob, other = stands(relay, "bob"), RelayLine("ann", answers=False)
    relay.open(other)
    relay.receive(ann, question(number=b"1" * 16))
    relay.receive(other, question(number=b"2" * 16))
    assert [each.line for each in relay.receive(bob, reply(number=b"2" * 16))] == [other]
    assert [each.line for each in relay.receive(bob, reply(number=b"1" * 16))] == [ann]


def test_a_party_that_does_not_stand_by_is_said_at_once(relay, ann):
    (delivery,) = relay.receive(ann, question())
    assert delivery.line is ann
    assert delivery.message.party == "bob"
    assert "not standing by" in delivery.message.absent


def test_a_party_that_leaves_before_it_answers_is_said(relay, ann):
    bob, cid = stands(relay, "bob"), stands(relay, "cid")
    relay.receive(ann, question())
    relay.receive(ann, question("cid"))
    (delivery,) = relay.close(bob)
    assert (delivery.line, delivery.message.party) == (ann, "bob")
    assert "left before it answered" in delivery.message.absent
    assert relay.standing == ("cid",)
    assert relay.receive(cid, reply()) == [Delivery(ann, reply(party="cid"))]


def test_a_party_that_comes_back_is_asked_again(relay, ann):
    relay.close(stands(relay, "bob"))
    again = stands(relay, "bob")
    assert [each.line for each in relay.receive(ann, question())] == [again]


def test_the_newest_stream_of_a_party_is_asked_and_the_old_ones_questions_are_given_up(relay, ann):
    old = stands(relay, "bob")
    relay.receive(ann, question())
    new = RelayLine("bob", answers=True)
    (delivery,) = relay.open(new)
    assert "left" in delivery.message.absent
    assert [each.line for each in relay.receive(ann, question(number=b"2" * 16))] == [new]
    relay.close(old)
    assert relay.standing == ("bob",), "the end of the old stream is not that of the new one"


def test_a_reply_that_nobody_waits_for_goes_nowhere(relay, ann):
    bob, cid = stands(relay, "bob"), stands(relay, "cid")
    assert relay.receive(bob, reply()) == []
    relay.receive(ann, question())
    assert relay.receive(cid, reply()) == [], "only who was asked may reply"
    assert relay.receive(bob, reply(run="other")) == []
    assert len(relay.receive(bob, reply())) == 1
    assert relay.receive(bob, reply()) == [], "a question has one reply"


def test_an_asker_that_has_left_gets_nothing(relay, ann):
    bob = stands(relay, "bob")
    relay.receive(ann, question())
    assert relay.close(ann) == []
    assert relay.receive(bob, reply()) == []


@pytest.mark.parametrize(
    ("answers", "message", "refusal"),
    [
        (True, question(), Refusal.NOT_PERMITTED),
        (False, reply(), Refusal.NOT_PERMITTED),
        (False, question("eve"), Refusal.INVALID),
        (False, question(sealed=b"x" * (2**21 + 1)), Refusal.TOO_LARGE),
    ],
)
def test_what_is_not_a_streams_to_send_is_refused(relay, answers, message, refusal):
    stands(relay, "bob")
    with pytest.raises(MessageRefused) as refused:
        relay.receive(RelayLine("ann", answers=answers), message)
    assert refused.value.refusal is refusal


def test_a_number_in_use_is_refused_and_the_first_question_goes_on(relay, ann):
    bob = stands(relay, "bob")
    relay.receive(ann, question())
    with pytest.raises(MessageRefused, match="number that is in use"):
        relay.receive(ann, question())
    assert len(relay.receive(bob, reply())) == 1


def test_an_asker_that_never_listens_fills_no_memory(relay, ann):
    bob = stands(relay, "bob")
    for number in range(200):
        relay.receive(ann, question(number=number.to_bytes(16, "big")))
    assert relay.receive(bob, reply(number=bytes(16))) == [], "the oldest question was given up"
    assert len(relay.receive(bob, reply(number=(199).to_bytes(16, "big")))) == 1
    assert len(relay.close(bob)) < 64


def test_a_question_that_does_not_reach_its_party_is_said_once(relay, ann):
    bob = stands(relay, "bob")
    (delivery,) = relay.receive(ann, question())
    (told,) = relay.undelivered(bob, delivery.message)
    assert told.line is ann
    assert (told.message.party, told.message.number) == ("bob", b"1" * 16)
    assert "more questions than it takes" in told.message.absent
    assert relay.undelivered(bob, delivery.message) == []
    assert relay.receive(bob, reply()) == [], "a reply that comes all the same has nobody who waits"


def test_a_relay_of_a_party_s_own_passes_on_its_own_questions_alone():
    """Where there is no server: nobody learns at another party's session whom it asks, or asks in its place."""
    relay = Relay(PARTIES, "ann")
    bob, ann, cid = stands(relay, "bob"), RelayLine("ann", answers=False), RelayLine("cid", answers=False)
    relay.open(ann)
    relay.open(cid)
    assert relay.receive(ann, question()) == [Delivery(bob, question(party="ann"))]
    with pytest.raises(MessageRefused, match="party 'cid' asks at 'ann', which passes on its own questions alone") as e:
        relay.receive(cid, question(number=b"2" * 16))
    assert e.value.refusal is Refusal.NOT_PERMITTED
    assert relay.receive(bob, reply()) == [Delivery(ann, reply(party="bob"))]
