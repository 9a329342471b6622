"""What a server's session does otherwise inside a party of a run without a server.

Every party has a session that is fed by all parties, and serves the party that it belongs to. Its lines are
independent, so what another party sends may be ahead of what a third one has sent: that waits. At staleness 0 a total
follows from the pushes of its step alone, so all sessions make the same ones.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.messages import PART_DIGEST, FromParty, Push, Release, Reply, Total, Welcome
from fdml.server.checks import digest_of_release

S = TypeVar("S")
M = TypeVar("M")
_KEPT_STEPS = 8
"""Steps past the lookahead of which digests are kept: nobody is further behind at staleness 0."""


class Replica(Generic[S, M]):
    """Which answers leave, what has to wait, and whether all parties were told the same."""

    def __init__(self, party: str, parties: Sequence[str], lookahead: int) -> None:
        self.party = party
        """Whom the session serves."""
        self._parts = PartComparison(party, parties, lookahead)
        self._waiting: dict[S, list[M]] = {}
        self.difference: MessageRefused | None = None
        """Why the run cannot go on: parties were told different things."""

    def check(self, sender: str, message: FromParty) -> None:
        """Refuse a push if what its sender was told of a step is not what this party was told."""
        if not isinstance(message, Push):
            return
        try:
            self._parts.note(sender, message)
        except MessageRefused as refused:
            self.difference = refused
            raise

    def answers(self, replies: Sequence[Reply]) -> list[Reply]:
        """Those that leave: other parties have a session of their own, and are only let in here."""
        return [
            Reply(reply.to, self._with_parts(reply.message)) if isinstance(reply.message, Total) else reply
            for reply in replies
            if reply.to == self.party or isinstance(reply.message, Welcome)
        ]

    def _with_parts(self, total: Total) -> Total:
        return replace(total, parts=self._parts.digests(total.step))

    def must_wait(self, line: S, message: M) -> bool:
        """Whether a message waits behind others of its line; then it is kept."""
        if line not in self._waiting:
            return False
        self._waiting[line].append(message)
        return True

    def is_early(self, line: S, sender: str, message: M, refused: MessageRefused) -> bool:
        """Whether a message that was refused is only ahead of what others have sent; then it is kept."""
        if refused.refusal is not Refusal.GAP or sender == self.party:
            return False
        self._waiting[line] = [message]
        return True

    def again(self, is_open: Callable[[S], bool]) -> list[tuple[S, M]]:
        """All that waits, to be tried again: something has come."""
        waiting, self._waiting = self._waiting, {}
        return [(line, message) for line, messages in waiting.items() if is_open(line) for message in messages]


class PartComparison:
    """Finds a party that tells others different things: every push says which parts its sender had of an older step."""

    def __init__(self, party: str, parties: Sequence[str], lookahead: int) -> None:
        self._party = party
        self._parties = tuple(parties)
        self._ahead = lookahead + 1
        self._known: dict[int, dict[str, bytes]] = {}
        """By step and party: the digest of what it has sent here."""
        self._reported: dict[int, dict[str, bytes]] = {}
        """By step and party: what it says it was sent."""

    def note(self, sender: str, push: Push) -> None:
        """A party has pushed; refused where another was told something else for that step, or for the older one."""
        self._known.setdefault(push.step, {}).setdefault(sender, part_digest(push.release))
        for told_by, seen in self._reported.get(push.step, {}).items():
            self._check(push.step, told_by, seen)
        if push.seen:
            self._compare(sender, push.step - self._ahead, push.seen)
        for old in [step for step in self._known if step < push.step - self._ahead - _KEPT_STEPS]:
            del self._known[old]
            self._reported.pop(old, None)

    def digests(self, step: int) -> bytes:
        """Of all parts of a step, in the run's order; nothing if any is not known, as after a restart."""
        known = self._known.get(step, {})
        return b"".join(known[name] for name in self._parties) if len(known) == len(self._parties) else b""

    def _compare(self, sender: str, step: int, seen: bytes) -> None:
        if len(seen) != PART_DIGEST * len(self._parties):
            raise MessageRefused(
                f"party {sender!r} sent {len(seen)} bytes of digests; {len(self._parties)} parties take "
                f"{PART_DIGEST * len(self._parties)}",
                Refusal.INVALID,
            )
        self._reported.setdefault(step, {})[sender] = seen
        self._check(step, sender, seen)

    def _check(self, step: int, told_by: str, seen: bytes) -> None:
        for number, name in enumerate(self._parties):
            here = self._known.get(step, {}).get(name)
            there = seen[number * PART_DIGEST : (number + 1) * PART_DIGEST]
            if here is not None and here != there:
                raise MessageRefused(_differ(step, name, told_by, self._party), Refusal.CONFLICT)


def part_digest(release: Release) -> bytes:
    """Of all that a part of a step says."""
    what = struct.pack("<Qd", release.mask_id, release.variance) + digest_of_release(release)
    return hashlib.blake2b(what, digest_size=PART_DIGEST).digest()


def _differ(step: int, name: str, told_by: str, party: str) -> str:
    if name == told_by:
        what = f"party {name!r} has sent {party!r} other predictions for step {step} than it sums itself"
    elif name == party:
        what = f"party {told_by!r} says that {party!r} sent it other predictions for step {step} than it did"
    else:
        what = f"party {name!r} has sent {party!r} and {told_by!r} different predictions for step {step}"
    return f"{what}; the run ends here: find out which of them is not what all agreed on, then give it a new name"
