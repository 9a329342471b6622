"""Parties and server in one process: the channel without a network."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from fdml.errors import MessageRefused, PartyFailed, PeerTimeout
from fdml.events import Listener
from fdml.party.channel import Incoming, ToServer
from fdml.protocol.alignment_calls import FetchCall, PostCall
from fdml.protocol.alignment_messages import Fetch, Post
from fdml.protocol.alignment_wire import decode_alignment
from fdml.protocol.messages import Ack, FromParty, Waiting
from fdml.server.session import Answer, Close, Commit, Effect, Emit, ServerSession, Stream

Tap = Callable[[str, FromParty], None]


class InProcessServer:
    """Brings messages of all parties to a server session, one at a time, and its answers back.

    Parties may be threads, or take turns in one thread. `tap` sees every message
    that the server is about to act on.
    """

    def __init__(
        self,
        session: ServerSession,
        run_hash: bytes,
        peer_timeout: float,
        *,
        on_event: Listener = lambda _: None,
        tap: Tap = lambda _, __: None,
    ) -> None:
        self.session = session
        self.run_hash = run_hash
        self.peer_timeout = peer_timeout
        self._on_event = on_event
        self._tap = tap
        self._channels: dict[Stream, InProcessChannel] = {}
        self._fetches: list[tuple[InProcessChannel, FetchCall]] = []
        self._failed: str | None = None
        self.changed = threading.Condition()

    def channel(self, party: str) -> InProcessChannel:
        """The line of one party."""
        with self.changed:
            self.session.check_party(party)
            channel = InProcessChannel(self, party)
            self._channels[channel.stream] = channel
            return channel

    def fail(self, party: str) -> None:
        """Wake all who wait, as a party has stopped with an error; the first such party is named."""
        with self.changed:
            self._failed = self._failed or party
            self.changed.notify_all()

    def check_failed(self) -> None:
        """Raise if a party has stopped with an error."""
        if self._failed is not None:
            raise PartyFailed(f"party {self._failed!r} stopped with an error; see its own message")

    def send(self, channel: InProcessChannel, message: ToServer) -> None:
        """Bring one message to the server and deliver what comes back."""
        with self.changed:
            match message:
                case Post():
                    self._post(channel, PostCall.of(message, self.run_hash))
                case Fetch():
                    self._fetches.append((channel, FetchCall.of(message, self.run_hash)))
                case _:
                    self._tap(channel.party, message)
                    self.session.receive(channel.stream, message)
                    effects = self.session.process()
                    if not effects:
                        return  # nobody has anything new, so nobody is woken
                    self._carry_out(effects)
            if self._fetches:
                self._answer_fetches()
            self.changed.notify_all()

    def close(self, channel: InProcessChannel) -> None:
        """A party has closed its line."""
        with self.changed:
            self.session.close(channel.stream, by_party=True)
            self._channels.pop(channel.stream, None)
            self._fetches = [each for each in self._fetches if each[0] is not channel]

    def waits_for(self, party: str) -> Sequence[str]:
        """Whom a party waits for."""
        for channel, call in self._fetches:
            if channel.party == party:
                return [each.name for each in self.session.alignment.waiting(party, call).waits_for]
        return self.session.status.waits_for(party)

    def _post(self, channel: InProcessChannel, call: PostCall) -> None:
        try:
            self.session.alignment.post(channel.party, call)
        except MessageRefused as refused:
            self._refuse(channel, refused)

    def _answer_fetches(self) -> None:
        waiting = []
        for channel, call in self._fetches:
            try:
                answer = self.session.alignment.fetch(channel.party, call)
            except MessageRefused as refused:
                self._refuse(channel, refused)
                continue
            if answer is None:
                waiting.append((channel, call))
            else:
                channel.inbox.append(decode_alignment(answer.message))
        self._fetches = waiting

    def _refuse(self, channel: InProcessChannel, refused: MessageRefused) -> None:
        channel.refused = refused
        self._carry_out(self.session.refusal_events(refused, channel.party))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Commit():
                    self.session.state.commit()
                case Answer(stream, message):
                    if not isinstance(message, Ack | Waiting) and stream in self._channels:
                        self._channels[stream].inbox.append(message)
                case Close(stream, refused):
                    self.session.close(stream)
                    if stream in self._channels:
                        self._channels[stream].refused = refused
                case Emit(event):
                    self._on_event(event)


class InProcessChannel:
    """One party's line in one process. What was sent is stored when `send` returns."""

    def __init__(self, server: InProcessServer, party: str) -> None:
        self.party = party
        self.stream = Stream(party)
        self.inbox: deque[Incoming] = deque()
        self.refused: MessageRefused | None = None
        self._server = server

    @property
    def traffic(self) -> tuple[int, int]:
        """Nothing travels."""
        return 0, 0

    @property
    def has_message(self) -> bool:
        """Whether `poll` would give something."""
        return bool(self.inbox)

    @property
    def all_stored(self) -> bool:
        """Always: the server acts on a message before `send` returns."""
        return True

    def send(self, message: ToServer) -> None:
        """Have the server act on a message."""
        self._server.send(self, message)
        if self.refused is not None:
            raise self.refused

    def poll(self) -> Incoming | None:
        """The next message that has come, or None."""
        return self.inbox.popleft() if self.inbox else None

    def unacknowledged(self) -> list[FromParty]:
        """Nothing is ever on its way."""
        return []

    def close(self) -> None:
        """End the line."""
        self._server.close(self)

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Wait until `ready()` holds, at most the peer timeout."""
        server = self._server
        deadline = time.monotonic() + server.peer_timeout
        with server.changed:
            while not ready():
                if self.refused is not None:
                    raise self.refused
                server.check_failed()
                left = deadline - time.monotonic()
                if left <= 0:
                    names = ", ".join(repr(name) for name in server.waits_for(self.party))
                    raise PeerTimeout(
                        f"party {self.party!r} waited {server.peer_timeout:g} s {what.format(names)}; "
                        f"see what holds it up, or raise training.peer_timeout_seconds"
                    )
                server.changed.wait(left)
