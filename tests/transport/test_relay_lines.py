"""Streams of questions at the server: what a stream does not take stays bounded, and others are told."""

import asyncio

import pytest

from fdml.protocol.prediction_messages import Question, Reply
from fdml.protocol.prediction_wire import decode_relayed, encode_relayed
from fdml.server.relay import Relay, RelayLine
from fdml.transport import relay_lines
from fdml.transport.pieces import Assembly, pieces
from fdml.transport.relay_lines import RelayLines


class AllKnown:
    def check(self, party, certificate):
        pass


class Caller:
    """One end of a stream: what it sends, and what it has taken; it takes nothing before `takes` is set."""

    def __init__(self, lines, party, *, answers):
        self.line, self.takes, self.taken = RelayLine(party, answers=answers), asyncio.Event(), []
        self._assembly, self._sent = Assembly(), asyncio.Queue()
        self.task = asyncio.create_task(
            lines.hold(self.line, None, self._requests(), write=self._write, refuse=self._refused)
        )

    async def _requests(self):
        while (piece := await self._sent.get()) is not None:
            yield piece

    async def _write(self, piece):
        await self.takes.wait()
        raw = self._assembly.add(piece)
        if raw is not None:
            self.taken.append(decode_relayed(raw))

    async def _refused(self, refused):
        raise AssertionError(refused)

    def send(self, message):
        for piece in pieces(encode_relayed(message)):
            self._sent.put_nowait(piece)

    async def end(self):
        self._sent.put_nowait(None)
        self.takes.set()
        await self.task


async def all_done():
    for _ in range(200):
        await asyncio.sleep(0)


def question(number, size=1000):
    return Question(number.to_bytes(16, "little"), "first", "bob", b"s" * size)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(relay_lines, "_MOST_WAITING", 3500)


def test_questions_that_a_party_does_not_take_are_refused_and_not_kept(small):
    async def flood():
        lines = RelayLines(Relay(("ann", "bob")), AllKnown())
        bob, ann = Caller(lines, "bob", answers=True), Caller(lines, "ann", answers=False)
        ann.takes.set()
        await all_done()
        for number in range(20):
            ann.send(question(number))
        await all_done()
        assert lines._streams[bob.line].waiting <= 3500
        refused = [each for each in ann.taken if "more questions than it takes" in each.absent]
        assert len(refused) == 17
        bob.takes.set()
        await all_done()
        assert [each.number[0] for each in bob.taken] == [0, 1, 2]
        assert lines._streams[bob.line].waiting == 0
        ann.send(question(99))
        await all_done()
        assert bob.taken[-1].number[0] == 99, "a stream that takes again is asked again"
        await ann.end()
        await bob.end()

    asyncio.run(flood())


def test_answers_that_an_asker_does_not_take_are_not_kept(small):
    async def flood():
        lines = RelayLines(Relay(("ann", "bob")), AllKnown())
        bob, ann = Caller(lines, "bob", answers=True), Caller(lines, "ann", answers=False)
        bob.takes.set()
        await all_done()
        for number in range(20):
            ann.send(question(number, 10))
        await all_done()
        for each in list(bob.taken):
            bob.send(Reply(each.number, "first", "ann", b"a" * 1000))
        await all_done()
        assert lines._streams[ann.line].waiting <= 3500
        ann.takes.set()
        await all_done()
        assert [each.number[0] for each in ann.taken] == [0, 1, 2]
        await ann.end()
        await bob.end()

    asyncio.run(flood())
