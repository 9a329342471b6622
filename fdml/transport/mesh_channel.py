"""A party's channel where there is no server: a line to every party's session, its own included.

What the party sends goes to all of them, and its answers come from its own. A message is stored once all have it. So a
party that comes back finds at every other what it had sent there, and sends again what is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from fdml.errors import PeerTimeout
from fdml.party.channel import Incoming, ToServer
from fdml.protocol.agreed_training import most_lookahead
from fdml.protocol.alignment_messages import Fetch, Post
from fdml.protocol.messages import FromParty, HeldOutPredictions, Hello, Push, Total, Welcome
from fdml.settings import RunSettings
from fdml.transport.grpc_channel import GrpcChannel


class MeshChannel:
    """One party's lines to all parties of a run."""

    def __init__(self, run: RunSettings, party: str, lines: Mapping[str, GrpcChannel]) -> None:
        """`lines` are those to every party, also to this one, and share what they wait on."""
        self._run = run
        self._party = party
        self._lines = dict(lines)
        self._own = self._lines[party]
        self._others = [line for name, line in self._lines.items() if name != party]
        self._front = self._lines[run.comparer]
        """The line whose waits are told: to the party that compares ids, then to the own session."""
        self._inbox: deque[Incoming] = deque()
        self._ahead = 1 + most_lookahead(run.training)
        self._parts: dict[int, bytes] = {}
        """By step: the digests of all parts, which leave with a later push."""

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes of alignment messages sent and received."""
        return self._front.traffic if self._front is not self._own else (0, 0)

    @property
    def bytes_sent(self) -> int:
        """Of messages to other parties."""
        return sum(line.bytes_sent for line in self._others)

    @property
    def bytes_received(self) -> int:
        """Of what other parties have answered; what they push comes to this party's session."""
        return sum(line.bytes_received for line in self._others)

    @property
    def waited_seconds(self) -> float:
        """In which the party could do nothing until something came."""
        return sum(line.waited_seconds for line in self._lines.values())

    @property
    def has_message(self) -> bool:
        """Whether `poll` would give something."""
        self._gather()
        return bool(self._inbox) or self._own.has_message

    @property
    def all_stored(self) -> bool:
        """Whether every party has stored everything that was sent."""
        return all(line.all_stored for line in self._lines.values())

    def send(self, message: ToServer) -> None:
        """Send a message to all whom it is for; it stays in the lines' care until they have stored it."""
        if isinstance(message, Hello):
            self._front = self._own
        if isinstance(message, Push):
            message = replace(message, seen=self._parts.pop(message.step - self._ahead, b""))
        for name in self._receivers(message):
            self._lines[name].send(message)

    def poll(self) -> Incoming | None:
        """The next message that has come, or None."""
        self._gather()
        message = self._inbox.popleft() if self._inbox else self._own.poll()
        if isinstance(message, Total):
            self._parts[message.step] = message.parts
        return message

    def unacknowledged(self) -> list[FromParty]:
        """Messages that some party may not have yet and that a restarted party would not make again.

        A push is among them: its total may have been served here while it was still on its way to another party.
        """
        pushes = {push.step: push for line in self._others for push in line.unstored_pushes()}
        further: dict[int, FromParty] = {
            id(message): message for line in self._lines.values() for message in line.unacknowledged()
        }
        return [*(pushes[step] for step in sorted(pushes)), *further.values()]

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Wait until `ready()` holds, as a line does; raises what has ended any of them."""
        try:
            self._front.wait(lambda: any(self._failures()) or ready(), what)
        except PeerTimeout:
            behind = [name for name, line in self._lines.items() if not line.all_stored]
            if self._front is not self._own or not behind:
                raise
            names = ", ".join(repr(name) for name in behind)
            raise PeerTimeout(
                f"party {self._party!r} waited {self._run.training.peer_timeout_seconds:g} s {what.format(names)}; see "
                f"what holds it up, then run the same command again: it goes on where it stopped"
            ) from None
        for line in self._failures():
            raise line.failed or PeerTimeout(what)

    def close(self) -> None:
        """End all lines."""
        for line in self._lines.values():
            line.close()

    def _receivers(self, message: ToServer) -> tuple[str, ...]:
        """Whom a message is for: sums of held-out rows are the label party's alone, ids are compared by one party."""
        if isinstance(message, Post | Fetch):
            return (self._run.comparer,)
        if isinstance(message, HeldOutPredictions):
            return (self._run.label_party,)
        return self._run.parties

    def _gather(self) -> None:
        """Take what others have answered: of the alignment, and that they let this party in."""
        for line in self._others:
            while line.has_message:
                message = line.poll()
                if message is not None and not isinstance(message, Welcome):
                    self._inbox.append(message)

    def _failures(self) -> Iterator[GrpcChannel]:
        return (line for line in self._lines.values() if line.failed is not None)
