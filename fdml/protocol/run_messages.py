"""What a party and the server say about runs: a proposal, a decision on it, a question for the runs, and the list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fdml.protocol.messages import PROTOCOL

Choice = Literal["waits", "accepted", "refused", "stopped"]
"""Of a party on a run: it waits for a person, takes part, does not, or ends it for all."""
RunState = Literal["waiting", "running", "refused", "stopped", "finished"]
"""Waiting for decisions, accepted by all parties, or over in one of three ways."""
CHOICES: tuple[Choice, ...] = ("waits", "accepted", "refused", "stopped")
RUN_STATES: tuple[RunState, ...] = ("waiting", "running", "refused", "stopped", "finished")
OPEN: tuple[RunState, ...] = ("waiting", "running")
LARGEST_PROPOSAL = 64 * 2**10
"""Bytes of a proposal: settings and a certificate are a few thousand."""
DIFFERS = "settings"
"""The rule's name where a party would join a run with other settings: the server says so in its place."""
LONGEST_RULE = 64
LONGEST_REASON = 200
LONGEST_WAIT = 20.0
"""Seconds that the server holds back the answer to a question while nothing changes."""


@dataclass(frozen=True)
class Proposal:
    """A run that a party wants to start or to join: all its settings, those of the federation included."""

    settings: bytes
    """As JSON."""
    certificate: bytes = b""
    """Of who proposes it; empty on plain lines."""
    signature: bytes = b""
    protocol: int = PROTOCOL


@dataclass(frozen=True)
class RunDecision:
    """What a party says to a run. A rule is named, its figures are not told."""

    run: str
    run_hash: bytes
    choice: Choice
    rule: str = ""
    reason: str = ""
    """What a person wrote for the others to read."""
    protocol: int = PROTOCOL


@dataclass(frozen=True)
class RunQuery:
    """A question for the runs; answered at once if the server's version is another, or after `wait_seconds`."""

    version: int = 0
    wait_seconds: float = 0.0
    run: str = ""
    """This one alone; empty asks for all."""
    open_only: bool = False
    protocol: int = PROTOCOL


@dataclass(frozen=True)
class PartyDecision:
    """A party's decision as the server knows it."""

    party: str
    choice: Choice
    rule: str = ""
    reason: str = ""
    time: float = 0.0
    """Seconds since 1970, by the server's clock."""


@dataclass(frozen=True)
class RunFacts:
    """A run as the server knows it."""

    name: str
    proposal: Proposal
    starter: str
    proposed_at: float
    state: RunState
    decisions: tuple[PartyDecision, ...] = ()
    ended_by: str = ""
    ended_reason: str = ""
    ended_at: float = 0.0

    def decision_of(self, party: str) -> PartyDecision | None:
        """What a party has said; None if it has said nothing yet."""
        return next((each for each in self.decisions if each.party == party), None)

    def refused_for(self, party: str) -> str:
        """Why the server does not let a party join: its settings differ. Empty if they do not."""
        decision = self.decision_of(party)
        return decision.reason if decision is not None and decision.rule == DIFFERS else ""

    @property
    def is_open(self) -> bool:
        """Whether it is not over."""
        return self.state in OPEN


@dataclass(frozen=True)
class RunList:
    """The runs of a federation."""

    version: int
    """Another one whenever anything has changed, or the server was started again."""
    runs: tuple[RunFacts, ...] = ()
    here: tuple[str, ...] = ()
    """The parties that stand by: they watch for runs."""
