"""One run as its server keeps it: who proposed it, what every party says to it, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from fdml.errors import StateCorrupt
from fdml.protocol.certificates import SERVER
from fdml.protocol.run_messages import CHOICES, PartyDecision, Proposal, RunFacts, RunState
from fdml.protocol.signed_proposals import proposed_settings
from fdml.settings import RunSettings, run_hash

_LAYOUT = "fdml hosted run 1"


@dataclass(frozen=True)
class HostedRun:
    """A run of a federation at its server. Every change makes a new value, which is stored before it is acted on."""

    proposal: Proposal
    starter: str
    """The party that has proposed it; "server" where the server's operator has: then nobody is asked."""
    proposed_at: float
    decisions: Mapping[str, PartyDecision]
    """By party."""
    ended: str = ""
    """"refused", "stopped" or "finished"; empty while it is open."""
    ended_by: str = ""
    ended_reason: str = ""
    ended_at: float = 0.0

    @cached_property
    def settings(self) -> RunSettings:
        """The settings that all sides have."""
        return proposed_settings(self.proposal)

    @cached_property
    def run_hash(self) -> bytes:
        """Of all its settings."""
        return run_hash(self.settings)

    @property
    def name(self) -> str:
        """Unlike that of any other run of the federation."""
        return self.settings.name

    @property
    def state(self) -> RunState:
        """Where it stands."""
        match self.ended:
            case "refused" | "stopped" | "finished":
                return self.ended
        return "waiting" if self.undecided else "running"

    @property
    def undecided(self) -> list[str]:
        """The parties that have not accepted it."""
        if self.starter == SERVER:
            return []
        return [name for name in self.settings.parties if not self.is_accepted_by(name)]

    def is_accepted_by(self, party: str) -> bool:
        """Whether a party takes part."""
        return self.starter == SERVER or (party in self.decisions and self.decisions[party].choice == "accepted")

    def decided(self, decision: PartyDecision) -> HostedRun:
        """With a party's decision; a refusal or a stop ends it for all."""
        known = {**self.decisions, decision.party: decision}
        if decision.choice not in ("refused", "stopped"):
            return replace(self, decisions=known)
        reason = decision.reason or (f"rule {decision.rule}" if decision.rule else "")
        return replace(
            self,
            decisions=known,
            ended=decision.choice,
            ended_by=decision.party,
            ended_reason=reason,
            ended_at=decision.time,
        )

    def finished(self, time: float) -> HostedRun:
        """Once all parties have trained to the end."""
        return replace(self, ended="finished", ended_at=time)

    @property
    def facts(self) -> RunFacts:
        """What a party is told."""
        order = [self.decisions[name] for name in self.settings.parties if name in self.decisions]
        return RunFacts(
            self.name,
            self.proposal,
            self.starter,
            self.proposed_at,
            self.state,
            tuple(order),
            self.ended_by,
            self.ended_reason,
            self.ended_at,
        )

    def to_json(self) -> bytes:
        """For its file."""
        facts = {
            "layout": _LAYOUT,
            "settings": self.proposal.settings.decode(),
            "certificate": self.proposal.certificate.decode(),
            "signature": self.proposal.signature.hex(),
            "protocol": self.proposal.protocol,
            "starter": self.starter,
            "proposed_at": self.proposed_at,
            "decisions": [asdict(each) for each in self.decisions.values()],
            "ended": [self.ended, self.ended_by, self.ended_reason, self.ended_at],
        }
        return (json.dumps(facts, indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, raw: bytes, where: str) -> HostedRun:
        """Back from its file; `where` is named if it is damaged."""
        try:
            facts: Mapping[str, Any] = json.loads(raw)
            if facts["layout"] != _LAYOUT:
                raise ValueError(f"its layout is {facts['layout']!r}")
            proposal = Proposal(
                facts["settings"].encode(),
                facts["certificate"].encode(),
                bytes.fromhex(facts["signature"]),
                facts["protocol"],
            )
            decisions = [PartyDecision(**each) for each in facts["decisions"]]
            if any(each.choice not in CHOICES for each in decisions):
                raise ValueError("a decision that is none")
            known = {each.party: each for each in decisions}
            return cls(proposal, facts["starter"], facts["proposed_at"], known, *facts["ended"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StateCorrupt(
                f"the record of a run {where!r} is damaged ({error}); bring it back from a backup, or move its folder "
                f"away to give the run up"
            ) from None
