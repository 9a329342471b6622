"""Questions about predictions at the server: it passes sealed bytes on between an asker and the parties that stand by.

It owns no socket, thread or clock. It keeps nothing: an asker whose question got lost asks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.prediction_messages import Question, Relayed, Reply

_MOST_OPEN = 64
"""Questions of one line that wait for replies; then the oldest is given up."""
_MOST_QUESTION = 2**21
"""Bytes of a question: its answer may be longer."""


@dataclass(eq=False)
class RelayLine:
    """One stream of a party: it answers questions, or asks them."""

    party: str
    """By its certificate."""
    answers: bool


class Delivery(NamedTuple):
    """A message for a stream."""

    line: RelayLine
    message: Relayed


class _Open(NamedTuple):
    """A question that waits for its reply."""

    asker: RelayLine
    number: bytes
    run: str
    asked: RelayLine

    @property
    def key(self) -> tuple[str, bytes, str]:
        """What a reply to it names: who asked, its number; and who was asked."""
        return (self.asker.party, self.number, self.asked.party)


class Relay:
    """The streams of askers and of parties that stand by; of several that answer for a party the newest is asked."""

    def __init__(self, parties: Iterable[str], asker: str = "") -> None:
        """`asker` is the only party that asks here, where there is no server and this is its own relay."""
        self._parties = tuple(parties)
        self._asker = asker
        self._standing: dict[str, RelayLine] = {}
        self._open: dict[tuple[str, bytes, str], _Open] = {}

    @property
    def standing(self) -> tuple[str, ...]:
        """The parties that answer just now."""
        return tuple(name for name in self._parties if name in self._standing)

    def open(self, line: RelayLine) -> list[Delivery]:
        """A stream has come; it takes the place of an older one of a party that answers."""
        if not line.answers:
            return []
        before = self._standing.get(line.party)
        self._standing[line.party] = line
        return [] if before is None else self._give_up(before)

    def close(self, line: RelayLine) -> list[Delivery]:
        """A stream has ended: who waits for its replies is told."""
        if self._standing.get(line.party) is line:
            del self._standing[line.party]
        self._open = {key: each for key, each in self._open.items() if each.asker is not line}
        return self._give_up(line)

    def receive(self, line: RelayLine, message: Relayed) -> list[Delivery]:
        """What becomes of a message; raises `MessageRefused` if it is not this stream's to send."""
        match message:
            case Question():
                return self._ask(line, message)
            case Reply():
                return self._reply(line, message)

    def _ask(self, line: RelayLine, question: Question) -> list[Delivery]:
        if line.answers:
            raise MessageRefused(
                f"party {line.party!r} asks on the stream on which it answers; open another to ask",
                Refusal.NOT_PERMITTED,
            )
        if self._asker and line.party != self._asker:
            raise MessageRefused(
                f"party {line.party!r} asks at {self._asker!r}, which passes on its own questions alone; each party "
                f"asks at its own session",
                Refusal.NOT_PERMITTED,
            )
        if len(question.sealed) > _MOST_QUESTION:
            raise MessageRefused(
                f"a question of {len(question.sealed)} bytes; the largest has {_MOST_QUESTION}: ask for fewer rows",
                Refusal.TOO_LARGE,
            )
        if question.party not in self._parties:
            raise MessageRefused(
                f"party {line.party!r} asks {question.party!r}, which is no party of this federation", Refusal.INVALID
            )
        asked = self._standing.get(question.party)
        if asked is None:
            return [Delivery(line, _absent(question, "it is not standing by (`fdml up`)"))]
        waiting = _Open(line, question.number, question.run, asked)
        if waiting.key in self._open:
            raise MessageRefused("a question with a number that is in use; draw another", Refusal.CONFLICT)
        self._make_room(line)
        self._open[waiting.key] = waiting
        return [Delivery(asked, replace(question, party=line.party))]

    def _reply(self, line: RelayLine, reply: Reply) -> list[Delivery]:
        if not line.answers:
            raise MessageRefused(
                f"party {line.party!r} answers on a stream on which it asks; open another", Refusal.NOT_PERMITTED
            )
        key = (reply.party, reply.number, line.party)
        waiting = self._open.get(key)
        if waiting is None or waiting.asked is not line or waiting.run != reply.run:
            return []  # the asker has given up
        del self._open[key]
        return [Delivery(waiting.asker, replace(reply, party=line.party))]

    def undelivered(self, line: RelayLine, question: Question) -> list[Delivery]:
        """A question did not reach a party's stream, which takes no more: its asker is told."""
        waiting = self._open.pop((question.party, question.number, line.party), None)
        if waiting is None:
            return []
        text = "it has more questions than it takes; ask again later"
        return [Delivery(waiting.asker, Reply(question.number, question.run, line.party, absent=text))]

    def _make_room(self, line: RelayLine) -> None:
        own = [key for key, each in self._open.items() if each.asker is line]
        if len(own) >= _MOST_OPEN:
            del self._open[own[0]]

    def _give_up(self, line: RelayLine) -> list[Delivery]:
        """Tell who waits for replies of a stream that there will be none."""
        lost = [each for each in self._open.values() if each.asked is line]
        for each in lost:
            del self._open[each.key]
        text = "it left before it answered"
        return [Delivery(each.asker, Reply(each.number, each.run, line.party, absent=text)) for each in lost]


def _absent(question: Question, why: str) -> Reply:
    return Reply(question.number, question.run, question.party, absent=why)
