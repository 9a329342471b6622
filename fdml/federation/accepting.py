"""How a party joins a run at the server: it proposes what it joins, and waits until all parties have accepted it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from fdml.errors import MessageRefused, PeerTimeout, Refusal
from fdml.events import Listener, Waiting
from fdml.protocol.certificates import SERVER
from fdml.protocol.identity import Credentials
from fdml.protocol.run_messages import Proposal, RunFacts
from fdml.protocol.signed_proposals import make_proposal
from fdml.settings import RunSettings
from fdml.transport.grpc_endpoint import Endpoint, Trouble
from fdml.transport.grpc_runs import RunsClient
from fdml.transport.wait_report import REPORT_SECONDS

_PAUSE = 0.5


def await_acceptance(
    endpoint: Endpoint,
    proposal: Proposal,
    parties: Sequence[str],
    on_event: Listener,
    *,
    longest: float = math.inf,
    every: float = REPORT_SECONDS,
) -> RunFacts:
    """Propose a run and wait, at most `longest` seconds, until it is open to its sessions.

    Whom it waits for, and why, is told at once and then every `every` seconds. Raises `MessageRefused` if the server
    refuses it, or a party has.
    """
    waiting = _Wait(endpoint.party, on_event, every)

    def keep_trying(trouble: Trouble, _: float) -> bool:
        return waiting.tell((SERVER,), str(trouble)) < longest

    with RunsClient(endpoint, on_event=on_event, keep_trying=keep_trying) as client:
        while True:
            facts, why = _propose(client, proposal)
            if facts is not None and facts.state != "waiting":
                return facts
            missing = tuple(name for name in parties if facts is None or not _has_accepted(facts, name))
            reason = why or _why(facts, missing)
            waited = waiting.tell(missing, reason)
            if waited >= longest:
                raise PeerTimeout(
                    f"party {endpoint.party!r} waited {waited:.0f} s for the run to begin ({reason}); run the same "
                    f"command again once that has changed"
                )
            time.sleep(_PAUSE)


def _propose(client: RunsClient, proposal: Proposal) -> tuple[RunFacts | None, str]:
    """How the run stands, or why it is not there yet."""
    try:
        return client.propose(proposal), ""
    except MessageRefused as refused:
        if refused.refusal is not Refusal.GAP:
            raise
        return None, str(refused)


def _has_accepted(facts: RunFacts, party: str) -> bool:
    decision = facts.decision_of(party)
    return decision is not None and decision.choice == "accepted"


def _why(facts: RunFacts | None, missing: Sequence[str]) -> str:
    return ", ".join(_why_not(facts, name) for name in missing)


def _why_not(facts: RunFacts | None, party: str) -> str:
    """Why a party has not accepted a run."""
    decision = None if facts is None else facts.decision_of(party)
    if facts is not None and (refusal := facts.refused_for(party)):
        return f"{party} was refused: {refusal}"
    if decision is not None and decision.choice == "waits":
        return f"{party} waits for a person" + (f" ({decision.rule})" if decision.rule else "")
    return f"{party} has not accepted the run yet"


def joining_proposal(run: RunSettings, party: str, starter: str, credentials: Credentials | None) -> Proposal:
    """What a party sends to join a run, signed only if it is the run's starter.

    Else a server could pass off whoever joins a run as the one who started it, to parties that take runs of some
    starters only.
    """
    return make_proposal(run, party, credentials if starter == party else None)


class _Wait:
    """Tells listeners whom is waited for: when that changes, and again and again."""

    def __init__(
        self, party: str, on_event: Listener, every: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._party = party
        self._on_event = on_event
        self._every = every
        self._clock = clock
        self._began = self._say_at = clock()
        self._names: tuple[str, ...] = ()

    def tell(self, names: tuple[str, ...], why: str) -> float:
        """Gives how long it has waited by now."""
        now = self._clock()
        if now >= self._say_at + self._every:
            self._say_at = now
            self._on_event(Waiting(self._party, names, why, now - self._began))
        elif names != self._names:
            self._on_event(Waiting(self._party, names))
        self._names = names
        return now - self._began
