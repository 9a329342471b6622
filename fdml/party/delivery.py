"""A party's side of the line, without a network: what to send again, what has come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
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
    Metrics,
    Push,
    Stopped,
    Total,
    Waiting,
    Welcome,
)


class Delivery:
    """Every message is sent until the server says that it is stored; what comes twice is taken once."""

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._unstored: deque[FromParty] = deque()
        self._stored_on_line = 0
        self._answered = -1
        self._heard: set[int] = set()
        self.done = hello.done
        self.welcomed = False
        self.answers: dict[int, Total | Gradient] = {}
        self.stopped: Stopped | None = None
        self.verdicts: dict[int, HeldOutTotal] = {}
        self.evaluated: set[int] = set()
        """Epochs whose metrics the server had before this line."""
        self.labels: Labels | None = None
        self.waits_for: tuple[str, ...] = ()

    def connect(self) -> list[FromParty]:
        """What to say on a new line: hello, then all that is not known to be stored.

        A push whose total has come was stored, whether or not the server's word of it arrived.
        """
        self._unstored = deque(message for message in self._unstored if not self._was_answered(message))
        self._stored_on_line = 1
        self.welcomed = False
        return [replace(self._hello, done=self.done), *self._unstored]

    def post(self, message: FromParty) -> None:
        """Take count_release of a message; the caller sends it on the present line, if there is one."""
        self._unstored.append(message)

    @property
    def all_stored(self) -> bool:
        """Whether the server has everything."""
        return not self._unstored

    @property
    def unacknowledged(self) -> list[FromParty]:
        """What is not known to be stored and would not be made again after a restart."""
        return [message for message in self._unstored if isinstance(message, Gradient | HeldOutPredictions | Metrics)]

    def hear(self, message: FromServer) -> None:
        """Take in what the server says."""
        match message:
            case Welcome(_, evaluated):
                self.welcomed = True
                self.evaluated.update(evaluated)
            case Ack(count):
                for _ in range(min(count - self._stored_on_line, len(self._unstored))):
                    self._unstored.popleft()
                self._stored_on_line = max(count, self._stored_on_line)
            case Total(step) | Gradient(step):
                self._answered = max(self._answered, step)
                if step > self.done:
                    self.answers[step] = message
                    self.waits_for = ()
            case Stopped(step=step):
                if self.stopped is None or step < self.stopped.step:
                    self.stopped = message
            case HeldOutTotal(epoch):
                if epoch not in self._heard:
                    self._heard.add(epoch)
                    self.verdicts[epoch] = message
            case Labels():
                self.labels = message
            case Waiting(parties):
                self.waits_for = parties

    def has(self, step: int) -> bool:
        """Whether `take` would give something."""
        return step in self.answers or (self.stopped is not None and step >= self.stopped.step)

    def take(self, step: int) -> Total | Gradient | Stopped | None:
        """The answer to a step, if it has come; it is not asked for again."""
        answer = self.answers.pop(step, None)
        if answer is not None:
            self.done = max(self.done, step)
            return answer
        return self.stopped if self.stopped is not None and step >= self.stopped.step else None

    def take_verdicts(self, epochs: Iterable[int]) -> list[HeldOutTotal]:
        """The sums of held-out predictions that have come for these epochs; others are left for later."""
        return [self.verdicts.pop(epoch) for epoch in sorted(epochs) if epoch in self.verdicts]

    def is_settled(self, epoch: int, blocks: int) -> bool:
        """Whether there is nothing to wait for: the sum of an epoch has come, was evaluated before, or never comes.

        It never comes if the run of so many blocks an epoch ended before all parties were through with it.
        """
        ended = self.stopped is not None and epoch * blocks > self.stopped.step
        return ended or epoch in self.verdicts or epoch in self.evaluated

    def _was_answered(self, message: FromParty) -> bool:
        return isinstance(message, Push) and message.step <= self._answered
