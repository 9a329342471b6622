"""The server's whole part in a run, without sockets, threads, disks or clocks of its own.

Messages of all parties are processed together: all that has come is acted on, the log is made durable once, and only
then do the answers leave. That is the order of the effects; a driver carries them out one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fdml import events
from fdml.errors import MessageRefused, PeerTimeout, Refusal
from fdml.protocol.limits import HELLO, agreed_with, largest_block, largest_message
from fdml.protocol.messages import (
    Ack,
    Finished,
    FromParty,
    FromServer,
    Hello,
    Labels,
    Push,
    Reply,
    SealedMetrics,
    Waiting,
)
from fdml.protocol.quoting import quoted
from fdml.protocol.wire import decode_from_party
from fdml.server.admission import check_position, check_rows
from fdml.server.alignment import AlignmentPhase
from fdml.server.checks import UNFORESEEN, unforeseen
from fdml.server.hellos import event_of, replaced
from fdml.server.membership import check_same_run
from fdml.server.presence import MissingReport
from fdml.server.refusals import Refusals
from fdml.server.replica import Replica
from fdml.server.run_state import RunState
from fdml.server.status import StatusTracker
from fdml.settings import AgreedTraining, RunSettings, run_hash

_MOST_UNACKNOWLEDGED = 16
"""Messages of one stream that may be stored before its party is sent an acknowledgement."""
_URGENT = (Hello, Labels, Finished)
"""Messages that are stored and acknowledged at once."""
_WITH_EVENT = (Hello, SealedMetrics, Finished)
"""Messages that listeners of the server learn of."""


@dataclass(eq=False)
class Stream:
    """One open line of one party."""

    party: str
    hello: Hello | None = None
    """The party's first message; None until it has come."""
    limit: int = HELLO
    """Bytes of the largest message it may send."""
    refused: bool = False
    """Something that came by it was refused, so nothing else is acted on."""
    is_open: bool = True
    taken: int = 0
    """How many messages of this stream have been acted on."""
    acknowledged: int = 0


@dataclass(frozen=True)
class Commit:
    """Make everything taken so far durable. No later effect may be carried out before that."""


@dataclass(frozen=True)
class Answer:
    """Send a message on a stream."""

    stream: Stream
    message: FromServer


@dataclass(frozen=True)
class Close:
    """End a stream, with a refusal or without."""

    stream: Stream
    refused: MessageRefused | None = None


@dataclass(frozen=True)
class Emit:
    """Give an event to the listeners."""

    event: events.Event


Effect = Commit | Answer | Close | Emit


