"""Reliable delivery over a line that may break, without a network: what to send again, what has come."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from fdml.protocol.messages import (
    Ack,
    FromParty,
    FromServer,
    Gradient,
    HeldOutPredictions,
    HeldOutTotal,
    Hello,
    Labels,
    Push,
    SealedMetrics,
    Stopped,
    Total,
    Waiting,
    Welcome,
)


class Delivery:
    """Every message is sent until the server has acknowledged it; what comes twice is given once."""

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._unstored: deque[FromParty] = deque()
        self._stored_on_line = 0
        self._answered = -1
        self._evaluated: set[int] = set()
        self._has_labels = False
        self._inbox: deque[FromServer] = deque()
        self.done = hello.done
        """The last step whose answer was given."""
        self.welcomed = False
        """Whether the server has answered on the present line."""
        self.waits_for: tuple[str, ...] = ()

    def connect(self) -> list[FromParty]:
        """What to send first on a new line: hello, then all that is not known to be stored.

        A push whose total has come was stored, whether or not its acknowledgement arrived.
        """
        self._unstored = deque(message for message in self._unstored if not self._was_answered(message))
        self._stored_on_line = 1
        self.welcomed = False
        return [replace(self._hello, done=self.done), *self._unstored]

    def enqueue(self, message: FromParty) -> None:
        """Take charge of a message; the caller sends it on the present line, if there is one."""
        self._unstored.append(message)

    @property
    def all_stored(self) -> bool:
        """Whether the server has everything."""
        return not self._unstored

    @property
    def unacknowledged(self) -> list[FromParty]:
        """What is not known to be stored and would not be made again after a restart."""
        return [
            message for message in self._unstored if isinstance(message, Gradient | HeldOutPredictions | SealedMetrics)
        ]

    def receive(self, message: FromServer) -> None:
        """Take in a message from the server."""
        match message:
            case Welcome():
                self.welcomed = True
                self._inbox.append(message)
            case Ack(count):
                for _ in range(min(count - self._stored_on_line, len(self._unstored))):
                    self._unstored.popleft()
                self._stored_on_line = max(count, self._stored_on_line)
            case Total(step) | Gradient(step):
                if step > max(self._answered, self.done):
                    self._inbox.append(message)
                    self.waits_for = ()
                self._answered = max(self._answered, step)
            case HeldOutTotal(epoch):
                if epoch not in self._evaluated:
                    self._evaluated.add(epoch)
                    self._inbox.append(message)
            case Labels():
                if not self._has_labels:
                    self._has_labels = True
                    self._inbox.append(message)
            case Stopped():
                self._inbox.append(message)
            case Waiting(parties):
                self.waits_for = parties

    @property
    def has_message(self) -> bool:
        """Whether `poll` would give something."""
        return bool(self._inbox)

    def poll(self) -> FromServer | None:
        """The next message that has come; an answer that was given is not asked for again."""
        if not self._inbox:
            return None
        message = self._inbox.popleft()
        if isinstance(message, Total | Gradient):
            self.done = max(self.done, message.step)
        return message

    def _was_answered(self, message: FromParty) -> bool:
        return isinstance(message, Push) and message.step <= self._answered
