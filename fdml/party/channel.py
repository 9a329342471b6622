"""The seam between a party and whatever carries its messages: the whole conversation, from alignment to the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fdml.protocol.alignment_messages import AlignmentMessage, AlignmentRequest
from fdml.protocol.messages import FromParty, FromServer

ToServer = AlignmentRequest | FromParty
Incoming = AlignmentMessage | FromServer


class Channel(Protocol):
    """One party's line to the server. Nothing here waits.

    Messages reach the server in the order they were sent, each once, however
    often the line breaks. `Hello` begins the training part of the conversation;
    alignment requests come before it.
    """

    def send(self, message: ToServer) -> None:
        """Send a message; a release has passed the guard before. Raises what has ended the line, if something has."""
        ...

    def poll(self) -> Incoming | None:
        """The next message that has come, or None. Each is given once; acknowledgements are not given."""
        ...

    @property
    def has_message(self) -> bool:
        """Whether `poll` would give something."""
        ...

    @property
    def all_stored(self) -> bool:
        """Whether the server has stored everything that was sent."""
        ...

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes of alignment messages sent and received; zeros where nothing travels."""
        ...

    def unacknowledged(self) -> list[FromParty]:
        """Messages that the server may not have yet and that a restarted party would not make again."""
        ...

    def close(self) -> None:
        """End the line."""
        ...


class BlockingChannel(Channel, Protocol):
    """A channel of a party that has a thread of its own to wait in."""

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Wait until `ready()` holds, at most the run's peer timeout.

        `what` says for what, with a place for whom. Raises `PeerTimeout` with the
        name of the party waited for, `PartyFailed`, or what has ended the line.
        """
        ...