class ServerSession:
    """Streams, acknowledgements, fencing, limits and waits around the durable state of one run."""

    def __init__(
        self,
        state: RunState,
        alignment: AlignmentPhase,
        settings: RunSettings,
        clock: Callable[[], float],
        replica: Replica[Stream, bytes | FromParty] | None = None,
    ) -> None:
        """`replica` is given where there is no server, and the session belongs to one of the parties."""
        self.state = state
        self.alignment = alignment
        self.status = StatusTracker(state, alignment, settings, clock)
        self._settings = settings
        self._run_hash = run_hash(settings)
        self._clock = clock
        self._inbox: deque[tuple[Stream, bytes | FromParty]] = deque()
        self._streams: dict[str, Stream] = {}
        """For every party the stream on which it was last welcomed."""
        self._unacknowledged: dict[Stream, None] = {}
        self._departed: set[str] = set()
        self._heard_at = clock()
        self._refusals = Refusals(self.status.refused)
        self._missing = MissingReport(alignment.presence, clock)
        self._replica = replica
        self._agreed_for: tuple[tuple[int, int], AgreedTraining] | None = None

    # Streams

    def check_party(self, name: str) -> None:
        """Raise unless the run has a party of this name."""
        if name not in self._settings.parties:
            known = ", ".join(self._settings.parties)
            raise MessageRefused(f"{quoted(name)} is not a party of this run: {known}", Refusal.NOT_PERMITTED)

    def receive(self, stream: Stream, message: bytes | FromParty) -> None:
        """Take a message in; `process` acts on it. Bytes are what a network brings."""
        if isinstance(message, bytes):
            self.status.bytes_in[stream.party] += len(message)
        self._inbox.append((stream, message))

    def close(self, stream: Stream, *, by_party: bool = False) -> None:
        """A stream has ended; `by_party` if the party has closed it."""
        stream.is_open = False
        if self._streams.get(stream.party) is stream:
            del self._streams[stream.party]
            self.alignment.presence.left(stream.party)
        if by_party and self.state.has_finished(stream.party):
            self._departed.add(stream.party)

    @property
    def all_departed(self) -> bool:
        """Whether all parties have finished and closed their streams, so know that all is stored."""
        return len(self._departed) == len(self._settings.parties)

    def saw(self, party: str) -> None:
        """A party has made a call besides its stream."""
        self._heard_at = self._clock()
        self.alignment.presence.saw(party)

    # Messages

    @property
    def has_messages(self) -> bool:
        """Whether `process` has something to do."""
        return bool(self._inbox)

    @property
    def has_unacknowledged(self) -> bool:
        """Whether `acknowledge` has something to do."""
        return bool(self._unacknowledged)

    def process(self) -> list[Effect]:
        """Act on all that has come; if anyone is to be answered, make it durable first.

        A push that nobody can be served for yet may wait for the next one: the log
        is made durable about once per step, not once per push.
        """
        effects: list[Effect] = []
        answers: list[Answer] = []
        urgent = False
        if self._inbox:
            self._heard_at = self._clock()
        while self._inbox:
            stream, raw = self._inbox.popleft()
            if stream.refused or (self._replica is not None and self._replica.must_wait(stream, raw)):
                continue
            try:
                message = self._checked(stream, raw)
                if self._replica is not None:
                    self._replica.check(stream.party, message)
                replies = self.state.take(stream.party, message, raw if isinstance(raw, bytes) else None)
            except MessageRefused as refused:
                effects += self._refused(stream, raw, refused)
                continue
            if self._replica is not None:
                replies = self._replica.answers(replies)
                self._inbox.extendleft(reversed(self._replica.again(lambda line: line.is_open)))
            if isinstance(message, Push):  # first, as nearly all are
                for event in self.status.note_push(stream.party, message.step):
                    effects.append(Emit(event))
            else:
                if isinstance(message, Hello):
                    effects += self._put_in_place(stream, message)
                if isinstance(message, _WITH_EVENT):
                    effects.append(Emit(event_of(stream.party, message)))
                urgent |= isinstance(message, _URGENT)
            if replies:
                answers += self._addressed(replies)
            stream.taken += 1
            self._unacknowledged[stream] = None
            urgent |= stream.taken - stream.acknowledged >= _MOST_UNACKNOWLEDGED
        if answers:
            effects += self._answers(answers)
        if urgent:
            effects += self._answers([])
        return effects

    def _refused(self, stream: Stream, raw: bytes | FromParty, refused: MessageRefused) -> list[Effect]:
        """What becomes of a message that the run has no use for, now or ever."""
        if self._replica is None:
            return self.refuse(stream, refused)
        if self._replica.is_early(stream, stream.party, raw, refused):
            return []
        if refused is self._replica.difference:
            return [effect for each in {stream, *self._streams.values()} for effect in self.refuse(each, refused)]
        return self.refuse(stream, refused)

    def note_waits(self) -> None:
        """Bring the waiting times that `fdml status` shows up to date."""
        self.status.note_waits(self._streams)

    def acknowledge(self) -> list[Effect]:
        """Store and acknowledge what no answer has carried along."""
        return self._answers([]) if self._unacknowledged else []

    def tick(self) -> list[Effect]:
        """Tell waiting parties and listeners here who is missing; raise `PeerTimeout` if a run under way is silent."""
        silence = 0.0 if self.state.coordinator is None or self.state.finished else self._clock() - self._heard_at
        if silence > 10 * self._settings.training.peer_timeout_seconds:
            missing = [name for name in self._settings.parties if not self.state.has_finished(name)]
            raise PeerTimeout(
                f"no message from any party for {silence:.0f} s; {', '.join(missing)} "
                f"{'has' if len(missing) == 1 else 'have'} not finished; start the server again, then the parties, "
                f"and the run goes on"
            )
        self.status.note_waits(self._streams)
        wait = None if self.state.finished else self._missing.due(self.state.has_finished)
        effects: list[Effect] = [] if wait is None else [Emit(wait)]
        for party, stream in self._streams.items():
            is_served = self._replica is None or self._replica.party == party
            if is_served and self.status.is_waiting(party, self._streams):
                waited_for = self.alignment.presence.waited_for(self.status.waits_for(party))
                effects.append(Answer(stream, Waiting(waited_for)))
        return effects

    def progress(self) -> list[Effect]:
        """Tell listeners here what has changed of who is where and who waits for whom; of the waits as last noted."""
        return [Emit(event) for event in self.status.progress(self._streams)]

    @property
    def joined(self) -> frozenset[str]:
        """The parties that have an open stream."""
        return frozenset(self._streams)

    def refusal_events(self, refused: MessageRefused, party: str = "") -> list[Effect]:
        """Count a refusal; the same text becomes an event once."""
        return [Emit(event) for event in self._refusals.note(refused, party)]

    def refuse(self, stream: Stream, refused: MessageRefused) -> list[Effect]:
        """End a stream: nothing that comes by it is acted on any more."""
        stream.refused = True
        self.alignment.presence.refuse(stream.party, str(refused))
        return [*self.refusal_events(refused, stream.party), Close(stream, refused)]

    def _addressed(self, replies: Sequence[Reply]) -> list[Answer]:
        """Replies with the streams that their parties have now: no stream may bring a total before its welcome."""
        return [Answer(self._streams[reply.to], reply.message) for reply in replies if reply.to in self._streams]

    def _answers(self, answers: Sequence[Answer]) -> list[Effect]:
        """Answers, and acknowledgements that are due: all that is left, where there are no answers."""
        effects: list[Effect] = [Commit(), *answers]
        for stream in self._unacknowledged:
            if stream.taken - stream.acknowledged >= _MOST_UNACKNOWLEDGED or not answers:
                effects.append(Answer(stream, Ack(stream.taken)))
                stream.acknowledged = stream.taken
        self._unacknowledged = {each: None for each in self._unacknowledged if each.acknowledged < each.taken}
        return effects

    def _put_in_place(self, stream: Stream, hello: Hello) -> list[Effect]:
        """A new stream takes the place of the party's older one."""
        effects: list[Effect] = []
        older = self._streams.get(stream.party)
        if older is not None and older.hello is not None:
            same = older.hello.incarnation == hello.incarnation
            effects.append(Close(older, None if same else replaced(stream.party)))
        stream.hello = hello
        if stream.is_open:
            self._streams[stream.party] = stream
            self.alignment.presence.joined(stream.party)
        return effects

    # Checks

    def _agreed(self, hello: Hello) -> AgreedTraining:
        """How the run trains, as a party's hello has it; made once, as every message asks for it."""
        facts = hello.rows, hello.line
        if self._agreed_for is None or self._agreed_for[0] != facts:
            self._agreed_for = facts, agreed_with(self._settings, hello)
        return self._agreed_for[1]

    def _checked(self, stream: Stream, raw: bytes | FromParty) -> FromParty:
        if not isinstance(raw, bytes):
            self._check_stream(stream, raw)
            return raw
        self.check_size(stream, len(raw))
        known = stream.hello
        most = None if known is None else lambda: largest_block(self._agreed(known), known, self.state.width)
        try:
            message = decode_from_party(raw, most)
        except UNFORESEEN as error:
            raise unforeseen(stream.party, f"{len(raw)} bytes", error) from error
        self._check_stream(stream, message)
        return message

    def check_size(self, stream: Stream, size: int) -> None:
        """Refuse a message of so many bytes, or one of which so many have come, if the run has no use for it."""
        if size <= stream.limit:
            return
        if stream.hello is not None:
            stream.limit = largest_message(self._agreed(stream.hello), stream.hello, self.state.width)
        if size > stream.limit:
            raise MessageRefused(
                f"party {stream.party!r} sent a message of {size} bytes; here the largest has {stream.limit}",
                Refusal.TOO_LARGE,
            )

    def _check_stream(self, stream: Stream, message: FromParty) -> None:
        if stream.hello is None:
            if not isinstance(message, Hello):
                raise MessageRefused(f"party {stream.party!r} did not send hello first", Refusal.INVALID)
            check_same_run(stream.party, message.protocol, message.run_hash, self._run_hash)
            if self._replica is None or self._replica.party == stream.party:
                check_position(stream.party, message, self.state)
            if self._replica is None or self.alignment.digest is not None:
                check_rows(stream.party, message, self.alignment, self._settings)
            return
        if stream.hello.incarnation < self.state.incarnation(stream.party):
            raise replaced(stream.party)
        if isinstance(message, Hello):
            raise MessageRefused(f"party {stream.party!r} sent hello twice on one line", Refusal.INVALID)
