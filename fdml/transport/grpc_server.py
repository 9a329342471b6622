"""The server on a socket: calls about runs, and for each run a two-way stream per party and short calls beside it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import grpc

from fdml.errors import MessageRefused, Refusal
from fdml.events import Listener
from fdml.protocol.identity import Credentials
from fdml.protocol.limits import CALL
from fdml.protocol.quoting import shown
from fdml.protocol.run_messages import LARGEST_PROPOSAL, RunFacts, RunList
from fdml.protocol.run_wire import decode_decision, decode_proposal, decode_query, encode_runs
from fdml.protocol.signed_proposals import proposed_settings
from fdml.server.callers import caller_named, check_party
from fdml.server.host import RunHost
from fdml.server.refusals import Refusals
from fdml.server.relay import Relay, RelayLine
from fdml.settings.federation import FederationSettings
from fdml.transport.caller_certificates import CallerCertificates, shown_certificate
from fdml.transport.first_ended import until_one_ends
from fdml.transport.grpc_endpoint import (
    ANSWERS,
    PARTY_HEADER,
    ROLE_HEADER,
    RUN_HEADER,
    STATUS_OF,
)
from fdml.transport.grpc_listening import SILENT_SECONDS, listen, server_options
from fdml.transport.open_runs import Open, OpenRuns
from fdml.transport.pieces import check_length, pieces
from fdml.transport.refusal_pace import RefusalPace
from fdml.transport.relay_lines import RelayLines
from fdml.transport.run_lines import RunLines
from fdml.transport.silent_connections import hold_silent
from fdml.transport.status_wire import encode_status
from fdml.transport.tunnels import Tunnels

_FLUSH_SECONDS = 1.0
"""How long streams may take to end once the server ends."""
_LOOK_SECONDS = 1.0
"""How often the server looks at its own certificate."""
_POLL_SECONDS = 0.1
"""How often it is looked whether anything has changed that somebody waits for."""
_LONGEST_REASON = 1000
"""Letters of a refusal on its way to who was refused."""

Context = Any


class GrpcServer:
    """Carries bytes between gRPC and the sessions of all runs. With `only` it ends with that run, else never."""

    def __init__(
        self,
        host: RunHost,
        open_session: Open,
        federation: FederationSettings,
        *,
        plain: bool,
        on_event: Listener,
        only: str | None = None,
        party: str = "",
        tunnels: Tunnels | None = None,
    ) -> None:
        """`party` is whom it belongs to, where there is no server; `tunnels` lead to those that accept no calls."""
        self._tunnels = tunnels or Tunnels(())
        self._host = host
        self._open_session = open_session
        self._federation = federation
        self._plain = plain
        self._on_event = on_event
        self._only = only
        self.refused: Counter[str] = Counter()
        """Number of refused calls by reason, but for those of a run that its session refused."""
        self._refusals = Refusals(self.refused)
        self._pace = RefusalPace(time.monotonic)
        self._callers = CallerCertificates(None, federation.members, on_event)
        self._runs = self._closed_runs()
        self._party = party
        self._questions = self._no_questions()

    async def run(self, address: str, credentials: Credentials | None, ready: Callable[[int], None]) -> None:
        """Serve; `ready` is called with the port once it listens. A server of one run raises what has ended that."""
        before = asyncio.all_tasks()
        server = grpc.aio.server(options=server_options())
        self._callers = CallerCertificates(credentials, self._federation.members, self._on_event)
        self._runs = self._closed_runs()
        self._questions = self._no_questions()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("fdml.Exchange", self._handlers()),))
        port = listen(server, address, credentials)
        await server.start()
        hold_silent(port, SILENT_SECONDS)
        await self._tunnels.open()
        ready(port)
        tasks = [asyncio.create_task(self._look())]
        if self._only is not None:
            tasks.append(asyncio.create_task(self._runs.wait(self._only)))
        try:
            await until_one_ends(tasks)
        finally:
            self._tunnels.close()
            await self._runs.close()
            await server.stop(grace=_FLUSH_SECONDS)
            await _let_tasks_end(before)

    def _closed_runs(self) -> OpenRuns:
        standing = self._only is None
        return OpenRuns(self._host, self._open_session, self._callers, self._on_event, standing=standing)

    def _no_questions(self) -> RelayLines:
        return RelayLines(Relay(self._federation.parties, self._party), self._callers)

    def _handlers(self) -> dict[str, Any]:
        return {
            "Join": grpc.stream_stream_rpc_method_handler(self._join),
            "Status": grpc.unary_unary_rpc_method_handler(self._status),
            "Post": grpc.stream_unary_rpc_method_handler(self._post),
            "Fetch": grpc.unary_stream_rpc_method_handler(self._fetch),
            "Alive": grpc.unary_unary_rpc_method_handler(self._alive),
            "Certificate": grpc.unary_unary_rpc_method_handler(self._certificate),
            "Propose": grpc.unary_unary_rpc_method_handler(self._propose),
            "Decide": grpc.unary_unary_rpc_method_handler(self._decide),
            "Runs": grpc.unary_stream_rpc_method_handler(self._list),
            "Relay": grpc.stream_stream_rpc_method_handler(self._relay),
            "Tunnel": grpc.stream_stream_rpc_method_handler(self._tunnel),
        }

    async def _look(self) -> None:
        """Warn in time of the end of the server's own certificate."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._callers.look_at_own()

    # Calls of a run

    async def _join(self, requests: AsyncIterator[bytes], context: Context) -> None:
        party = await self._identify(context)
        lines = await self._lines(context, party)
        with lines.call():
            await lines.join(
                party,
                shown_certificate(context),
                requests,
                write=context.write,
                refuse=lambda refused: self._abort(context, refused, party),
            )

    async def _post(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        party = await self._identify(context)
        lines = await self._lines(context, party)
        with lines.call():
            await self._answered(lines.bulletin.post(party, requests), context, party, lines)
        return b""

    async def _fetch(self, raw: bytes, context: Context) -> None:
        party = await self._identify(context)
        lines = await self._lines(context, party)
        with lines.call():
            reply = await self._answered(lines.bulletin.fetch(party, raw), context, party, lines)
        for piece in pieces(reply or b""):
            await context.write(piece)

    async def _alive(self, raw: bytes, context: Context) -> bytes:
        party = await self._identify(context)
        await self._check_empty(raw, context, party)
        lines = await self._lines(context, party)
        lines.session.saw(party)
        return b""

    async def _status(self, raw: bytes, context: Context) -> bytes:
        party = await self._identify(context, "server")
        await self._check_empty(raw, context, party)
        session = (await self._lines(context, party)).session
        found = session.status.report(session.joined).seen_by(party)
        return encode_status(replace(found, refused=Counter(found.refused) + self.refused))

    async def _lines(self, context: Context, party: str) -> RunLines:
        """The lines of the run that a call belongs to."""
        try:
            name = _header(context, RUN_HEADER) or self._only or ""
            self._host.open_run(party, name)
            return await self._runs.lines(name)
        except MessageRefused as refused:
            await self._refuse(context, refused, party)
            raise

    async def _answered(
        self, answer: Awaitable[bytes | None], context: Context, party: str, lines: RunLines
    ) -> bytes | None:
        try:
            return await answer
        except MessageRefused as refused:
            lines.carry_out(lines.session.refusal_events(refused, party))
            await self._abort(context, refused, party)
            return None

    # Calls about runs

    async def _certificate(self, raw: bytes, context: Context) -> bytes:
        """The server's own certificate: a party compares its key with federation.toml before anything else."""
        party = await self._identify(context, "server")
        await self._check_empty(raw, context, party)
        return self._callers.own

    async def _propose(self, raw: bytes, context: Context) -> bytes:
        party = await self._identify(context)

        def propose() -> RunFacts:
            check_length(len(raw), LARGEST_PROPOSAL, f"party {party!r}")
            proposal = decode_proposal(raw)
            try:
                facts = self._host.propose(party, proposal)
            except MessageRefused as refused:
                self._runs.refused(self._only or proposed_settings(proposal).name, party, str(refused))
                raise
            self._runs.accepted(facts.name, party)
            return facts

        return await self._change(propose, context, party)

    async def _decide(self, raw: bytes, context: Context) -> bytes:
        party = await self._identify(context)

        def decide() -> RunFacts:
            check_length(len(raw), CALL, f"party {party!r}")
            facts = self._host.decide(party, decode_decision(raw))
            if facts.state in ("refused", "stopped"):
                self._runs.stop(facts.name, MessageRefused(self._host.why_over(facts.name), Refusal.NO_RUN))
            return facts

        return await self._change(decide, context, party)

    async def _change(self, change: Callable[[], RunFacts], context: Context, party: str) -> bytes:
        try:
            facts = change()
        except MessageRefused as refused:
            await self._refuse(context, refused, party)
            return b""
        except OSError as error:
            text = f"the server cannot use its disk ({error.strerror or error}); make room there, then try again"
            await self._refuse(context, MessageRefused(text, Refusal.NOT_STORED), party)
            return b""
        return encode_runs(RunList(self._host.version, (facts,)))

    async def _list(self, raw: bytes, context: Context) -> None:
        """The runs, at once or when anything has changed."""
        party = await self._identify(context, "server")
        try:
            check_length(len(raw), CALL, f"party {party!r}")
            query = decode_query(raw)
        except MessageRefused as refused:
            await self._refuse(context, refused, party)
            return
        if query.wait_seconds and party in self._federation.parties:
            self._host.watches(party)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(query.wait_seconds):
                while query.version == self._host.version:
                    await asyncio.sleep(_POLL_SECONDS)
        for piece in pieces(encode_runs(self._host.listing(query))):
            await context.write(piece)

    async def _relay(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """A stream of questions about predictions: of a party that answers them, or of one that asks."""
        party = await self._identify(context)
        line = RelayLine(party, answers=_header(context, ROLE_HEADER) == ANSWERS)
        await self._questions.hold(
            line,
            shown_certificate(context),
            requests,
            write=context.write,
            refuse=lambda refused: self._refuse(context, refused, party),
        )

    async def _tunnel(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """A call that carries a connection to the party that makes it."""
        party = await self._identify(context)
        if not self._tunnels.leads_to(party):
            text = f"party {party!r} has an address of its own, or there is a server; it needs no way back"
            await self._refuse(context, MessageRefused(text, Refusal.NOT_PERMITTED), party)
        await self._tunnels.hold(party, requests, context.write)

    # Callers

    async def _identify(self, context: Context, *roles: str) -> str:
        """The caller's name from its certificate; on plain lines from a header, as there is nothing better."""
        try:
            if not self._plain:
                uris = [uri.decode(errors="replace") for uri in context.auth_context().get("peer_uri") or []]
                name = caller_named(uris, self._federation, *roles)
                self._callers.check(name, shown_certificate(context))
                return name
            name = _header(context, PARTY_HEADER)
            check_party(name, self._federation)
            return name
        except MessageRefused as refused:
            await self._refuse(context, refused)
            return ""

    async def _refuse(self, context: Context, refused: MessageRefused, party: str = "") -> None:
        for event in self._refusals.note(refused, party):
            self._on_event(event)
        await self._abort(context, refused, party)

    async def _abort(self, context: Context, refused: MessageRefused, caller: str) -> None:
        await asyncio.sleep(self._pace.seconds(caller))
        await context.abort(STATUS_OF[refused.refusal], shown(str(refused), _LONGEST_REASON))

    async def _check_empty(self, raw: bytes, context: Context, party: str) -> None:
        """These calls carry nothing."""
        if raw:
            refused = MessageRefused(
                f"party {party!r} sent {len(raw)} bytes with a call that has none", Refusal.TOO_LARGE
            )
            await self._refuse(context, refused, party)


async def _let_tasks_end(before: set[asyncio.Task[Any]]) -> None:
    """Let gRPC's own tasks end: cancelled, they would print where they were. Those of before wait for the server."""
    if rest := asyncio.all_tasks() - before:
        await asyncio.wait(rest, timeout=_FLUSH_SECONDS)


def _header(context: Context, header: str) -> str:
    """A name that a call carries; empty if it carries none."""
    try:
        return bytes.fromhex(dict(context.invocation_metadata()).get(header, "")).decode()
    except ValueError:
        return ""
