"""Questions within one process: the server's relay and the parties' answerers, without a network."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from fdml.protocol.prediction_messages import Question, Reply
from fdml.protocol.prediction_wire import decode_relayed, encode_relayed
from fdml.server.relay import Relay, RelayLine
from fdml.serving.answering import Answerer


class LocalLine:
    """An asker's line to parties in the same process. Every message is made bytes and back, as on a network."""

    def __init__(self, asker: str, answerers: Mapping[str, Answerer], parties: Sequence[str]) -> None:
        self._answerers = dict(answerers)
        self._relay = Relay(parties)
        self._lock = threading.Lock()
        self._asker = RelayLine(asker, answers=False)
        for party in answerers:
            self._relay.open(RelayLine(party, answers=True))

    def exchange(self, questions: Sequence[Question], seconds: float) -> dict[str, Reply]:  # noqa: ARG002
        """Ask each party its question; all answer at once."""
        with self._lock:
            return self._exchanged(questions)

    def _exchanged(self, questions: Sequence[Question]) -> dict[str, Reply]:
        found: dict[str, Reply] = {}
        for question in questions:
            deliveries = self._relay.receive(self._asker, question)
            while deliveries:
                line, message = deliveries.pop()
                message = decode_relayed(encode_relayed(message))
                if isinstance(message, Reply):
                    found[message.party] = message
                else:
                    reply = self._answerers[line.party].answer(message)
                    deliveries += self._relay.receive(line, decode_relayed(encode_relayed(reply)))
        return found
