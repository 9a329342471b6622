"""What is said about runs: every message as bytes and back, and nothing believed that is not one."""

import contextlib
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.messages import PROTOCOL
from fdml.protocol.run_messages import (
    CHOICES,
    LARGEST_PROPOSAL,
    LONGEST_REASON,
    LONGEST_RULE,
    LONGEST_WAIT,
    RUN_STATES,
    PartyDecision,
    Proposal,
    RunDecision,
    RunFacts,
    RunList,
    RunQuery,
)
from fdml.protocol.run_wire import (
    decode_decision,
    decode_proposal,
    decode_query,
    decode_runs,
    encode_decision,
    encode_proposal,
    encode_query,
    encode_runs,
)

PROPOSAL = Proposal(b'{"name": "first"}', b"certificate", b"signature")
DECISION = RunDecision("first", b"h" * 32, "refused", "policy.hours", "not before Monday")
QUERY = RunQuery(7, 2.5, "first", open_only=True)
FACTS = RunFacts(
    "first",
    PROPOSAL,
    "ann",
    1000.5,
    "refused",
    (PartyDecision("ann", "accepted", time=1000.5), PartyDecision("bob", "refused", "policy.hours", "no", 1001.0)),
    "bob",
    "no",
    1001.0,
)
CODERS = {
    "proposal": (PROPOSAL, encode_proposal, decode_proposal),
    "decision": (DECISION, encode_decision, decode_decision),
    "query": (QUERY, encode_query, decode_query),
    "runs": (RunList(9, (FACTS, replace(FACTS, name="second", state="running")), ("bob",)), encode_runs, decode_runs),
}


@pytest.mark.parametrize("kind", CODERS)
def test_a_message_comes_back_as_it_was(kind):
    message, encode, decode = CODERS[kind]
    assert decode(encode(message)) == message


@pytest.mark.parametrize("kind", CODERS)
@given(raw=st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(kind, raw):
    _, _, decode = CODERS[kind]
    with contextlib.suppress(MessageRefused):
        decode(raw)


@pytest.mark.parametrize("kind", ["proposal", "decision", "query"])
def test_another_protocol_is_named(kind):
    message, encode, decode = CODERS[kind]
    with pytest.raises(MessageRefused, match=f"protocol {PROTOCOL + 1}") as refused:
        decode(encode(replace(message, protocol=PROTOCOL + 1)))
    assert refused.value.refusal is Refusal.MISMATCH


@pytest.mark.parametrize("kind", ["proposal", "decision", "query"])
def test_unknown_fields_are_refused(kind):
    message, encode, decode = CODERS[kind]
    with pytest.raises(MessageRefused, match="unknown fields"):
        decode(encode(message) + pb.Waiting(parties=["x"]).SerializeToString().replace(b"\x0a", b"\xfa\x07", 1))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"run": "../up"}, "no run can have"),
        ({"run_hash": b"short"}, "5 bytes instead of 32"),
        ({"choice": "perhaps"}, "the decision 'perhaps'"),
        ({"rule": "rm -rf /"}, "a rule called"),
        ({"rule": "r" * 65}, "a rule called"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(change, text):
    with pytest.raises(MessageRefused, match=text):
        decode_decision(encode_decision(replace(DECISION, **change)))


def test_a_long_reason_is_cut_and_its_control_characters_are_written_out():
    found = decode_decision(encode_decision(replace(DECISION, reason="\x1b[31m" + "x" * 1000)))
    assert len(found.reason) <= LONGEST_REASON + 3 <= 203
    assert found.reason.startswith("\\x1b[31m")


@pytest.mark.parametrize("seconds", [-1.0, LONGEST_WAIT + 1, math.nan])
def test_nobody_is_kept_waiting_longer_than_is_agreed(seconds):
    with pytest.raises(MessageRefused, match="waits"):
        decode_query(encode_query(replace(QUERY, wait_seconds=seconds)))


def test_a_huge_proposal_is_refused():
    with pytest.raises(MessageRefused, match=r"shorten run\.toml") as refused:
        decode_proposal(encode_proposal(Proposal(b"x" * LARGEST_PROPOSAL)))
    assert refused.value.refusal is Refusal.TOO_LARGE


@pytest.mark.parametrize(
    "change", [{"name": "a/b"}, {"starter": ""}, {"state": "asleep"}, {"proposed_at": math.inf}, {"ended_by": "a\nb"}]
)
def test_a_list_that_no_server_would_send_is_refused(change):
    with pytest.raises(MessageRefused):
        decode_runs(encode_runs(RunList(1, (replace(FACTS, **change),))))


def test_what_a_party_said_is_found_by_its_name():
    assert FACTS.decision_of("bob").choice == "refused"
    assert FACTS.decision_of("zed") is None
    assert not FACTS.is_open
    assert replace(FACTS, state="waiting").is_open


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
reasons = st.text(st.characters(codec="utf-8"), max_size=60).filter(str.isprintable)
rules = st.text("abcXYZ019._", max_size=LONGEST_RULE)
times = st.floats(0, 2**40)
proposals = st.builds(Proposal, st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80))
decisions = st.builds(PartyDecision, names, st.sampled_from(CHOICES), rules, reasons, times)
facts = st.builds(
    RunFacts,
    names,
    proposals,
    names,
    times,
    st.sampled_from(RUN_STATES),
    st.lists(decisions, max_size=3).map(tuple),
    st.just("") | names,
    reasons,
    times,
)
ANY = {
    "proposal": proposals,
    "decision": st.builds(
        RunDecision, names, st.binary(min_size=32, max_size=32), st.sampled_from(CHOICES), rules, reasons
    ),
    "query": st.builds(RunQuery, st.integers(0, 2**63), st.floats(0, LONGEST_WAIT), st.just("") | names, st.booleans()),
    "runs": st.builds(
        RunList, st.integers(0, 2**63), st.lists(facts, max_size=3).map(tuple), st.lists(names).map(tuple)
    ),
}


