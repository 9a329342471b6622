"""What is said about runs as bytes, and back. Nothing from outside is believed before it was checked here."""

from __future__ import annotations

import math
from typing import Any

from google.protobuf.message import DecodeError

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.alignment_calls import parsed
from fdml.protocol.alignment_messages import HASH_BYTES
from fdml.protocol.envelopes import check_names, check_protocol, invalid
from fdml.protocol.quoting import quoted, shown
from fdml.protocol.run_messages import (
    CHOICES,
    LARGEST_PROPOSAL,
    LONGEST_REASON,
    LONGEST_RULE,
    LONGEST_WAIT,
    RUN_STATES,
    Choice,
    PartyDecision,
    Proposal,
    RunDecision,
    RunFacts,
    RunList,
    RunQuery,
)
from fdml.settings.names import is_name


def encode_proposal(proposal: Proposal) -> bytes:
    """A proposal as bytes."""
    return pb.Proposal(**vars(proposal)).SerializeToString()


def encode_decision(decision: RunDecision) -> bytes:
    """A decision as bytes."""
    return pb.RunDecision(**vars(decision)).SerializeToString()


def encode_query(query: RunQuery) -> bytes:
    """A question as bytes."""
    return pb.RunQuery(**vars(query)).SerializeToString()


def encode_runs(runs: RunList) -> bytes:
    """A list of runs as bytes."""
    return pb.RunList(
        version=runs.version, runs=[_facts_out(each) for each in runs.runs], here=runs.here
    ).SerializeToString()


def decode_proposal(raw: bytes) -> Proposal:
    """A proposal, or `MessageRefused`."""
    return _proposal(_parsed(pb.Proposal(), raw))


def decode_decision(raw: bytes) -> RunDecision:
    """A decision, or `MessageRefused`."""
    found = _parsed(pb.RunDecision(), raw)
    _check_run_name(found.run)
    if len(found.run_hash) != HASH_BYTES:
        raise invalid(f"a run_hash of {len(found.run_hash)} bytes instead of {HASH_BYTES}")
    reason = shown(found.reason, LONGEST_REASON)
    return RunDecision(found.run, found.run_hash, _choice(found.choice), _rule(found.rule), reason, found.protocol)


def decode_query(raw: bytes) -> RunQuery:
    """A question, or `MessageRefused`."""
    found = _parsed(pb.RunQuery(), raw)
    if found.run:
        _check_run_name(found.run)
    if not 0.0 <= found.wait_seconds <= LONGEST_WAIT:
        raise invalid(f"a question that waits {found.wait_seconds} s; at most {LONGEST_WAIT:g}")
    return RunQuery(found.version, found.wait_seconds, found.run, found.open_only, found.protocol)


def decode_runs(raw: bytes) -> RunList:
    """A list of runs, or `MessageRefused`."""
    try:
        found = pb.RunList.FromString(raw)
    except DecodeError:
        raise invalid(f"{len(raw)} bytes that are no list of runs") from None
    check_names(found.here)
    return RunList(found.version, tuple(_facts_in(each) for each in found.runs), tuple(found.here))


def _facts_out(facts: RunFacts) -> pb.RunFacts:
    values = {**vars(facts), "proposal": pb.Proposal(**vars(facts.proposal))}
    return pb.RunFacts(**{**values, "decisions": [pb.PartyDecision(**vars(each)) for each in facts.decisions]})


def _facts_in(found: pb.RunFacts) -> RunFacts:
    _check_run_name(found.name)
    check_names([found.starter, *([found.ended_by] if found.ended_by else [])])
    if found.state not in RUN_STATES:
        raise invalid(f"a run whose state is {quoted(found.state)}; it takes {', '.join(RUN_STATES)}")
    return RunFacts(
        found.name,
        _proposal(found.proposal),
        found.starter,
        _time(found.proposed_at),
        found.state,
        tuple(_decision_in(each) for each in found.decisions),
        found.ended_by,
        shown(found.ended_reason, LONGEST_REASON),
        _time(found.ended_at),
    )


def _decision_in(found: pb.PartyDecision) -> PartyDecision:
    check_names([found.party])
    reason = shown(found.reason, LONGEST_REASON)
    return PartyDecision(found.party, _choice(found.choice), _rule(found.rule), reason, _time(found.time))


def _proposal(found: pb.Proposal) -> Proposal:
    size = found.ByteSize()
    if size > LARGEST_PROPOSAL:
        raise MessageRefused(
            f"received a proposal of {size} bytes; it may have {LARGEST_PROPOSAL}: shorten run.toml", Refusal.TOO_LARGE
        )
    return Proposal(found.settings, found.certificate, found.signature, found.protocol)


def _choice(text: str) -> Choice:
    for choice in CHOICES:
        if text == choice:
            return choice
    raise invalid(f"the decision {quoted(text)}; it takes {', '.join(CHOICES)}")


def _check_run_name(name: str) -> None:
    if not is_name(name):
        raise invalid(f"the name {quoted(name)}, which no run can have")


def _rule(text: str) -> str:
    """A rule's name; nothing else that a party's file may say."""
    if len(text) > LONGEST_RULE or not all(letter.isalnum() or letter in "._" for letter in text):
        raise invalid(f"a rule called {quoted(text)}")
    return text


def _time(seconds: float) -> float:
    if not math.isfinite(seconds):
        raise invalid(f"a time of {seconds}")
    return seconds


def _parsed(message: Any, raw: bytes) -> Any:
    found = parsed(message, raw, "a message about runs")
    check_protocol(found)
    return found
