"""Who takes part, and whether all mean the same run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.messages import PROTOCOL, Hello


@dataclass(frozen=True)
class AgreedRows:
    """Which rows the run trains on, as the first party to join had them."""

    digest: bytes
    rows: int
    held_out: int
    party: str
    """The first to join."""
    line: int = 0
    """The class of the slowest line."""


class Membership:
    """The parties that have joined, and what they must agree on."""

    def __init__(self, run_hash: bytes) -> None:
        self._run_hash = run_hash
        self._incarnations: dict[str, int] = {}
        self.alignment: AgreedRows | None = None

    def admit(self, party: str, hello: Hello) -> None:
        """Let a party in, or refuse it with what each side has; a refusal changes nothing."""
        self.check(party, hello)
        self._incarnations[party] = hello.incarnation
        if self.alignment is None:
            self.alignment = AgreedRows(hello.alignment_hash, hello.rows, hello.held_out, party, hello.line)

    def incarnation(self, party: str) -> int:
        """The newest start of a party that was let in; 0 before the first."""
        return self._incarnations.get(party, 0)

    def check(self, party: str, hello: Hello) -> None:
        """Raise unless the party may be let in."""
        check_same_run(party, hello.protocol, hello.run_hash, self._run_hash)
        if hello.incarnation < max(1, self.incarnation(party)):
            raise MessageRefused(
                f"party {party!r} is at its start {hello.incarnation}, the server knows its start "
                f"{self.incarnation(party)}: this is an older process of it, or its state was lost or comes from a "
                f"backup. End it if another one runs; bring the newest state back, or give the run a new name at "
                f"every side",
                Refusal.FENCED,
            )
        if hello.rows < 1:
            raise MessageRefused(
                f"party {party!r} has no rows to train on; check its files and what the parties share", Refusal.INVALID
            )
        self._check_alignment(party, hello)

    def _check_alignment(self, party: str, hello: Hello) -> None:
        agreed = self.alignment
        if agreed is None:
            return
        if (hello.rows, hello.held_out) != (agreed.rows, agreed.held_out):
            raise MessageRefused(
                f"party {party!r} has {hello.rows} rows and {hello.held_out} held out, {agreed.party!r} has "
                f"{agreed.rows} and {agreed.held_out}; all parties must hold the same rows",
                Refusal.MISMATCH,
            )
        if hello.line != agreed.line:
            raise MessageRefused(
                f"party {party!r} has agreed on lines of class {hello.line}, {agreed.party!r} on {agreed.line}; give "
                f"the run a new name at every side",
                Refusal.MISMATCH,
            )
        if hello.alignment_hash != agreed.digest:
            raise MessageRefused(
                f"party {party!r} has other rows than {agreed.party!r} (alignment {hello.alignment_hash.hex()[:12]} "
                f"against {agreed.digest.hex()[:12]}); check the ids and data files on both sides",
                Refusal.MISMATCH,
            )

    def facts(self) -> dict[str, Any]:
        """Everything needed to go on from here, for JSON."""
        agreed = self.alignment
        return {
            "incarnations": self._incarnations,
            "alignment": None
            if agreed is None
            else [agreed.digest.hex(), agreed.rows, agreed.held_out, agreed.party, agreed.line],
        }

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Become the register that gave these facts."""
        self._incarnations = dict(facts["incarnations"])
        if facts["alignment"] is not None:
            digest, *agreed = facts["alignment"]
            self.alignment = AgreedRows(bytes.fromhex(digest), *agreed)


def check_same_run(party: str, protocol: int, run_hash: bytes, ours: bytes) -> None:
    """Raise unless a party has this run and this protocol."""
    if protocol != PROTOCOL:
        raise MessageRefused(
            f"party {party!r} speaks protocol {protocol}, the server {PROTOCOL}; install the same fdml",
            Refusal.MISMATCH,
        )
    if run_hash != ours:
        raise MessageRefused(
            f"party {party!r} has a run.toml with hash {run_hash.hex()[:12]}, the server one with "
            f"{ours.hex()[:12]}; give both the same file",
            Refusal.MISMATCH,
        )
