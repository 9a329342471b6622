"""Reliable delivery over a line that may break, without a network: what to send again, what has come."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.limits import CEILING, agreed_with, largest_answer
from fdml.protocol.messages import (
    Ack,
    BestEpoch,
    FromParty,
    FromServer,
    Gradient,
    HeldOutPredictions,
    HeldOutTotal,
    Hello,
    Labels,
    Push,
    SealedMetrics,
    Stop,
    Stopped,
    Total,
    Waiting,
    Welcome,
    prediction_width,
)
from fdml.protocol.row_pieces import number_of
from fdml.protocol.schedule import schedule_of
from fdml.protocol.waited_for import WaitedFor
from fdml.settings import RunSettings

_MANY = 2**53
"""More steps than any run has."""
_OF_A_RUN_UNDER_WAY = (Labels, Total, Gradient, HeldOutTotal, Stopped, BestEpoch)
_MOST_UNUSED = 64
"""Messages that may wait for the party to use them before no more are read."""


class Delivery:
    """Every message is sent until the server has acknowledged it; what comes twice is given once.

    Where the settings of the run are given, the server may not answer what this party has not asked for.
    """

    def __init__(self, hello: Hello, run: RunSettings | None = None) -> None:
        self._hello = hello
        self._run = run
        self._width = 1
        """How many values of a row travel; known from the labels on."""
        self._training = None if run is None else agreed_with(run, hello)
        self.largest_message = self._largest_message()
        """Bytes of the largest message that the server may send now."""
        self._steps = _MANY if self._training is None else schedule_of(hello.rows, self._training).steps
        self._asked = -1
        """The last step that this party has pushed, in this start or an earlier one."""
        self._unstored: deque[FromParty] = deque()
        self._stored_on_line = 0
        self._answered = -1
        self._evaluated: set[tuple[int, int]] = set()
        """Epochs and pieces of held-out rows whose totals were given."""
        self._labels: set[int] = set()
        """Pieces of labels that were given."""
        self.inbox: deque[FromServer] = deque()
        """What has come and was not given yet."""
        self.done = hello.done
        """The last step whose answer was given."""
        self.welcomed = False
        """Whether the server has answered on the present line."""
        self.under_way = hello.done >= 0
        """Whether labels or an answer have come, to this start or an earlier one: from then on nobody is waited for
        longer than the peer timeout."""
        self.waits_for: tuple[WaitedFor, ...] = ()

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
        match message:
            case Push(step):
                self._asked = max(self._asked, step)
            case Labels():
                self._note_labels(message)

    def _largest_message(self) -> int:
        if self._run is None or self._training is None:
            return CEILING
        return largest_answer(self._training, self._hello, self._width, len(self._run.parties))

    @property
    def has_room(self) -> bool:
        """Whether more may be read: a server that sends faster than the party learns has to wait."""
        return len(self.inbox) < _MOST_UNUSED

    @property
    def all_stored(self) -> bool:
        """Whether the server has everything."""
        return not self._unstored

    @property
    def unacknowledged(self) -> list[FromParty]:
        """What is not known to be stored and would not be made again after a restart."""
        kinds = Gradient | HeldOutPredictions | SealedMetrics | Stop
        return [message for message in self._unstored if isinstance(message, kinds)]

    @property
    def unstored_pushes(self) -> list[Push]:
        """Pushes that are not known to be stored."""
        return [message for message in self._unstored if isinstance(message, Push)]

    def receive(self, message: FromServer) -> None:
        """Take in a message from the server."""
        self.under_way |= isinstance(message, _OF_A_RUN_UNDER_WAY)
        match message:
            case Welcome(pushed):
                self._check_steps(pushed, "the server has", self._steps - 1)
                self._asked = max(self._asked, pushed)
                self.welcomed = True
                self.inbox.append(message)
            case Ack(count):
                for _ in range(min(count - self._stored_on_line, len(self._unstored))):
                    self._unstored.popleft()
                self._stored_on_line = max(count, self._stored_on_line)
            case Total(step) | Gradient(step):
                if self._run is not None:
                    self._check_steps(step, "the server answers", self._asked)
                if step > max(self._answered, self.done):
                    self.inbox.append(message)
                    self.waits_for = ()
                self._answered = max(self._answered, step)
            case HeldOutTotal(epoch):
                if (place := (epoch, number_of(message))) not in self._evaluated:
                    self._evaluated.add(place)
                    self.inbox.append(message)
            case Labels():
                if number_of(message) not in self._labels:
                    self._labels.add(number_of(message))
                    self._note_labels(message)
                    self.inbox.append(message)
            case Stopped() | BestEpoch():
                self.inbox.append(message)
            case Waiting(parties):
                self.waits_for = parties

    @property
    def has_message(self) -> bool:
        """Whether `poll` would give something."""
        return bool(self.inbox)

    def poll(self) -> FromServer | None:
        """The next message that has come; an answer that was given is not asked for again."""
        if not self.inbox:
            return None
        message = self.inbox.popleft()
        if isinstance(message, Total | Gradient):
            self.done = max(self.done, message.step)
        return message

    def _note_labels(self, labels: Labels) -> None:
        if self._run is not None:
            self._width = prediction_width(self._run.task, labels.classes)
            self.largest_message = self._largest_message()

    def _check_steps(self, step: int, what: str, most: int) -> None:
        if step > most:
            raise MessageRefused(f"{what} step {step}, and this party has asked for none after {most}", Refusal.INVALID)

    def _was_answered(self, message: FromParty) -> bool:
        return isinstance(message, Push) and message.step <= self._answered
