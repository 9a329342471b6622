"""The server's process in virtual time. It drives the session that ships; only sockets and threads are virtual."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from fdml.errors import InvariantBroken, MessageRefused, Refusal, StateCorrupt
from fdml.protocol.alignment_calls import FetchCall, PostCall
from fdml.protocol.alignment_messages import Fetch
from fdml.protocol.alignment_wire import decode_alignment
from fdml.protocol.messages import FromServer
from fdml.protocol.wire import decode_from_party, decode_from_server, encode_from_server
from fdml.server.alignment import AlignmentPhase
from fdml.server.generations import Generations
from fdml.server.run_alignment import RunAlignment
from fdml.server.session import Answer, Close, Commit, Effect, Emit, ServerSession, Stream
from simulator.channel import Call, CallAnswer, Connection, LineEnd, Simulation, Up, short_name
from simulator.clock import RESTART
from simulator.disk import Crashed, VirtualDisk
from simulator.invariants import CheckedRunState
from simulator.reference import definition_of

_PROCESS, _ACKNOWLEDGE, _END = 0.0005, 0.02, 0.01
"""Virtual seconds until the server acts on what has come, acknowledges it, and has ended by a full disk."""


class ServerNode:
    """The server's process, and its disk."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.disk = VirtualDisk(simulation.queue.random, torn=("snapshot",))
        self.starts = 0
        self.session: ServerSession | None = None
        """None while the process is down."""
        self._connections: dict[Stream, Connection] = {}
        self._fetches: list[tuple[Connection, int, FetchCall]] = []
        self._is_planned = self._acknowledgement_is_planned = False

    @property
    def state(self) -> CheckedRunState | None:
        """The run as the server has it; None while the process is down."""
        state = None if self.session is None else self.session.state
        return state if isinstance(state, CheckedRunState) else None

    def start(self) -> None:
        """Go on from what the disk holds."""
        scenario, queue = self._simulation.scenario, self._simulation.queue
        settings = scenario.settings
        self.starts += 1
        try:
            state = CheckedRunState.open(
                definition_of(scenario),
                self.disk,
                scenario.rotate_bytes,
            )
            rows = RunAlignment(settings, self.disk, Generations.of(settings, self.disk, scenario.piece_rows))
        except (Crashed, OSError):
            self.kill()
            return
        state.checker = self._simulation.checker
        state.checker.opened(state)
        alignment = AlignmentPhase(rows, settings.parties, scenario.run_hash, lambda: queue.now)
        self.session = ServerSession(state, alignment, settings, lambda: queue.now)
        queue.note(f"server starts, number {self.starts}")

    def kill(self) -> None:
        """Die, and be started again after a while."""
        queue = self._simulation.queue
        self._simulation.counts["server crashes"] += 1
        queue.note("server dies")
        self.session = None
        self._is_planned = self._acknowledgement_is_planned = False
        self.disk.disarm()
        for connection in self._connections.values():
            connection.disconnect()
        self._connections, self._fetches = {}, []
        queue.after(queue.about(RESTART), self.start)

    def receive(self, connection: Connection, item: Up) -> None:
        """A message arrives."""
        if connection.server_start not in (0, self.starts) or connection.ended:
            return
        if self.session is None:
            connection.disconnect()
            return
        if not connection.server_start:
            connection.server_start = self.starts
            self._connections[connection.stream] = connection
        self._simulation.counts["messages"] += 1
        if connection is not connection.party.connection:
            self._simulation.counts["late messages of given up lines"] += 1
        if isinstance(item, Call):
            self._answer(self.session, connection, item)
            return
        connection.heard.append(decode_from_party(item))
        self.session.receive(connection.stream, item)
        if not self._is_planned:
            self._is_planned = True
            self._later(_PROCESS, self._process)

    def _later(self, seconds: float, action: Callable[[ServerSession], None]) -> None:
        start, queue = self.starts, self._simulation.queue

        def act() -> None:
            if start == self.starts and self.session is not None:
                action(self.session)

        queue.after(queue.about(seconds), act)

    def _answer(self, session: ServerSession, connection: Connection, call: Call) -> None:
        """An alignment call: posts are stored at once, fetches wait until what they want is there."""
        party, run_hash = connection.party.name, self._simulation.scenario.run_hash
        if isinstance(call.request, Fetch):
            self._fetches.append((connection, call.number, FetchCall.of(call.request, run_hash)))
        else:
            try:
                session.alignment.post(party, PostCall.of(call.request, run_hash))
            except Crashed:
                self.kill()
                return
            except MessageRefused as refused:
                if refused.refusal is Refusal.NOT_STORED:  # the party asks again
                    connection.disconnect()
                    return
                raise InvariantBroken(f"a post of {party} was refused: {refused}") from None
            connection.down.send(CallAnswer(call.number, None))
        self._answer_fetches(session)

    def _answer_fetches(self, session: ServerSession) -> None:
        waiting = []
        for connection, number, call in self._fetches:
            answer = session.alignment.fetch(connection.party.name, call)
            if answer is None:
                waiting.append((connection, number, call))
            else:
                connection.down.send(CallAnswer(number, decode_alignment(answer.message)))
        self._fetches = waiting

    def _process(self, session: ServerSession) -> None:
        self._is_planned = False
        self._carry_out(session, session.process())

    def _acknowledge(self, session: ServerSession) -> None:
        self._acknowledgement_is_planned = False
        self._carry_out(session, session.acknowledge())

    def _carry_out(self, session: ServerSession, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Commit():
                    try:
                        session.state.commit()
                    except Crashed:
                        self.kill()
                        return
                    except OSError:
                        self._end_full()
                        return
                    except StateCorrupt:  # the log is closed, as it could not be cut back
                        self.kill()
                        return
                case Answer(stream, message):
                    self._send(stream, message)
                case Close(stream, refused):
                    connection = self._connections.get(stream)
                    if connection is not None:
                        self.close(connection)
                        connection.down.send(LineEnd(refused))
                case Emit():
                    pass
        if session.has_unacknowledged and not self._acknowledgement_is_planned:
            self._acknowledgement_is_planned = True
            self._later(_ACKNOWLEDGE, self._acknowledge)

    def _end_full(self) -> None:
        """The process ends; but before it has, more may come and the timer that acknowledges may fire."""
        self._simulation.counts["full disks"] += 1
        self._simulation.queue.note("server's disk is full")
        self._later(_PROCESS, lambda session: self._carry_out(session, session.acknowledge()))
        self._later(_END, lambda _: self.kill())

    def _send(self, stream: Stream, message: FromServer) -> None:
        connection = self._connections.get(stream)
        if connection is None:
            return
        raw = encode_from_server(message)
        self._simulation.queue.note(f"server to {stream.party}: {short_name(message)} {zlib.crc32(raw)}")
        self._simulation.checker.said(stream.party, connection.heard, message)
        connection.down.send(decode_from_server(raw))

    def close(self, connection: Connection) -> None:
        """Find that a line has ended."""
        if self.session is not None and connection.server_start == self.starts and not connection.ended:
            connection.ended = True
            self._connections.pop(connection.stream, None)
            self._fetches = [each for each in self._fetches if each[0] is not connection]
            self.session.close(connection.stream)
