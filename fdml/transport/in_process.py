"""Parties and server in one process: the channel's twin without a network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from fdml.errors import PartyFailed, PeerTimeout
from fdml.protocol.messages import Checkpointed, Gradient, Push, Reply, Stop, Stopped, Total

Handle = Callable[[str, Push | Gradient | Stop | Checkpointed], list[Reply]]


class InProcessExchange:
    """Brings messages of party threads to a coordinator, one at a time, and its replies back."""

    def __init__(
        self, parties: Sequence[str], handle: Handle, waits_for: Callable[[str], list[str]], peer_timeout: float
    ) -> None:
        self._handle = handle
        self._waits_for = waits_for
        self._peer_timeout = peer_timeout
        self._arrived: dict[str, dict[int, Total | Gradient]] = {party: {} for party in parties}
        self._stopped: Stopped | None = None
        self._failed: str | None = None
        self._changed = threading.Condition()

    def channel(self, party: str) -> InProcessChannel:
        """The line of one party."""
        return InProcessChannel(self, party)

    def fail(self, party: str) -> None:
        """Tell all who wait that a party has stopped with an error; the first such party is named."""
        with self._changed:
            self._failed = self._failed or party
            self._changed.notify_all()

    def send(self, party: str, message: Push | Gradient | Stop) -> None:
        """Bring one message to the coordinator and deliver what comes back."""
        with self._changed:
            for reply in self._handle(party, message):
                if isinstance(reply.message, Total | Gradient):
                    self._arrived[reply.to][reply.message.step] = reply.message
                elif isinstance(reply.message, Stopped):
                    self._stopped = min(self._stopped or reply.message, reply.message, key=lambda each: each.step)
            self._changed.notify_all()

    def keep(self, party: str, step: int) -> None:
        """Tell the coordinator which totals it may forget."""
        with self._changed:
            self._handle(party, Checkpointed(step))

    def receive(self, party: str, step: int) -> Total | Gradient | Stopped:
        """Wait for an answer, at most as long as the run's peer_timeout."""
        inbox = self._arrived[party]
        deadline = time.monotonic() + self._peer_timeout
        with self._changed:
            while step not in inbox:
                if self._stopped is not None and step >= self._stopped.step:
                    return self._stopped
                if self._failed is not None:
                    raise PartyFailed(f"party {self._failed!r} stopped with an error; see its own message")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise PeerTimeout(self._silence(party, step))
                self._changed.wait(left)
            return inbox.pop(step)

    def _silence(self, party: str, step: int) -> str:
        names = ", ".join(repr(name) for name in self._waits_for(party))
        return (
            f"party {party!r} waited {self._peer_timeout:g} s at step {step} for {names}; "
            f"see what holds it up, or raise training.peer_timeout_seconds"
        )


class InProcessChannel:
    """One party's line in one process."""

    def __init__(self, exchange: InProcessExchange, party: str) -> None:
        self._exchange = exchange
        self._party = party

    def send(self, message: Push | Gradient | Stop) -> None:
        """Send what has passed the guard."""
        self._exchange.send(self._party, message)

    def receive(self, step: int) -> Total | Gradient | Stopped:
        """Wait for the answer to a step."""
        return self._exchange.receive(self._party, step)

    def keep(self, step: int) -> None:
        """Say that no total up to this step will ever be asked for again."""
        self._exchange.keep(self._party, step)