@pytest.mark.parametrize("kind", ANY)
@given(data=st.data())
def test_every_message_that_may_be_sent_comes_back_as_it_was(kind, data):
    message = data.draw(ANY[kind])
    _, encode, decode = CODERS[kind]
    assert decode(encode(message)) == message


@pytest.mark.parametrize("kind", CODERS)
@given(data=st.data())
def test_a_message_with_one_byte_changed_is_a_message_or_refused(kind, data):
    message, encode, decode = CODERS[kind]
    raw = bytearray(encode(message))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MessageRefused):
        assert isinstance(decode(bytes(raw)), type(message))


@pytest.mark.parametrize("kind", CODERS)
def test_a_message_cut_short_is_never_an_error_of_another_kind(kind):
    message, encode, decode = CODERS[kind]
    raw = encode(message)
    for end in range(len(raw)):
        with contextlib.suppress(MessageRefused):
            decode(raw[:end])


@pytest.mark.parametrize(
    "change",
    [{"party": ""}, {"party": "../ann"}, {"choice": "maybe"}, {"rule": "a b"}, {"time": math.nan}, {"time": -math.inf}],
)
def test_a_list_with_a_decision_that_no_party_makes_is_refused(change):
    with pytest.raises(MessageRefused):
        decode_runs(encode_runs(RunList(1, (replace(FACTS, decisions=(replace(FACTS.decisions[0], **change),)),))))


def test_parties_that_stand_by_have_names():
    with pytest.raises(MessageRefused, match="no party can have"):
        decode_runs(encode_runs(RunList(1, here=("ann", "b\x1bb"))))


def test_a_server_cannot_hand_on_a_proposal_larger_than_a_party_may_send():
    huge = replace(FACTS, proposal=Proposal(b"x" * LARGEST_PROPOSAL))
    with pytest.raises(MessageRefused) as refused:
        decode_runs(encode_runs(RunList(1, (huge,))))
    assert refused.value.refusal is Refusal.TOO_LARGE


def test_a_question_may_wait_as_long_as_is_agreed_and_ask_for_all_runs():
    asked = RunQuery(wait_seconds=LONGEST_WAIT)
    assert decode_query(encode_query(asked)) == asked


@pytest.mark.parametrize("state", RUN_STATES)
def test_a_run_is_open_until_it_is_over(state):
    assert replace(FACTS, state=state).is_open is (state in ("waiting", "running"))
