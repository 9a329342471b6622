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
    LARGEST_PROPOSAL,
    LONGEST_REASON,
    LONGEST_WAIT,
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
    assert len(found.reason) <= LONGEST_REASON + 3
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
