"""A party's calls about runs: it proposes them, decides on them, asks for them, and waits for changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

from fdml.errors import ServerUnreachable
from fdml.events import Listener
from fdml.protocol.envelopes import invalid
from fdml.protocol.limits import CEILING
from fdml.protocol.run_messages import Proposal, RunDecision, RunFacts, RunList, RunQuery
from fdml.protocol.run_wire import decode_runs, encode_decision, encode_proposal, encode_query
from fdml.transport.grpc_endpoint import (
    DECIDE,
    PROPOSE,
    RUNS,
    Endpoint,
    Trouble,
    call_metadata,
    permanent_error,
    trouble_of,
)
from fdml.transport.grpc_known_server import KnownServer
from fdml.transport.pieces import Assembly, check_length

_CALL_SECONDS = 10.0
"""How long a call may take, besides what it was asked to wait."""
_PAUSE = 0.2

Answer = TypeVar("Answer")


class RunsClient:
    """Calls about runs to one server. A call whose line fails is made again, for `seconds` at most."""

    def __init__(
        self,
        endpoint: Endpoint,
        seconds: float = 5.0,
        on_event: Listener = lambda _: None,
        keep_trying: Callable[[Trouble, float], bool] | None = None,
    ) -> None:
        """`keep_trying` is asked instead, with what is wrong and for how many seconds the call was tried."""
        self._endpoint = endpoint
        self._keep_trying = keep_trying or (lambda _, passed: passed <= seconds)
        self._server = KnownServer(endpoint, _CALL_SECONDS, on_event)
        self._channel: grpc.Channel | None = None

    def __enter__(self) -> RunsClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the line; the next call opens another."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def propose(self, proposal: Proposal) -> RunFacts:
        """Start or join a run; gives how it stands, or raises why the server refuses."""
        return self._only(self._call(PROPOSE, encode_proposal(proposal)))

    def decide(self, decision: RunDecision) -> RunFacts:
        """Tell what this party says to a run; gives how it stands."""
        return self._only(self._call(DECIDE, encode_decision(decision)))

    def runs(self, query: RunQuery) -> RunList:
        """The runs that were asked for: at once, or when anything has changed since the query's version."""

        def ask() -> bytes:
            call: Any = self._line().unary_stream(RUNS)
            answer, metadata = Assembly(), call_metadata(self._endpoint)
            for piece in call(encode_query(query), timeout=_CALL_SECONDS + query.wait_seconds, metadata=metadata):
                check_length(answer.size + len(piece), CEILING, f"the server at {self._endpoint.target}")
                whole = answer.add(piece)
                if whole is not None:
                    return whole
            raise invalid("an answer that ended before its last piece")

        return decode_runs(self._again(ask))

    def run(self, name: str) -> RunFacts | None:
        """One run, or None if there is none of this name."""
        found = self.runs(RunQuery(run=name)).runs
        return found[0] if found else None

    def _call(self, method: str, request: bytes) -> RunList:
        def ask() -> bytes:
            call: Any = self._line().unary_unary(method)
            reply: bytes = call(request, timeout=_CALL_SECONDS, metadata=call_metadata(self._endpoint))
            return reply

        return decode_runs(self._again(ask))

    def _again(self, ask: Callable[[], Answer]) -> Answer:
        """Ask until the server answers; what it refuses is raised."""
        began = time.monotonic()
        while True:
            try:
                answer = ask()
            except grpc.RpcError as error:
                self.close()
                permanent = permanent_error(self._endpoint, error)
                if isinstance(permanent, ServerUnreachable) and self._server.forget():
                    permanent = None  # the server may have a new certificate
                if permanent is not None:
                    raise permanent from None
                trouble, passed = trouble_of(self._endpoint, error), time.monotonic() - began
                if not self._keep_trying(trouble, passed):
                    raise trouble.gave_up(round(passed, 1)) from None
                time.sleep(_PAUSE)
            else:
                self._server.prove()
                return answer

    def _line(self) -> grpc.Channel:
        if self._channel is None:
            self._channel = self._server.open()
        self._server.look()
        return self._channel

    def _only(self, answer: RunList) -> RunFacts:
        if len(answer.runs) != 1:
            raise invalid(f"an answer about {len(answer.runs)} runs instead of one")
        return answer.runs[0]
