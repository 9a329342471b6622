"""What a server has refused: all of it counted, the same text told once."""

from __future__ import annotations

import traceback
from collections import Counter

from fdml import events
from fdml.errors import MessageRefused
from fdml.protocol.certificates import SERVER
from fdml.protocol.quoting import shown

_MOST_REPORTED = 100
"""Different refusals that become events; all are counted."""
_LONGEST_REPORT = 200
"""Letters of a refusal that becomes an event; who was refused is told more of it."""


class Refusals:
    """Counts refusals by their kind, and makes events of those that were not told before."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._reported: set[str] = set()

    def note(self, refused: MessageRefused, party: str = "") -> list[events.Event]:
        """Count one more; the event to tell, if it is new."""
        self._counts[refused.refusal.name.lower()] += 1
        text = shown(str(refused), _LONGEST_REPORT)
        if text in self._reported or len(self._reported) >= _MOST_REPORTED:
            return []
        self._reported.add(text)
        return [events.Refused(party, refused.refusal.name.lower(), text), *_bug(refused)]


def _bug(refused: MessageRefused) -> list[events.Event]:
    """Of a refusal that a bug of fdml has caused: where. What the error says may quote a peer, and is left out."""
    error = refused.__cause__
    if error is None:
        return []
    place = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    return [events.Remark(SERVER, f"a bug of fdml, please report it: {type(error).__name__} in\n{place}")]
